"""lm-evaluation-harness over a run: the three kinds of requests, and its command line on files of minimal pairs."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import lmx
from lmx import train
from lmx.cli.main import main
from lmx.config import resolve
from lmx.errors import InputError
from lmx.scoring import sentences
from lmx.scoring.rows import Row
from lmx.scoring.scorer import RunScorer

PAIRS = [('the file is open', 'the file are open'), ('they read it', 'they reads it'), ('a list', 'an list')]


def write_pairs(folder):
  folder.mkdir()
  for name, opener in (('agreement.jsonl', open), ('islands.jsonl.gz', gzip.open)):
    with opener(folder / name, 'wt') as file:
      for good, bad in PAIRS:
        file.write(json.dumps({'sentence_good': good, 'sentence_bad': bad}) + '\n')
  return folder


def test_task_files_name_the_files_of_pairs(tmp_path, capsys):
  pairs = write_pairs(tmp_path / 'pairs')
  assert main(['harness', f'--pairs={pairs}', f'--write_tasks={tmp_path / "tasks"}']) == 0
  assert 'wrote 2 task files' in capsys.readouterr().out
  text = (tmp_path / 'tasks/islands.yaml').read_text()
  assert 'task: islands\n' in text and json.dumps(str(pairs / 'islands.jsonl.gz')) in text


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--write_tasks=tasks'], '--write_tasks, --pairs: got one of them'),
    (['--pairs=empty', '--write_tasks=tasks'], 'without .jsonl files'),
    (['--pairs=pairs', '--write_tasks=tasks', '--tasks', 'a'], '--write_tasks: got it with --tasks'),
    (['--pairs=bad', '--write_tasks=tasks'], 'no field "sentence_bad"'),
  ],
)
def test_wrong_arguments_write_nothing(arguments, message, tmp_path, monkeypatch, capsys):
  write_pairs(tmp_path / 'pairs')
  (tmp_path / 'bad').mkdir()
  (tmp_path / 'empty').mkdir()
  (tmp_path / 'bad/one.jsonl').write_text('{"sentence_good": "a"}\n')
  monkeypatch.chdir(tmp_path)
  assert main(['harness', *arguments]) == 2
  assert message in capsys.readouterr().err and not (tmp_path / 'tasks').exists()


def test_without_the_harness_its_extra_is_named(monkeypatch, capsys):
  monkeypatch.setitem(sys.modules, 'lm_eval', None)
  assert main(['harness', '--tasks', 'blimp', '--limit=3']) == 2
  assert "pip install 'lmx[harness]'" in capsys.readouterr().err


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run') / 'gpt2'
  train.train(resolve.load('experiments/gpt2/quickstart.py:tiny', ['samples.count=0']), folder)
  return folder


@pytest.fixture(scope='module')
def model(workdir):
  pytest.importorskip('lm_eval')
  from lmx import harness

  return harness.LMX(workdir=str(workdir))


def requests(*pairs):
  return [SimpleNamespace(args=pair) for pair in pairs]


@pytest.mark.slow
@pytest.mark.peer
def test_continuations_are_scored_after_their_contexts(model, workdir):
  scorer = RunScorer(lmx.load(workdir))
  text = 'The list is sorted'
  (whole,) = sentences.score(scorer, [text])
  answers = model.loglikelihood(requests(('', text), ('The list', ' is sorted')))
  assert answers[0][0] == pytest.approx(whole.sum, abs=1e-4)
  # A context is read without a start symbol, as the harness reads it with other models.
  before, ids = np.split(scorer.tokenizer.encode(text), [len(scorer.tokenizer.encode('The list'))])
  (after,) = scorer.score([Row(ids, before)])
  assert answers[1][0] == pytest.approx(after.log_p_T.sum(), abs=1e-4)


@pytest.mark.slow
@pytest.mark.peer
def test_greedy_continuations_are_recognised(model, workdir):
  text = lmx.load(workdir).generate('The list', tokens=1, greedy=True)[0].removeprefix('The list')
  (likely, greedy), (unlikely, other) = model.loglikelihood(requests(('The list', text), ('The list', ' zebra')))
  assert greedy and not other and likely > unlikely


@pytest.mark.slow
@pytest.mark.peer
def test_long_texts_count_each_token_once(model, workdir):
  scorer = RunScorer(lmx.load(workdir))
  ids = scorer.tokenizer.encode('the list of the first value in a file is read . ' * 40)
  text = scorer.tokenizer.decode(ids)
  ids, most = scorer.tokenizer.encode(text), scorer.positions
  assert len(ids) > 2 * most
  total = 0.0
  for start in range(0, len(ids), most):  # whole windows, and the last one as long as the positions
    stop = min(start + most, len(ids))
    first = max(0, stop - most)
    before = np.asarray([scorer.prefix_id] if not first else ids[first - 1 : first], np.int32)
    context = np.concatenate([before, ids[first:start]]).astype(np.int32)
    (scored,) = scorer.score([scorer.row('a')._replace(ids_T=ids[start:stop], context_S=context)])
    total += scored.log_p_T.sum()
  assert model.loglikelihood_rolling(requests((text,)))[0] == pytest.approx(total, rel=1e-5)


@pytest.mark.slow
@pytest.mark.peer
def test_generation_ends_before_a_stop_string(model, workdir):
  whole = lmx.load(workdir).generate('The list', tokens=12, greedy=True)[0].removeprefix('The list')
  stop = whole[3:5]
  options = {'max_gen_toks': 12, 'do_sample': False}
  answers = model.generate_until(
    requests(('The list', {**options, 'until': []}), ('The list', {**options, 'until': [stop]}))
  )
  assert answers == [whole, whole[: whole.index(stop)]]
  with pytest.raises(InputError, match='gen_kwargs: got num_beams'):
    model.generate_until(requests(('a', {'num_beams': 2})))


@pytest.mark.slow
@pytest.mark.peer
def test_both_command_lines_agree_with_lmx(model, workdir, tmp_path):
  """lm_eval finds the model by the folder of tasks, lmx harness brings it; ties count as right."""
  main(['harness', f'--pairs={write_pairs(tmp_path / "pairs")}', f'--write_tasks={tmp_path / "tasks"}'])
  scores = [[s.sum for s in sentences.score(RunScorer(lmx.load(workdir)), [f' {a}', f' {b}'])] for a, b in PAIRS]
  expected = np.mean([good >= bad for good, bad in scores])
  common = ['--model_args', f'workdir={workdir}', '--tasks', str(tmp_path / 'tasks')]
  environment = {**os.environ, 'HF_HUB_OFFLINE': '1', 'HF_HOME': str(tmp_path / 'hub')}
  for name, words in (
    ('plain', ['-c', 'from lm_eval.__main__ import cli_evaluate; cli_evaluate()', '--model', 'lmx']),
    ('own', ['-m', 'lmx', 'harness']),
  ):
    output = tmp_path / name
    command = [sys.executable, *words, *common, '--output_path', str(output)]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    (found,) = output.rglob('results_*.json')
    results = json.loads(found.read_text())['results']
    assert {task: one['acc,none'] for task, one in results.items()} == pytest.approx(
      {'agreement': expected, 'islands': expected}
    )


@pytest.mark.slow
@pytest.mark.peer
def test_models_without_a_left_to_right_likelihood_are_refused(tmp_path):
  pytest.importorskip('lm_eval')
  from lmx import harness

  train.train(resolve.load('experiments/bert/quickstart.py:tiny', ['train.steps=1', 'samples.count=0']), tmp_path / 'b')
  with pytest.raises(InputError, match='expected a causal model'):
    harness.LMX(workdir=str(tmp_path / 'b'))
  with pytest.raises(InputError, match='got no workdir'):
    harness.LMX()
  for wrong in ('a', -3):
    with pytest.raises(InputError, match='max_length: got'):
      harness.LMX(workdir=str(tmp_path / 'b'), max_length=wrong)
  with pytest.raises(InputError, match='max_length=100000'):
    train.train(
      resolve.load('experiments/gpt2/quickstart.py:tiny', ['train.steps=1', 'samples.count=0']), tmp_path / 'g'
    )
    harness.LMX(pretrained=str(tmp_path / 'g'), max_length=100000)
