"""Texts of streams: a split of one document, in examples of about a megabyte that readers concatenate again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lmx import documents

EXAMPLE_SIZE = 1_000_000  # characters in an example of a stream


def join_lines(lines: Iterable[str]) -> Iterator[str]:
  """Join lines into texts of about EXAMPLE_SIZE characters."""
  batch: list[str] = []
  size = 0
  for line in lines:
    batch.append(line)
    size += len(line)
    if size >= EXAMPLE_SIZE:
      yield ''.join(batch)
      batch, size = [], 0
  if batch:
    yield ''.join(batch)


def read_range(path: str, start: int, stop: int) -> Iterator[bytes]:
  """Yield bytes start .. stop of a file in parts that end before a space, so words are split only at start and stop."""
  position, pending = 0, b''
  for block in documents.read_blocks(path):
    pending += block[max(0, start - position) : max(0, stop - position)]
    position += len(block)
    while len(pending) >= EXAMPLE_SIZE and (at := pending.find(b' ', EXAMPLE_SIZE)) > 0:
      yield pending[:at]
      pending = pending[at:]
    if position >= stop:
      break
  if pending:
    yield pending


def blank_line_documents(lines: Iterable[str]) -> Iterator[str]:
  """Yield the documents of a text, separated by empty lines."""
  document: list[str] = []
  for line in lines:
    if line.strip():
      document.append(line)
    elif document:
      yield ''.join(document)
      document = []
  if document:
    yield ''.join(document)
