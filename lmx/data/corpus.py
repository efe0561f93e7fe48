"""The token cache: a tokenized data set as flat arrays on disk, and its in-memory form.

Every batching reads a `Corpus`. Each split is one long array of token ids with separate arrays of document and sentence
starts, so a batch is index arithmetic over a memory map. The cache directory's name is a hash of the data set's content
and the tokenizer's options:

    train.tokens (little-endian)  train.offsets.npy  train.sentences.npy  train.labels.npy
    valid.* test.*  vocabulary.json  manifest.json (sizes and checksums of all)
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import itertools
import json
import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from lmx import documents, host, ranges
from lmx.data import bucket, cache, document_reader, encoding, progress, shared, sources, token_file, vectors
from lmx.data import labels as label_rules
from lmx.data.splits import Split, Writer
from lmx.data.tokenizers import build, subword
from lmx.data.tokenizers.base import Tokenizer
from lmx.data.tokenizers.words import with_all_words, with_more_words
from lmx.errors import InputError, InputWarning, check_choice, check_least, explain, nearest

FORMAT = 1  # of the cache; increase it when the same request gives other tokens
VOCABULARIES = ('shared', 'separate')
_PARTS = ('offsets', 'sentences', 'labels', 'token_labels', 'file_documents')


@dataclasses.dataclass(frozen=True)
class Corpus:
  """A tokenized data set.

  Attributes:
    tokenizer: see `lmx.data.tokenizers.base.Tokenizer`.
    splits: name -> Split.
    manifest: JSON-serialisable record: data set, version, checksums, counts, tokenizer, rules.
    hash: digest of the manifest and so of every token; two corpora with the same hash are equal.
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
      tokenizer: its end-of-text id, if any, ends each document.
      labels: name -> document labels.
      sentences: a mode of `lmx.data.sentences.split`, or '' for none.
      sides: languages of source and target, if document 2i is a source and document 2i + 1 its translation.
    """
    corpus_splits, records = {}, {}
    for name, texts in splits.items():
      buffer = io.BytesIO()
      writer = Writer(name, buffer, tokenizer, bool(sentences), line_words=False, rows=True)
      rows = ((text, text, '') for text in texts)
      for text, _, sentence_ids in encoding.encode_documents(rows, tokenizer, sentences, bool(sides)):
        writer.add(text, sentence_ids)
        writer.end_document('')
      corpus_splits[name] = writer.split(
        np.frombuffer(buffer.getvalue(), writer.dtype),
        None if labels is None else np.asarray(labels[name], np.int32),
      )
      arrays = {key: getattr(corpus_splits[name], key) for key in ('tokens', *_PARTS)}
      records[name] = {'counts': dict(corpus_splits[name].counts)} | {
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
    return cls(tokenizer, corpus_splits, manifest, manifest_hash(manifest))

  def with_record(self, fields: Mapping[str, Any]) -> Corpus:
    """Return the corpus with further fields in its manifest."""
    manifest = {**self.manifest, **fields}
    return dataclasses.replace(self, manifest=manifest, hash=manifest_hash(manifest))

  def split(self, name: str) -> Split:
    """Return the split `name`; raise InputError with the nearest name if there is none."""
    if name not in self.splits:
      other = '; name files for it, or set evaluation.split=valid' if name == 'test' else ''
      raise InputError(f'the data set has no split "{name}"{nearest(name, self.splits)}{other}')
    return self.splits[name]


@dataclasses.dataclass(frozen=True)
class Config(sources.Config):
  """Tokenization of a data set: the second part of a config's `data` section.

  Attributes:
    detokenize: convert tokenized data sets back to plain text without loss (lmx/data/detokenize.py); perplexity per
      word still counts the original words.
    tokenizer: kind of tokenizer: bytes, characters, words, bpe, word_bpe, gpt_bpe, wordpiece or unigram.
    tokenizer_path: file or directory of a trained tokenizer; '' trains one.
    vocabularies: 'shared' trains one vocabulary on all texts; 'separate' one for each language of a data set of
      translations, on the texts of that language. The model then has a table for each (`source_V` and `V`).
    vocab_size: maximum size of a trained vocabulary, special tokens included; 0 is no limit (words, characters) or
      8192. With separate vocabularies, the size of the source's.
    target_vocab_size: the same of the target's vocabulary, if vocabularies are separate; 0 is vocab_size.
    min_count: rarer words and characters are unknown.
    lower_case: lower-case words and subwords (gpt_bpe always does).
    prefix_space: prepend a space to each text for a trained bpe, so that the first word has the same subwords as
      elsewhere (as in fairseq's and subword-nmt's BPE, unlike GPT-2's).
    marks: special tokens with the first ids of a trained unigram vocabulary: '' are <|endoftext|> and <unk>,
      'xlnet' the nine of its release, in that order. For words of data sets of lines, 'double' puts `<eos>` at both
      ends of a line, so that each is predicted twice (Transformer-XL's One Billion Word, `add_double_eos`).
    special_tokens: tokens added to a subword vocabulary that do not occur in text (GPT's start, delimiter and
      classify).
    vocabulary_splits: splits for training the vocabulary; papers on Penn Treebank use all three.
    characters: maximum number of characters per word, with its start and end (ELMo's release: 50); 0 adds no
      characters. Words then have separate ids (lmx/data/tokenizers/word_characters.py). A subword's characters are its
      bytes.
    vectors: text file of pre-trained word vectors, GloVe's, word2vec's or Senna's (lmx/data/vectors.py), as the first
      rows of the model's word table; '' for none. Their width becomes model.E, unless the command line sets it.
      The vocabulary also gets the words of all splits that have a vector, even below `min_count` and beyond
      `vocab_size`. The file is only read when a run starts: a finished run does not need it, and neither does a resumed
      one with its config.json or with model.E. The rows are trained; to freeze them, set
      optim.groups=(('^model/embed/table$',0.0,0.0),('.*',1.0,1.0)).
    other_rows: initial rows of words without a vector: 'normal' uses the vectors' mean and standard deviation (as
      AllenNLP does), 'model' the model's initialisation.
  """

  detokenize: bool = False
  tokenizer: str = 'words'
  tokenizer_path: str = ''
  vocabularies: str = 'shared'
  vocab_size: int = 0
  target_vocab_size: int = 0
  min_count: int = 1
  lower_case: bool = False
  prefix_space: bool = False
  marks: str = ''
  special_tokens: Annotated[tuple[Annotated[str, ranges.Text()], ...], ranges.Distinct()] = ()
  vocabulary_splits: Annotated[tuple[Annotated[str, ranges.Text()], ...], ranges.Distinct()] = ('train',)
  characters: int = 0
  vectors: str = ''
  other_rows: str = 'normal'

  def __post_init__(self) -> None:
    check_choice('data.other_rows', self.other_rows, ('normal', 'model'))
    if self.vectors and self.tokenizer != 'words':
      raise InputError(
        f'data.vectors: got {self.vectors} with data.tokenizer "{self.tokenizer}"; expected "words"; set '
        'data.tokenizer=words'
      )
    if self.detokenize and self.tokenizer == 'words':
      raise InputError(
        'data.detokenize: got True with data.tokenizer "words"; expected False, because it would undo the words'
      )
    if self.tokenizer not in build.KINDS:
      build.train(self.tokenizer, ())  # raises, with the nearest kind
    build.check_options(self.tokenizer, self.marks, self.prefix_space)
    self._check_vocabularies()
    if self.marks == 'double' and (self.rules.words != 'lines' or self.tokenizer_path):
      what = f'data.tokenizer_path {self.tokenizer_path}' if self.tokenizer_path else f'data set {self.dataset}'
      raise InputError(
        f'data.marks: got "double" with {what}; expected a vocabulary trained on a data set of lines, such as '
        'lm1b_files; set data.marks to ""'
      )
    if unknown := set(self.vocabulary_splits) - set(sources.SPLITS):
      raise InputError(
        f'data.vocabulary_splits: got {", ".join(sorted(unknown))}; expected some of {", ".join(sources.SPLITS)}'
      )
    super().__post_init__()
    document_reader.create(self, self.detokenize)

  def _check_vocabularies(self) -> None:
    """Raise InputError if the number of vocabularies does not fit the data set or the tokenizer."""
    check_choice('data.vocabularies', self.vocabularies, VOCABULARIES)
    check_least('data', self, target_vocab_size=0)
    if self.vocabularies == 'shared':
      if self.target_vocab_size:
        raise InputError(
          f'data.target_vocab_size: got {self.target_vocab_size} with data.vocabularies "shared"; expected 0; set '
          'data.vocabularies=separate, or omit it'
        )
    elif not self.rules.pair:
      raise InputError(
        f'data.vocabularies: got "separate" with data set {self.dataset}; expected "shared", because only '
        'translations have two languages; omit it'
      )
    elif self.tokenizer in ('bytes', *build.SIDES):
      why = 'whose vocabulary is not trained' if self.tokenizer == 'bytes' else 'which has its own vocabularies'
      raise InputError(
        f'data.vocabularies: got "separate" with data.tokenizer "{self.tokenizer}", {why}; expected "shared"; omit it'
      )

  @property
  def all_words(self) -> bool:
    """Return True if words outside the vocabulary have ids too, after it, so that they have characters."""
    return self.characters > 0 and self.tokenizer == 'words'


def load(cfg: Config, processes: int = 0) -> Corpus:
  """Read a tokenized data set; create it first if its cache is missing or damaged.

  Args:
    cfg: the `data` section.
    processes: number of processes on this host that tokenize a large corpus; 0 is one per core.

  Raises:
    InputError: bad input files, or sizes that differ from the published ones.
  """
  directory = prepare(cfg, processes=processes)
  try:
    return read(directory)
  except token_file.Damaged as error:
    warnings.warn(f'{error}; the token cache is rebuilt', InputWarning, stacklevel=2)
  cache.discard(directory)
  return read(prepare(cfg, processes=processes))


def prepare(cfg: Config, *, make: bool = True, processes: int = 0) -> str:
  """Tokenize a data set if needed (and if `make`); return its cache directory. `processes`: see `load`."""
  tokenizer, vector_files = _given(cfg), vectors.digest(cfg.vectors) if cfg.vectors else []
  request: dict[str, Any] = {'format': FORMAT, 'dataset': cfg.identity(), 'kind': cfg.tokenizer}
  if tokenizer:
    request['tokenizer'] = tokenizer.hash
  else:
    names = ('vocab_size', 'min_count', 'lower_case', 'vocabulary_splits')
    request |= {name: getattr(cfg, name) for name in names}
    request |= {name: getattr(cfg, name) for name in ('marks', 'prefix_space') if getattr(cfg, name)}
  more = {
    'special_tokens': list(cfg.special_tokens),
    'all_words': cfg.all_words,
    'vectors': vector_files,
    'detokenize': cfg.detokenize,
    'lowered': cfg.tokenizer == 'bpe' and cfg.lower_case,  # earlier caches were not lower-cased
    'separate': ['target', cfg.target_vocab_size] if cfg.vocabularies == 'separate' and not tokenizer else [],
    'inner_marks': cfg.tokenizer == 'words' and cfg.rules.words == 'prose',  # earlier caches split words at them
    'hanging': cfg.tokenizer == 'word_bpe' and not tokenizer,  # earlier caches have no words ending with a hyphen
    'reading': cfg.rules.reading,
    'file_documents': cfg.keeps_file_documents,
    'byte_offsets': 2 * (cfg.tokenizer == 'unigram' and cfg.rules.spans),  # earlier caches: a byte has a run's offsets
    'spaced_once': cfg.tokenizer == 'unigram' and cfg.rules.token_labels,  # earlier caches: two spaces before a word
  }
  request |= {name: value for name, value in more.items() if value}
  key = manifest_hash(request)[:16]
  name = f'{cfg.dataset.replace("/", "_")}-{cfg.tokenizer}-{key}'
  directory = os.path.join(cache.root(cfg.cache_dir), 'tokens', name)
  if make:
    _make(directory, cfg, tokenizer, vector_files, processes or host.cores())
  return directory


def _make(directory: str, cfg: Config, given: Tokenizer | None, vector_files: Any, processes: int) -> None:
  """Create a cache directory, unless it exists: from the bucket of `data.cache_dir`, which gets it if it has it not."""
  name, store = os.path.basename(directory), cache.bucket(cfg.cache_dir)
  folder = store / 'tokens' / name if store else None
  if folder and not os.path.isdir(directory) and bucket.has(folder):
    cache.build(directory, functools.partial(bucket.download, folder))
    return
  fields = {field.name: getattr(cfg, field.name) for field in dataclasses.fields(Config)}
  exchange = os.fspath(store / 'parts' / name) if store else ''
  parts = shared.Shared(os.path.join(os.path.dirname(directory), f'.parts-{name}'), directory, cfg, fields, exchange)
  tokenize = lambda temporary: _build(temporary, cfg, given, vector_files, parts, processes)
  with parts:
    try:
      cache.build(directory, tokenize)
    except sources.Damaged as error:
      warnings.warn(f'{error}, which starts now', InputWarning, stacklevel=2)
      cache.build(directory, tokenize)
  if folder and not os.path.exists(os.path.join(directory, bucket.TOKENS_AT)) and not bucket.has(folder):
    bucket.upload(directory, folder)
    bucket.remove(bucket.path(exchange))


def read(directory: str) -> Corpus:
  """Open a cache directory and verify its files. Raises `token_file.Damaged` naming the file."""
  try:
    return _open(directory)
  except InputError:
    raise
  except OSError as error:
    raise InputError(f'{error.filename or directory}: cannot be read ({explain(error)})') from None
  except Exception as error:  # whatever a manifest with other content raises
    path = os.path.join(directory, 'manifest.json')
    raise token_file.Damaged(
      f'{path}: the token cache is damaged, the content has another structure ({error!r})'
    ) from error


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
  note = pathlib.Path(directory, bucket.TOKENS_AT)
  at = note.read_text(encoding='utf-8') if note.exists() else ''
  splits = {}
  for name, record in manifest['splits'].items():
    stem, ids = os.path.join(directory, name), f'{name}.tokens'
    arrays: dict[str, Any] = {
      part: np.load(f'{stem}.{part}.npy', mmap_mode='r') if f'{name}.{part}.npy' in entries else None for part in _PARTS
    }
    sums = None if blocks is None else blocks[ids]
    remote = bucket.Ids(bucket.path(at) / ids, dtype, entries[ids]['bytes'], f'{stem}.tokens.read') if at else None
    file: Any = token_file.TokenFile(f'{stem}.tokens', dtype, entries[ids], sums, tokenizer.id_bound, remote)
    splits[name] = Split(name, file, **arrays, counts=record['counts'])
  return Corpus(tokenizer, splits, manifest, manifest_hash(manifest), directory)


def manifest_hash(manifest: Any) -> str:
  """Return the SHA-256 (hex) of the canonical JSON of a manifest, without the checksums of blocks."""
  return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _build(
  directory: str,
  cfg: Config,
  given: Tokenizer | None,
  vector_files: Sequence[Sequence[str]],
  parts: shared.Shared,
  processes: int,
) -> None:
  """Tokenize into `directory`, the manifest last.

  Args:
    directory: a new directory.
    cfg: the `data` section.
    given: tokenizer of `cfg.tokenizer_path`; None trains one.
    vector_files: digest of `cfg.vectors`.
    parts: directory in which processes share the tokenization of a large corpus.
    processes: number of such processes on this host.
  """
  splits, reader = sources.open_splits(cfg), document_reader.create(cfg, cfg.detokenize)
  is_shared = processes > 1 and shared.can_share(cfg, splits)
  tokenizer = parts.tokenizer() if is_shared else _tokenizer(cfg, given, splits, reader)
  if is_shared:
    parts.tokenize(splits, tokenizer, processes)
    if not parts.claim_join():
      return  # another host has joined the parts
  file_names = list(tokenizer.save(directory))
  writers = {}
  for name, examples in splits.items():
    with open(os.path.join(directory, f'{name}.tokens'), 'wb') as file:
      writer = encoding.writer(cfg, name, file, tokenizer)
      if is_shared:
        parts.join(name, writer)
      else:
        rows = label_rules.TokenSpans(examples, tokenizer) if cfg.rules.spans else examples
        encoding.write(cfg, writer, reader(_progress(rows, f'tokenising {name}')), tokenizer)
    writers[name] = writer
  groups = label_rules.file_documents(cfg.dataset, splits) if cfg.keeps_file_documents else {}
  _write(directory, cfg, tokenizer, writers, groups, file_names, vector_files)


def _write(
  directory: str,
  cfg: Config,
  tokenizer: Tokenizer,
  writers: Mapping[str, Writer],
  groups: Mapping[str, np.ndarray],
  names: Sequence[str],
  vector_files: Sequence[Sequence[str]],
) -> None:
  """Write the arrays next to the tokens, then the manifest of all files.

  `names` are the tokenizer's files, `groups` the arrays `file_documents` of the splits, if they are kept.
  """
  file_names = list(names)
  document_labels = {name: writer.labels for name, writer in writers.items()}
  scores = cfg.rules.columns.scores or cfg.scores
  label_names, labels = label_rules.arrays(
    document_labels,
    spans=cfg.rules.spans,
    scores=scores,
    predicates=cfg.rules.predicates,
    choices=cfg.rules.columns.choices,
  )
  labels_of_words = {name: writer.token_labels or [] for name, writer in writers.items()}
  token_names, token_labels = label_rules.number_labels(labels_of_words)
  records = {}
  for name, writer in writers.items():
    split = writer.split(np.zeros(0), labels.get(name), token_labels.get(name))
    split = dataclasses.replace(split, file_documents=groups.get(name))
    if not split.counts['tokens']:
      raise InputError(f'data set {cfg.dataset}: split {name} has no tokens')
    records[name] = {'counts': dict(split.counts)}
    file_names.append(f'{name}.tokens')
    for part in _PARTS:
      if (values := getattr(split, part)) is not None:
        np.save(os.path.join(directory, f'{name}.{part}.npy'), values)
        file_names.append(f'{name}.{part}.npy')
  paths = {name: os.path.join(directory, name) for name in file_names}
  sums = {f'{name}.tokens': writer.sums for name, writer in writers.items()}
  manifest = {
    'format': FORMAT,
    'dataset': cfg.identity(),
    'tokenizer': _tokenizer_record(tokenizer),
    'word_rule': _word_rule(tokenizer, cfg.rules.words == 'lines'),
    'label_names': label_names,
    **({'token_label_names': token_names} if token_names else {}),
    **({'vectors': vector_files} if vector_files else {}),
    **_row_format(cfg),
    'dtype': next(iter(writers.values())).dtype.str,
    'splits': records,
    'files': {
      name: {'bytes': os.path.getsize(path), 'sha256': sums[name].sha256 if name in sums else cache.sha256(path)}
      for name, path in paths.items()
    },
  }
  manifest |= {'unanswered': label_rules.count_unanswered(labels['train'])} if cfg.rules.spans else {}
  blocks = {name: one.blocks for name, one in sums.items()}
  manifest = json.loads(json.dumps(manifest))  # in the form in which it is read back
  with open(os.path.join(directory, 'manifest.json'), 'w', encoding='utf-8') as file:
    json.dump({**manifest, 'blocks': blocks, 'sha256': manifest_hash([manifest, blocks])}, file, indent=1)


def _row_format(cfg: Config) -> dict[str, Any]:
  """Return the fields of the manifest for examples that are not one document each."""
  rules = cfg.rules
  row_format: dict[str, Any] = {}
  if cfg.sides:
    row_format['sides'] = list(cfg.sides)
  if rules.table:
    scores = rules.columns.scores or cfg.scores
    row_format |= {'texts': cfg.documents_per_example, 'scores': scores, 'choices': rules.columns.choices}
  if rules.spans:
    row_format['spans'] = True
  if cfg.detokenize:
    row_format['detokenized'] = True
  return row_format


def make_tokenizer(cfg: Config) -> Tokenizer:
  """Return a corpus's tokenizer, from `cfg.tokenizer_path` or trained on its texts."""
  return _tokenizer(
    cfg, _given(cfg), sources.open_splits(cfg, verify=False), document_reader.create(cfg, cfg.detokenize)
  )


def _given(cfg: Config) -> Tokenizer | None:
  path = cfg.tokenizer_path
  if not path:
    return None
  tokenizer = build.module('library_files').read(cfg.tokenizer, path, lower_case=cfg.lower_case)
  found = VOCABULARIES[tokenizer.is_separate]
  if cfg.tokenizer not in build.SIDES and found != cfg.vocabularies:
    raise InputError(
      f'data.vocabularies: got "{cfg.vocabularies}" with data.tokenizer_path {path}, whose vocabularies are {found}; '
      f'set data.vocabularies={found}'
    )
  return tokenizer


def _tokenizer(
  cfg: Config, given: Tokenizer | None, splits: Mapping[str, Any], reader: document_reader.DocumentReader
) -> Tokenizer:
  """Return the tokenizer of a corpus: a given or a trained one, with the words and special tokens that a run adds."""
  tokenizer: Any = given or _train(cfg, splits, reader)
  if cfg.special_tokens:
    target = tokenizer.target if tokenizer.is_separate else None
    tokenizer = subword.with_special(tokenizer, cfg.special_tokens)
    tokenizer = tokenizer.with_target(subword.with_special(target, cfg.special_tokens)) if target else tokenizer
  if cfg.vectors:
    select = functools.partial(vectors.find, cfg.vectors)
    tokenizer = with_more_words(tokenizer, _read_texts(splits, splits, 'looking up the words of', reader), select)
  return with_all_words(tokenizer, _read_texts(splits, splits, 'spelling', reader)) if cfg.all_words else tokenizer


def _train(cfg: Config, splits: Mapping[str, sources.Examples], reader: document_reader.DocumentReader) -> Tokenizer:
  """Train the tokenizer of a corpus, of its source and its target if vocabularies are separate."""
  if cfg.vocabularies == 'shared':
    return _train_side(cfg, splits, reader, cfg.vocab_size, slice(None))
  source = _train_side(cfg, splits, reader, cfg.vocab_size, slice(0, None, 2))
  size, field = cfg.target_vocab_size or cfg.vocab_size, 'target_' * bool(cfg.target_vocab_size) + 'vocab_size'
  try:
    return source.with_target(_train_side(cfg, splits, reader, size, slice(1, None, 2)))
  except InputError as error:
    raise InputError(str(error).replace('data.vocab_size:', f'data.{field}:')) from None


def _train_side(
  cfg: Config,
  splits: Mapping[str, sources.Examples],
  reader: document_reader.DocumentReader,
  vocab_size: int,
  side: slice,
) -> Tokenizer:
  """Train a tokenizer on some documents of each example: of pairs, `side` is both, the source or the target."""
  select = lambda texts: itertools.islice(texts, side.start, None, side.step)
  return build.train(
    cfg.tokenizer,
    select(_read_texts(splits, cfg.vocabulary_splits, 'learning the vocabulary from', reader)),
    vocab_size=vocab_size,
    min_count=cfg.min_count,
    lower_case=cfg.lower_case,
    rule=cfg.rules.words,
    document_eos=cfg.rules.document_eos,
    others=select(_read_texts(splits, splits, 'checking the characters of', reader)),
    marks=cfg.marks,
    prefix_space=cfg.prefix_space,
  )


def _read_texts(
  splits: Mapping[str, sources.Examples], names: Iterable[str], what: str, reader: document_reader.DocumentReader
) -> Iterator[str]:
  for name in names:
    if name in splits:
      for _, read, _ in reader(_progress(splits[name], f'{what} {name}')):
        yield read


def _progress(examples: Any, what: str) -> Iterable[tuple[str, str, str]]:
  return progress.track(examples, what, examples.size) if hasattr(examples, 'size') else examples


def _tokenizer_record(tokenizer: Tokenizer) -> dict[str, Any]:
  target = tokenizer.target.vocab_size if tokenizer.is_separate and tokenizer.kind not in build.SIDES else 0
  return {
    'kind': tokenizer.kind,
    'vocab_size': tokenizer.vocab_size,
    **({'target_vocab_size': target} if target else {}),
    'hash': tokenizer.hash,
  }


def _word_rule(tokenizer: Tokenizer, lines: bool) -> str:
  """Return the rule by which words are counted for perplexity per word."""
  if tokenizer.kind == 'words':
    return 'tokens'
  return 'words between white space' + (' and one <eos> a line' if lines else '')
