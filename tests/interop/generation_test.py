"""Settings of `generate` in folders of transformers: each key is read, has no effect, or is refused by name."""

from __future__ import annotations

import json
import re
import types

import pytest

from lmx.decoding import text
from lmx.errors import InputError
from lmx.interop.huggingface import generation
from lmx.runs import convert

V = 60
# Attributes of GenerationConfig in transformers 4.57.6 and 5.24, and the key of files of 4.2x.
KEYS = """
_commit_hash _from_model_config assistant_confidence_threshold assistant_early_exit assistant_ensemble_weight
assistant_lookbehind bad_words_ids begin_suppress_tokens bos_token_id cache_config cache_implementation compile_config
constraints continuous_batching_config decoder_start_token_id disable_compile diversity_penalty do_sample dola_layers
early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty eos_token_id epsilon_cutoff eta_cutoff
exponential_decay_length_penalty force_words_ids forced_bos_token_id forced_eos_token_id guidance_scale is_assistant
length_penalty low_memory max_cache_len max_length max_matching_ngram_size max_new_tokens max_time min_length
min_new_tokens min_p no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups num_beams
num_return_sequences output_attentions output_hidden_states output_logits output_scores pad_token_id penalty_alpha
prefill_chunk_size prompt_lookup_num_tokens remove_invalid_values renormalize_logits repetition_penalty
return_dict_in_generate return_legacy_cache sequence_bias speculation_type stop_strings suppress_tokens
target_lookbehind temperature token_healing top_h top_k top_p transformers_version typical_p use_cache use_mtp
watermarking_config generation_kwargs
""".split()
# Values with an effect on the tokens of `generate` that lmx does not compute with.
REFUSED = {
  'assistant_early_exit': 1,
  'bad_words_ids': [[V]],
  'cache_implementation': 'quantized',
  'constraints': [{}],
  'diversity_penalty': 0.5,
  'dola_layers': 'low',
  'early_stopping': 'always',
  'eos_token_id': 'end',
  'encoder_no_repeat_ngram_size': 2,
  'encoder_repetition_penalty': 1.5,
  'exponential_decay_length_penalty': [2, 1.5],
  'force_words_ids': [[3]],
  'forced_bos_token_id': 3,
  'forced_eos_token_id': 3,
  'guidance_scale': 1.5,
  'is_assistant': True,
  'length_penalty': 'long',
  'max_time': 2.0,
  'no_repeat_ngram_size': -1,
  'num_beam_groups': 2,
  'num_return_sequences': 2,
  'penalty_alpha': 0.6,
  'prompt_lookup_num_tokens': 3,
  'repetition_penalty': 0,
  'sequence_bias': [[[3], -10.0]],
  'stop_strings': 'a',
  'suppress_tokens': 3,
  'token_healing': True,
  'use_mtp': True,
  'watermarking_config': {},
  'num_beam': 2,
}
SAMPLED = {
  'epsilon_cutoff': 0.01,
  'eta_cutoff': 0.01,
  'min_p': 0.1,
  'num_beams': 2,
  'temperature': 0.0,
  'top_h': 0.5,
  'top_k': -1,
  'top_p': 0.0,
  'typical_p': 0.5,
}
GREEDY = {'greedy': True, 'beam': 0, 'temperature': 1.0, 'top_k': 50, 'top_p': 1.0, 'forbidden': (), 'eos_ids': (7,)}
READ = {
  'ids': ({}, None),
  'no end': ({'eos_token_id': None}, {'eos_ids': ()}),
  'several ends': ({'eos_token_id': [5, 7, 5, V]}, {'eos_ids': (5, 7)}),
  'greedy': ({'do_sample': False}, GREEDY),
  'new tokens': ({'max_new_tokens': 6, 'min_new_tokens': 8, 'max_length': 3}, GREEDY | {'tokens': 6, 'min_tokens': 6}),
  'total tokens': ({'max_length': 20, 'min_length': 9}, GREEDY | {'max_length': 20, 'min_length': 9}),
  'no effect': ({'temperature': 0.0, 'top_p': 0.3, 'typical_p': 0.5}, GREEDY),
  'sampled': (
    {'do_sample': True, 'top_k': 0, 'temperature': 0.5, 'num_return_sequences': 3},
    {'greedy': False, 'beam': 0, 'temperature': 0.5, 'top_k': 0, 'top_p': 1.0, 'samples': 3},
  ),
  'beams': (
    {'num_beams': 3, 'length_penalty': -1.0, 'early_stopping': 'never', 'num_return_sequences': 2},
    {'greedy': False, 'beam': 3, 'alpha': -1.0, 'penalty': 'power', 'stop': 'bound', 'samples': 2},
  ),
  'constraints': (
    {
      'suppress_tokens': [3, -1, 3, V],
      'begin_suppress_tokens': [4],
      'bad_words_ids': [[1, 2], [7]],
      'no_repeat_ngram_size': 2,
      'repetition_penalty': 1.2,
      'forced_eos_token_id': 7,
    },
    GREEDY
    | {'forbidden': (3,), 'forbidden_first': (4,), 'bad_words': ((1, 2), (7,)), 'no_repeat_ngram': 2}
    | {'repetition_penalty': 1.2, 'forced_end': True},
  ),
}


def read(folder, settings, config=None):
  """Read settings as generation_config.json or, without any, of config.json."""
  folder.mkdir(exist_ok=True)
  (folder / generation.FILE).unlink(missing_ok=True)
  if settings is not None:
    (folder / generation.FILE).write_text(json.dumps(settings))
  return generation.read_options(folder, config or {}, V)


def test_every_key_of_transformers_is_known(tmp_path):
  for key in KEYS:
    read(tmp_path, {key: None, 'eos_token_id': 7})
  with pytest.raises(InputError, match='unknown key "max_new_token"; did you mean "max_new_tokens"'):
    read(tmp_path, {'max_new_token': 3})


@pytest.mark.peer
def test_keys_are_those_of_the_library():
  assert {*vars(pytest.importorskip('transformers').GenerationConfig())} <= {*KEYS}


def test_settings_that_lmx_lacks_are_refused_by_key(tmp_path):
  for more, refused in (({}, REFUSED), ({'do_sample': True}, SAMPLED)):
    for key, value in refused.items():
      with pytest.raises(InputError, match=f'^generation_config.json: .*{key}'):
        read(tmp_path, {'eos_token_id': 7, **more, key: value})
    if not more:
      with pytest.raises(InputError, match='^config.json: penalty_alpha: got 0.6'):
        read(tmp_path, None, {'penalty_alpha': 0.6, 'unknown': 1})


def test_model_without_generation_names_what_it_does_not_keep(tmp_path):
  (tmp_path / generation.FILE).write_text('{"penalty_alpha": 0.6}')
  found = generation.read_kept(tmp_path, {}, V)
  assert found.options == {} and 'penalty_alpha: got 0.6' in found.note


@pytest.mark.parametrize('name', READ)
def test_settings_are_read_and_written_back(name, tmp_path):
  settings, expected = READ[name]
  settings = {'eos_token_id': 7, **settings}
  found = read(tmp_path, settings)
  options = text.Options(**found.options)
  assert found.file == generation.FILE and not found.note
  assert {key: getattr(options, key) for key in expected or ()} == (expected or {})
  assert found.options == ({'eos_ids': (7,)} if expected is None else found.options)
  assert read(tmp_path, None, {'n_embd': 3, **settings}).options == found.options
  back = generation.keys_of_options(found.options, {'eos_token_id': 9, 'pad_token_id': 1})
  assert back['pad_token_id'] == 1
  assert read(tmp_path, back).options == found.options


def test_config_that_only_transformers_4_reads_is_named(tmp_path):
  given = {'eos_token_id': 7, 'num_beams': 2}
  config = {'num_beams': 3, 'top_k': 50, 'max_length': None, 'eos_token_id': 1}
  assert not read(tmp_path, given, config).note
  note = read(tmp_path, given | {'_from_model_config': True}, config).note
  assert re.search('config.json: not read: num_beams 3; transformers 4', note)


def test_given_options_override_those_of_the_folder(tmp_path):
  settings = read(tmp_path, {'eos_token_id': [7, 9], 'max_length': 9, 'min_new_tokens': 4, 'num_beams': 2}).options
  options = lambda **given: text.Options(**text.override(settings, given))
  assert (options().beam, options().limit(3), options(tokens=3).min_tokens) == (2, 6, 3)
  assert options(tokens=5).limit(3) == 5 and options(past_eos=True).ends(None) == ()
  assert options(greedy=True).beam == 0 and options(greedy=True).greedy
  sampled = options(temperature=0.5)
  assert (sampled.beam, sampled.greedy, sampled.top_k) == (0, False, 50)
  assert text.describe(settings) == (
    'eos_ids=(7, 9), alpha=1.0, penalty=power, stop=current, max_length=9, min_tokens=4, beam=2'
  )
  assert text.describe(text.override(settings, {'greedy': True}), {'beam', 'max_length'}) == 'max_length=9'


GREEDY_PIPELINE = {'do_sample': False, 'temperature': 1.0, 'num_beams': 1}


def test_length_is_left_to_transformers_unless_a_run_was_trained(monkeypatch):
  loaded = types.SimpleNamespace(
    workdir='', tokenizer=types.SimpleNamespace(eos_id=7), model=types.SimpleNamespace(CAUSAL=True), cfg=None
  )
  loaded.cfg = types.SimpleNamespace(T=48)
  for data, expected in (({'imported_from': 'x'}, {}), ({}, {'max_length': 48})):
    monkeypatch.setattr(convert.run_files, 'read_data', lambda workdir, data=data: data)
    ids = {'eos_token_id': 7, 'pad_token_id': None}
    assert generation.keys_of_options(convert._options(loaded), ids) == {
      'bos_token_id': None,
      'eos_token_id': 7,
      'pad_token_id': None,
      **expected,
    }


@pytest.mark.parametrize(
  'given,expected',
  [
    ({'max_new_tokens': 8}, {**GREEDY_PIPELINE, 'max_new_tokens': 8}),
    (
      {'num_beams': 3, 'max_length': 14},
      {'do_sample': False, 'temperature': 1.0, 'num_beams': 3, 'max_new_tokens': None},
    ),
    ({'do_sample': True, 'temperature': 0.9}, {'do_sample': True, 'temperature': 0.9, 'num_beams': 1}),
    ({'eos_token_id': 7}, None),
  ],
)
def test_pipelines_of_transformers_4_get_the_settings(given, expected, tmp_path):
  """That version's defaults replace those of generation_config.json but not those of config.json."""
  written = generation.keys_of_options(read(tmp_path, given).options, {})
  wanted = {'task_specific_params': {'text-generation': expected}} if expected else {}
  assert generation.task_params(written, 'text-generation') == wanted


def test_temperature_of_one_is_written_where_it_samples(tmp_path):
  assert generation.keys_of_options(read(tmp_path, {'do_sample': True}).options, {})['temperature'] == 1


def test_unlike_key_is_not_suggested(tmp_path):
  with pytest.raises(InputError, match='custom_generate"; known') as error:
    read(tmp_path, {'custom_generate': 'x'})
  assert 'did you mean' not in str(error.value)
  with pytest.raises(InputError, match='did you mean "num_beams"'):
    read(tmp_path, {'num_beam': 2})
