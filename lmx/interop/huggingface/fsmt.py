"""fairseq's Transformers in transformers, such as facebook/wmt19-en-de: `FSMTForConditionalGeneration`.

It is models/transformer.py with norm 'post', positions 'tensor2tensor' that start after the padding id, biases
'attention' and eps 1e-5. The output matrix is the target table. With `tie_word_embeddings` the source shares that
table, else it has its own, `source_V`. Layers, sizes and search options have Marian's names.

Deviations: after a `<pad>` in a translation, the class has other positions. transformers 5 has a separate output matrix
if the tensors differ, which is refused.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx import documents
from lmx.errors import InputError
from lmx.interop.huggingface import generation, transformer
from lmx.interop.huggingface.entry import ONLY, Entry, Tensors, Tied, check_plain, integer, named, same, show, switch

MODEL, TYPE, TOKENIZER = 'transformer', 'fsmt', 'moses'
DATA = transformer.DATA
PREFIX, BARE = 'model.', r'(encoder|decoder)\.'
_VOCABULARIES, _MERGES = ('vocab-src.json', 'vocab-tgt.json'), 'merges.txt'
_SPECIAL = {'<eos>': '</s>', **{token: token for token in ('<s>', '<pad>', '<unk>')}}  # fairseq's as lmx names them
_LANGUAGES = 'langs'
_POSITIONS = 1024  # rows of the written tables; both compute any number
_ALIASES = transformer.ALIASES | {'vocab_size': 'tgt_vocab_size'}
# Options of the class's config, without generation_config.json.
_SEARCH = {
  'num_beams': 5,
  'length_penalty': 1.0,
  'early_stopping': False,
  'max_length': 200,
  'eos_token_id': 2,
  'forced_eos_token_id': 2,
  'decoder_start_token_id': 2,
}
# Fields of the Config with which the class computes.
_MODEL = {'norm': 'post', 'positions': 'tensor2tensor', 'biases': 'attention', 'eps': 1e-5, 'tied': True, 'K': 0}


def fits(cfg: Any) -> bool:
  """Return True if a Config has this class's positions, not Marian's."""
  return cfg.positions == 'tensor2tensor'


def fields(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return fields of models/transformer.py's Config; raise InputError if the values are not supported."""
  theirs = named(theirs, _ALIASES)
  check_plain(theirs, is_encoder_decoder=(True,))
  settings = _MODEL | transformer.sizes({'activation_function': 'relu', 'scale_embedding': True, **theirs})
  settings['first_position'] = integer(theirs, 'pad_token_id', 1, low=0) + 1
  source_V, V = (integer(theirs, f'{side}_vocab_size', 42_024) for side in ('src', 'tgt'))
  shared = switch(theirs, 'tie_word_embeddings', False)
  if shared and source_V != V:
    raise InputError(f'config.json: tgt_vocab_size: got {V}; expected src_vocab_size, {source_V}, as one table')
  return settings | {'V': V, 'source_V': 0 if shared else source_V}


def config(cfg: Any) -> dict[str, Any]:
  """Return fields of config.json; the inverse of `fields`. Raises InputError for unsupported values."""
  settings = transformer.sizes_config(cfg, _MODEL, 'FSMTForConditionalGeneration')
  if not cfg.first_position:
    raise InputError(
      'model.first_position: got 0; expected the padding id plus one, as in fairseq; FSMTForConditionalGeneration '
      'supports no others'
    )
  return settings | {
    'tie_word_embeddings': not cfg.source_V,
    'src_vocab_size': cfg.source_V or cfg.V,
    'tgt_vocab_size': cfg.V,
    'max_position_embeddings': _POSITIONS,
    'pad_token_id': cfg.first_position - 1,
  }


def remarks(directory: pathlib.Path, theirs: Mapping[str, Any], tensors: Tensors) -> list[str]:
  """Return a line on options of `generate` that a folder lacks."""
  del tensors
  return generation.missing_options(directory, theirs, _SEARCH)


def evaluation(directory: pathlib.Path, theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return the `evaluation` fields for a folder's `generate` options."""
  theirs = _SEARCH | dict(theirs)
  end, path = transformer.end_id(directory, _VOCABULARIES[1]), directory / generation.FILE
  given = documents.convert(documents.read_json(path), dict, str(path)) if path.exists() else theirs
  start = given.get('decoder_start_token_id', theirs['decoder_start_token_id'])
  if end is not None and start != end:
    raise InputError(f'decoder_start_token_id: got {show(start)}; expected {end}, the id of </s>; {ONLY}')
  return transformer.search(directory, theirs, fields(theirs)['V'], _VOCABULARIES[1])


def write(
  directory: pathlib.Path, tokenizer: Mapping[str, Any], evaluation: Any, settings: Mapping[str, Any]
) -> dict[str, Any]:
  """Write the files of the tokenizer and generation_config.json; return the ids of config.json.

  Args:
    directory: the folder.
    tokenizer: content of the tokenizer's own file (lmx/data/tokenizers/moses.py), or of words with the special tokens
      of fairseq, which have no files.
    evaluation: section `evaluation` of the run.
    settings: the other fields of config.json.

  Raises:
    InputError: it is a tokenizer of another kind or with other ids, or `generate` does not search so.
  """
  kind, languages = tokenizer['kind'], {}
  if kind == TOKENIZER:
    vocabularies = _write_tokenizer(directory, tokenizer)
    languages = {_LANGUAGES: list(tokenizer['languages'])}
  elif kind == 'words' and {*_SPECIAL} <= {*tokenizer['tokens']}:
    vocabularies = [[_SPECIAL.get(token, token) for token in tokenizer['tokens']]]
  else:
    raise InputError(
      f'data.tokenizer: got "{kind}"; expected "{TOKENIZER}", or "words" with {", ".join(sorted(_SPECIAL))}, because '
      'FSMTTokenizer reads no others'
    )
  for vocabulary in vocabularies:
    if (pad := vocabulary.index('<pad>')) != settings['pad_token_id']:
      raise InputError(
        f'model.first_position: got {settings["pad_token_id"] + 1}; expected {pad + 1}, the id of <pad> plus one; '
        'FSMTForConditionalGeneration supports no others'
      )
  end = vocabularies[-1].index('</s>')
  ids = transformer.write_search(directory, evaluation, end, end, settings['pad_token_id'])
  return ids | languages | {'bos_token_id': vocabularies[-1].index('<s>')}


def _write_tokenizer(directory: pathlib.Path, tokenizer: Mapping[str, Any]) -> list[list[str]]:
  """Write the files of FSMTTokenizer; return the vocabularies, with its names of the subwords."""
  vocabularies = [*tokenizer['vocabularies']]
  if tokenizer.get('rules') != TYPE:
    vocabularies = [[_subword(token) for token in vocabulary] for vocabulary in vocabularies]
  for name, vocabulary in zip(_VOCABULARIES, (vocabularies[0], vocabularies[-1]), strict=True):
    ids = {token: i for i, token in enumerate(vocabulary)}
    if len(ids) < len(vocabulary):
      raise InputError(f'data.tokenizer: got two subwords that are one in {name}; expected different ones')
    (directory / name).write_text(json.dumps(ids, indent=2, ensure_ascii=False) + '\n', 'utf-8')
  # A symbol with a space would be read as two; words have no spaces.
  codes = [pair for pair in dict.fromkeys(map(tuple, tokenizer['codes'])) if [*pair] == ' '.join(pair).split()]
  (directory / _MERGES).write_text(''.join(f'{" ".join(pair)}\n' for pair in codes), 'utf-8')
  options = {
    'tokenizer_class': 'FSMTTokenizer',
    _LANGUAGES: list(tokenizer['languages']),
    'do_lower_case': tokenizer.get('lower_case', False),
    'clean_up_tokenization_spaces': tokenizer.get('clean_up', False),
    **({'split_special_tokens': True} if tokenizer.get('split_special_tokens') else {}),
  }
  (directory / 'tokenizer_config.json').write_text(json.dumps(options, indent=2) + '\n', encoding='utf-8')
  return vocabularies


def _subword(token: str) -> str:
  """Return fairseq's subword, marked '@@' inside words, as FSMT's, marked at word ends."""
  if token in _SPECIAL:
    return _SPECIAL[token]
  return token.removesuffix('@@') if token.endswith('@@') else f'{token}</w>'


_ENCODER, _DECODER = (f'model.{side}.embed_tokens.weight' for side in ('encoder', 'decoder'))
_OUTPUT = 'model.decoder.output_projection.weight'
_TABLES = [f'model.{side}.embed_positions.weight' for side in ('encoder', 'decoder')]


def _sinusoids(shape: tuple[int, ...]) -> np.ndarray:
  return transformer.sinusoids(shape, max(shape[-1] // 2 - 1, 1))


def _positions(x: np.ndarray) -> np.ndarray:
  """Return a position table, with zeros at the padding position."""
  table, zero = _sinusoids(x.shape), ~x.any(axis=1, keepdims=True)
  return np.where(zero, 0, table) if zero.sum() == 1 else table


BUFFERS = {r'model\.(encoder|decoder)\.embed_positions\.weight': _positions}


def constants(cfg: Any) -> dict[str, np.ndarray]:
  """Return the tables of positions, without which transformers reports missing tensors."""
  table = _sinusoids((_POSITIONS + cfg.first_position, cfg.D)).astype(np.float32)
  table[cfg.first_position - 1] = 0
  return dict.fromkeys(_TABLES, table)


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others."""
  return [Tied(_OUTPUT, _DECODER, always=True)] + [Tied(_ENCODER, _DECODER)] * (not cfg.source_V)


def entries(cfg: Any) -> list[Entry]:
  """Return the entry of every parameter."""
  tables = [same('model/embed/tokens', _DECODER, cfg.V, cfg.D)]
  if cfg.source_V:
    tables.append(same('model/embed/source', _ENCODER, cfg.source_V, cfg.D))
  return tables + transformer.layer_entries(cfg)
