"""The token cache: a tokenised data set as flat arrays on disk, and its in-memory form.

A `Corpus` is what every batcher reads. Each split is one long array of token ids with the starts of
its documents and sentences beside it, so a batch is index arithmetic over a memory map. The cache
directory is named by a hash of the data set's content and the tokenizer's options:

    train.tokens (little-endian)  train.offsets.npy  train.sentences.npy  train.labels.npy
    valid.* test.*  vocabulary.json  manifest.json (sizes and checksums of all)
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tqdm

from lmx import documents
from lmx.data import cache, document_reader, sources, token_file
from lmx.data import labels as label_rules
from lmx.data import sentences as sentence_rules
from lmx.data.splits import Split, Writer
from lmx.data.tokenizers import build, subword
from lmx.data.tokenizers.base import Tokenizer
from lmx.data.tokenizers.words import with_all_words
from lmx.errors import InputError, InputWarning, nearest

FORMAT = 1  # of the cache; raise it when the same request gives other tokens
_CHARACTERS = 1_000_000  # of text encoded at once
_WORDS = 'words'  # mode that encodes word by word, as text is whose words have labels
_PARTS = ('offsets', 'sentences', 'labels', 'token_labels')


@dataclasses.dataclass(frozen=True)
class Corpus:
  """A tokenised data set.

  Attributes:
    tokenizer: see `lmx.data.tokenizers.base.Tokenizer`.
    splits: name -> Split.
    manifest: JSON-able record: data set, version, checksums, counts, tokenizer, rules.
    hash: digest of the manifest, so of every token; two corpora with one hash are equal.
    dir: the cache directory, '' for a corpus in memory.
  """

  tokenizer: Tokenizer
  splits: Mapping[str, Split]
  manifest: Mapping[str, Any]
  hash: str
  dir: str = ''

  @classmethod
  def from_texts(
    cls,
    splits: Mapping[str, Sequence[str]],
    tokenizer: Tokenizer,
    *,
    labels: Mapping[str, Sequence[int]] | None = None,
    sentences: str = '',
    sides: Sequence[str] = (),
  ) -> Corpus:
    """Builds a corpus in memory.

    Args:
      splits: name -> documents.
      tokenizer: encodes them; its end-of-text id, if any, ends each document.
      labels: name -> label of each document.
      sentences: a mode of `lmx.data.sentences.split`, or '' for none.
      sides: languages of source and target, where document 2i is a source and document 2i + 1 its translation.
    """
    made, records = {}, {}
    for name, texts in splits.items():
      buffer = io.BytesIO()
      writer = Writer(name, buffer, tokenizer, bool(sentences), line_words=False)
      rows = ((text, text, '') for text in texts)
      for text, _, pieces in _encoded(rows, tokenizer, sentences):
        writer.add(text, pieces)
        writer.end_document('')
      made[name] = writer.split(
        np.frombuffer(buffer.getvalue(), writer.dtype),
        None if labels is None else np.asarray(labels[name], np.int32),
      )
      arrays = {key: getattr(made[name], key) for key in ('tokens', *_PARTS)}
      records[name] = {'counts': dict(made[name].counts)} | {
        key: hashlib.sha256(value.tobytes()).hexdigest() for key, value in arrays.items() if value is not None
      }
    manifest = {
      'format': FORMAT,
      'dataset': {'name': 'texts'},
      'tokenizer': _tokenizer_record(tokenizer),
      'word_rule': _word_rule(tokenizer, False),
      'label_names': [],
      **({'sides': list(sides)} if sides else {}),
      'splits': records,
    }
    return cls(tokenizer, made, manifest, manifest_hash(manifest))

  def split(self, name: str) -> Split:
    """The split `name`; InputError with the nearest name if there is none."""
    if name not in self.splits:
      other = '; name files so, or set evaluation.split=valid' if name == 'test' else ''
      raise InputError(f'the data set has no split "{name}"{nearest(name, self.splits)}{other}')
    return self.splits[name]


@dataclasses.dataclass(frozen=True)
class Spec:
  """What to tokenise, and how.

  Attributes:
    dataset: a name of `lmx.data.sources.RULES`.
    tokenizer: a kind of `lmx.data.tokenizers.build.KINDS`.
    manual_dir: directory with the data set's files; for text_files also a file, a glob, or several
      with commas between; '': the data set is downloaded (or embedded).
    vocab_size: most entries of a trained vocabulary, special tokens included; 0: no limit (words,
      characters) or 8192 (pieces of words).
    min_count: rarer words and characters become `<unk>`.
    tokenizer_path: file or directory of a tokenizer to read; '': one is trained.
    lower_case: words and pieces of words lower the text; those of gpt_bpe always do.
    vocabulary_splits: the splits a vocabulary is learned from: ('train',), or all three as Mikolov's
      tools count Penn Treebank.
    check_sizes: compare the splits with the published sizes.
    documents: what a document of a .txt file is: 'blank_line' (or 'auto'), 'file', 'line'.
    split_fraction: share of the user's training files held out, see `lmx.data.builders.files.held_out`.
    prefix_space: a bpe that is trained gives a text's first word the pieces that it has within a text.
    marks: special tokens that a trained unigram vocabulary begins with, see `lmx.data.tokenizers.build.MARKS`.
    special_tokens: entries added behind those of a tokenizer of pieces of words, for marks that no text has.
    all_words: words: those that are not in the vocabulary get ids too, behind it, so that they can be spelled.
    source: language of the source of a data set of translations; '': the first that the data set has.
    target: language of the target; '': the second one.
    texts, label, scores: columns of table_files, see `lmx.data.sources.Source`.
    hold_out_test: cut a test split too where files are named for validation and none for testing.
    detokenize: read the text as people write it (`lmx.data.detokenize`); words, characters and bytes are counted as the
      data set holds it all the same.
  """

  dataset: str = 'embedded'
  tokenizer: str = 'words'
  manual_dir: str = ''
  vocab_size: int = 0
  min_count: int = 1
  tokenizer_path: str = ''
  lower_case: bool = False
  vocabulary_splits: tuple[str, ...] = ('train',)
  check_sizes: bool = True
  documents: str = 'auto'
  split_fraction: float = 0.05
  prefix_space: bool = False
  marks: str = ''
  special_tokens: tuple[str, ...] = ()
  all_words: bool = False
  source: str = ''
  target: str = ''
  texts: tuple[str, ...] = ('text',)
  label: str = 'label'
  scores: bool = False
  hold_out_test: bool = True
  detokenize: bool = False

  def __post_init__(self) -> None:
    if self.detokenize and self.tokenizer == 'words':
      raise InputError('data.detokenize would undo the words that data.tokenizer "words" reads; set it to False')
    if self.tokenizer not in build.KINDS:
      build.train(self.tokenizer, ())  # raises, with the nearest kind
    build.check_options(self.tokenizer, self.marks, self.prefix_space)
    if unknown := set(self.vocabulary_splits) - set(sources.SPLITS):
      raise InputError(f'vocabulary_splits: no split {", ".join(sorted(unknown))}')

  def data_set(self) -> sources.Source:
    """The data set with its options; InputError where they do not suit it."""
    source = sources.Source(
      self.dataset,
      self.manual_dir,
      self.check_sizes,
      self.documents,
      self.split_fraction,
      self.source,
      self.target,
      self.texts,
      self.label,
      self.scores,
      self.hold_out_test,
    )
    document_reader.of(source, self.detokenize)
    return source


def load(
  dataset: str = 'embedded',
  tokenizer: str = 'words',
  *,
  cache_dir: str = '',
  **options: Any,
) -> Corpus:
  """Reads a tokenised data set, making it first if it is not in the cache, or is damaged there.

  Args:
    dataset: name of the data set.
    tokenizer: kind of tokenizer.
    cache_dir: '': environment variable LMX_CACHE, else ~/.cache/lmx.
    **options: the other fields of `Spec`.

  Raises:
    InputError: bad input files, or sizes that differ from the published ones.
  """
  spec = Spec(dataset, tokenizer, **options)
  directory = prepare(spec, cache_dir)
  try:
    return read(directory)
  except token_file.Damaged as error:
    warnings.warn(f'{error}; the token cache is rebuilt', InputWarning, stacklevel=2)
  cache.discard(directory)
  return read(prepare(spec, cache_dir))


def prepare(spec: Spec, cache_dir: str = '', *, make: bool = True) -> str:
  """Tokenises a data set unless that was done (or not `make`); returns its cache directory."""
  source, given = spec.data_set(), None
  request: dict[str, Any] = {'format': FORMAT, 'dataset': source.identity(), 'kind': spec.tokenizer}
  if spec.tokenizer_path:
    given = build.read(spec.tokenizer, spec.tokenizer_path, lower_case=spec.lower_case)
    request['tokenizer'] = given.hash
  else:
    names = ('vocab_size', 'min_count', 'lower_case', 'vocabulary_splits')
    request |= {name: getattr(spec, name) for name in names}
    request |= {name: getattr(spec, name) for name in ('marks', 'prefix_space') if getattr(spec, name)}
  more = {
    'special_tokens': list(spec.special_tokens),
    'all_words': spec.all_words,
    'detokenize': spec.detokenize,
    'lowered': spec.tokenizer == 'bpe' and spec.lower_case,  # caches of before bpe did so are other ones
    'inner_marks': spec.tokenizer == 'words' and source.rules.words == 'prose',  # those of before are cut at them
    'hanging': spec.tokenizer == 'word_bpe' and not given,  # those of before have no word with a hyphen at its end
    'reading': source.rules.reading,
    'byte_offsets': 2 * (spec.tokenizer == 'unigram' and source.rules.spans),  # those of before: a run's for a byte
    'spaced_once': spec.tokenizer == 'unigram' and source.rules.token_labels,  # those of before: two before a word
  }
  request |= {name: value for name, value in more.items() if value}
  key = manifest_hash(request)[:16]
  name = f'{spec.dataset.replace("/", "_")}-{spec.tokenizer}-{key}'
  directory = os.path.join(cache.root(cache_dir), 'tokens', name)
  if make:
    tokenize = lambda temporary: _build(temporary, spec, source, given, cache_dir)
    try:
      cache.build(directory, tokenize)
    except sources.Damaged as error:
      warnings.warn(f'{error}, which begins now', InputWarning, stacklevel=2)
      cache.build(directory, tokenize)
  return directory


def read(directory: str) -> Corpus:
  """Opens a cache directory and verifies its files. Raises `token_file.Damaged` naming the file."""
  try:
    return _open(directory)
  except InputError:
    raise
  except OSError as error:
    raise InputError(f'{error.filename or directory}: cannot be read ({error.strerror or error})') from None
  except Exception as error:  # whatever a manifest of other content leads to
    path = os.path.join(directory, 'manifest.json')
    raise token_file.Damaged(f'{path}: the token cache is damaged, the content has another form ({error!r})') from error


def _open(directory: str) -> Corpus:
  path = os.path.join(directory, 'manifest.json')
  try:
    manifest = documents.read_json(path)
  except InputError as error:
    raise token_file.Damaged(f'{error}; the token cache is damaged') from None
  recorded, blocks = manifest.pop('sha256', None), manifest.pop('blocks', None)
  if (recorded is None) != (blocks is None) or recorded not in (None, manifest_hash([manifest, blocks])):
    raise token_file.Damaged(f'{path}: the token cache is damaged, the content differs from its SHA-256')
  entries, dtype = manifest['files'], np.dtype(manifest['dtype'])
  tokens = {f'{name}.tokens' for name in manifest['splits']}
  for name in entries.keys() - tokens:
    token_file.check(os.path.join(directory, name), entries[name])
  tokenizer = build.load(directory)
  splits = {}
  for name, record in manifest['splits'].items():
    stem, ids = os.path.join(directory, name), f'{name}.tokens'
    arrays: dict[str, Any] = {
      part: np.load(f'{stem}.{part}.npy', mmap_mode='r') if f'{name}.{part}.npy' in entries else None for part in _PARTS
    }
    sums = None if blocks is None else blocks[ids]
    file: Any = token_file.TokenFile(f'{stem}.tokens', dtype, entries[ids], sums, tokenizer.vocab_size)
    splits[name] = Split(name, file, **arrays, counts=record['counts'])
  return Corpus(tokenizer, splits, manifest, manifest_hash(manifest), directory)


def manifest_hash(manifest: Any) -> str:
  """Returns the sha256 (hex) of the canonical JSON of a manifest, which does not have the checksums of blocks."""
  return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _encoded(
  rows: Iterable[document_reader.Read], tokenizer: Tokenizer, mode: str
) -> Iterator[tuple[str, str, list[np.ndarray]]]:
  """Yields (text, label, ids of each sentence) of rows (text, as it is read, label), in batches inside."""
  held: list[tuple[str, str, list[str]]] = []
  size = 0
  for text, read, label in rows:
    held.append((text, label, _sentences(read, mode, tokenizer)))
    size += len(text)
    if size >= _CHARACTERS:
      yield from _encode_held(held, tokenizer)
      held, size = [], 0
  yield from _encode_held(held, tokenizer)


def _encode_held(held: Any, tokenizer: Any) -> Iterator[tuple[str, str, list[np.ndarray]]]:
  encoded = iter(tokenizer.encode_batch([piece for _, _, pieces in held for piece in pieces]))
  for text, label, pieces in held:
    yield text, label, [next(encoded) for _ in pieces]


def encoded_words(texts: Iterable[Sequence[str]], tokenizer: Tokenizer) -> Iterator[list[np.ndarray]]:
  """Ids of each word of texts that are given by their words, as text is encoded whose words have labels."""
  for _, _, pieces in _encoded((('', ' '.join(words), '') for words in texts), tokenizer, _WORDS):
    yield _some(pieces, tokenizer)


def _some(pieces: Sequence[np.ndarray], tokenizer: Tokenizer) -> list[np.ndarray]:
  """The ids of words, `unk_id` for a word that nothing is left of."""
  return [ids if ids.size else np.asarray([tokenizer.unk_id], np.int32) for ids in pieces]


def _sentences(text: str, mode: str, tokenizer: Tokenizer) -> list[str]:
  if not mode:
    return [text]
  if mode == _WORDS:  # pieces of byte-level BPE begin with their space
    space = '' if tokenizer.space_first or tokenizer.kind == 'wordpiece' else ' '
    return [space * (i > 0) + word for i, word in enumerate(text.split())]
  if mode.startswith('auto'):
    mode = sentence_rules.mode_of(text, lines=mode == 'auto_lines')
  # Pieces of byte-level BPE begin with their space; a cut before it gives the tokens of the whole.
  return sentence_rules.split(text, mode, space_leads=tokenizer.kind == 'bpe')


def _build(directory: str, spec: Spec, source: sources.Source, tokenizer: Tokenizer | None, cache_dir: str) -> None:
  """Tokenises into `directory`, the manifest last."""
  splits, reading = sources.open_splits(source, cache_dir), document_reader.of(source, spec.detokenize)
  tokenizer = tokenizer or _train(spec, source.rules, splits, reading)
  if spec.special_tokens:
    tokenizer = subword.with_special(tokenizer, spec.special_tokens)
  if spec.all_words:
    tokenizer = with_all_words(tokenizer, _texts(splits, splits, 'spelling', reading))
  made = list(tokenizer.save(directory))
  mode = source.rules.sentences
  if mode == 'auto' and spec.documents in ('auto', 'blank_line'):
    mode = 'auto_lines'  # one sentence a line is the usual form of such files
  if tokenizer.kind == 'unigram' or tokenizer.space_first:
    mode = ''  # every text begins with a space there, so a document cannot be encoded by the sentence
  if source.rules.token_labels and tokenizer.kind != 'words':
    mode = _WORDS
  writers = {}
  for name, examples in splits.items():
    with open(os.path.join(directory, f'{name}.tokens'), 'wb') as file:
      lines = source.rules.words == 'lines'
      labelled, sentences = source.rules.token_labels, mode not in ('', _WORDS)
      writer = Writer(name, file, tokenizer, sentences, line_words=lines, token_labels=labelled)
      rows = label_rules.AtTokens(examples, tokenizer) if source.rules.spans else examples
      read = reading(_progress(rows, f'tokenising {name}'))
      _write_split(writer, read, tokenizer, mode, source.rules.stream)
    writers[name] = writer
  given = {name: writer.labels for name, writer in writers.items()}
  scores = source.rules.scores or source.scores
  label_names, labels = label_rules.arrays(given, spans=source.rules.spans, scores=scores)
  of_words = {name: writer.token_labels or [] for name, writer in writers.items()}
  token_names, token_labels = label_rules.numbered(of_words)
  records = {}
  for name, writer in writers.items():
    split = writer.split(np.zeros(0), labels.get(name), token_labels.get(name))
    if not split.counts['tokens']:
      raise InputError(f'data set {spec.dataset}: split {name} holds no tokens')
    records[name] = {'counts': dict(split.counts)}
    made.append(f'{name}.tokens')
    for part in _PARTS:
      if (values := getattr(split, part)) is not None:
        np.save(os.path.join(directory, f'{name}.{part}.npy'), values)
        made.append(f'{name}.{part}.npy')
  paths = {name: os.path.join(directory, name) for name in made}
  sums = {f'{name}.tokens': writer.sums for name, writer in writers.items()}
  manifest = {
    'format': FORMAT,
    'dataset': source.identity(),
    'tokenizer': _tokenizer_record(tokenizer),
    'word_rule': _word_rule(tokenizer, source.rules.words == 'lines'),
    'label_names': label_names,
    **({'token_label_names': token_names} if token_names else {}),
    **_form(source, spec),
    'dtype': writer.dtype.str,
    'splits': records,
    'files': {
      name: {'bytes': os.path.getsize(path), 'sha256': sums[name].sha256 if name in sums else cache.sha256(path)}
      for name, path in paths.items()
    },
  }
  manifest |= {'unanswered': label_rules.unanswered(labels['train'])} if source.rules.spans else {}
  blocks = {name: one.blocks for name, one in sums.items()}
  manifest = json.loads(json.dumps(manifest))  # as it is read back
  with open(os.path.join(directory, 'manifest.json'), 'w', encoding='utf-8') as file:
    json.dump({**manifest, 'blocks': blocks, 'sha256': manifest_hash([manifest, blocks])}, file, indent=1)


def _form(source: sources.Source, spec: Spec) -> dict[str, Any]:
  """What the manifest says of how examples are made of documents, where they are not one each as it stands."""
  rules = source.rules
  found: dict[str, Any] = {}
  if source.sides:
    found['sides'] = list(source.sides)
  if rules.table:
    scores = rules.scores or source.scores
    found |= {'texts': source.documents_together, 'scores': scores, 'choices': rules.choices}
  if rules.spans:
    found['spans'] = True
  if spec.detokenize:
    found['detokenized'] = True
  return found


def _write_split(
  writer: Writer, rows: Iterable[document_reader.Read], tokenizer: Tokenizer, mode: str, stream: bool
) -> None:
  for text, label, pieces in _encoded(rows, tokenizer, mode):
    writer.add(text, _some(pieces, tokenizer) if mode == _WORDS else pieces)
    if not stream:
      writer.end_document(label)
  if stream:
    writer.end_document('')


def _train(
  spec: Spec, rules: sources.Rules, splits: Mapping[str, sources.Examples], reading: document_reader.Reading
) -> Tokenizer:
  return build.train(
    spec.tokenizer,
    _texts(splits, spec.vocabulary_splits, 'learning the vocabulary from', reading),
    vocab_size=spec.vocab_size,
    min_count=spec.min_count,
    lower_case=spec.lower_case,
    rule=rules.words,
    document_eos=rules.document_eos,
    others=_texts(splits, splits, 'checking the characters of', reading),
    marks=spec.marks,
    prefix_space=spec.prefix_space,
  )


def _texts(
  splits: Mapping[str, sources.Examples], names: Iterable[str], what: str, reading: document_reader.Reading
) -> Iterator[str]:
  for name in names:
    if name in splits:
      for _, read, _ in reading(_progress(splits[name], f'{what} {name}')):
        yield read


def _progress(examples: sources.Examples | label_rules.AtTokens, what: str) -> Iterable[tuple[str, str, str]]:
  return tqdm.tqdm(examples, what, len(examples), unit='doc', leave=False, disable=not sys.stderr.isatty(), delay=1)


def _tokenizer_record(tokenizer: Tokenizer) -> dict[str, Any]:
  return {
    'kind': tokenizer.kind,
    'vocab_size': tokenizer.vocab_size,
    'hash': tokenizer.hash,
  }


def _word_rule(tokenizer: Tokenizer, lines: bool) -> str:
  """How words are counted, for perplexity per word."""
  if tokenizer.kind == 'words':
    return 'tokens'
  return 'words between white space' + (' and one <eos> a line' if lines else '')
