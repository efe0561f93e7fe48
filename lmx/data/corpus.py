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
    """Build a corpus in memory.

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
class Config(sources.Config):
  """Tokenisation of a data set: the second part of the `data` section of a config.

  Attributes:
    detokenize: read data sets that were cut into words as people write them (lmx/data/detokenize.py), which nothing is
      lost by; perplexity per word is that of the original's words all the same.
    tokenizer: kind of tokenizer: bytes, characters, words, bpe, word_bpe, gpt_bpe, wordpiece or unigram.
    tokenizer_path: file or directory of a trained tokenizer; '' trains one.
    vocab_size: most tokens of a trained vocabulary, specials included; 0 is no limit (words, characters) or 8192.
    min_count: rarer words and characters are unknown ones.
    lower_case: whether words and subwords are lowered (those of gpt_bpe always are).
    prefix_space: whether a space is put before a text of a trained bpe, so that its first word has the subwords that it
      has within a text (fairseq's and subword-nmt's BPE do not tell the two apart, GPT-2's does).
    marks: special tokens that the first ids of a trained unigram vocabulary are of: '' are <|endoftext|> and <unk>,
      'xlnet' the nine of its release, in that order.
    special_tokens: tokens added to a vocabulary of subwords that no text has (GPT's start, delimiter and classify).
    vocabulary_splits: splits that a vocabulary is learned from; the papers on Penn Treebank count all three.
    characters: most characters of a word, the marks of its ends included (ELMo's release: 50); 0 spells no words.
      Words then have ids of their own numbering (lmx/data/tokenizers/word_characters.py).
  """

  detokenize: bool = False
  tokenizer: str = 'words'
  tokenizer_path: str = ''
  vocab_size: int = 0
  min_count: int = 1
  lower_case: bool = False
  prefix_space: bool = False
  marks: str = ''
  special_tokens: tuple[str, ...] = ()
  vocabulary_splits: tuple[str, ...] = ('train',)
  characters: int = 0

  def __post_init__(self) -> None:
    if self.detokenize and self.tokenizer == 'words':
      raise InputError('data.detokenize would undo the words that data.tokenizer "words" reads; set it to False')
    if self.tokenizer not in build.KINDS:
      build.train(self.tokenizer, ())  # raises, with the nearest kind
    build.check_options(self.tokenizer, self.marks, self.prefix_space)
    if unknown := set(self.vocabulary_splits) - set(sources.SPLITS):
      raise InputError(f'vocabulary_splits: no split {", ".join(sorted(unknown))}')
    super().__post_init__()
    document_reader.create(self, self.detokenize)

  @property
  def all_words(self) -> bool:
    """Return whether words outside the vocabulary have ids too, behind it, so that they can be spelled."""
    return self.characters > 0


def load(cfg: Config) -> Corpus:
  """Read a tokenised data set, made first if it is not in the cache, or is damaged there.

  Raises:
    InputError: bad input files, or sizes that differ from the published ones.
  """
  directory = prepare(cfg)
  try:
    return read(directory)
  except token_file.Damaged as error:
    warnings.warn(f'{error}; the token cache is rebuilt', InputWarning, stacklevel=2)
  cache.discard(directory)
  return read(prepare(cfg))


def prepare(cfg: Config, *, make: bool = True) -> str:
  """Tokenise a data set unless that was done (or not `make`); return its cache directory."""
  given = None
  request: dict[str, Any] = {'format': FORMAT, 'dataset': cfg.identity(), 'kind': cfg.tokenizer}
  if cfg.tokenizer_path:
    given = build.read(cfg.tokenizer, cfg.tokenizer_path, lower_case=cfg.lower_case)
    request['tokenizer'] = given.hash
  else:
    names = ('vocab_size', 'min_count', 'lower_case', 'vocabulary_splits')
    request |= {name: getattr(cfg, name) for name in names}
    request |= {name: getattr(cfg, name) for name in ('marks', 'prefix_space') if getattr(cfg, name)}
  more = {
    'special_tokens': list(cfg.special_tokens),
    'all_words': cfg.all_words,
    'detokenize': cfg.detokenize,
    'lowered': cfg.tokenizer == 'bpe' and cfg.lower_case,  # caches of before bpe did so are other ones
    'inner_marks': cfg.tokenizer == 'words' and cfg.rules.words == 'prose',  # those of before are cut at them
    'hanging': cfg.tokenizer == 'word_bpe' and not given,  # those of before have no word with a hyphen at its end
    'reading': cfg.rules.reading,
    'byte_offsets': 2 * (cfg.tokenizer == 'unigram' and cfg.rules.spans),  # those of before: a run's for a byte
    'spaced_once': cfg.tokenizer == 'unigram' and cfg.rules.token_labels,  # those of before: two before a word
  }
  request |= {name: value for name, value in more.items() if value}
  key = manifest_hash(request)[:16]
  name = f'{cfg.dataset.replace("/", "_")}-{cfg.tokenizer}-{key}'
  directory = os.path.join(cache.root(cfg.cache_dir), 'tokens', name)
  if make:
    tokenize = lambda temporary: _build(temporary, cfg, given)
    try:
      cache.build(directory, tokenize)
    except sources.Damaged as error:
      warnings.warn(f'{error}, which begins now', InputWarning, stacklevel=2)
      cache.build(directory, tokenize)
  return directory


def read(directory: str) -> Corpus:
  """Open a cache directory and verify its files. Raises `token_file.Damaged` naming the file."""
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
  """Return the sha256 (hex) of the canonical JSON of a manifest, which does not have the checksums of blocks."""
  return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _encoded(
  rows: Iterable[document_reader.Read], tokenizer: Tokenizer, mode: str
) -> Iterator[tuple[str, str, list[np.ndarray]]]:
  """Yield (text, label, ids of each sentence) of rows (text, as it is read, label), in batches inside."""
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


def _build(directory: str, cfg: Config, tokenizer: Tokenizer | None) -> None:
  """Tokenises into `directory`, the manifest last."""
  splits, reader = sources.open_splits(cfg), document_reader.create(cfg, cfg.detokenize)
  tokenizer = tokenizer or _train(cfg, splits, reader)
  if cfg.special_tokens:
    tokenizer = subword.with_special(tokenizer, cfg.special_tokens)
  if cfg.all_words:
    tokenizer = with_all_words(tokenizer, _texts(splits, splits, 'spelling', reader))
  made = list(tokenizer.save(directory))
  mode = cfg.rules.sentences
  if mode == 'auto' and cfg.documents in ('auto', 'blank_line'):
    mode = 'auto_lines'  # one sentence a line is the usual form of such files
  if tokenizer.kind == 'unigram' or tokenizer.space_first:
    mode = ''  # every text begins with a space there, so a document cannot be encoded by the sentence
  if cfg.rules.token_labels and tokenizer.kind != 'words':
    mode = _WORDS
  writers = {}
  for name, examples in splits.items():
    with open(os.path.join(directory, f'{name}.tokens'), 'wb') as file:
      lines = cfg.rules.words == 'lines'
      labelled, sentences = cfg.rules.token_labels, mode not in ('', _WORDS)
      writer = Writer(name, file, tokenizer, sentences, line_words=lines, token_labels=labelled)
      rows = label_rules.AtTokens(examples, tokenizer) if cfg.rules.spans else examples
      read = reader(_progress(rows, f'tokenising {name}'))
      _write_split(writer, read, tokenizer, mode, cfg.rules.stream)
    writers[name] = writer
  given = {name: writer.labels for name, writer in writers.items()}
  scores = cfg.rules.scores or cfg.scores
  label_names, labels = label_rules.arrays(given, spans=cfg.rules.spans, scores=scores)
  of_words = {name: writer.token_labels or [] for name, writer in writers.items()}
  token_names, token_labels = label_rules.numbered(of_words)
  records = {}
  for name, writer in writers.items():
    split = writer.split(np.zeros(0), labels.get(name), token_labels.get(name))
    if not split.counts['tokens']:
      raise InputError(f'data set {cfg.dataset}: split {name} holds no tokens')
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
    'dataset': cfg.identity(),
    'tokenizer': _tokenizer_record(tokenizer),
    'word_rule': _word_rule(tokenizer, cfg.rules.words == 'lines'),
    'label_names': label_names,
    **({'token_label_names': token_names} if token_names else {}),
    **_form(cfg),
    'dtype': writer.dtype.str,
    'splits': records,
    'files': {
      name: {'bytes': os.path.getsize(path), 'sha256': sums[name].sha256 if name in sums else cache.sha256(path)}
      for name, path in paths.items()
    },
  }
  manifest |= {'unanswered': label_rules.unanswered(labels['train'])} if cfg.rules.spans else {}
  blocks = {name: one.blocks for name, one in sums.items()}
  manifest = json.loads(json.dumps(manifest))  # as it is read back
  with open(os.path.join(directory, 'manifest.json'), 'w', encoding='utf-8') as file:
    json.dump({**manifest, 'blocks': blocks, 'sha256': manifest_hash([manifest, blocks])}, file, indent=1)


def _form(cfg: Config) -> dict[str, Any]:
  """Return the fields of the manifest on examples that are not one document each."""
  rules = cfg.rules
  found: dict[str, Any] = {}
  if cfg.sides:
    found['sides'] = list(cfg.sides)
  if rules.table:
    scores = rules.scores or cfg.scores
    found |= {'texts': cfg.documents_together, 'scores': scores, 'choices': rules.choices}
  if rules.spans:
    found['spans'] = True
  if cfg.detokenize:
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


def _train(cfg: Config, splits: Mapping[str, sources.Examples], reader: document_reader.DocumentReader) -> Tokenizer:
  return build.train(
    cfg.tokenizer,
    _texts(splits, cfg.vocabulary_splits, 'learning the vocabulary from', reader),
    vocab_size=cfg.vocab_size,
    min_count=cfg.min_count,
    lower_case=cfg.lower_case,
    rule=cfg.rules.words,
    document_eos=cfg.rules.document_eos,
    others=_texts(splits, splits, 'checking the characters of', reader),
    marks=cfg.marks,
    prefix_space=cfg.prefix_space,
  )


def _texts(
  splits: Mapping[str, sources.Examples], names: Iterable[str], what: str, reader: document_reader.DocumentReader
) -> Iterator[str]:
  for name in names:
    if name in splits:
      for _, read, _ in reader(_progress(splits[name], f'{what} {name}')):
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
  """Return the rule by which words are counted, for perplexity per word."""
  if tokenizer.kind == 'words':
    return 'tokens'
  return 'words between white space' + (' and one <eos> a line' if lines else '')
