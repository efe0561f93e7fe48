"""Trains, reads and loads tokenizers: bytes, characters, words, BPE, word BPE, GPT's BPE, WordPiece and Unigram.

Words follow the rules of the data set. Penn Treebank, WikiText, Brown and 1B words are split at white space, and each
line ends with a counted `<eos>` (Mikolov's rule). text8 is split at white space. Plain prose is split into words,
punctuation and line ends. Vocabularies are sorted by decreasing frequency, as adaptive and hierarchical softmaxes need.
Byte-level BPE (GPT-2's, Radford et al. 2019, section 2.2), WordPiece (BERT's, Devlin et al. 2018) and Unigram (Kudo
2018) come from the `tokenizers` library. Word BPE (Sennrich et al. 2016) and GPT's BPE (Radford et al. 2018) merge
characters within words. Special tokens written out in a text are ordinary text, but special tokens to the tokenizer of
imported weights that transformers saved.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import tokenizers as hf

from lmx.data.tokenizers import subword, subword_models
from lmx.data.tokenizers.base import FILE, Absent, RowTemplate, Tokenizer
from lmx.errors import InputError, check_choice, explain, nearest

MARKS = {'': (subword_models.END_OF_TEXT, '<unk>'), 'xlnet': subword_models.XLNET_SPECIALS}
SIDES = {'marian': 'Marian', 'moses': 'Moses'}  # kind of imported weights, with two languages -> its class
_MODULES = {  # kind -> module, which is imported where the kind is used
  **dict.fromkeys(('bytes', 'characters'), 'characters'),
  'words': 'words',
  **dict.fromkeys(('bpe', 'word_bpe', 'gpt_bpe', 'wordpiece', 'unigram'), 'subword'),
  **{kind: kind for kind in SIDES},
}
KINDS = tuple(_MODULES)


def module(kind: str) -> Any:
  """Import the module of lmx/data/tokenizers with the tokenizers of a kind, or of another format."""
  return importlib.import_module(f'lmx.data.tokenizers.{_MODULES.get(kind, kind)}')


def train(
  kind: str,
  texts: Iterable[str],
  *,
  vocab_size: int = 0,
  min_count: int = 1,
  lower_case: bool = False,
  rule: str = 'prose',
  document_eos: bool = True,
  others: Iterable[str] = (),
  marks: str = '',
  prefix_space: bool = False,
) -> Tokenizer:
  """Train a tokenizer; the result depends only on the arguments.

  Args:
    kind: one of KINDS.
    texts: training documents.
    vocab_size: maximum number of tokens, special tokens included; 0: no limit (words, characters), 8192 (subwords).
    min_count: rarer words or characters become `<unk>`; for bpe and wordpiece the smallest count of a merged pair.
    lower_case: lower-case the text; words and subwords only.
    rule: see `Words`.
    document_eos: give bytes, characters and words of rule 'prose' an `<eos>` that ends a document.
    others: characters only: further texts that must be encodable; `<unk>` is added if they need it.
    marks: unigram: the special tokens that get the first ids, one of MARKS; words: 'double' for that rule of `Words`.
    prefix_space: bpe only: a word has the same subwords at the start of a text as within it.
  """
  check_options(kind, marks, prefix_space)
  if kind == 'bytes':
    return module(kind).Bytes(eos=document_eos)
  if kind == 'characters':
    return module(kind).train(texts, vocab_size, min_count, document_eos, others)
  if kind == 'words':
    return module(kind).train(texts, vocab_size, min_count, lower_case, marks or rule, document_eos)
  if kind == 'bpe':
    return subword.Bpe(subword_models.train_bpe(texts, vocab_size or 8192, min_count, lower_case, prefix_space))
  if kind == 'word_bpe':
    return subword.WordBpe(subword_models.train_word_bpe(texts, vocab_size or 8192, min_count, lower_case))
  if kind == 'gpt_bpe':
    return subword.GptBpe(subword_models.train_gpt_bpe(texts, vocab_size or 8192, min_count))
  if kind == 'unigram':
    return subword.Unigram(subword_models.train_unigram(texts, vocab_size or 8192, lower_case, MARKS[marks]))
  if kind == 'wordpiece':
    return subword.WordPiece(subword_models.train_wordpiece(texts, vocab_size or 8192, min_count, lower_case))
  if kind in SIDES:
    raise InputError(
      f'data.tokenizer: got "{kind}", which cannot be trained; set data.tokenizer_path to an imported one'
    )
  raise InputError(f'data.tokenizer: unknown "{kind}"{nearest(kind, KINDS)}')


def check_options(kind: str, marks: str, prefix_space: bool) -> None:
  """Raise InputError unless a trained tokenizer of this kind supports these special tokens and this prefix space."""
  check_choice('data.marks', marks, (*MARKS, 'double'))
  if marks and kind != (expected := 'words' if marks == 'double' else 'unigram'):
    raise InputError(f'data.marks: got "{marks}" with data.tokenizer "{kind}"; expected "{expected}"')
  if prefix_space and kind != 'bpe':
    raise InputError(f'data.prefix_space: got True with data.tokenizer "{kind}"; expected "bpe"; set it to False')


def of_content(content: Mapping[str, Any]) -> Tokenizer:
  """Return the tokenizer of imported weights from its content, which includes `kind`."""
  kind = content['kind']
  return getattr(module(kind), SIDES[kind])({key: value for key, value in content.items() if key != 'kind'})


def load(directory: str) -> Tokenizer:
  """Load a tokenizer written by `save`."""
  path = os.path.join(directory, FILE)
  try:
    with open(path, encoding='utf-8') as file:
      content = json.load(file)
    target = content.pop('target', None)
    of_folder = content.pop('of_folder', False)  # absent in earlier versions
    tokenizer = _load(content)
    tokenizer = tokenizer.from_folder() if of_folder else tokenizer
    return tokenizer if target is None else tokenizer.with_target(_load(target))
  except InputError:
    raise
  except Exception as error:  # the library raises bare Exception for a bad file
    raise InputError(f'{path}: not a tokenizer of lmx: {explain(error)}') from error


def _frozen(value: Any) -> Any:
  return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _load(content: Mapping[str, Any]) -> Tokenizer:
  """Return the tokenizer of one vocabulary from its content in a file."""
  if 'templates' in content:
    templates = tuple(RowTemplate(*map(_frozen, one)) for one in content['templates'])
    return _load({key: value for key, value in content.items() if key != 'templates'}).with_templates(templates)
  kind = content['kind']
  if kind == 'bytes':
    return module(kind).Bytes(eos=content['eos'])
  if kind == 'characters':
    return module(kind).Characters(content['tokens'])
  if kind == 'words':
    known = int(content['known']) if 'known' in content else 0
    return module(kind).Words(content['tokens'], content['rule'], lower_case=content['lower_case'], known=known)
  if kind in SIDES:
    return of_content(content)
  if kind == Absent.kind:
    return Absent(content['vocab_size'])
  model = hf.Tokenizer.from_str(json.dumps(content['model']))
  whole = content.get('special_in_text', False)  # absent in earlier versions
  if 'sentencepiece' in content:
    options = {name: content[name] for name in ('lower_case', 'keep_accents')}
    file = module('sentencepiece').File(base64.b64decode(content['sentencepiece'], validate=True))
    return module('sentencepiece').SentencePiece(
      model, content.get('special'), file=file, **options, special_in_text=whole
    )
  if kind == 'unigram':
    return subword.Unigram(model, content.get('special'), content.get('split_commas', False), special_in_text=whole)
  return subword.CLASSES[kind](model, content.get('special'), special_in_text=whole)
