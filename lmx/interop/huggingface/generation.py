"""Conversion between a folder's `generate` settings and lmx's: `evaluation` of encoder-decoders, `generate` of others.

They are in generation_config.json or, without such a file, in config.json; transformers reads the same keys in either.
A key is read, has no effect on the chosen tokens, or is refused unless its value has none. Where versions 4 and 5 of
transformers differ, lmx follows version 5: a `max_length` of 20 counts the prompt, a sequence of `bad_words_ids` may
begin with the prompt, and config.json is not read beside a generation_config.json.

If a folder of a causal model has a key beyond ids, unset keys have the defaults of transformers: the most probable
token, unless `do_sample`. A folder with only ids keeps lmx's own sampling. Without `eos_token_id` no token ends a text.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmx import documents
from lmx.errors import InputError, nearest
from lmx.interop.huggingface.entry import LARGEST, fields_of, integer, show, switch

FILE, _CONFIG = 'generation_config.json', 'config.json'
FAMILIES = ('gpt', 'gpt2', 'transformer_xl', 'xlnet')  # whose folders have settings for one text
_STOPS = {False: 'current', True: 'full', 'never': 'bound'}  # by early_stopping
_TOKENS = 20  # new tokens of an encoder-decoder without max_length and max_new_tokens
# Keys that choose the tokens, with their default in transformers, None for none.
_CHOICES: dict[str, Any] = {
  **dict.fromkeys(('bad_words_ids', 'begin_suppress_tokens', 'suppress_tokens', 'max_new_tokens', 'min_new_tokens')),
  **dict.fromkeys(('forced_bos_token_id', 'forced_eos_token_id', 'min_p', 'top_h')),
  **{'do_sample': False, 'temperature': 1.0, 'top_k': 50, 'top_p': 1.0, 'max_length': 20, 'min_length': 0},
  **{'num_beams': 1, 'early_stopping': False, 'length_penalty': 1.0, 'renormalize_logits': False},
  **{'repetition_penalty': 1.0, 'no_repeat_ngram_size': 0, 'num_return_sequences': 1},
  **{'typical_p': 1.0, 'epsilon_cutoff': 0.0, 'eta_cutoff': 0.0},
}
# Keys without effect on the tokens.
_UNUSED = re.compile(
  r'_.*|(bos|pad)_token_id|cache_config|max_cache_len|use_cache|output_.*|return_(dict_in_generate|legacy_cache)|'
  r'num_assistant_tokens(_schedule)?|assistant_(confidence_threshold|lookbehind|ensemble_weight)|target_lookbehind|'
  r'speculation_type|max_matching_ngram_size|compile_config|disable_compile|continuous_batching_config|low_memory|'
  r'prefill_chunk_size|remove_invalid_values|transformers_version'
)
# Keys that are only supported with values that have no effect.
_FIXED: dict[str, tuple[Any, ...]] = {
  'max_time': (),
  'stop_strings': (),
  'use_mtp': (False,),
  'is_assistant': (False,),
  'assistant_early_exit': (),
  'prompt_lookup_num_tokens': (),
  'cache_implementation': ('dynamic', 'dynamic_full', 'static', 'offloaded', 'offloaded_static', 'hybrid'),
  'encoder_repetition_penalty': (1,),  # of models without a source, its source is the prompt
  'encoder_no_repeat_ngram_size': (0,),
  'num_beam_groups': (1,),
  'diversity_penalty': (0,),
  'exponential_decay_length_penalty': (),
  'sequence_bias': (),
  'token_healing': (False,),
  'guidance_scale': (1,),
  'watermarking_config': (),
  'penalty_alpha': (0,),
  'dola_layers': (),
  'constraints': (),
  'force_words_ids': (),
  'generation_kwargs': ({},),
}
_SAMPLED: dict[str, tuple[Any, ...]] = {  # with do_sample
  'min_p': (0,),
  'top_h': (),
  'typical_p': (1,),
  'epsilon_cutoff': (0,),
  'eta_cutoff': (0,),
}
# What version 5 generates with if neither file has a key.
_ABSENT = {
  'num_beams': '1 beam',
  'max_length': f'{_TOKENS} tokens',
  'eos_token_id': 'no end',
  'forced_eos_token_id': 'no forced end',
  'decoder_start_token_id': 'a start from <s>',
}
_IDS = ('bos_token_id', 'eos_token_id', 'pad_token_id')
_KNOWN = {'eos_token_id', 'decoder_start_token_id', *_CHOICES, *_FIXED}


class Settings(NamedTuple):
  """Settings of a folder.

  Attributes:
    options: of a causal model, fields of `lmx.decoding.text.Options`; {} keeps lmx's defaults.
    file: name of the file that has them.
    note: line for the user on keys that versions of transformers read differently; '' for none.
  """

  options: Mapping[str, Any] = {}
  file: str = ''
  note: str = ''


def read_kept(directory: pathlib.Path, config: Mapping[str, Any], V: int) -> Settings:
  """Return the settings of a model that generates no text in lmx, for its export; a note names unsupported ones."""
  try:
    return read_options(directory, config, V)
  except InputError as error:
    return Settings({}, '', f'{error}; not read, because this model generates no text here')


def read_options(directory: pathlib.Path, config: Mapping[str, Any], V: int) -> Settings:
  """Return the settings of a causal model.

  Args:
    directory: the folder.
    config: content of its config.json.
    V: tokens of the model.

  Raises:
    InputError: a key has a value that lmx does not compute with, or is unknown.
  """
  name, given = _given(directory, config)
  with fields_of(name):
    _check(given, _FIXED)
    found: dict[str, Any] = {'eos_ids': tuple(i for i in _ends(given) if i < V)}
    chosen = given.keys() & {*_CHOICES}
    if chosen - {'max_length'} or (chosen and given['max_length'] != config.get('n_positions')):
      beam = integer(given, 'num_beams', 1, high=1000)
      found |= _sampling(given, beam) | _search(given) | _lengths(given) | _filters(given, V)
      found |= {'beam': beam if beam > 1 else 0, 'forced_end': _forced_end(given, _ends(given))}
      if 'forced_bos_token_id' in given:
        raise _refused('forced_bos_token_id', given['forced_bos_token_id'], 'null for a model without a source')
  return Settings(found, *source(directory, config))


def read_evaluation(directory: pathlib.Path, config: Mapping[str, Any], V: int) -> dict[str, Any]:
  """Return fields of the section `evaluation` for an encoder-decoder; V is the tokens of its target. See above."""
  name, given = _given(directory, config)
  with fields_of(name):
    _check(given, _FIXED | {'do_sample': (False,)})
    ends, beam = _ends(given), integer(given, 'num_beams', 1, high=1000)
    limit = integer(given, 'max_length', _TOKENS + 1, low=2) - 1  # the decoder's first token counts
    found = {'beam': beam, 'eos_ids': ends, **_search(given), **_filters(given, V)}
    single = [word[0] for word in found['bad_words'] if len(word) == 1 and word[0] not in ends]
    if suppressed := {*found['forbidden']} & {*ends}:
      raise _refused('suppress_tokens', min(suppressed), f'ids other than eos_token_id, {", ".join(map(str, ends))}')
    first = integer(given, 'forced_bos_token_id', low=0, high=V - 1) if 'forced_bos_token_id' in given else None
    return found | {
      'forbidden': tuple(dict.fromkeys((*found['forbidden'], *single))),
      'bad_words': tuple(word for word in found['bad_words'] if len(word) > 1),
      'stop': found['stop'] if beam > 1 else 'full',
      'max_length': integer(given, 'max_new_tokens', limit),
      'min_tokens': integer(given, 'min_new_tokens', max(integer(given, 'min_length', 0, low=0) - 1, 0), low=0),
      'forced_first': first,
      'forced_end': _forced_end(given, ends),
    }


def _given(directory: pathlib.Path, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
  """Return (name of the file, the keys in it that are not null)."""
  path, name = directory / FILE, _CONFIG
  if path.exists():
    config, name = documents.convert(documents.read_json(path), dict, str(path)), FILE
    for key in config:
      if key not in _KNOWN and not _UNUSED.fullmatch(key):
        raise InputError(
          f'{FILE}: got the unknown key "{key}"{nearest(key, _KNOWN, 0.8)}; remove it if it has no effect'
        )
  return name, {key: value for key, value in config.items() if value is not None}


def source(directory: pathlib.Path, config: Mapping[str, Any]) -> tuple[str, str]:
  """Return (name of the file with the settings, line on keys of config.json that transformers 4 reads instead)."""
  name, given = _given(directory, config)
  if name == _CONFIG or given.get('_from_model_config') is not True:
    return name, ''
  keys = [key for key in _CHOICES if config.get(key) not in (None, given.get(key, _CHOICES[key]))]
  named = ', '.join(f'{key} {show(config[key])}' for key in keys)
  return name, f'{_CONFIG}: not read: {named}; transformers 4 reads it instead of {FILE}' if keys else ''


def _check(given: Mapping[str, Any], fixed: Mapping[str, tuple[Any, ...]]) -> None:
  """Raise InputError unless the keys of `fixed` have one of their values."""
  for key, values in fixed.items():
    if key in given and given[key] not in values:
      raise _refused(key, given[key], ' or '.join(map(repr, values)) or 'null')


def _refused(key: str, value: Any, expected: str) -> InputError:
  return InputError(
    f'{_CONFIG}: {key}: got {show(value)}; expected {expected}; lmx supports no other; set it to that if other texts '
    'than those of transformers are acceptable'
  )


def _number(given: Mapping[str, Any], key: str, low: float, high: float) -> float:
  value = given.get(key, _CHOICES[key])
  if type(value) not in (int, float) or not low <= value <= high:
    raise _refused(key, value, f'a number from {low:g} to {high:g}')
  return float(value)


def _ids(key: str, values: Any) -> tuple[int, ...]:
  """Return a list of ids as a tuple; raise InputError for other values."""
  if not isinstance(values, list) or not all(type(i) is int and abs(i) <= LARGEST for i in values):
    raise _refused(key, values, 'a list of ids')
  return tuple(values)


def _ends(given: Mapping[str, Any]) -> tuple[int, ...]:
  """Return the ids that end a text; () if no token does."""
  values = given.get('eos_token_id', [])
  ids = _ids('eos_token_id', values if isinstance(values, list) else [values])
  if any(i < 0 for i in ids):
    raise _refused('eos_token_id', values, 'an id, or a list of ids')
  return tuple(dict.fromkeys(ids))


def _sampling(given: Mapping[str, Any], beam: int) -> dict[str, Any]:
  """Return the options of sampling, which are those of transformers also where a text is chosen greedily."""
  sampled = switch(given, 'do_sample', False)
  if sampled:
    _check(given, _SAMPLED | {'num_beams': (1,)})
  most = 10_000 if sampled else 1 if beam == 1 else beam
  return {
    'greedy': not sampled and beam == 1,
    'temperature': _number(given, 'temperature', 1e-6, 1e6) if sampled else 1.0,
    'top_k': integer(given, 'top_k', _CHOICES['top_k'], low=0) if sampled else _CHOICES['top_k'],
    'top_p': _number(given, 'top_p', 1e-9, 1) if sampled else 1.0,
    'samples': integer(given, 'num_return_sequences', 1, high=most),
  }


def _search(given: Mapping[str, Any]) -> dict[str, Any]:
  """Return the options of a beam search."""
  stop = given.get('early_stopping', False)
  if type(stop) not in (bool, str) or stop not in _STOPS:
    raise _refused('early_stopping', stop, 'true, false or "never"')
  return {
    'alpha': _number(given, 'length_penalty', -1000, 1000),
    'penalty': 'power',
    'stop': _STOPS[stop],
    'renormalise': switch(given, 'renormalize_logits', False),
  }


def _lengths(given: Mapping[str, Any]) -> dict[str, Any]:
  """Return the options of the length; `max_length` and `min_length` count the prompt."""
  found: dict[str, Any] = {}
  if 'max_new_tokens' in given:
    found['tokens'] = integer(given, 'max_new_tokens')
  elif 'max_length' in given:
    found['max_length'] = integer(given, 'max_length')
  if 'min_new_tokens' in given:
    found['min_tokens'] = min(integer(given, 'min_new_tokens', low=0), found.get('tokens', LARGEST))
  elif 'min_length' in given:
    found['min_length'] = integer(given, 'min_length', low=0)
  return found


def _filters(given: Mapping[str, Any], V: int) -> dict[str, Any]:
  """Return the constraints on a token. Suppressed ids beyond the vocabulary have no effect."""
  words = given.get('bad_words_ids', [])
  if not isinstance(words, list) or not all(isinstance(word, list) and word for word in words):
    raise _refused('bad_words_ids', words, 'lists of ids')
  bad = tuple(_ids('bad_words_ids', word) for word in words)
  if beyond := [i for word in bad for i in word if not 0 <= i < V]:
    raise _refused('bad_words_ids', beyond[0], f'ids of the vocabulary, 0 to {V - 1}')
  suppressed = {
    field: tuple(i for i in dict.fromkeys(_ids(key, given.get(key, []))) if 0 <= i < V)
    for field, key in (('forbidden', 'suppress_tokens'), ('forbidden_first', 'begin_suppress_tokens'))
  }
  return suppressed | {
    'bad_words': tuple(dict.fromkeys(bad)),
    'no_repeat_ngram': integer(given, 'no_repeat_ngram_size', 0, low=0),
    'repetition_penalty': _number(given, 'repetition_penalty', 1e-3, 1e3),
  }


def _forced_end(given: Mapping[str, Any], ends: Sequence[int]) -> bool:
  forced = given.get('forced_eos_token_id')
  if forced is None:
    return False
  if len(ends) != 1 or forced not in (ends[0], [ends[0]]):  # of several, all are as probable
    raise _refused('forced_eos_token_id', forced, f'{ends[0]}, eos_token_id' if len(ends) == 1 else 'one eos_token_id')
  return True


def write(directory: pathlib.Path, settings: Mapping[str, Any]) -> None:
  """Write generation_config.json, without the keys that are None."""
  content = {key: value for key, value in settings.items() if value is not None}
  (directory / FILE).write_text(json.dumps(content, indent=2) + '\n', encoding='utf-8')


def keys_of_options(options: Mapping[str, Any], ids: Mapping[str, int | None]) -> dict[str, Any]:
  """Return the content of generation_config.json for a causal model; the inverse of `read_options`.

  Args:
    options: fields of `lmx.decoding.text.Options`. Without a length it is that of transformers.
    ids: `bos_token_id`, `eos_token_id` and `pad_token_id` of the tokenizer, if it has them.
  """
  found: dict[str, Any] = {key: ids.get(key) for key in ('bos_token_id', 'eos_token_id', 'pad_token_id')}
  ends = options.get('eos_ids')
  if ends is not None:
    found['eos_token_id'] = _one_or_list(ends)
  names = {'tokens': 'max_new_tokens', 'max_length': 'max_length'}
  names |= {'min_tokens': 'min_new_tokens', 'min_length': 'min_length'}
  found |= {key: options[name] for name, key in names.items() if name in options}
  if 'greedy' in options:
    found |= _keys_of_constraints(options) | _keys_of_search(options)
    found |= {'do_sample': not options['greedy'] and not options['beam'], 'num_beams': max(options['beam'], 1)}
    found |= {'suppress_tokens': [*options['forbidden']] or None}
    found |= {'forced_eos_token_id': found['eos_token_id'] if options['forced_end'] else None}
    found |= {key: options[key] for key in ('temperature', 'top_k', 'top_p')}
    found |= {'num_return_sequences': options['samples']}
  kept = {*_IDS, 'do_sample', *names.values()} | ({'temperature'} if found.get('do_sample') else set())
  return {key: value for key, value in found.items() if key in kept or value != _CHOICES.get(key)}


def missing_options(directory: pathlib.Path, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
  """Return a line on the options of `generate` that a folder lacks; `defaults` are those of the class."""
  missing = {} if (directory / FILE).exists() else {key: x for key, x in defaults.items() if key not in config}
  missing = {key: x for key, x in missing.items() if x != _CHOICES.get(key)}
  if not missing:
    return []
  read = ', '.join(f'{key} {value}' for key, value in missing.items())
  others = ', '.join(_ABSENT[key] for key in missing)
  return [
    f'{FILE}, and keys of {_CONFIG}: missing; read as {read}, as by version 4 of transformers; version 5 '
    f'generates with {others}'
  ]


def task_params(settings: Mapping[str, Any], *tasks: str) -> dict[str, Any]:
  """Return the field of config.json with which pipelines of transformers 4 generate as `settings` say.

  These pipelines have their own do_sample, temperature, num_beams and max_new_tokens, and read a folder's only here.

  Args:
    settings: content of generation_config.json.
    tasks: names of pipelines.
  """
  if not settings.keys() & {'do_sample', 'num_beams'}:
    return {}
  own = {key: settings.get(key, _CHOICES[key]) for key in ('do_sample', 'temperature', 'num_beams')}
  if settings.keys() & {'max_new_tokens', 'max_length'}:
    own['max_new_tokens'] = settings.get('max_new_tokens')
  return {'task_specific_params': dict.fromkeys(tasks, own)}


def keys_of_evaluation(evaluation: Any, end: int, start: int, pad: int) -> dict[str, Any]:
  """Return the content of generation_config.json for an encoder-decoder; the inverse of `read_evaluation`.

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
  options = dataclasses.asdict(evaluation)
  ends = _one_or_list((end,) if evaluation.eos_ids is None else evaluation.eos_ids)
  words = [[i] for i in evaluation.forbidden] + [[*word] for word in evaluation.bad_words]
  return _keys_of_constraints(options) | {
    **_keys_of_search(options),
    'bad_words_ids': words or None,
    'decoder_start_token_id': start,
    'early_stopping': _keys_of_search(options)['early_stopping'] if evaluation.beam > 1 else False,
    'eos_token_id': ends,
    'forced_bos_token_id': evaluation.forced_first,
    'forced_eos_token_id': ends if evaluation.forced_end else None,
    'max_length': evaluation.max_length + 1,
    'min_new_tokens': evaluation.min_tokens or None,
    'num_beams': max(evaluation.beam, 1),
    'pad_token_id': pad,
  }


def _one_or_list(ids: Sequence[int]) -> Any:
  return ids[0] if len(ids) == 1 else [*ids] or None


def _keys_of_search(options: Mapping[str, Any]) -> dict[str, Any]:
  stop = {ours: theirs for theirs, ours in _STOPS.items()}[options['stop']]
  return {
    'early_stopping': stop,
    'length_penalty': options['alpha'],
    'renormalize_logits': options['renormalise'],
  }


def _keys_of_constraints(options: Mapping[str, Any]) -> dict[str, Any]:
  return {
    'bad_words_ids': [[*word] for word in options['bad_words']] or None,
    'begin_suppress_tokens': [*options['forbidden_first']] or None,
    'no_repeat_ngram_size': options['no_repeat_ngram'] or None,
    'repetition_penalty': None if options['repetition_penalty'] == 1 else options['repetition_penalty'],
  }
