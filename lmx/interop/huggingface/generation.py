"""Conversion between a folder's `generate` options and fields of lmx's `evaluation` section.

They are in generation_config.json or, without such a file, in config.json. Unsupported options are refused unless they
have no effect. Sampling options have no effect, because `do_sample` is refused.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping
from typing import Any

from lmx import documents
from lmx.errors import InputError, nearest
from lmx.interop.huggingface.entry import LARGEST, integer, show

FILE = 'generation_config.json'
_STOPS = {False: 'current', True: 'full', 'never': 'bound'}  # by early_stopping
_LENGTH = 20  # default of max_length
_READ = (
  *('bad_words_ids', 'decoder_start_token_id', 'early_stopping', 'eos_token_id', 'forced_bos_token_id'),
  *('forced_eos_token_id', 'length_penalty', 'max_length', 'max_new_tokens', 'num_beams', 'renormalize_logits'),
)
# Options without effect on a search, or on its result.
_UNUSED = re.compile(
  r'_.*|(bos|pad)_token_id|cache_.*|max_cache_len|use_cache|use_mtp|temperature|top_[hkp]|min_p|typical_p|'
  r'(epsilon|eta)_cutoff|output_.*|return_.*|is_assistant|num_assistant_.*|assistant_.*|target_lookbehind|'
  r'speculation_type|max_matching_ngram_size|(disable_)?compile(_config)?|continuous_batching_config|low_memory|'
  r'prefill_chunk_size|num_return_sequences|remove_invalid_values|transformers_version|max_time'
)
# Options that are only supported with values that have no effect.
_FIXED: dict[str, tuple[Any, ...]] = {
  'do_sample': (False,),
  'min_length': (0, 1),
  'min_new_tokens': (0,),
  'num_beam_groups': (1,),
  'diversity_penalty': (0,),
  'repetition_penalty': (1,),
  'encoder_repetition_penalty': (1,),
  'no_repeat_ngram_size': (0,),
  'encoder_no_repeat_ngram_size': (0,),
  'exponential_decay_length_penalty': (),
  'suppress_tokens': ([],),
  'begin_suppress_tokens': ([],),
  'sequence_bias': (),
  'token_healing': (False,),
  'guidance_scale': (1,),
  'watermarking_config': (),
  'stop_strings': (),
  'penalty_alpha': (0,),
  'dola_layers': (),
  'constraints': (),
  'force_words_ids': (),
  'prompt_lookup_num_tokens': (),
}


def read(directory: pathlib.Path, config: Mapping[str, Any]) -> dict[str, Any]:
  """Return fields of the section `evaluation`.

  Args:
    directory: the folder.
    config: content of its config.json.

  Raises:
    InputError: an option has a value that lmx does not compute with, or is unknown.
  """
  name, given = _given(directory, config)
  for key, values in _FIXED.items():
    if key in given and given[key] not in values:
      raise _refused(name, key, given[key], ' or '.join(map(repr, values)) or 'null')
  stop = given.get('early_stopping', False)
  if type(stop) not in (bool, str) or stop not in _STOPS:
    raise _refused(name, 'early_stopping', stop, 'true, false or "never"')
  alpha = given.get('length_penalty', 1.0)
  if type(alpha) not in (int, float) or not 0 <= alpha < 1000:
    raise _refused(name, 'length_penalty', alpha, 'a number from 0 to below 1000')
  beam = integer(given, 'num_beams', 1, high=1000)
  limit = integer(given, 'max_length', _LENGTH, low=2) - 1  # the decoder's first token counts
  return {
    'beam': beam,
    'alpha': float(alpha),
    'penalty': 'power',
    'stop': _STOPS[stop] if beam > 1 else 'full',
    'max_length': integer(given, 'max_new_tokens', limit),
    'forbidden': _forbidden(name, given),
    'renormalise': _switch(name, given, 'renormalize_logits'),
    'forced_first': integer(given, 'forced_bos_token_id', low=0) if 'forced_bos_token_id' in given else None,
    'forced_end': _forced_end(name, given),
  }


def _given(directory: pathlib.Path, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
  """Return (name of the file, the options in it that are not null)."""
  path, name = directory / FILE, 'config.json'
  if path.exists():
    config, name = documents.convert(documents.read_json(path), dict, str(path)), FILE
    known = {*_READ, *_FIXED}
    for key in config:
      if key not in known and not _UNUSED.fullmatch(key):
        raise InputError(f'{FILE}: got the unknown option "{key}"{nearest(key, known)}; remove it if it has no effect')
  return name, {key: value for key, value in config.items() if value is not None}


def end_id(directory: pathlib.Path, config: Mapping[str, Any]) -> int:
  """Return the end-of-text id; see `read`."""
  return _end_id(*_given(directory, config))


def _refused(file: str, name: str, value: Any, expected: str) -> InputError:
  return InputError(f'{file}: {name}: got {show(value)}; expected {expected}; lmx supports no other')


def _switch(file: str, given: Mapping[str, Any], name: str) -> bool:
  if type(value := given.get(name, False)) is not bool:
    raise _refused(file, name, value, 'true or false')
  return value


def _forbidden(file: str, given: Mapping[str, Any]) -> tuple[int, ...]:
  words = given.get('bad_words_ids', [])
  single = isinstance(words, list) and all(isinstance(word, list) and len(word) == 1 for word in words)
  ids: list[Any] = [word[0] for word in words] if single else [None]
  if not all(type(i) is int and 0 <= i <= LARGEST for i in ids):
    raise _refused(file, 'bad_words_ids', words, 'lists of one id each')
  return tuple(i for i in ids if i != _end_id(file, given))  # as `generate` does


def _forced_end(file: str, given: Mapping[str, Any]) -> bool:
  if 'forced_eos_token_id' not in given:
    return False
  end = _end_id(file, given)
  if given['forced_eos_token_id'] not in (end, [end]):
    raise _refused(file, 'forced_eos_token_id', given['forced_eos_token_id'], f'eos_token_id, {end}')
  return True


def _end_id(file: str, given: Mapping[str, Any]) -> int:
  ids = given.get('eos_token_id')
  ids = ids[0] if isinstance(ids, list) and len(ids) == 1 else ids
  if type(ids) is not int or not 0 <= ids <= LARGEST:
    raise _refused(file, 'eos_token_id', ids, 'one id')
  return ids


def config(evaluation: Any, end: int, start: int, pad: int) -> dict[str, Any]:
  """Return the content of generation_config.json; the inverse of `read`.

  Args:
    evaluation: section `evaluation` of a run.
    end: end-of-text id.
    start: the decoder's first id.
    pad: padding id.

  Raises:
    InputError: `generate` has no such search.
  """
  for field, differs, expected in (
    ('penalty', evaluation.alpha and evaluation.penalty != 'power', "'power'"),
    ('max_length', not evaluation.max_length, 'the most tokens of a translation, such as 511'),
    ('forbidden', evaluation.forbidden is None, 'the ids that no translation contains'),
    ('min_ratio', evaluation.min_ratio, '0'),
    ('coverage_penalty', evaluation.coverage_penalty, '0'),
    ('replace_unknown', evaluation.replace_unknown, 'False'),
  ):
    if differs:
      got = getattr(evaluation, field)
      raise InputError(f'evaluation.{field}: got {got!r}; expected {expected}; `generate` supports no other')
  stop = {ours: theirs for theirs, ours in _STOPS.items()}[evaluation.stop]
  settings = {
    'bad_words_ids': [[i] for i in evaluation.forbidden] or None,
    'decoder_start_token_id': start,
    'early_stopping': stop if evaluation.beam > 1 else False,
    'eos_token_id': end,
    'forced_bos_token_id': evaluation.forced_first,
    'forced_eos_token_id': end if evaluation.forced_end else None,
    'length_penalty': evaluation.alpha,
    'max_length': evaluation.max_length + 1,
    'num_beams': max(evaluation.beam, 1),
    'pad_token_id': pad,
    'renormalize_logits': evaluation.renormalise,
  }
  return {name: value for name, value in settings.items() if value is not None}
