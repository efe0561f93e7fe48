"""The interpreters of a comparison."""

from __future__ import annotations

import sys

import pytest

from lmx.benchmark import peer as peer_lib
from lmx.errors import InputError


def test_first_interpreter_with_the_packages_is_chosen(tmp_path):
  bare = tmp_path / 'bare'
  bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without installed packages
  bare.chmod(0o755)
  both = f'{bare},{sys.executable}'
  assert peer_lib.choose(both, ('json',)) == str(bare)
  assert peer_lib.choose(both, ('json', 'numpy')) == sys.executable
  assert peer_lib.choose(both, ('json.decoder:JSONDecoder',)) == str(bare)
  with pytest.raises(peer_lib.Missing, match='expected an interpreter with json, json.decoder:JSONEncode'):
    peer_lib.choose(both, ('json', 'json.decoder:JSONEncode'))
  with pytest.raises(InputError, match='cannot run the peer /no/such/python'):
    peer_lib.choose('/no/such/python', ('json',))
