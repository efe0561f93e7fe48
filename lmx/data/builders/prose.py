"""Prose in a CPython installation: topics and docstrings, cleaned and deduplicated.

A block (text between empty lines) is kept if it reads as English: mostly letters, and among its words function words
that are not also Python keywords. Lines of a wrapped block are joined, so a line of the result is a
paragraph or a list item. A long paragraph that occurred in another document is dropped, and so is a document
that shares most of its n-grams with others. A module is entirely in one split, because sibling docstrings differ in a
word or two and would leak into held-out text. The same holds for each topic.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import hashlib
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from typing import Any

TOPICS = 'pydoc_data/topics.py'
_TOPICS_MODULE = 'pydoc_data.topics'
# Tests, vendored packages, tools that are programs rather than documented libraries, and build leftovers.
_SKIPPED = frozenset(
  {
    'site-packages',
    'dist-packages',
    '__pycache__',
    'test',
    'tests',
    'idlelib',
    'lib2to3',
    'turtledemo',
    '_vendor',
    '_bundled',
    'lib-dynload',
    'ensurepip',
    '__phello__',
  }
)
_FUNCTION_WORDS = frozenset(
  'the a an of to this that these it its be been are was were by on which will can could must may might has have '
  'had when where you your we our at should would used than then there no all any each only also such same'.split()
)
_BULLET = re.compile(r'(?:[-*+•] |\d+[.)] |[a-z]\) |\(\w\) )')
_DOCTEST = re.compile(r'^\s*(?:>>>|\.\.\. )', re.MULTILINE)
_MIN_BLOCK_WORDS = 3
_MIN_DOCUMENT_WORDS = 5
_MIN_REPEATED = 80  # characters; shorter paragraphs may repeat
_WRAPPED = 45  # a line shorter than this was not broken by wrapping
_NGRAM = 8  # words
_SHARED = 0.5  # share of a document's n-grams in others above which it is a copy


@functools.cache
def _root() -> str:
  """Return the folder of the standard library."""
  return sysconfig.get_paths()['stdlib']


def source_files() -> list[str]:
  """Return the sorted paths in the standard library's folder, with '/' as separator."""
  root = _root()
  relative_paths = []
  for folder, folders, names in os.walk(root):
    folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith('config-')]
    paths = (os.path.relpath(os.path.join(folder, name), root) for name in names if name.endswith('.py'))
    relative_paths += [path.replace(os.sep, '/') for path in paths]
  return sorted(path for path in relative_paths if path == TOPICS or not path.startswith('pydoc_data/'))


def fingerprint() -> dict[str, str]:
  """Return Python's version and a digest of all source files."""
  digest = hashlib.sha256()
  for path in source_files():
    content = _read(path)
    digest.update(f'{path}\0{len(content)}\0'.encode() + content)
  return {'python': '.'.join(map(str, sys.version_info[:3])), 'sha256': digest.hexdigest()}


@functools.cache
def documents() -> tuple[tuple[str, str, str], ...]:
  """Return all documents (id 'module:name' or 'pydoc_data.topics:topic', text, label), sorted by id.

  Small topics are cleaned first: big topics repeat small ones, and lose the repeated paragraphs.
  """
  raw: list[tuple[str, str, str]] = []
  with _no_collection():
    for path in source_files():
      raw += _topics(_read(path)) if path == TOPICS else _docstrings(path, _read(path))
  raw.sort(key=lambda document: (document[2] != 'pydoc_data', len(document[1]), document[0]))
  texts: set[str] = set()
  names: set[str] = set()
  ngrams: set[tuple[str, ...]] = set()
  prose_documents = []
  for name, text, label in raw:
    lines = [line for line in clean(text) if not _is_repeated(line, texts)]
    joined = '\n'.join(lines)
    words = joined.lower().split()
    own = {tuple(words[i : i + _NGRAM]) for i in range(len(words) - _NGRAM + 1)}
    copied = joined in texts or len(own & ngrams) > _SHARED * len(own)
    if name not in names and len(words) >= _MIN_DOCUMENT_WORDS and not copied:
      ngrams |= own
      names.add(name)
      texts.add(joined)
      prose_documents.append((name, joined, label))
  return tuple(sorted(prose_documents))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
  """Disable the garbage collector: syntax trees have no cycles, and beside JAX's objects it takes 1.4 s of 3.6."""
  enabled = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    if enabled:
      gc.enable()


def split_of(name: str, fraction: float = 0.05) -> str:
  """Return 'train', 'valid' or 'test', by a hash of the document's module, or of the topic."""
  module = name.partition(':')[0]
  share = int.from_bytes(digest(name if module == _TOPICS_MODULE else module)[:8], 'big') / 2**64
  return 'valid' if share < fraction else 'test' if share < 2 * fraction else 'train'


def digest(name: str) -> bytes:
  """Return the SHA-256 of a name, which determines the split and the order within it."""
  return hashlib.sha256(name.encode()).digest()


def of_split(split: str) -> list[tuple[str, str, str]]:
  """Return the documents of a split, ordered by a hash of their name, which mixes packages."""
  chosen = [document for document in documents() if split_of(document[0]) == split]
  return sorted(chosen, key=lambda document: digest(document[0]))


def embedded(split: str, paths: Any, source: Any) -> Iterator[tuple[str, str, str]]:
  """Yield topics and docstrings of a split, see `of_split`."""
  del paths, source
  yield from of_split(split)


def clean(text: str) -> list[str]:
  """Return the paragraphs and list items of a docstring that read as English."""
  paragraphs: list[str] = []
  for block in re.split(r'\n\s*\n', inspect.cleandoc(text)):
    if match := _DOCTEST.search(block):
      block = block[: match.start()]
    paragraphs += filter(_is_english, _unwrap(block.split('\n')))
  return paragraphs


def _unwrap(lines: Iterable[str]) -> Iterator[str]:
  paragraph, width = '', 0
  for line in lines:
    text = re.sub(r'\s+', ' ', line.strip())
    if paragraph and (_BULLET.match(text) or width < _WRAPPED):
      yield paragraph
      paragraph = ''
    paragraph = f'{paragraph} {text}'.strip()
    width = len(line.rstrip())
  if paragraph:
    yield paragraph


def _is_english(line: str) -> bool:
  words = line.split()
  letters = sum(map(str.isalpha, line)) + line.count(' ')
  if len(words) < _MIN_BLOCK_WORDS or letters < 0.75 * len(line) or '::=' in line or '___' in line:
    return False
  function_words = sum(word.lower().strip('.,;:()"') in _FUNCTION_WORDS for word in words)
  return 14 * function_words >= len(words) or len(words) >= 5 and line[0].isupper() and line[-1] == '.'


def _is_repeated(line: str, seen: set[str]) -> bool:
  if len(line) < _MIN_REPEATED:
    return False
  known = line in seen
  seen.add(line)
  return known


def _read(path: str) -> bytes:
  with open(os.path.join(_root(), path), 'rb') as file:
    return file.read()


def _topics(source: bytes) -> Iterator[tuple[str, str, str]]:
  for node in ast.parse(source).body:
    value = getattr(node, 'value', None)
    if isinstance(value, ast.Dict):
      for name, text in ast.literal_eval(value).items():
        yield f'{_TOPICS_MODULE}:{name}', text, 'pydoc_data'


def _docstrings(path: str, source: bytes) -> Iterator[tuple[str, str, str]]:
  module = path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')
  try:
    tree = ast.parse(source)
  except SyntaxError:  # a template, not a module
    return
  pending: list[tuple[str, ast.AST]] = [('', tree)]
  while pending:
    name, node = pending.pop()
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
      if text := ast.get_docstring(node, clean=False):
        yield f'{module}:{name}', text, module.partition('.')[0]
    for child in ast.iter_child_nodes(node):
      if isinstance(child, ast.expr):  # expressions contain no docstrings
        continue
      own = getattr(child, 'name', None) if isinstance(child, ast.stmt) else None
      pending.append((f'{name}.{own}'.lstrip('.') if own else name, child))
