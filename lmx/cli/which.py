"""Option `--which` of the commands that read a run: its checkpoint."""

from __future__ import annotations

import argparse

HELP = (
  "'measured' (default), the checkpoint of results.json; 'best' on the validation split, 'last', 'average', or a step"
)


def add_argument(parser: argparse.ArgumentParser, more: str = '') -> None:
  """Add the option; `more` ends its help."""
  parser.add_argument('--which', default='measured', help=f'{HELP}{more}')
