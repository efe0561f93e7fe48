"""`lmx context`: losses of tokens that see so many before them, and the command over a group of runs."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil

import jax
import numpy as np
import pytest

from lmx import train
from lmx.cli.main import main
from lmx.config import resolve
from lmx.data import corpus as corpora
from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.evaluation import attention_length, context_length
from lmx.metrics import language
from lmx.models import registry
from lmx.runs import restore

RNG = np.random.default_rng(0)
TOKENS = RNG.integers(61, size=60)
MODELS = [
  ('gpt2', {'V': 61, 'N': 1}),
  ('rnn_lm', {}),
  ('nplm', {}),
  ('transformer_xl', {'fidelity': 'tf', 'M': 5, 'same_length': True, 'clamp': 4, 'N': 1}),
]


def made(name, **changes):
  model, cfg = registry.get(name), registry.config(name, 'tiny', **changes)
  params = jax.jit(lambda: jax.tree.map(lambda x: 4 * x, model.init(cfg, jax.random.key(1))))()
  return model, cfg, {'model': params}


def name_of(model):
  return model.__name__.rsplit('.', 1)[-1]


def cut(model, cfg, params, place, length):
  """Loss of the token at `place`, of the whole model applied to the `length` tokens before it and nothing else."""
  if name_of(model) == 'transformer_xl':  # no memory, and no zeros in its place
    cfg = dataclasses.replace(cfg, M=0, same_length=False)
  before_1T, after_1T = (TOKENS[None, place - length + k : place + k] for k in (0, 1))
  return float(_whole(model, cfg, params, before_1T, after_1T)[0, -1])


@functools.partial(jax.jit, static_argnums=(0, 1))
def _whole(model, cfg, params, tokens_BT, targets_BT):
  features, _ = model.apply(cfg, params['model'], {'tokens_BT': tokens_BT}, model.init_state(cfg, 1))
  return model.nll(cfg, params['model'], features, targets_BT)


@pytest.mark.parametrize(('name', 'changes'), MODELS)
def test_losses_equal_those_of_a_truncated_context(name, changes):
  model, cfg, params = made(name, **changes)
  first_I = np.asarray([9, 17, 18, 40, 59])
  # Rows of a call: 3 of length 4, so that the last call is not full.
  found = context_length.token_nll(model, cfg, params, TOKENS, first_I, [4, 9], window_tokens=12)
  expected = [[cut(model, cfg, params, place, c) for place in first_I] for c in (4, 9)]
  np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
  assert np.abs(found[0] - found[1]).max() > 1e-3  # the 5 tokens more are seen


def test_strided_layers_see_block_summaries():
  model, cfg, params = made('transformer_xl')
  found = context_length.token_nll(model, cfg, params, TOKENS, np.asarray([9, 12, 57]), [6], stride=2)
  expected = [cut(model, cfg, params, first + s, 6 + s) for first in (9, 12, 57) for s in range(2)]
  np.testing.assert_allclose(found, [expected], rtol=2e-5, atol=2e-5)


def test_window_equals_segments_over_empty_memory():
  """Read by segments of 3 over a memory of 9 that begins empty, the 9 tokens before give the same loss."""
  model, cfg, params = made('transformer_xl', M=9)

  @jax.jit
  def by_segments():
    state = model.init_state(cfg, 1)
    for i in range(31, 40, 3):
      features, state = model.apply(cfg, params['model'], {'tokens_BT': TOKENS[None, i : i + 3]}, state)
    return model.nll(cfg, params['model'], features, TOKENS[None, 38:41])[0, -1]

  found = context_length.token_nll(model, cfg, params, TOKENS, np.asarray([40]), [9])
  np.testing.assert_allclose(found[0, 0], by_segments(), rtol=2e-5)


def test_earlier_state_is_not_used():
  model, cfg, params = made('rnn_lm')
  other = TOKENS.copy()
  other[:33] = (other[:33] + 1) % 61
  loss = lambda tokens, c: context_length.token_nll(model, cfg, params, tokens, np.asarray([40]), [c])[0, 0]
  assert loss(TOKENS, 7) == loss(other, 7) and loss(TOKENS, 8) != loss(other, 8)


def test_tokens_are_spread_over_the_split():
  np.testing.assert_array_equal(context_length.block_starts(100, 20, 4, 1), [20, 40, 60, 80])
  np.testing.assert_array_equal(context_length.block_starts(30, 20, 0, 3), [20, 23, 26])
  np.testing.assert_array_equal(
    context_length.block_starts(100, 20, 7, 3), [20, 44, 71]
  )  # whole blocks, none over the end
  assert len(context_length.block_starts(30, 20, 99, 1)) == len(set(context_length.block_starts(30, 20, 99, 1))) == 10
  with pytest.raises(InputError, match='30 tokens, too few for 2 with 29'):
    context_length.block_starts(30, 29, 5, 2)


SHORT = (
  'model.D=16',
  'model.F=16',
  'model.H=2',
  'model.N=1',
  'model.M=4',
  'model.cutoffs=()',
  'model.dropout=0.0',
  'data.dataset=text_files',
  'data.tokenizer=words',
  'data.vocab_size=0',
  'data.length=8',
  'train.steps=1',
  'evaluation.baselines=false',
  'samples.count=0',
  'parallel.data=1',
)


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  """A Transformer-XL after one update, and the same measured with distances up to 1 alone."""
  folder = tmp_path_factory.mktemp('context')
  words = [f'w{i}' for i in range(56)]
  rng = np.random.default_rng(0)
  for split, lines in (('train', 60), ('valid', 12), ('test', 12)):
    (folder / f'{split}.txt').write_text(''.join(' '.join(rng.choice(words, 9)) + '\n' for _ in range(lines)))
  given = [*SHORT, f'data.manual_dir={folder}', 'optim.lr=0.1', 'optim.warmup_steps=0']
  assert train.train(resolve.load('experiments/transformer_xl/quickstart.py:tiny', given), folder / 'far') == 0
  shutil.copytree(folder / 'far', folder / 'near')
  changed = json.loads((folder / 'near' / 'config.json').read_text())
  changed['evaluation']['model']['clamp'] = 1
  (folder / 'near' / 'config.json').write_text(json.dumps(changed))
  (folder / 'near' / 'checksums.json').unlink()
  return [folder / 'far', folder / 'near']


def test_command_prints_the_measurement(runs, tmp_path, capsys):
  words = ['context', f'--workdirs={runs[0]},{runs[1]}', '--lengths=3:9:3', '--tokens=40', '--split=test']
  assert main([*words, f'--output={tmp_path}/new/far.json', '--shares=0.2,1']) == 0
  said = capsys.readouterr().out
  found = json.loads((tmp_path / 'new' / 'far.json').read_text())
  assert (tmp_path / 'new' / 'far.png').stat().st_size > 5000
  records = [(one['index'], one['share'], one['split'], one['recl']) for one in found['records']]
  assert records == [
    (i, r, 'test', m['shares'][r]['recl']) for i, m in enumerate(found['models']) for r in ('0.2', '1')
  ]
  assert found['lengths'] == [3, 6, 9] and found['tokens_counted'] == 40 and 'exactly c' in found['protocol']
  nll = []
  for workdir in runs:
    loaded = restore.load(workdir)
    tokens = np.asarray(loaded.corpus().splits['test'].tokens)
    first_I = context_length.block_starts(len(tokens), 9, 40, 1)
    nll.append(context_length.token_nll(loaded.model, loaded.run.measured, loaded.params, tokens, first_I, [3, 6, 9]))
  expected = context_length.compute_metrics(np.stack(nll), [3, 6, 9], [0.2, 1.0], 0.01, [{}, {}])
  for one, other, name in zip(found['models'], expected, ('far', 'near'), strict=True):
    assert one['name'] == name and one['shares'].keys() == {'0.2', '1'}
    np.testing.assert_allclose(one['perplexity_per_token'], other['perplexity_per_token'], rtol=1e-6)
    for share, figures in one['shares'].items():
      assert figures['recl'] == other['shares'][share]['recl']
      np.testing.assert_allclose(figures['relative_gain'], other['shares'][share]['relative_gain'], atol=1e-6)
    row = next(line for line in said.splitlines() if line.split()[:1] == [name])
    assert [int(x) for x in row.replace('>=', '').split()[1:]] == [x['recl'] for x in one['shares'].values()]
  assert found['models'][0]['perplexity_per_token'] != found['models'][1]['perplexity_per_token']
  assert language.perplexity(nll[0][1].sum(), 40) == pytest.approx(found['models'][0]['perplexity_per_token'][1])
  assert 'r = 0.2' in said and 'perplexity per token by context length' in said


def test_evaluation_settings_can_be_overridden(runs, capsys):
  ask = lambda workdir, *given: context_length.measure([workdir], 'test', [4, 8], tokens=20, overrides=given)['models'][
    0
  ]
  near = ask(runs[0], 'evaluation.model.clamp=1', 'evaluation.model.M=3')  # nothing is remembered, whatever M
  assert near['perplexity_per_token'] == ask(runs[1])['perplexity_per_token']
  assert near['measured_with'] == {'M': 3, 'clamp': 1, 'same_length': True}


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (['--lengths=3:12'], 'FIRST:LAST:STEP'),
    (['--lengths=3:5:3'], 'at least two lengths'),
    (['--shares=0.1,x'], '--shares: got "0.1,x"'),
    (['--stride=0'], '--stride'),
    (['--split=tset'], 'did you mean "test"'),
    (['--lengths=100:200:50'], 'too few for 1 with 200'),
  ],
)
def test_invalid_options_are_rejected(runs, tmp_path, capsys, options, message):
  given = ['context', f'--workdirs={runs[0]}', f'--output={tmp_path}', '--lengths=3:6:3', *options]
  assert main(given) == 2
  assert message in capsys.readouterr().err


def test_incomparable_runs_are_rejected(runs, tmp_path, monkeypatch, capsys):
  both = [str(workdir) for workdir in runs]
  ask = lambda workdirs: context_length.measure(workdirs, 'test', [3, 6], tokens=10)
  with pytest.raises(InputError, match='named twice'):
    ask([both[0], both[0]])
  with pytest.raises(InputError, match='got no config.json'):
    ask([tmp_path])
  original, load = restore.RestoredRun.corpus, restore.load

  def other_data(self):
    corpus = original(self)
    return dataclasses.replace(corpus, hash='other') if str(self.workdir) == both[1] else corpus

  monkeypatch.setattr(restore.RestoredRun, 'corpus', other_data)
  with pytest.raises(InputError, match='near was trained on other data than .*far'):
    ask(both)

  def other_words(self):
    corpus = original(self)
    if str(self.workdir) == both[0]:
      return corpus
    return corpora.Corpus.from_texts({'test': ['a b\n']}, build.train('words', ['a b\n']))

  monkeypatch.setattr(restore.RestoredRun, 'corpus', other_words)
  with pytest.raises(InputError, match='near has another tokenizer than .*far'):
    ask(both)

  def narrow(workdir, *args):
    loaded = load(workdir, *args)
    run = dataclasses.replace(loaded.run, model_name='gpt2', measured=registry.config('gpt2', 'tiny', T=5))
    return dataclasses.replace(loaded, model=registry.get('gpt2'), run=run)

  monkeypatch.setattr(restore.RestoredRun, 'corpus', original)
  monkeypatch.setattr(restore, 'load', narrow)
  with pytest.raises(InputError, match='reads at most 5 tokens'):
    ask(both[:1])

  def masked(workdir, *args):
    loaded = load(workdir, *args)
    run = dataclasses.replace(loaded.run, model_name='bert', objective_name='masked_lm')
    return dataclasses.replace(loaded, model=registry.get('bert'), run=run)

  monkeypatch.setattr(restore, 'load', masked)
  with pytest.raises(InputError, match='a bert trained with masked_lm'):
    ask(both[:1])


def test_attention_lengths_are_evaluated_and_the_shortest_of_the_best_is_found(runs, tmp_path, capsys):
  words = ['evaluate', f'--workdir={runs[0]}', '--split=valid']
  assert main([*words, '--attention=4:12:4', f'--output={tmp_path}/a.json']) == 0
  found = json.loads((tmp_path / 'a.json').read_text())
  assert [one['attention_length'] for one in found['records']] == [4, 8, 12] and found['split'] == 'valid'
  assert main([*words, '--no-baselines', '--config.evaluation.model.M=8', f'--output={tmp_path}/b.json']) == 0
  eight = json.loads((tmp_path / 'b.json').read_text())['perplexity_per_token']
  assert found['records'][1]['perplexity_per_token'] == pytest.approx(eight, rel=1e-6)
  best = min(round(one['perplexity_per_token'], 2) for one in found['records'])
  shortest = next(one for one in found['records'] if round(one['perplexity_per_token'], 2) == best)
  assert found['attention_length'] == shortest['attention_length']
  assert found['perplexity_per_token'] == shortest['perplexity_per_token']
  assert f'{shortest["attention_length"]:8,}' in capsys.readouterr().out
  assert main([*words, '--attention=4:12:4', '--cache=10,0.1,1']) == 2
  assert '--cache: got it with --attention' in capsys.readouterr().err


def test_attention_without_a_memory_matches_overlapping_windows():
  load = lambda *changes: resolve.to_run(resolve.load('experiments/transformer_xl/quickstart.py:alone', changes), 4096)
  assert attention_length.overrides_for(load(), 100) == ['data.eval_length=115']
  with pytest.raises(InputError, match='evaluation.stride: got 0'):
    attention_length.overrides_for(load('evaluation.stride=0'), 100)
