"""A table fine-tuned on from the command line: what the run leaves, what it says of new rows, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats

from lmx import inference, objectives
from lmx.cli import main
from lmx.config import resolve
from lmx.data import pipeline
from lmx.errors import InputError
from lmx.prediction import classification
from lmx.reporting import run_log
from lmx.runs import convert, restore
from tests import saved_rows, untrained

WORDS = 'ba be bi bo bu da de di do du fa fe fi fo fu'.split()


DROPOUTS = {  # whose masks take half of the time that a step compiles
  'bert': ('model.dropout_hidden', 'model.dropout_attention'),
  'gpt': ('model.dropout_embedding', 'model.dropout_attention', 'model.dropout_residual'),
}


def rows(count, seed):
  draw = np.random.default_rng(seed)
  for _ in range(count):
    one, two = (' '.join(draw.choice(WORDS, draw.integers(1, 6))) for _ in range(2))
    yield {'one': one, 'two': two, 'label': 'same' if one[0] == two[0] else 'other', 'score': float(len(one))}


def write(path, found, *, without=()):
  path.write_text(''.join(json.dumps({k: v for k, v in row.items() if k not in without}) + '\n' for row in found))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('tables')
  for seed, (split, count) in enumerate((('train', 64), ('valid', 30), ('test', 11))):
    write(folder / f'{split}.jsonl', rows(count, seed), without=('label', 'score') if split == 'test' else ())
  return folder


def train(folder, kind, variant, **changes):
  tiny = {
    'model.variant': 'tiny',
    'model.V': 0,
    'data.texts': "('one','two')",
    'data.manual_dir': folder,
    'data.vocab_size': 300,
    'data.batch_size': 8,
    'data.length': 24,
    'data.batching.buckets': '()',
    'train.epochs': 2,
    'train.eval_every': 8,
    'evaluation.save_rows': True,
    'parallel.data': 1,
    'optim.lr': 1e-3,
    'model.N': 1,
    **dict.fromkeys(DROPOUTS[kind], 0.0),
    **changes,
  }
  if kind == 'bert':
    tiny |= {'model.D': 32}
  command = ['train', f'--config=experiments/{kind}/tasks.py:{variant}', f'--workdir={folder}/{kind}_{variant}']
  assert main.main([*command, *(f'--config.{key}={value}' for key, value in tiny.items())]) == 0
  return folder / f'{kind}_{variant}'


@pytest.fixture(scope='module')
def classifier(folder):
  chosen = {
    'objective.positive': 'same',
    'objective.metric': 'f1',
    'train.best_by': 'headline',
    'evaluation.which': 'best',
  }
  return train(folder, 'bert', 'own', **chosen, **{'optim.lr': 1e-2, 'train.eval_every': 4})  # F1 falls, the loss too


@pytest.fixture(scope='module')
def regression(folder):
  return train(folder, 'gpt', 'own_scores', **{'data.label': 'score', 'data.batching.both_orders': True})


def said(command, capsys):
  capsys.readouterr()
  assert main.main(['predict', *command]) == 0
  out, err = capsys.readouterr()
  return [json.loads(line) for line in out.splitlines()], err


def test_classifier_writes_its_metrics_and_confusions(classifier):
  found = json.loads((classifier / 'results.json').read_text())
  counts = np.array(found['confusion'])
  assert found['labels'] == ['other', 'same']
  assert counts.sum() == 30 == found['tokens_counted'] and found['metric'] == 'f1'
  right, of_said, truly = counts[1, 1], counts[:, 1].sum(), counts[1].sum()
  assert found['f1'] == pytest.approx(2 * right / (of_said + truly))
  same, other = found['classes']['same'], found['classes']['other']
  assert same == pytest.approx(
    {
      'precision': right / max(of_said, 1),
      'recall': right / truly,
      'f1': found['f1'],
      'count': truly,
      'predicted': of_said,
    }
  )
  assert other['count'] == counts[0].sum() and found['macro_f1'] == pytest.approx((same['f1'] + other['f1']) / 2)
  assert found['accuracy'] == pytest.approx(np.trace(counts) / 30)
  assert found['accuracy_f1'] == (found['accuracy'] + found['f1']) / 2
  assert (classifier / 'confusion.png').read_bytes().startswith(b'\x89PNG')


def test_bag_of_words_refuses_pairs(classifier, capsys):
  words = [f'--workdir={classifier}', '--split=valid', '--config.evaluation.bag_of_words=true']
  assert main.main(['evaluate', *words]) == 2
  assert 'evaluation.bag_of_words: got rows of 2 texts; expected rows of one' in capsys.readouterr().err


def test_classifier_saves_its_rows(classifier, tmp_path, capsys):
  rows = saved_rows.check(classifier, 'f1', 'matthews', 'accuracy', 'error_percent', 'macro_f1', 'loss')
  found = json.loads((classifier / 'results.json').read_text())
  counts = [
    [sum((row['label'], row['prediction']) == (a, b) for row in rows) for b in found['labels']] for a in found['labels']
  ]
  assert counts == found['confusion']
  options = [f'--workdir={classifier}', '--split=valid', f'--save_rows={tmp_path}/rows']
  assert main.main(['evaluate', *options]) == 0
  low, high = found['interval']
  line = next(line for line in capsys.readouterr().out.splitlines() if '95% interval' in line)
  assert line.split() == f'95% interval {low:.3f} to {high:.3f} (bootstrap over 30 documents)'.split()
  assert (tmp_path / 'rows/rows.jsonl').read_bytes() == (classifier / 'rows.jsonl').read_bytes()
  saved_rows.check(tmp_path / 'rows')
  assert main.main(['evaluate', options[0], options[1], f'--save_rows={classifier}']) == 2
  assert 'the work directory of a run' in capsys.readouterr().err


def test_regression_saves_its_rows(regression):
  rows = saved_rows.check(regression, 'pearson', 'spearman', 'rmse')
  assert all(' | ' in row['text'] for row in rows)


def test_best_checkpoint_is_that_with_the_best_headline(classifier):
  found = json.loads((classifier / 'results.json').read_text())
  valid = {row['step']: row['f1'] for row in run_log.read_metrics(classifier) if row['split'] == 'valid'}
  loss = {row['step']: row['loss'] for row in run_log.read_metrics(classifier) if row['split'] == 'valid'}
  best = max(valid, key=valid.get)  # of equal ones the first
  assert restore.load(classifier).step == best and found['validation_loss'] == pytest.approx(loss[best])
  assert found['validation_f1'] == valid[best] == pytest.approx(found['f1'])  # the test rows have no label
  assert len(set(valid.values())) > 1 and best != min(loss, key=loss.get)
  assert all(0 <= row['macro_f1'] <= 1 for row in run_log.read_metrics(classifier) if row['split'] == 'valid')


@pytest.mark.slow
def test_regression_leaves_both_correlations(regression):
  found = json.loads((regression / 'results.json').read_text())
  loaded = restore.load(regression)
  made = classification.compute_outputs(loaded.run, pipeline.load(loaded.run.data), loaded.params, 'valid')
  np.testing.assert_allclose(made['truth'], [row['score'] for row in rows(30, 1)])
  assert found['pearson'] == pytest.approx(scipy.stats.pearsonr(made['scores_B'], made['truth'])[0], abs=1e-6)
  assert found['spearman'] == pytest.approx(scipy.stats.spearmanr(made['scores_B'], made['truth'])[0])
  assert found['lm_nll'] > 0


@pytest.mark.parametrize(
  ('which', 'measured', 'step', 'expected'),
  [('best', 'last', 99, True), ('last', 'last', 99, False), ('best', 'best', 99, False), ('best', 'last', 4, False)],
)
def test_checkpoint_that_the_results_did_not_measure_is_reported(which, measured, step, expected, tmp_path):
  loaded = untrained.load('experiments/gpt/tasks.py:tiny', f'evaluation.which={measured}', workdir=tmp_path, step=4)
  assert restore.checkpoint_note(loaded, which) == ''  # not finished
  (tmp_path / 'results.json').write_text(json.dumps({'step': step}))
  note = restore.checkpoint_note(loaded, which)
  assert note == (
    'reads the best checkpoint, of step 4; results.json has the figures of step 99, --which=last' * expected
  )


def test_predictions_of_new_rows_equal_those_of_the_split(classifier, folder, tmp_path, capsys):
  by_split, _ = said([f'--workdir={classifier}', '--split=valid'], capsys)
  by_file, err = said([f'--workdir={classifier}', f'--input={folder}/valid.jsonl'], capsys)
  assert len(by_split) == 30 and [row['label'] for row in by_file] == [row['label'] for row in by_split]
  for a, b in zip(by_file, by_split, strict=True):
    assert a['probabilities'] == pytest.approx(b['probabilities'], abs=1e-5)
  accuracy = json.loads((classifier / 'results.json').read_text())['accuracy']
  assert f'({accuracy:.1%})' in err
  lines = ['two\tone', *(f'{row["two"]}\t{row["one"]}' for row in rows(30, 1))]
  (tmp_path / 'in.tsv').write_text('\n'.join(lines))
  assert [row['label'] for row in said([f'--workdir={classifier}', f'--input={tmp_path}/in.tsv'], capsys)[0]] == [
    row['label'] for row in by_split
  ]


def test_rows_without_labels_are_predicted_but_not_scored(classifier, regression, tmp_path, capsys):
  for run, key in ((classifier, 'label'), (regression, 'score')):
    output = tmp_path / f'{key}.jsonl'
    assert main.main(['predict', f'--workdir={run}', '--split=test', f'--output={output}']) == 0
    assert len([json.loads(line)[key] for line in output.read_text().splitlines()]) == 11
    assert f'wrote {output}: 11 predictions\n' in capsys.readouterr().err
    assert main.main(['evaluate', f'--workdir={run}', '--split=test']) == 2
    assert '11 rows without a label' in capsys.readouterr().err


def test_table_whose_labels_are_in_another_column_is_reported(classifier, tmp_path, capsys):
  file = tmp_path / 'in.csv'
  file.write_text('one,two,Label\nba be,ba,same\n')
  found, err = said([f'--workdir={classifier}', f'--input={file}'], capsys)
  note = f'{file}: no column label, so nothing is measured; it has one, two, Label; did you mean "Label"?'
  assert len(found) == 1 and note in err
  told = inference.load(classifier).predict([{'one': 'ba be', 'two': 'ba', 'Label': 'same'}]).notes
  assert told == (note.replace(str(file), 'inputs'),)
  file.write_text('one,two\nba be,ba\n')
  assert 'no column' not in said([f'--workdir={classifier}', f'--input={file}'], capsys)[1]


def test_rows_of_the_validation_split_without_a_label_are_reported(folder, tmp_path, capsys):
  (tmp_path / 'train.jsonl').write_text((folder / 'train.jsonl').read_text())
  lines = [{**row, 'label': '' if i in (1, 4) else row['label']} for i, row in enumerate(rows(6, 3))]
  write(tmp_path / 'valid.jsonl', lines)
  command = ['train', '--config=experiments/bert/tasks.py:own', f'--workdir={tmp_path}/run']
  options = ("data.texts=('one','two')", f'data.manual_dir={tmp_path}', 'data.vocab_size=300', 'model.variant=tiny')
  assert main.main([*command, *(f'--config.{option}' for option in options), '--config.data.batch_size=8']) == 2
  expected = 'split valid: got 2 rows without a label (valid.jsonl, lines 2, 5), so it cannot be measured'
  assert expected in capsys.readouterr().err
  assert not (tmp_path / 'run').exists()


def test_evaluation_checks_its_objective_as_training_does(classifier, capsys):
  command = ['evaluate', f'--workdir={classifier}', '--split=valid', '--json']
  assert main.main([*command, '--config.objective.positive=sam']) == 2
  assert 'objective.positive: the data set has no label "sam"; did you mean "same"?' in capsys.readouterr().err
  scores = {}
  for positive in ('same', 'other'):
    assert main.main([*command, f'--config.objective.positive={positive}']) == 0
    found = json.loads(capsys.readouterr().out)
    right, (first, second) = np.diag(found['confusion']), found['labels']
    index = found['labels'].index(positive)
    counts = np.array(found['confusion'])
    scores[positive] = 2 * right[index] / max(counts[index].sum() + counts[:, index].sum(), 1)
    assert found['f1'] == pytest.approx(scores[positive], abs=1e-6) and {first, second} == {'same', 'other'}
  assert scores['same'] != scores['other']


def test_scores_in_rows_are_compared_with_those_predicted(regression, tmp_path, capsys):
  file = tmp_path / 'in.jsonl'
  file.write_text(''.join(json.dumps(row) + '\n' for row in rows(30, 1)))
  command = [f'--workdir={regression}', f'--input={file}']
  said_scores, err = said(command, capsys)
  truth = [row['score'] for row in rows(30, 1)]
  expected = scipy.stats.pearsonr([row['score'] for row in said_scores], truth)[0]
  assert f'Pearson {expected:.4f}, ' in err and 'on 30 rows with a score' in err
  file.write_text(json.dumps({**next(rows(1, 1)), 'score': 'high'}) + '\n')
  assert main.main(['predict', *command]) == 2
  assert 'line 1' in (err := capsys.readouterr().err) and 'high' in err


def test_export_records_the_columns_of_the_table(classifier, tmp_path):
  assert main.main(['export', f'--workdir={classifier}', f'--to={tmp_path}/out']) == 0
  assert json.loads((tmp_path / 'out/config.json').read_text())['lmx_columns'] == {
    'texts': ['one', 'two'],
    'label': 'label',
  }
  imported = convert.read(str(tmp_path / 'out'), tmp_path / 'run')
  assert imported.run.data.texts == ('one', 'two') and imported.run.data.label == 'label'
  given = convert.read(str(tmp_path / 'out'), tmp_path / 'run', ["data.texts=('a','b')"])
  assert given.run.data.texts == ('a', 'b')
  settings = json.loads((tmp_path / 'out/config.json').read_text())
  (tmp_path / 'out/config.json').write_text(json.dumps(settings | {'lmx_columns': {'texts': [1]}}))
  with pytest.raises(InputError, match='lmx_columns: texts: got'):
    convert.read(str(tmp_path / 'out'), tmp_path / 'run')


def test_unpredictable_inputs_are_rejected(classifier, tmp_path, capsys):
  for name, content, message in (
    ('a.txt', 'one\n', 'rows have 2 texts, one and two; give a .jsonl'),
    (
      'a.jsonl',
      '{"one": "ba"}\n',
      'line 1: got no column "two"; expected one, two, as in training; it has one; rename them',
    ),
    ('a.jsonl', '{"one": " ", "two": "ba"}\n', 'line 1: one: got an empty cell'),
    ('a.jsonl', '{"one": "ba", "two": null, "label": ["same"]}\n', 'line 1: label: got a list of 1'),
    ('a.jsonl', '{"one": "ba", "two": "be", "label": "some"}\n', 'label: got "some"'),
    ('a.tsv', 'one\tthree\nba\tbe\n', 'no column "two"'),
  ):
    (tmp_path / name).write_text(content)
    assert main.main(['predict', f'--workdir={classifier}', f'--input={tmp_path / name}']) == 2
    assert message in capsys.readouterr().err
  assert main.main(['predict', f'--workdir={classifier}', '--split=valid', '--glue']) == 2
  assert 'is not a GLUE task' in capsys.readouterr().err


def test_rows_of_race_are_joined_as_those_of_its_files_are(tmp_path):
  """A row of a user's has context, question and choices, also for a run whose data set has them joined."""
  row = {'context': 'It rained.', 'question': '_ fell.', 'label': 3}
  row |= {f'choice_{i}': choice for i, choice in enumerate(['Rain', 'Snow', '', 'Hail'])}
  (tmp_path / 'rows.jsonl').write_text(json.dumps(row) + '\n' + json.dumps({**row, 'question': 'What?'}) + '\n')
  joined, separate = (
    untrained.load('experiments/gpt/tasks.py:race', f'data.dataset={name}', 'objective.choices=4')
    for name in ('race/joined', 'race')
  )
  first, second = classification.read_rows(str(tmp_path / 'rows.jsonl'), joined)
  assert first.texts == ('It rained.', 'Rain fell.', 'Snow fell.', '- fell.', 'Hail fell.') and first.label == '3'
  assert second.texts == ('It rained.', 'What? Rain', 'What? Snow', 'What? -', 'What? Hail')
  first, _ = classification.read_rows(str(tmp_path / 'rows.jsonl'), separate)
  assert first.texts[1:] == ('_ fell.', 'Rain', 'Snow', '-', 'Hail')


@pytest.mark.parametrize('kind', ['bert/tasks', 'gpt/tasks', 'xlnet/tasks', 'ulmfit/classifier'])
def test_settings_that_a_warning_of_scores_names_work(kind, tmp_path):
  (tmp_path / 'train.jsonl').write_text('{"text": "a b", "label": 1.5}\n{"text": "b", "label": 2}\n')
  settings = [
    'objective.name=regress',
    'objective.metric=pearson',
    'data.scores=True',
    'data.batch_size=2',
    f'data.manual_dir={tmp_path}',
    f'data.cache_dir={tmp_path}/cache',
    'data.split_fraction=0',
    'data.vocab_size=600',
    'data.length=64',
  ]
  run = resolve.to_run(resolve.load(f'experiments/{kind}.py:own', settings), 10)
  corpus = pipeline.load(run.data)
  assert objectives.get('regress').resolve(run.objective, corpus.manifest) == run.objective
  batch = pipeline.batches(run.data, corpus, 'train', 0, train=True)(0)
  assert sorted(batch['scores_B'].tolist()) == [1.5, 2] and batch['scores_B'].dtype == np.float32


def test_choices_are_learned_and_predicted(tmp_path, capsys):
  draw, lines = np.random.default_rng(0), ['sent1,sent2,ending0,ending1,ending2,ending3,label']
  for i in range(32):
    lines.append(','.join([*(' '.join(draw.choice(WORDS, 3)) for _ in range(6)), str(i % 4)]))
  for name in ('train', 'val', 'test'):
    (tmp_path / f'{name}.csv').write_text('\n'.join(lines) + '\n')
  run = train(tmp_path, 'bert', 'swag', **{'data.texts': "('text',)", 'data.check_sizes': False})
  found = json.loads((run / 'results.json').read_text())
  assert found['metric'] == 'accuracy' and found['tokens_counted'] == 32
  by_split, _ = said([f'--workdir={run}', '--split=valid'], capsys)
  by_file, err = said([f'--workdir={run}', f'--input={tmp_path}/val.csv'], capsys)
  assert [row['label'] for row in by_split] == [row['label'] for row in by_file]
  assert set(by_split[0]['probabilities']) == set('0123') and f'({found["accuracy"]:.1%})' in err


def test_submissions_have_the_labels_of_glues_files():
  submission = lambda task, rows: classification.submission(
    untrained.load(f'experiments/bert/tasks.py:{task}'), None, rows
  )
  labels = [{'label': 'acceptable'}, {'label': 'unacceptable'}]
  assert submission('cola', labels) == 'index\tprediction\n0\t1\n1\t0\n'
  assert submission('stsb', [{'score': 3.14159}]) == 'index\tprediction\n0\t3.142\n'
  assert submission('qnli', [{'label': 'not_entailment'}]).endswith('0\tnot_entailment\n')
  with pytest.raises(InputError, match='not a GLUE task'):
    submission('own', [])


def test_training_table_of_one_class_is_reported(tmp_path, capsys):
  write(tmp_path / 'train.jsonl', [{**row, 'label': 'same'} for row in rows(20, 1)])
  write(tmp_path / 'valid.jsonl', rows(20, 2))
  words = ["data.texts=('one','two')", f'data.manual_dir={tmp_path}', 'data.vocab_size=300', 'train.steps=1']
  command = [
    'train',
    '--config=experiments/bert/tasks.py:own',
    f'--workdir={tmp_path}/run',
    '--config.model.variant=tiny',
  ]
  assert main.main([*command, *(f'--config.{word}' for word in words)]) == 2
  assert f'{tmp_path}/train.jsonl: got only the label "same" in the training examples' in capsys.readouterr().err
