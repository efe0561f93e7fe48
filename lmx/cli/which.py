"""Option `--which` of the commands that read a run: its checkpoint."""

from __future__ import annotations

import argparse
import re

from lmx.errors import nearest

NAMES = ('measured', 'best', 'last', 'average')
HELP = (
  "'measured' (default), the checkpoint of results.json; 'best' on the validation split, 'last', 'average', or a step"
)


def add_argument(parser: argparse.ArgumentParser, also: str = '', about: str = '') -> None:
  """Add the option; `also` is one more name that the command takes, and `about` the end of the help."""

  def checkpoint(text: str) -> str:
    if text in NAMES or text and text == also or re.fullmatch(r'(words:)?\d+', text):
      return text
    expected = f'{", ".join(NAMES)}, a step or words:N'
    raise argparse.ArgumentTypeError(f'got {text}; expected {expected}{nearest(text, NAMES)}')

  parser.add_argument('--which', default='measured', type=checkpoint, help=f'{HELP}{about}')
