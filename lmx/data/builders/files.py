"""Files of a data set in a user's directory, and their splits by file name.

No TFDS is imported here, so a complete token cache can be found without it.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from lmx import documents
from lmx.errors import InputError, InputWarning

VERSION = '1.0.0'  # of every builder; increase it when a builder's output changes
ENOUGH = 10  # expected documents in a split held out by hash; with fewer, the last ones are held out
TEXT_NAMES = (*(f'{kind}{how}' for kind in ('.txt', '.jsonl') for how in ('', *documents.COMPRESSED)), '.parquet')
TEXT_KINDS = '*.txt, *.jsonl, each also as .gz, .xz or .zst, or *.parquet'
_SPLIT_NAMES = (
  ('train', 'train|training'),
  ('valid', 'valid|validation|val|dev|devel|development'),
  ('test', 'test|testing'),
)
_ABOUT = re.compile(
  r'(?:readme|licen[cs]e|copying|notice|authors|citation|change_?log|sample_?submission)(?![^\W\d_])', re.IGNORECASE
)
_SHOWN = 5  # names in a message
T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class Layout:
  """Possible locations of the files of a data set.

  Attributes:
    folders: folders below the user's directory, tried in order.
    names: part -> file names tried in order, plain or with .gz; one that ends in / is a folder.
  """

  folders: tuple[str, ...]
  names: dict[str, tuple[str, ...]]


def _wikitext(number: str) -> Layout:
  return Layout(
    ('', f'wikitext-{number}', f'wikitext{number}'),
    {part: (f'wiki.{part}.tokens', f'{part}.txt') for part in ('train', 'valid', 'test')},
  )


LAYOUTS = {
  'ptb': Layout(
    ('', 'ptb', 'penn', 'data', 'simple-examples/data'),
    {part: (f'ptb.{part}.txt', f'{part}.txt') for part in ('train', 'valid', 'test')},
  ),
  'wikitext2': _wikitext('2'),
  'wikitext103': _wikitext('103'),
  'text8': Layout(('', 'text8'), {'all': ('text8', 'text8.txt')}),
  'enwik8': Layout(('', 'enwik8'), {'all': ('enwik8', 'enwik8.txt')}),
  'brown': Layout(('', 'brown'), {part: (f'brown.{part}.txt', f'{part}.txt') for part in ('train', 'valid', 'test')}),
}
LAYOUTS['ptb_characters'] = LAYOUTS['ptb']
_HELDOUT = 'heldout-monolingual.tokenized.shuffled/news.en.heldout-{}-of-00050'
LAYOUTS['lm1b_files'] = Layout(  # as unpacked; the other files of the train split are next to the first one
  ('', '1-billion-word-language-modeling-benchmark-r13output', 'one-billion-words'),
  {
    'train': ('training-monolingual.tokenized.shuffled/news.en-00001-of-00100',),
    'valid': (_HELDOUT.format('00001'),),
    'test': (_HELDOUT.format('00000'),),
  },
)
LAYOUTS['trec'] = Layout(
  ('', 'trec', 'classify/trec'),
  {'train': ('train_5500.label', 'train.tsv'), 'test': ('TREC_10.label', 'test.tsv')},
)
LAYOUTS['imdb'] = Layout(  # unpacked, with texts in folders next to this file, or one file per split
  ('', 'aclImdb', 'imdb', 'classify/imdb'),
  {'train': ('train/urls_pos.txt', 'train.tsv'), 'test': ('test/urls_pos.txt', 'test.tsv')},
)
LAYOUTS['sst2'] = Layout(
  ('', 'SST-2', 'sst2', 'glue/sst2'),
  {'train': ('train_sentences.tsv',), 'valid': ('dev.tsv',), 'test': ('test.tsv',)},
)
LAYOUTS['sst2_phrases'] = Layout(LAYOUTS['sst2'].folders, LAYOUTS['sst2'].names | {'train': ('train.tsv',)})
for _name in ('sst5', 'sst5_phrases', 'sst5_long_phrases'):
  LAYOUTS[_name] = Layout(
    ('', 'trees', 'SST-5', 'sst5', 'glue/sst5'),
    {'train': ('train.txt',), 'valid': ('dev.txt',), 'test': ('test.txt',)},
  )
LAYOUTS['wnut17'] = Layout(
  ('', 'wnut17', 'emerging_entities_17', 'tagging/wnut17'),
  {
    'train': ('wnut17train.conll', 'train.conll'),
    'valid': ('emerging.dev.conll', 'dev.conll'),
    'test': ('emerging.test.annotated', 'test.conll'),
  },
)
LAYOUTS['conll2003'] = Layout(
  ('', 'conll2003', 'tagging/conll2003'),
  {'train': ('eng.train', 'train.txt'), 'valid': ('eng.testa', 'valid.txt'), 'test': ('eng.testb', 'test.txt')},
)
LAYOUTS['ud_ewt'] = Layout(
  ('', 'UD_English-EWT', 'tagging/ud_ewt'),
  {
    split: (f'en_ewt-ud-{name}.conllu', f'{name}.conllu')
    for split, name in (('train', 'train'), ('valid', 'dev'), ('test', 'test'))
  },
)
LAYOUTS['conll2005'] = Layout(
  ('', 'conll05st-release', 'tagging/conll2005'),
  {
    'train': ('train-set', 'train.conll'),
    'valid': ('dev-set', 'devel.conll'),
    'test': ('test-wsj', 'test.wsj.conll'),
    'test_brown': ('test-brown', 'test.brown.conll'),
  },
)
GOLD = 'gold_conll'  # ending of CoNLL-2012's files with the annotation of people
LAYOUTS['conll2012'] = Layout(
  ('', 'data', 'conll-formatted-ontonotes-5.0/data', 'tagging/conll2012'),
  {
    'train': ('train/', f'train.{GOLD}'),
    'valid': ('development/', f'development.{GOLD}'),
    'test': ('conll-2012-test/', 'test/', f'test.{GOLD}'),
  },
)
LAYOUTS['brown_stream'] = Layout(('', 'brown'), LAYOUTS['brown'].names | {'index': ('index.tsv',)})
TAGGED_BROWN = Layout(('', 'brown', 'corpora/brown'), {'all': ('cats.txt',)})  # as unpacked by NLTK


def find(name: str, directory: str) -> dict[str, str]:
  """Return {part: path} of the files of data set `name` in `directory`. Raises InputError with the expected names."""
  layout = LAYOUTS[name]
  if not os.path.isdir(directory):
    raise InputError(f'data set {name}: {directory} is not a directory')
  for candidate in (layout, TAGGED_BROWN) if name.startswith('brown') else (layout,):
    for folder in candidate.folders:
      paths = {part: _first(os.path.join(directory, folder), names) for part, names in candidate.names.items()}
      if all(paths.values()):
        return {part: path for part, path in paths.items() if path}
  wanted = ', '.join(names[0] for names in layout.names.values())
  raise InputError(
    f'data set {name}: {directory} does not hold {wanted} (also accepted: '
    f'{", ".join(names[-1] for names in layout.names.values())}; each also as .gz)'
  )


def _first(folder: str, names: tuple[str, ...]) -> str | None:
  paths = (os.path.join(folder, name + suffix) for name in names for suffix in ('', '.gz'))
  return next((path for path in paths if os.path.isfile(path) or path.endswith('/') and os.path.isdir(path)), None)


def find_tree(path: str, ending: str) -> list[str]:
  """Return the English files below a folder whose names end in `ending`, plain or as .gz, sorted; a file is itself.

  Raises:
    InputError: there is none.
  """
  if os.path.isfile(path):
    return [path]
  names = [(folder, name) for folder, _, names in os.walk(path) for name in names]
  paths = sorted(os.path.join(folder, name) for folder, name in names if not documents.is_left_behind(name))
  is_english = lambda path: not {'arabic', 'chinese'} & set(path.split(os.sep))
  matches = [p for p in paths if p.removesuffix('.gz').endswith(ending) and is_english(os.path.relpath(p, path))]
  if not matches:
    raise InputError(f'{path}: got no file; expected *{ending} or *{ending}.gz in it or in folders below')
  return matches


def find_texts(pattern: str) -> dict[str, list[str]]:
  """Return {split: user's text files}; `pattern` is a directory, a file, a glob, or several separated by commas.

  Files are assigned to splits by name, see `by_split`.
  """
  splits = find_splits(pattern, TEXT_NAMES, f'text file; expected {TEXT_KINDS}')
  if not splits:
    raise InputError('data set text_files: set data.manual_dir to a directory or to text files')
  if 'train' not in splits:
    raise InputError(f'{pattern}: got only files named as validation or test text; expected training text too')
  return splits


def find_splits(pattern: str, endings: tuple[str, ...], expected: str) -> dict[str, list[str]]:
  """Return {split: the user's files}, {} without a pattern; warn of what a folder has besides.

  Args:
    pattern: a directory, a file, a glob, or several separated by commas. Only files of a directory or a glob are
      passed over, see `by_split`; named ones are always read.
    endings: endings of the files, in lower case.
    expected: what is expected, for messages: 'KIND; expected ENDINGS'.

  Raises:
    InputError: nothing matches, a file has another ending, or two files of a folder differ in their endings only.
  """
  paths: list[str] = []
  named: list[str] = []
  others: list[str] = []
  for part in filter(None, (part.strip() for part in pattern.split(','))):
    if os.path.isdir(part):
      entries = [os.path.join(part, name) for name in documents.list_names(part)]
      matches = [path for path in entries if os.path.isfile(path) and path.lower().endswith(endings)]
      others += [path for path in entries if path not in matches and _holds(path, endings)]
    elif os.path.isfile(part):
      named += (matches := [part])
    else:
      matches = sorted(
        p for p in glob.glob(part) if os.path.isfile(p) and not documents.is_left_behind(os.path.basename(p))
      )
    if not matches:
      raise InputError(f'{part}: got no {expected}')
    paths += [path for path in matches if path not in paths]
  for path in paths:
    if not path.lower().endswith(endings):
      raise InputError(f'{path}: got another file type than {expected}')
  _check_stems([path for path in paths if path not in named], endings)
  return by_split(pattern, paths, lambda path: path, named, others)


def by_split(
  where: str,
  found: Sequence[T],
  path_of: Callable[[T], str],
  named: Collection[str] = (),
  others: Sequence[str] = (),
) -> dict[str, list[T]]:
  """Return {split: items} of items with a path each, by the names of their files; warn of the paths passed over.

  A file without the name of a split is training data, unless another file is named as such (Kaggle's
  sample_submission.csv beside train.csv), or it is about the data (README, LICENSE). Paths in `named` are always data.

  Args:
    where: what the user gave, for the warning.
    found: the items.
    path_of: returns the path of an item.
    named: paths that the user named one by one.
    others: further paths that are not read, for the warning.
  """
  splits: dict[str, list[T]] = {}
  passed = []
  has_train = any(named_split(path_of(item)) == 'train' for item in found)
  for item in found:
    path = path_of(item)
    split = named_split(path)
    if split or path in named or not (has_train or _ABOUT.match(os.path.basename(path))):
      splits.setdefault(split or 'train', []).append(item)
    else:
      passed.append(path)
  if passed := [*passed, *others]:
    names = ', '.join(map(os.path.basename, passed[:_SHOWN]))
    names += f' and {len(passed) - _SHOWN} more' * (len(passed) > _SHOWN)
    message = f'{where}: not read as data: {names}; to read a file, name it in data.manual_dir'
    warnings.warn(message, InputWarning, stacklevel=3)
  return splits


def _holds(path: str, endings: tuple[str, ...]) -> bool:
  """Return True for a file, or a folder that has files with one of the endings."""
  return not os.path.isdir(path) or any(name.lower().endswith(endings) for name in documents.list_names(path))


def _check_stems(paths: Sequence[str], endings: tuple[str, ...]) -> None:
  """Raise InputError if two files have one name with two endings, such as train.txt and train.txt.gz."""
  by_stem: dict[str, str] = {}
  for path in paths:
    ending = max((end for end in endings if path.lower().endswith(end)), key=len)
    other = by_stem.setdefault(path[: -len(ending)], path)
    if other != path:
      raise InputError(
        f'{path}: got {os.path.basename(other)} in the same folder; expected one file of this name; remove one of '
        'them, or name the files to read in data.manual_dir'
      )


def split_of(path: str) -> str:
  """Return the split given by a file's name, 'train' by default."""
  return named_split(path) or 'train'


def named_split(path: str) -> str:
  """Return the split that a file is named after, '' for none: dev.txt, test_2016.csv, corpus.train.txt, x.dev.

  The name begins with the split as a word, so that "Devil in the White City.txt" is none, or has it between dots.
  """
  name = os.path.basename(path).lower()
  for split, words in _SPLIT_NAMES:
    if re.match(rf'(?:{words})(?![^\W\d_])', name):
      return split
  parts = name.split('.')[1:]
  return next((split for split, words in _SPLIT_NAMES if any(re.fullmatch(words, part) for part in parts)), '')


def held_out_splits(splits: Collection[str], fraction: float) -> list[str]:
  """Return the splits to hold out of the user's training files; those in `splits` have their own files."""
  return [split for split in ('valid', 'test') if split not in splits] if fraction else []


def hashed_split(text: str, missing: list[str], fraction: float) -> str:
  """Return one of the `missing` splits for a share of `fraction` of all texts each, else 'train'."""
  share = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], 'big') / 2**64
  return next((split for n, split in enumerate(missing, 1) if share < n * fraction), 'train')
