"""`lmx generate`: text from a loaded run, streamed or not, in any tokenizer."""

from __future__ import annotations

import dataclasses
import io
import sys

import numpy as np
import pytest

from lmx.cli import generate as command
from lmx.cli.main import main, parse
from lmx.data.tokenizers import build, characters, words
from lmx.decoding import beam_search, generate, text
from lmx.errors import InputError
from lmx.runs import restore
from tests import drawn, untrained


@pytest.fixture(params=['gpt2', 'rnn_lm'])
def overrides(request, monkeypatch):
  """Overrides of each loaded run, which is over bytes and was never trained."""
  return loaded(monkeypatch, request.param)


def loaded(monkeypatch, name):
  """Make every command load the tiny run of a model; return the list of the overrides of each."""
  run, given = untrained.load(f'experiments/{name}/quickstart.py:tiny'), []
  run = dataclasses.replace(run, params={'model': drawn.params(run.model.init, run.cfg), 'objective': {}})
  monkeypatch.setattr(restore, 'load', lambda workdir, which, overrides: given.append(overrides) or run)
  return given


def _write(capsys, *options: str) -> str:
  assert main(['generate', '--workdir=.', '--tokens=12', *options]) == 0
  return capsys.readouterr().out


def test_streaming_changes_nothing(overrides, capsys):
  options = ('--prompt=The', '--samples=2', '--seed=4')
  streamed = _write(capsys, *options)
  assert streamed == _write(capsys, *options, '--no-stream')
  assert streamed.startswith('--- sample 1 of 2\nThe') and '\n--- sample 2 of 2\nThe' in streamed
  assert streamed != _write(capsys, '--prompt=The', '--samples=2', '--seed=5')


def test_config_overrides_reach_the_run(overrides, capsys):
  _write(capsys, '--prompt=The', '--config.model.dtype=bfloat16')
  assert overrides == [['model.dtype=bfloat16']]


def test_greedy_is_temperature_zero(overrides, capsys):
  greedy = _write(capsys, '--prompt=The', '--greedy')
  assert greedy == _write(capsys, '--prompt=The', '--temperature=0') == _write(capsys, '--prompt=The', '--top_k=1')


def test_prompt_from_standard_input(overrides, capsys, monkeypatch):
  monkeypatch.setattr(sys, 'stdin', io.StringIO('The\n'))
  from_stdin = _write(capsys)
  assert from_stdin == _write(capsys, '--prompt=The')


def test_non_utf8_prompt_is_rejected(overrides, capsys, monkeypatch):
  monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'a\xff'), 'utf-8'))
  assert _write(capsys).startswith('a\ufffd')


def test_empty_prompt_starts_after_end_of_text(overrides, capsys):
  assert generate.prompt_ids(characters.Bytes(eos=True), '').tolist() == [256]
  assert _write(capsys, '--prompt=')
  with pytest.raises(InputError, match='no end-of-text token'):
    generate.prompt_ids(characters.Bytes(), '')


def test_non_generative_model_is_rejected_before_prompting(monkeypatch, capsys):
  monkeypatch.setattr(restore, 'load', lambda *_: untrained.load('experiments/bert/quickstart.py:tiny'))
  for more in ([], ['--samples=2']):
    assert main(['generate', '--workdir=.', '--prompt=The', *more]) == 2
    shown = capsys.readouterr()
    assert shown.out == '' and 'model "bert" reads in both directions' in shown.err


@pytest.mark.parametrize(
  ('option', 'message'),
  [
    ('--top_p=2', 'top_p'),
    ('--temperature=-1', 'temperature'),
    ('--greedy --temperature=0.8', 'temperature: got 0.8 with greedy, which always takes the most probable token'),
    ('--greedy --top_k=5', 'top_k: got 5 with greedy'),
    ('--temperature=0 --top_p=0.9', 'top_p: got 0.9 with temperature=0'),
    ('--temperature=0 --seed=0', 'seed: got 0 with temperature=0'),
    ('--top_p=1 --top_p_form=paper', 'top_p_form: got paper with top_p=1, which keeps all tokens'),
    ('--beam=2 --top_k=3', 'top_k: got 3 with beam=2, which samples nothing'),
    ('--beam=2 --greedy', 'greedy: got True with beam=2, which samples nothing'),
    ('--beam=2 --samples=3', 'samples: got 3; expected at most beam, 2'),
    ('--beam=2 --alpha=0 --penalty=power', 'penalty: got power with alpha=0'),
    ('--alpha=1', 'alpha: got 1.0 with beam=0, which searches nothing'),
    ('--renormalise', 'renormalise: got True with beam=0'),
    ('--past_eos --min_tokens=2', 'min_tokens: got 2 with past_eos, which ends no text'),
    ('--eos_ids= --min_length=2', 'min_length: got 2 with no eos_ids, which ends no text'),
    ('--forbidden=1 --allow_unk', 'allow_unk: got True with forbidden=(1,), which replaces it'),
    ('--max_length=9 --tokens=3', 'tokens: got 3 with max_length=9, which replaces it'),
    ('--tokens=2 --min_tokens=3', 'min_tokens: got 3; expected at most tokens, 2'),
    ('--max_length=1', 'max_length: got 1 with a prompt of 1 tokens'),
    ('--bad_words=300', 'bad_words: got the id 300'),
    ('--eos_ids=7,300', 'eos_ids: got the id 300'),
  ],
)
def test_invalid_input_is_rejected(overrides, option, message, capsys):
  assert main(['generate', '--workdir=.', '--prompt=a', *option.split()]) == 2
  assert message in capsys.readouterr().err


def test_padding_and_unk_are_not_sampled():
  tokenizer = words.Words(['<pad>', '<unk>', '<eos>', 'a', 'b'], 'space')
  tokenizer.pad_id = 0
  assert text.Options().sampler(tokenizer, 7).forbidden == (0, 1, 5, 6)
  assert text.Options(allow_unk=True).sampler(tokenizer, 5).forbidden == (0,)
  tokenizer.pad_id = 2  # one mark for both: it must stay possible
  assert text.Options(allow_unk=True).sampler(tokenizer, 5).forbidden == ()


def test_defaults_of_the_command_match_the_method(capsys):
  assert text.Options(**command.given(parse(['generate', '--workdir=.']))) == text.Options()
  assert {*command._OPTIONS} == {field.name for field in dataclasses.fields(text.Options)}
  with pytest.raises(SystemExit):
    parse(['generate', '--help'])
  shown = ' '.join(capsys.readouterr().out.split())
  for name in ('tokens', 'samples', 'temperature', 'top_k', 'top_p', 'top_p_form', 'seed'):
    option = shown.split(f' --{name} ', 2)[-1]
    assert option[: option.index(')')].endswith(f'(default {getattr(text.Options(), name)}')


def test_incomplete_utf8_is_buffered():
  tokenizer = characters.Bytes(eos=True)
  prompt_T = np.frombuffer(b'a', np.uint8)
  drawn = list('é→b'.encode())
  assert list(text.decode_stream(tokenizer, prompt_T, drawn)) == ['a', 'é', '→', 'b']
  # At the end there is nothing more to wait for.
  assert list(text.decode_stream(tokenizer, prompt_T, drawn[:1])) == ['a', '\ufffd']


def test_trailing_newline_is_not_part_of_the_prompt():
  lines = words.Words(['<eos>', '<unk>', 'a', 'line'], 'lines')
  assert generate.prompt_ids(lines, 'a line\n').tolist() == lines.encode('a line').tolist() == [2, 3]


def test_prompt_keeps_an_end_of_text_token_that_is_written():
  tokenizer = build.train('bpe', ['a b'], vocab_size=260)
  tokenizer = type(tokenizer)(tokenizer._model, special_in_text=True)
  assert generate.prompt_ids(tokenizer, 'a<|endoftext|>').tolist() == [*tokenizer.encode('a'), tokenizer.eos_id]
  assert generate.prompt_ids(tokenizer, 'a<|endoftext|>\n')[-2] == tokenizer.eos_id
  lines = words.Words(['<eos>', '<unk>', 'a'], 'lines')
  assert generate.prompt_ids(lines, 'a <eos>').tolist() == [2, 0]
  assert ''.join(text.decode_stream(tokenizer, generate.encode_prompt(tokenizer, '<|endoftext|>'), [])) != ''


def test_constraints_reach_every_decoder():
  tokenizer = characters.Bytes(eos=True)
  rules = dict(forbidden_first=(1,), bad_words=((2, 3), (4,)), no_repeat_ngram=2, repetition_penalty=1.2)
  options = text.Options(
    forbidden=(5,), forced_end=True, min_length=9, max_length=12, beam=2, renormalise=True, **rules
  )
  rules |= dict(forbidden=(5,), min_tokens=4, force_end=True)
  assert options.sampler(tokenizer, 257, 5) == generate.Sampler(0.8, 0, 0.95, **rules)
  assert options.search(tokenizer, 257, 5) == beam_search.Beam(2, renormalise=True, **rules)
  assert (options.limit(5), options.ends(tokenizer)) == (7, (256,))
  assert text.Options(past_eos=True).ends(tokenizer) == () and text.Options(eos_ids=(7, 7)).ends(tokenizer) == (7,)
  tokenizer.pad_id = 9
  assert text.Options(eos_ids=(9, 256)).sampler(tokenizer, 257).forbidden == ()


def test_beam_search_writes_its_best_texts(monkeypatch, capsys):
  loaded(monkeypatch, 'rnn_lm')
  given = ('--prompt=The', '--beam=3', '--samples=2', '--eos_ids=')
  found = _write(capsys, *given)
  assert found == _write(capsys, *given, '--no-stream')
  first, second = (part.partition('\n')[2] for part in found.split('--- sample ')[1:])
  assert first.startswith('The') and second.startswith('The') and first.strip() != second.strip()


def test_options_given_override_settings_of_a_run():
  settings = {'max_length': 50, 'min_length': 5, 'beam': 4, 'forbidden': (1,)}
  assert text.override(settings, {'tokens': 3}) == {**settings, 'max_length': 0, 'tokens': 3}
  assert text.override(settings, {'min_tokens': 2, 'allow_unk': True}) == {
    **{'max_length': 50, 'min_length': 0, 'beam': 4, 'forbidden': None},
    **{'min_tokens': 2, 'allow_unk': True},
  }


def test_too_many_parallel_samples_are_rejected(tmp_path, capsys):
  options = ('--samples=100000', '--tokens=1000000', '--no-stream')
  assert main(['generate', f'--workdir={tmp_path}', *options]) == 2
  assert '--samples, --tokens: got 100,000 x 1,000,000 = 100,000,000,000 tokens' in capsys.readouterr().err
