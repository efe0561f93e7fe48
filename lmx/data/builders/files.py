"""Files of a data set in a user's directory, and their splits by file name.

No TFDS is imported here, so a complete token cache can be found without it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Collection

from lmx import documents
from lmx.data.builders import split_files
from lmx.data.builders.split_files import split_of as split_of
from lmx.errors import InputError

VERSION = '1.0.0'  # of every builder; increase it when a builder's output changes
ENOUGH = 10  # expected documents in a split held out by hash; with fewer, the last ones are held out
TEXT_NAMES = (*(f'{kind}{how}' for kind in ('.txt', '.jsonl') for how in ('', *documents.COMPRESSED)), '.parquet')
SPLIT_ENDINGS = split_files.with_compression(('.train', '.valid', '.dev', '.test'))  # of plain text too
TEXT_KINDS = '*.txt, *.jsonl, each also as .gz, .xz or .zst, or *.parquet'


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
      paths = {part: first(os.path.join(directory, folder), names) for part, names in candidate.names.items()}
      if all(paths.values()):
        return {part: path for part, path in paths.items() if path}
  wanted = ', '.join(names[0] for names in layout.names.values())
  raise InputError(
    f'data set {name}: {directory} does not hold {wanted} (also accepted: '
    f'{", ".join(names[-1] for names in layout.names.values())}; each also as .gz)'
  )


def first(folder: str, names: tuple[str, ...]) -> str | None:
  """Return the first file of a folder with one of the names, plain or as .gz; a name that ends in / is a folder."""
  paths = (os.path.join(folder, name + suffix) for name in names for suffix in ('', '.gz'))
  return next((path for path in paths if os.path.isfile(path) or path.endswith('/') and os.path.isdir(path)), None)


def find_tree(path: str, ending: str) -> list[str]:
  """Return the English files below a folder whose names end in `ending`, plain or as .gz, sorted; a file is itself.

  Raises:
    InputError: there is none, or a file is there both plain and compressed.
  """
  if os.path.isfile(path):
    return [path]
  paths = sorted(split_files.walk(path))
  is_english = lambda path: not {'arabic', 'chinese'} & set(path.split(os.sep))
  matches = [p for p in paths if p.removesuffix('.gz').endswith(ending) and is_english(os.path.relpath(p, path))]
  if not matches:
    raise InputError(f'{path}: got no file; expected *{ending} or *{ending}.gz in it or in folders below')
  split_files.check_stems(matches, (ending, f'{ending}.gz'))
  return matches


def find_texts(pattern: str, names: str = 'words') -> dict[str, list[str]]:
  """Return {split: user's text files}; `pattern` and `names` are those of `split_files.find_splits`."""
  endings = TEXT_NAMES if names == 'prefixes' else (*TEXT_NAMES, *SPLIT_ENDINGS)
  splits = split_files.find_splits(pattern, endings, f'text file; expected {TEXT_KINDS}', names)
  if not splits:
    raise InputError('data set text_files: set data.manual_dir to a directory or to text files')
  if 'train' not in splits:
    raise InputError(f'{pattern}: got only files named as validation or test text; expected training text too')
  return splits


def held_out_splits(splits: Collection[str], fraction: float) -> list[str]:
  """Return the splits to hold out of the user's training files; those in `splits` have their own files."""
  return [split for split in ('valid', 'test') if split not in splits] if fraction else []


def hashed_split(text: str, missing: list[str], fraction: float) -> str:
  """Return one of the `missing` splits for a share of `fraction` of all texts each, else 'train'."""
  share = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], 'big') / 2**64
  return next((split for n, split in enumerate(missing, 1) if share < n * fraction), 'train')
