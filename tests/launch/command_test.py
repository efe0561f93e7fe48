"""Commands of a file."""

from __future__ import annotations

import pytest

from launch import command
from lmx.errors import InputError


def test_commands_of_a_file():
  lines = ['# a comment', '', 'lmx train --a="x y"', "train '--b=$(z)'  # why"]
  assert command.parse_commands(lines) == [('train', '--a=x y'), ('train', '--b=$(z)')]
  with pytest.raises(InputError, match='line 1'):
    command.parse_commands(["train 'open"])
