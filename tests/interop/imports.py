"""Parts that the tests of several families of folders share."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import pytest
import tokenizers

from lmx.cli import main
from lmx.data.tokenizers import templates


def replace(folder: pathlib.Path, files: Mapping[str, str | bytes | None] | None) -> None:
  """Give files of a folder another content; None deletes one."""
  for name, content in (files or {}).items():
    if content is None:
      (folder / name).unlink()
    else:
      (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def save_tokenizer(tokenizer: Any, folder: pathlib.Path) -> None:
  """Save a tokenizer as transformers does, with the special tokens of its kind's class around a text."""
  model = tokenizers.Tokenizer.from_str(tokenizer._model.to_str())
  model.post_processor = templates.processor(templates.of_kind(tokenizer), tokenizer)
  model.save(str(folder / 'tokenizer.json'))


def check_refused(folder: pathlib.Path, message: str, capsys: pytest.CaptureFixture) -> None:
  """`lmx import` of a folder ends with exit code 2 and a message, and leaves no work directory beside it."""
  workdir = folder.with_name('run')
  assert main.main(['import', f'--from={folder}', f'--workdir={workdir}']) == 2
  assert re.search(message, capsys.readouterr().err)
  assert not workdir.exists()


def transformers_python() -> str:
  """Return the interpreter that LMX_TRANSFORMERS names; without one the test is skipped."""
  python = os.environ.get('LMX_TRANSFORMERS', '')
  if not python:
    pytest.skip('set LMX_TRANSFORMERS to an interpreter with transformers, torch, sentencepiece and sacremoses')
  return python
