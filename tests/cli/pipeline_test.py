"""`lmx pipeline`: stages one after another, each once; and its classifiers in `lmx predict` and in ensembles."""

from __future__ import annotations

import dataclasses
import errno
import json
import pathlib
import shutil
import sys
import types

import numpy as np
import pytest

from lmx.cli import dry_start, main, pipeline, predict
from lmx.config import resolve
from lmx.data import corpus as corpora
from lmx.data import pipeline as data
from lmx.errors import InputError, NonFiniteLoss
from lmx.evaluation import ensemble
from lmx.prediction import classification
from lmx.runs import convert, origin, restore
from tests import untrained

CONFIG = 'experiments/ulmfit/quickstart.py:tiny'
SHORT = (
  '--config.train.steps=2',
  '--config.train.eval_every=2',
  '--config.parallel.data=1',
  '--config.samples.count=0',
  '--config.data.fraction=0.1',
  '--config.1_lm.evaluation.split=valid',
  '--config.1_lm.data.batching.length_multiple=0',
  '--config.2_classifier.data.batching.buckets=()',
  '--config.2_classifier.data.length=16',
)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A pipeline of two stages that has run."""
  directory = tmp_path_factory.mktemp('pipeline')
  assert main.main(['pipeline', f'--config={CONFIG}', f'--workdir={directory}', *SHORT, '--until=1_lm']) == 0
  assert not (directory / '2_classifier').exists()
  assert main.main(['pipeline', f'--config={CONFIG}', f'--workdir={directory}', *SHORT]) == 0
  return directory


@pytest.fixture(scope='module')
def backward(finished, tmp_path_factory):
  """A second classifier of the same documents, which reads them backwards."""
  directory = tmp_path_factory.mktemp('backward')
  tokenizer = f'--config.data.tokenizer_path={finished}/1_lm/tokenizer'
  more = [
    *SHORT[:5],
    '--config.data.batching.buckets=()',
    '--config.data.length=16',
    '--config.data.reverse=true',
    tokenizer,
  ]
  assert main.main(['train', f'--config={CONFIG}', f'--workdir={directory}', *more]) == 0
  return directory


def test_pipeline_continues_where_it_stopped_and_ends_with_a_table(finished, capsys):
  before = {path: path.stat().st_mtime_ns for path in finished.glob('*/results.json')}
  left = finished / '1_lm' / 'checkpoints' / 'deleted_step_000000001'
  left.mkdir()
  assert main.main(['pipeline', f'--config={CONFIG}', f'--workdir={finished}', *SHORT]) == 0
  out, err = capsys.readouterr()
  assert before == {path: path.stat().st_mtime_ns for path in finished.glob('*/results.json')}
  assert not left.exists()
  assert '1_lm: finished' in err and '2_classifier: finished' in err
  assert 'error percent on embedded/test' in out and 'perplexity per word on embedded/valid' in out
  table = json.loads((finished / 'results.json').read_text())
  assert list(table) == ['1_lm', '2_classifier'] and table['2_classifier']['metric'] == 'error_percent'
  config = json.loads((finished / '2_classifier' / 'config.json').read_text())
  assert config['train']['init_from'] == f'{finished}/1_lm' and config['train']['init_parts'] == ['model']


def test_stage_of_other_settings_is_rejected_before_any_stage_runs(finished, tmp_path, capsys):
  directory = shutil.copytree(finished, tmp_path / 'moved')
  run = lambda *more: main.main(['pipeline', f'--config={CONFIG}', f'--workdir={directory}', *SHORT, *more])
  shutil.rmtree(directory / '1_lm')
  assert run('--config.2_classifier.optim.lr=0.5') == 2
  message = capsys.readouterr().err
  assert f'{directory}/2_classifier holds a run of another config' in message and '0.5 in this config' in message
  assert not (directory / '1_lm').exists() and 'init_from' not in message
  assert run('--config.2_classifier.evaluation.which=last', '--until=1_lm', '--config.1_lm.seed=5') == 0
  assert run('--config.1_lm.seed=5') == 2
  assert 'got a stage that started from another run' in capsys.readouterr().err
  shutil.rmtree(directory / '1_lm')
  shutil.copytree(finished / '1_lm', directory / '1_lm')
  assert run('--config.2_classifier.evaluation.which=last') == 0
  assert (
    "2_classifier: evaluation.which: got 'last', where the run began with 'best'; results" in capsys.readouterr().err
  )


def test_inputs_of_every_stage_are_checked_before_the_first_runs(tmp_path, capsys):
  """The weights of a later stage come from an earlier one, so they are no input."""
  data, rows = tmp_path / 'data', [f'some words {i},{label}\n' for i in range(40) for label in ('good', 'bad')]
  data.mkdir()
  (data / 'train.csv').write_text('text,label\n' + ''.join(rows))
  own = [
    f'--config.2_classifier.data.{key}={value}'
    for key, value in {
      'dataset': 'table_files',
      'manual_dir': data,
      'label': 'label',
      'cache_dir': tmp_path / 'cache',
      'batch_size': 4,
    }.items()
  ]
  directory = tmp_path / 'runs'

  def message(*more):
    command = ['pipeline', f'--config={CONFIG}', f'--workdir={directory}', *SHORT, *own, '--until=2_classifier']
    assert main.main([*command, *more]) == 2
    assert not directory.exists()
    return capsys.readouterr().err

  assert 'stage 2_classifier: ' in (found := message(f'--config.2_classifier.data.manual_dir={tmp_path}/none'))
  assert f'{tmp_path}/none' in found
  assert 'stage 2_classifier: ' in (found := message('--config.2_classifier.data.label=stars')) and 'stars' in found
  found = message('--config.2_classifier.objective.classes=3')
  assert 'stage 2_classifier: objective.classes: got 3, but the data set has 2: bad, good' in found
  found = message(f'--config.2_classifier.train.init_from={tmp_path}/weights')
  assert 'stage 2_classifier: train.init_from: ' in found and f'{tmp_path}/weights' in found
  (data / 'train.csv').write_text('text,label\n' + ''.join(rows[::2]))
  assert 'stage 2_classifier: ' in (found := message()) and 'only the label "good"' in found
  found = message(f'--config.1_lm.train.init_from={tmp_path}/weights')
  assert 'stage 1_lm: train.init_from: ' in found


def test_stage_whose_tokenizer_an_earlier_one_trains_is_checked_without_it(tmp_path, monkeypatch):
  checked = []
  note = lambda kind: lambda config, workdir, with_weights: checked.append((kind, workdir.name, with_weights))
  monkeypatch.setattr(dry_start, 'check_start', note('start'))
  monkeypatch.setattr(dry_start, 'check_files', note('files'))
  given = [f'3_classifier.train.init_from={tmp_path}/2_lm']
  pipeline._check_inputs(pipeline.plan('experiments/ulmfit/classifier.py:tiny', tmp_path, given), tmp_path)
  assert checked == [('start', '1_general', True), ('start', '2_lm', False), ('files', '3_classifier', False)]
  (tmp_path / '2_lm').mkdir()
  (tmp_path / '2_lm/results.json').write_text('{}')
  checked.clear()
  pipeline._check_inputs(pipeline.plan('experiments/ulmfit/classifier.py:tiny', tmp_path, given), tmp_path)
  assert checked == [('start', '1_general', True), ('start', '3_classifier', True)]


def test_ensemble_of_retrained_runs_is_rejected(finished, tmp_path):
  directory = pathlib.Path(shutil.copytree(finished, tmp_path / 'moved'))
  stage = {'name': '3_ensemble', 'ensemble': ('1_lm', '2_classifier'), 'which': 'best'}
  origin.write(directory / '3_ensemble', [directory / '1_lm', directory / '2_classifier'])
  pipeline._check_origin(stage, directory)
  (directory / '2_classifier/origin.json').unlink()  # as if it had begun from another run
  with pytest.raises(InputError, match='3_ensemble: got'):
    pipeline._check_origin(stage, directory)


def test_imported_weights_are_a_stage(finished, tmp_path, capsys):
  directory = shutil.copytree(finished, tmp_path / 'pipeline')
  first = directory / '1_lm'
  convert.export_run(first, str(tmp_path / 'fastai'))
  shutil.rmtree(first)
  convert.import_run(str(tmp_path / 'fastai'), first, with_tokenizer=False)
  before = sorted(path.name for path in (first / 'checkpoints').iterdir())
  changed = SHORT[0].replace('2', '9')  # no training of that stage would have these settings
  assert (
    main.main(['pipeline', f'--config={CONFIG}', f'--workdir={directory}', changed, *SHORT[1:], '--until=1_lm']) == 0
  )
  assert f'1_lm: imported from {tmp_path}/fastai' in capsys.readouterr().err
  assert main.main(['pipeline', f'--config={CONFIG}', f'--workdir={directory}', *SHORT]) == 0
  out, err = capsys.readouterr()
  assert f'1_lm: imported from {tmp_path}/fastai' in err and '2_classifier: finished' in err and 'perplexity' not in out
  assert sorted(path.name for path in (first / 'checkpoints').iterdir()) == before


@pytest.mark.parametrize('more', ['', ',table'])
def test_every_stage_of_the_tiny_pipeline_is_small_and_offline(tmp_path, more):
  stages = pipeline.plan(f'experiments/ulmfit/classifier.py:tiny{more}', tmp_path, [])
  loaded = [resolve.load(stage['config'], stage['overrides']) for stage in stages if 'config' in stage]
  assert len(loaded) >= 3 and all(one.data.dataset == 'embedded' for one in loaded)
  assert all(one.model.D == 16 and one.train.steps == 20 for one in loaded)


def test_pipeline_accepts_user_table(tmp_path):
  given = [f"{stage}.data.texts=('review',)" for stage in ('2_lm', '3_classifier')] + ['3_classifier.data.label=stars']
  stages = pipeline.plan('experiments/ulmfit/classifier.py:own,general=wikitext2', tmp_path, given)
  _, lm, classifier = (resolve.load(stage['config'], stage['overrides']) for stage in stages)
  assert (lm.data.dataset, classifier.data.dataset) == ('table_files', 'table_files')
  assert lm.data.texts == classifier.data.texts == ('review',) and classifier.data.label == 'stars'
  assert classifier.objective.name == 'classify' and classifier.objective.metric == 'accuracy'


def test_ensemble_is_measured_on_the_split_of_its_members(tmp_path):
  stage = {'name': '4_ensemble', 'ensemble': ('a', 'b'), 'which': 'best'}
  assert ' --split=test ' in pipeline.command(stage, tmp_path)
  (tmp_path / 'a').mkdir()
  (tmp_path / 'a/results.json').write_text('{"split": "valid"}')
  assert ' --split=valid ' in pipeline.command(stage, tmp_path)


def test_pipeline_stages_are_commands(capsys, tmp_path):
  arguments = ['--config.3_full.optim.lr=0.5', '--config.seed=3', '--dry_run']
  config = 'experiments/ulmfit/classifier.py:trec,size=small,general=small,table'
  assert main.main(['pipeline', f'--config={config}', f'--workdir={tmp_path}', *arguments]) == 0
  lines = capsys.readouterr().out.splitlines()
  rows = ('scratch', 'no_lm_finetuning', 'full', 'discriminative', 'stlr', 'classifier')
  names = ['1_general', '2_lm', *(f'3_{row}' for row in rows)]
  backwards = ['1_general_backward', '2_lm_backward', '3_classifier_backward']
  assert [line.split('--workdir=')[1].split()[0].rsplit('/', 1)[1] for line in lines[:-1]] == names + backwards
  assert lines[-1].startswith('lmx evaluate') and lines[-1].endswith('4_ensemble/results.json')
  assert '--which=best' in lines[-1]
  released = pipeline.plan(config + ',fidelity=fastai', tmp_path, [])
  assert released[-1]['which'] == 'last' and '--which=last' in pipeline.command(released[-1], tmp_path)
  found = {stage['name']: stage for stage in pipeline.plan(config, tmp_path, [a[9:] for a in arguments[:2]])}
  assert 'optim.lr=0.5' in found['3_full']['overrides'] and 'optim.lr=0.5' not in found['3_stlr']['overrides']
  assert 'seed=3' in found['3_stlr']['overrides'] and '{dir}' not in str(found)
  assert not any('init_from' in text for text in found['3_scratch']['overrides'])
  assert f'train.init_from={tmp_path}/1_general' in found['3_no_lm_finetuning']['overrides']
  assert 'direction=backward' in found['2_lm_backward']['config']
  assert found['4_ensemble']['ensemble'] == ('3_classifier', '3_classifier_backward')
  assert list(pathlib.Path(tmp_path).iterdir()) == []


def test_pipeline_stages_share_a_tracker_group(tmp_path, monkeypatch):
  monkeypatch.delenv('MLFLOW_TRACKING_URI', raising=False)
  config, directory = 'experiments/ulmfit/quickstart.py', tmp_path / 'mine'

  def added(*overrides):
    stages = pipeline.plan(config, directory, [*overrides])
    return [[text for text in stage['overrides'] if text.startswith('log.')] for stage in stages]

  assert added() == [[], []]
  group, store = 'log.group=mine', f'log.mlflow_uri={directory / "mlruns"}'
  assert added('log.to=wandb') == [['log.to=wandb', group]] * 2
  assert added('2_classifier.log.to=mlflow') == [[], ['log.to=mlflow', group, store]]
  assert added('log.to=mlflow', 'log.group=x')[0] == ['log.to=mlflow', 'log.group=x', store]
  monkeypatch.setenv('MLFLOW_TRACKING_URI', 'http://host')
  assert added('log.to=mlflow')[0] == ['log.to=mlflow', group]


def test_files_without_stages_are_rejected(capsys, tmp_path):
  for arguments, message in (
    (['--config=experiments/rnn_lm/quickstart.py'], 'which has no stages'),
    ([f'--config={CONFIG}', '--until=3_lm'], '--until: unknown "3_lm"; did you mean "1_lm"'),
    ([f'--config={CONFIG}y'], 'no variant "tinyy"'),
    (
      [f'--config={CONFIG}', '--config.2_classifier.data.fracton=0.1'],
      'data.fracton: got a key that the config does not have; did you mean "fraction"',
    ),
  ):
    assert main.main(['pipeline', f'--workdir={tmp_path}', *arguments]) == 2
    assert message in capsys.readouterr().err


def predicted(directory, path, capsys):
  assert main.main(['predict', f'--workdir={directory}', f'--input={path}']) == 0
  out, err = capsys.readouterr()
  return [json.loads(line) for line in out.splitlines()], err


def test_predictions_of_a_file_match_the_split(finished, backward, tmp_path, capsys):
  for directory in (finished / '2_classifier', backward):
    loaded = restore.load(directory)
    corpus = data.load(loaded.run.data)
    p_IC, labels_I = classification.compute_probabilities(loaded, corpus, 'valid')
    names = classification.label_names(loaded)
    np.testing.assert_allclose(p_IC.sum(1), 1.0, atol=1e-6)
    forward = data.load(restore.load(finished / '2_classifier').run.data).splits['valid']
    texts = [
      loaded.tokenizer.decode(forward.tokens[b : e - 1])
      for b, e in zip(forward.offsets[:5], forward.offsets[1:6], strict=True)
    ]
    rows = [{'text': text, 'label': names[i]} for text, i in zip(texts, labels_I, strict=False)]
    (tmp_path / 'in.jsonl').write_text('\n'.join(map(json.dumps, rows)) + '\n')
    found, err = predicted(directory, tmp_path / 'in.jsonl', capsys)
    for row, p_C in zip(found, p_IC, strict=False):
      assert row['label'] == names[p_C.argmax()] and list(row['probabilities']) == names
      np.testing.assert_allclose(list(row['probabilities'].values()), p_C, atol=2e-5)
    right = int((p_IC[:5].argmax(1) == labels_I[:5]).sum())
    assert f'{right} of 5 documents with a label are right' in err
    (tmp_path / 'in.txt').write_text('\n'.join(text.replace('\n', ' ') for text in texts[:2]))
    assert len(predicted(directory, tmp_path / 'in.txt', capsys)[0]) == 2


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('a.txt', 'one\n\ntwo\n', 'line 2: got no text'),
    ('a.txt', '', 'the file is empty'),
    ('a.jsonl', '{"text": "one"\n', 'line 1: not JSON'),
    ('none.txt', None, 'expected an existing file'),
  ],
)
def test_unpredictable_files_are_rejected(finished, tmp_path, capsys, name, content, message):
  if content is not None:
    (tmp_path / name).write_text(content)
  assert main.main(['predict', f'--workdir={finished}/2_classifier', f'--input={tmp_path / name}']) == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize('call', ['write', 'flush'])
def test_unwritable_predictions_are_reported(monkeypatch, call):
  for error, wanted, message in (
    (BrokenPipeError(errno.EPIPE, 'Broken pipe'), BrokenPipeError, 'Broken pipe'),  # as of a reader that wants no more
    (OSError(errno.ENOSPC, 'No space left'), InputError, 'standard output: cannot be written .No space left'),
  ):

    def fail(*_, error=error):
      raise error

    monkeypatch.setattr(sys, 'stdout', types.SimpleNamespace(**{'write': len, 'flush': list, call: fail}))
    with pytest.raises(wanted, match=message):
      predict._write('', 'a line\n')


@pytest.mark.parametrize('reverse', [False, True])
def test_file_argument_is_a_path_not_a_split(tmp_path, reverse):
  path = tmp_path / 'rows.jsonl'
  path.write_text('{"text": "one two three four five six"}\n')
  settings = 'data.dataset=table_files', 'objective.name=regress', f'data.reverse={reverse}'
  loaded = untrained.load('experiments/ulmfit/classifier.py:tiny', *settings)
  asked = classification.read_file(loaded, str(path))
  split = asked.corpus.splits[asked.split]
  other = corpora.Corpus.from_texts({'train': ['a']}, loaded.tokenizer)
  assert (split.title, other.splits['train'].title) == (str(path), 'split train')
  assert loaded.tokenizer.decode(split.tokens[:3].tolist()) == ('xis' if reverse else 'one')


def test_only_classifiers_predict(finished, capsys):
  assert main.main(['predict', f'--workdir={finished}/1_lm', '--input=setup.cfg']) == 2
  assert 'objective: got "causal_lm"' in capsys.readouterr().err


def test_ensemble_averages_probabilities(finished, backward, tmp_path, capsys):
  one, output = finished / '2_classifier', tmp_path / 'ensemble.json'
  command = ['evaluate', f'--workdir={one}', f'--ensemble={backward}', '--split=valid', f'--output={output}']
  assert main.main(command) == 0
  assert 'mean of 2 classifiers' in capsys.readouterr().out
  assert main.main([*command, '--cache=10,0.1,1.0']) == 2
  assert 'got it with --ensemble' in capsys.readouterr().err
  assert main.main([*command, '--by_length=x.png']) == 2
  assert 'got it with --ensemble' in capsys.readouterr().err
  found = json.loads(output.read_text())
  assert main.main([*command[:-1], '--json', '--config.data.fraction=0.05']) == 0
  assert json.loads(capsys.readouterr().out)['tokens_counted'] < found['tokens_counted']
  parts = []
  for directory in (one, backward):
    loaded = restore.load(directory)
    parts.append(classification.compute_probabilities(loaded, data.load(loaded.run.data), 'valid'))
  labels_I = parts[0][1]
  mean_IC = (parts[0][0] + parts[1][0]) / 2
  assert not np.allclose(parts[0][0], parts[1][0], atol=1e-6)
  assert found['error_percent'] == pytest.approx(100 * (mean_IC.argmax(1) != labels_I).mean())
  assert found['loss'] == pytest.approx(-np.log(mean_IC[np.arange(len(labels_I)), labels_I]).mean())
  assert main.main(['evaluate', f'--workdir={one}', '--split=valid', '--json']) == 0
  alone = json.loads(capsys.readouterr().out)
  assert found['members'][0]['error_percent'] == pytest.approx(alone['error_percent'])
  same = ensemble.evaluate([one, one], 'valid').metrics
  assert same['error_percent'] == pytest.approx(alone['error_percent'])
  assert same['loss'] == pytest.approx(alone['loss'], rel=1e-4)


@pytest.mark.parametrize('truth', [{}, {'truth': np.array([1, -1])}])
def test_unlabelled_rows_are_not_scored(monkeypatch, truth):
  monkeypatch.setattr(classification, 'compute_outputs', lambda *_: {'logits_BC': np.zeros((2, 3)), **truth})
  loaded = untrained.load('experiments/ulmfit/classifier.py:tiny')
  with pytest.raises(InputError, match=f'split test has {2 - len(truth)} rows without a label'):
    classification.compute_probabilities(loaded, None, 'test')


@pytest.mark.parametrize('logit', [np.nan, np.inf])
def test_non_finite_probabilities_are_not_scored(monkeypatch, logit):
  found = {'logits_BC': np.array([[0.0, 1.0], [logit, 0.0]]), 'truth': np.array([0, 1])}
  monkeypatch.setattr(classification, 'compute_outputs', lambda *_: found)
  params = {'model': {'bias': np.array([logit])}}
  loaded = untrained.load('experiments/ulmfit/classifier.py:tiny', params=params, workdir='runs/a')
  message = 'the probabilities of runs/a on split test are not finite; parameters with NaN or infinity: model/bias'
  with pytest.raises(NonFiniteLoss, match=message):
    classification.compute_probabilities(loaded, None, 'test')


def test_ensemble_members_may_order_labels_differently(finished, tmp_path, monkeypatch):
  one, turned = finished / '2_classifier', tmp_path / 'turned'
  shutil.copytree(one, turned)
  about = json.loads((turned / 'data.json').read_text())
  about = {name: value for name, value in about.items() if name != 'hash'} | {'label_names': about['label_names'][::-1]}
  (turned / 'data.json').write_text(json.dumps({**about, 'hash': corpora.manifest_hash(about)}))
  (turned / 'checksums.json').unlink()
  load = restore.load

  def loaded(workdir, *rest):
    found = load(workdir, *rest)
    if workdir != turned:
      return found
    head = found.params['objective']
    last = max(head)
    outputs = {name: x if name == 'norm' else x[..., ::-1] for name, x in head[last].items()}
    return dataclasses.replace(found, params={**found.params, 'objective': {**head, last: outputs}})

  alone = ensemble.evaluate([one], 'valid').metrics
  monkeypatch.setattr(restore, 'load', loaded)
  both = ensemble.evaluate([turned, one], 'valid').metrics
  for name in ('error_percent', 'loss'):
    assert both[name] == pytest.approx(alone[name], rel=1e-4)
  assert [member['error_percent'] for member in both['members']] == pytest.approx([alone['error_percent']] * 2)
