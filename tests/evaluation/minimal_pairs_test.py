"""Accuracy on minimal pairs: means of paradigms, ties, bootstraps, protocols, kept files, comparisons and faults."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

from lmx import statistics, storage
from lmx.cli import main, report
from lmx.data import minimal_pairs as reader
from lmx.data.minimal_pairs import Pair
from lmx.data.tokenizers.words import Words
from lmx.errors import InputError
from lmx.evaluation import minimal_pairs, pairs_files
from lmx.evaluation import rows as row_files
from lmx.reporting import html_report
from lmx.scoring import loading
from lmx.scoring.rows import Row, Scored, ignore
from lmx.scoring.scorer import RunScorer, Scorer
from tests import untrained
from tests.minimal_pairs import blimp
from tests.untrained import BYTES

WORDS = Words(['<unk>', '<eos>', 'the', 'cat'], 'space')

SUMS = {
  'the cat sits': -10.0,
  'the cat sit': -11.0,  # right
  'a dog runs': -10.0,
  'a dog run': -9.5,  # wrong, right by means
  'cats sit': -5.0,
  'cats sits': -6.0,  # right
  'dogs run': -7.0,
  'dogs runs': -6.0,  # wrong
  'a b': -1.0,  # the same sentence twice
  'what did she see': -4.0,
  'what she did see': -4.0,  # a tie
  'who ran': -3.0,
  'ran who': -2.0,  # wrong
}


class Table(Scorer):
  """A model that takes the score of a text from a table."""

  tokenizer, name, method = BYTES, 'table', 'causal'

  def __init__(self, sums=SUMS, start='symbol'):
    self.sums, self.start, self.scored = sums, start, []

  def row(self, text, name=''):
    return Row(np.asarray(BYTES.encode(text), np.int32), np.zeros(int(self.start == 'symbol'), np.int32), name)

  def score(self, rows, *, greedy=False, done=ignore):
    texts = [BYTES.decode(row.ids_T) for row in rows]
    self.scored += texts
    done(sum(map(len, texts)))
    found = [np.full(len(text), self.sums[text.strip()] / (len(text) - (self.start == 'none'))) for text in texts]
    for log_p_T in found if self.start == 'none' else ():
      log_p_T[0] = np.nan
    return [Scored(log_p_T) for log_p_T in found]


@pytest.fixture
def found(tmp_path):
  return reader.read(blimp(tmp_path / 'blimp'))


def accuracies(metrics):
  return {one['name']: one['accuracy'] for name in ('paradigms', 'phenomena', 'fields') for one in metrics[name]}


def test_groups_are_means_of_paradigms_and_ties_count_half(found):
  scorer = Table()
  metrics = minimal_pairs.evaluate(scorer, found).metrics
  paradigms = {'agreement_1': 1 / 2, 'agreement_2': 1.5 / 3, 'island_1': 0.5 / 2}
  groups = {'agreement': 1 / 2, 'islands': 1 / 4, 'morphology': 1 / 2, 'syntax': 1 / 4}
  assert accuracies(metrics) == pytest.approx(paradigms | groups)
  assert metrics['accuracy'] == pytest.approx(1.25 / 3) and metrics['accuracy_pairs'] == pytest.approx(3 / 7)
  assert metrics['accuracy_per_token'] == pytest.approx(1.75 / 3)
  assert metrics['ties'] == 2 and metrics['equal_tokens'] == metrics['equal_sentences'] == 1
  assert len(scorer.scored) == 13 and scorer.scored[0] == 'what did she see'  # each once, the longest first
  text = minimal_pairs.table(metrics)
  assert 'pairs: 7; ties: 2 (by means 2); equal after tokenization: 1 (equal sentences 1)' in text
  assert re.search(r'overall +41\.67 ', text) and 'ties count half' in text


@pytest.mark.parametrize(
  'protocol, start, expected', [('blimp', 'symbol', 2.5), ('babylm2025', 'none', 5), ('harness', 'symbol', 5)]
)
def test_protocols_set_ties_and_the_leading_space(found, protocol, start, expected):
  scorer = Table(start=start)
  metrics = minimal_pairs.evaluate(scorer, found, protocol).metrics
  ties = {'blimp': 0, 'babylm2025': 1, 'harness': 1}[protocol]
  assert accuracies(metrics)['agreement_2'] == pytest.approx((1 + ties) / 3)
  assert accuracies(metrics)['island_1'] == pytest.approx(ties / 2)
  assert all(text.startswith(' ') == (protocol == 'harness') for text in scorer.scored)
  assert metrics['protocol'].startswith(f'{protocol}: ') and ('a space first' in metrics['protocol']) == (
    protocol == 'harness'
  )


def test_table_is_aligned_with_short_names():
  pairs = [Pair('a', 'b', 'p', 'q', '', '1')]
  scores = minimal_pairs.PairScores(np.asarray([[-1.0, -2.0]]), np.ones((1, 2), int), *np.zeros((2, 1), bool))
  found = minimal_pairs.measure(pairs, scores, 0.5)
  about = dict.fromkeys(('equal_tokens', 'equal_sentences', 'unknown_pairs', 'ties_per_token'), 0)
  about |= {'split': 'all', 'dataset': 'd', 'name': 'n', 'protocol': 'p', 'subset': '', 'dropped_paradigms': []}
  groups = {name: [one._asdict() for one in found[name]] for name in ('fields', 'phenomena', 'paradigms')}
  _, head, overall, *rows = minimal_pairs.table({**found['overall']._asdict(), **about, **groups}).splitlines()
  assert len(head) == len(overall) == len(rows[1]) == len(rows[3]) and rows[1].split()[0] == 'q'


def test_bootstrap_errors_over_pairs_and_over_paradigms():
  shares, size = [0.9, 0.6, 0.5], [400, 900, 250]
  pairs = [Pair('', '', str(p), 'all', '', '') for p in range(3) for _ in range(size[p])]
  good = np.concatenate([np.arange(n) < share * n for share, n in zip(shares, size, strict=True)])
  scores = minimal_pairs.PairScores(
    np.stack([good, np.full(len(good), 0.5)], axis=1), np.ones((len(good), 2), int), good, good
  )
  measured = minimal_pairs.measure(pairs, scores, 0.5)
  variances = [share * (1 - share) / n for share, n in zip(shares, size, strict=True)]
  for one, share, variance in zip(measured['paradigms'], shares, variances, strict=True):
    assert one.accuracy == pytest.approx(share) and one.standard_error == pytest.approx(variance**0.5, rel=0.05)
    assert one.interval == pytest.approx([share - 1.96 * variance**0.5, share + 1.96 * variance**0.5], abs=0.01)
    assert one.paradigm_error is None
  overall = measured['overall']
  assert overall.standard_error == pytest.approx(sum(variances) ** 0.5 / 3, rel=0.05)
  assert overall.paradigm_error == pytest.approx(np.std(shares) / 3**0.5, rel=0.05)
  assert overall.paradigm_interval == pytest.approx([0.5, 0.9])
  own = statistics.bootstrap(good[:400].astype(float), resamples=2000)
  assert measured['paradigms'][0].interval == pytest.approx([own.low, own.high], abs=0.006)
  assert minimal_pairs.measure(pairs, scores, 0.5) == measured  # a fixed seed


def test_equal_terms_in_another_order_are_a_tie():
  class Letters(Table):
    def score(self, rows, *, greedy=False, done=ignore):
      return [Scored(-0.1 * (row.ids_T - BYTES.encode('a')[0] + 1)) for row in rows]

  scores = minimal_pairs.score(Letters(), [Pair('abc', 'cba', 'order', '', '', '0')])
  assert np.sum([-0.1, -0.2, -0.1 * 3]) != np.sum([-0.1 * 3, -0.2, -0.1])  # rounded after each addition
  assert scores.sums_N2[0, 0] == scores.sums_N2[0, 1] and not scores.is_equal_N[0]


def test_scores_that_are_not_finite_name_the_pair(found):
  with pytest.raises(InputError, match=r'island_1, pair 0: got a score that is not finite'):
    minimal_pairs.evaluate(Table({**SUMS, 'what did she see': np.nan}), found)
  with pytest.raises(InputError, match=r'agreement_1, pair 1: got a score that is not finite'):
    minimal_pairs.evaluate(Table({**SUMS, 'a dog runs': -np.inf}), found)


def test_unknown_words_make_sentences_equal():
  class Known(Table):
    tokenizer = WORDS

    def row(self, text, name=''):
      return Row(np.asarray(WORDS.encode(text), np.int32), np.zeros(1, np.int32), name)

    def score(self, rows, *, greedy=False, done=ignore):
      return [Scored(-np.ones(len(row.ids_T))) for row in rows]

  sentences = [('the cat sits', 'the cat sit'), ('the cat', 'cat the'), ('the cat', 'the cat')]
  dataset = reader.MinimalPairs('p', [Pair(*pair, 'p', '', '', str(i)) for i, pair in enumerate(sentences)])
  metrics = minimal_pairs.evaluate(Known(), dataset).metrics
  assert metrics['ties'] == 3 and metrics['accuracy'] == 0.5
  assert (metrics['equal_tokens'], metrics['equal_sentences'], metrics['unknown_pairs']) == (2, 1, 1)


@pytest.mark.parametrize(
  'name, settings',
  [
    ('bert', dict.fromkeys(minimal_pairs.PROTOCOLS, ('pll', '', False))),
    ('xlnet', dict.fromkeys(minimal_pairs.PROTOCOLS, ('left_to_right', '', False))),
    ('elmo', {'lmx': ('both', '', False), 'blimp': ('both', '', True), 'harness': ('both', '', False)}),
    (
      'gpt2',
      {
        'lmx': ('causal', 'symbol', False),
        'blimp': ('causal', 'symbol', True),
        'babylm2025': ('causal', 'none', False),
        'harness': ('causal', 'symbol', False),
      },
    ),
  ],
)
def test_protocols_of_every_method(monkeypatch, name, settings):
  """A method without a start or an end takes none from a protocol."""
  loaded = untrained.load(f'experiments/{name}/quickstart.py:tiny', tokenizer=WORDS)
  monkeypatch.setattr(loading, 'load', lambda *args, method='auto', **more: RunScorer(loaded, method))
  for protocol, expected in settings.items():
    scorer = minimal_pairs.load('run', protocol=protocol)
    assert (scorer.method, scorer.start, scorer.end) == expected, protocol


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A trained LSTM with the checkpoints of two steps."""
  folder = tmp_path_factory.mktemp('lstm')
  text = folder / 'text'
  text.mkdir()
  line = 'the cat sits and a dog runs ; who ran ? what did she see ? the cat sit , a dog run\n'
  for name in ('train', 'valid', 'test'):
    (text / f'{name}.txt').write_text(line * 40)
  config = 'experiments/rnn_lm/quickstart.py:tiny'
  changes = {'data.dataset': 'text_files', 'data.manual_dir': text, 'data.cache_dir': folder / 'cache'}
  changes |= {
    'samples.count': 0,
    'evaluation.baselines': False,
    'train.steps': 4,
    'train.eval_every': 4,
    'checkpoint.every_steps': 2,
    'checkpoint.at_words': '(200,)',
  }
  options = [f'--config.{name}={value}' for name, value in changes.items()]
  assert main.main(['train', f'--config={config}', f'--workdir={folder / "run"}', *options]) == 0
  return folder / 'run'


def test_command_keeps_the_metrics_and_the_results_of_the_run(run, found, tmp_path, capsys):
  before = json.loads((run / 'results.json').read_text())
  words = ['evaluate', f'--workdir={run}', f'--pairs={found.path}']
  assert main.main([*words, f'--output={tmp_path}/out.json']) == 0
  assert main.main([*words, '--protocol=babylm2025']) == 0
  assert main.main(words) == 0  # replaces the first
  out = capsys.readouterr().out
  assert 'phenomena\n' in out and 'islands' in out and 'babylm2025: log-likelihood, without the first token' in out
  kept = pairs_files.read(run)
  assert [one['pipeline'] for one in kept] == ['babylm2025', 'lmx']
  assert kept[1] == json.loads((tmp_path / 'out.json').read_text()) and kept[1]['step'] == 4
  after = json.loads((run / 'results.json').read_text())
  assert {name: value for name, value in after.items() if name != 'minimal_pairs'} == before
  assert [one['accuracy'] for one in after['minimal_pairs']] == [one['accuracy'] for one in kept]
  page = html_report.render(report.read(storage.path('DIR', run)))
  assert 'Minimal pairs' in page and 'islands' in page and page.count('<figure class="pairs-chart">') == 2


def test_mean_of_checkpoints_is_kept_apart_from_the_checkpoint(run, found, tmp_path, capsys):
  folder = shutil.copytree(run, tmp_path / 'run')
  for which in ('last', 'average', '4', 'average'):
    assert main.main(['evaluate', f'--workdir={folder}', f'--pairs={found.path}', f'--which={which}']) == 0
  kept = [(one['step'], one.get('averaged_steps')) for one in pairs_files.read(folder) if one['pipeline'] == 'lmx']
  assert kept == [(4, None), (4, [2, 4])]
  summaries = json.loads((folder / 'results.json').read_text())['minimal_pairs']
  assert summaries[-1]['averaged_steps'] == [2, 4] and 'averaged_steps' not in summaries[-2]
  page = html_report.render(report.read(storage.path('DIR', folder)))
  assert 'blimp, mean of steps 2, 4: ' in page and 'blimp, step 4: ' in page


def test_scores_equal_those_of_single_sentences(run, found):
  scorer = minimal_pairs.load(run)
  scores = minimal_pairs.score(scorer, found.pairs)
  for pair, sums in zip(found.pairs, scores.sums_N2, strict=True):
    for text, total in zip((pair.good, pair.bad), sums, strict=True):
      (one,) = loading.load(run).score([scorer.row(text)])
      assert total == pytest.approx(one.log_p_T.sum(), abs=1e-4)
  ended = minimal_pairs.load(run, protocol='blimp')
  assert ended.end and ended.start == 'symbol' and minimal_pairs.load(run, protocol='harness').start == 'symbol'
  assert minimal_pairs.load(run, protocol='babylm2025').start == 'none'
  assert minimal_pairs.load(run, protocol='babylm2025', start='symbol').start == 'symbol'


def test_learning_curve_of_all_checkpoints(run, found, capsys):
  assert main.main(['evaluate', f'--workdir={run}', f'--pairs={found.path}', '--which=all']) == 0
  points = json.loads((run / pairs_files.CURVE).read_text())
  assert [point['step'] for point in points] == [2, 4]
  data = json.loads((run / 'config.json').read_text())['data']
  assert points[0]['words'] == 200  # of checkpoint.at_words
  assert points[1]['words'] == pytest.approx(4 * data['batch_size'] * data['length'], rel=0.1)  # most tokens are words
  assert (run / 'pairs_curve.png').read_bytes().startswith(b'\x89PNG')
  assert re.findall(r'step (\d+) \([\d,]+ words\): ', capsys.readouterr().out) == ['2', '4']


def test_seen_subset_reads_the_text_of_the_run(run, found, tmp_path, capsys):
  words = ['evaluate', f'--workdir={run}', f'--pairs={found.path}', '--subset=seen', f'--output={tmp_path}/out.json']
  assert main.main(words) == 0
  metrics = json.loads((tmp_path / 'out.json').read_text())
  assert metrics['pairs'] == 4 and metrics['dropped_paradigms'] == ['agreement_2']
  kinds = {one['name']: (one['phenomenon'], one['field']) for one in metrics['paradigms']}
  assert kinds == {'agreement_1': ('agreement', 'morphology'), 'island_1': ('islands', 'syntax')}
  assert 'the training text of text_files' in metrics['subset']
  assert '1 paradigms have no pair in the subset' in capsys.readouterr().out
  (tmp_path / 'text').write_text('who ran ran who\n')
  assert main.main([*words, f'--seen_text={tmp_path}/text']) == 0
  assert json.loads((tmp_path / 'out.json').read_text())['pairs'] == 1


def test_comparison_over_paradigms_and_over_pairs(run, found, tmp_path, capsys):
  for name, which in (('a', 'words:200'), ('b', 4)):
    words = [f'--workdir={run}', f'--pairs={found.path}', f'--which={which}', f'--save_rows={tmp_path / name}']
    assert main.main(['evaluate', *words]) == 0
  results = json.loads((tmp_path / 'a' / 'results.json').read_text())
  some = row_files.read(tmp_path / 'a', results)
  for metric in ('accuracy', 'accuracy_per_token', 'accuracy_pairs', 'accuracy_agreement', 'accuracy_islands'):
    measured = row_files.measure(metric, some, results)
    assert measured.statistic(measured.values) == pytest.approx(results[metric])
    assert len(measured.values) == {'accuracy': 3, 'accuracy_per_token': 3, 'accuracy_pairs': 7}.get(
      metric, 5 if metric == 'accuracy_agreement' else 2
    )
  capsys.readouterr()
  assert main.main(['compare', str(tmp_path / 'a'), str(tmp_path / 'b')]) == 0
  assert 'accuracy on blimp/all, 7 pairs, tested over 3 paradigms\n' in (out := capsys.readouterr().out)
  assert {'a: step 2', 'b: step 4'} < {*out.splitlines()}
  assert main.main(['compare', str(tmp_path / 'a'), str(tmp_path / 'b'), '--metric=accuracy_pairs']) == 0
  assert 'accuracy_pairs on blimp/all, 7 pairs\n' in capsys.readouterr().out
  assert main.main(['compare', str(tmp_path / 'a'), str(tmp_path / 'b'), '--metric=accuracy_islands']) == 0
  assert 'accuracy_islands on blimp/all, 7 pairs, tested over 2 pairs\n' in capsys.readouterr().out


def test_rows_of_a_model_without_checkpoints_are_compared(found, tmp_path, capsys):
  """An n-gram model has no step."""
  for name in 'ab':
    (tmp_path / name).mkdir()
    evaluated = minimal_pairs.evaluate(Table(), found)
    assert 'step' not in evaluated.metrics
    pairs_files.write_rows(tmp_path / name, found, evaluated)
    pairs_files.keep(tmp_path / name, evaluated.metrics)  # also beside a results.json
  (summary,) = json.loads((tmp_path / 'a' / 'results.json').read_text())['minimal_pairs']
  assert summary['accuracy'] == evaluated.metrics['accuracy'] and 'step' not in summary
  assert main.main(['compare', str(tmp_path / 'a'), str(tmp_path / 'b'), '--metric=accuracy_pairs']) == 0
  assert 'accuracy_pairs on blimp/all, 7 pairs' in capsys.readouterr().out


def test_what_cannot_be_kept_is_refused_before_the_work(run, found, tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(minimal_pairs, 'evaluate', None)
  words = ['evaluate', f'--workdir={run}', f'--pairs={found.path}']
  assert main.main([*words, f'--output={tmp_path}/new/out.json']) == 2
  assert '--output: got' in capsys.readouterr().err
  kept = (run / 'pairs.json').read_text() if (run / 'pairs.json').exists() else None
  (run / 'pairs.json').write_text('{')
  try:
    assert main.main(words) == 2 and 'pairs.json: not JSON' in capsys.readouterr().err
  finally:
    (run / 'pairs.json').unlink() if kept is None else (run / 'pairs.json').write_text(kept)


def test_comparison_of_kept_evaluations(tmp_path, capsys, found):
  other = {**SUMS, 'a dog run': -10.5, 'ran who': -3.5}
  for name, sums in (('a', SUMS), ('b', other), ('c', other)):
    (tmp_path / name).mkdir()
    pairs_files.keep(tmp_path / name, minimal_pairs.evaluate(Table(sums), found).metrics)
  folders = [str(tmp_path / name) for name in 'ab']
  assert main.main(['compare', *folders, '--pairs', f'--output={tmp_path}/out.json']) == 0
  assert 'accuracy on blimp/all, 3 paradigms\n' in (out := capsys.readouterr().out) and 'step' not in out
  some = minimal_pairs.evaluate(Table(sums), found).metrics
  for name, checkpoint in (('a', {'step': 10}), ('b', {'step': 1600, 'averaged_steps': [800, 1600]})):
    pairs_files.keep(tmp_path / name, some | checkpoint)
  assert main.main(['compare', *folders, '--pairs']) == 0
  assert capsys.readouterr().out.endswith('a: step 10\nb: mean of steps 800, 1,600\n')
  for name in 'ab':
    pairs_files.keep(tmp_path / name, json.loads((tmp_path / name / 'pairs.json').read_text())[0])
  a, b = json.loads((tmp_path / 'out.json').read_text())['systems']
  assert (a['mean'], b['mean']) == pytest.approx((1.25 / 3, 2.25 / 3)) and b['p'] > 0.1
  values = np.asarray([0.5, 0.5, 0.25]), np.asarray([1, 0.5, 0.75])
  assert b['p'] == pytest.approx(statistics.approximate_randomization(*values))
  pairs_files.keep(tmp_path / 'c', minimal_pairs.evaluate(Table(other), found, 'blimp').metrics)
  assert main.main(['compare', folders[0], str(tmp_path / 'c'), '--pairs']) == 0  # the evaluation by the same pipeline
  assert main.main(['compare', str(tmp_path / 'c'), folders[0], '--pairs']) == 2
  assert 'a/pairs.json: got no evaluation of blimp/all by blimp' in capsys.readouterr().err
  assert main.main(['compare', *folders, '--pairs', '--metric=accuracy_pairs']) == 2
  assert 'expected accuracy or accuracy_per_token' in capsys.readouterr().err


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda one: one.pop('protocol'), 'pairs.json: no field "protocol"'),
    (lambda one: one['phenomena'].append({}), 'expected an object with the field "name"|no field "name"'),
    (lambda one: one['paradigms'][0].update(accuracy='x'), 'accuracy: got "x"; expected a finite number'),
    (lambda one: one['fields'][0].update(interval=[1]), 'interval: got a list of 1; expected two numbers'),
  ],
)
def test_damaged_evaluations_are_named(tmp_path, found, change, message):
  pairs_files.keep(tmp_path, minimal_pairs.evaluate(Table(), found).metrics)
  assert pairs_files.read(tmp_path)[0]['accuracy'] == pytest.approx(1.25 / 3)
  evaluations = json.loads((tmp_path / 'pairs.json').read_text())
  change(evaluations[0])
  (tmp_path / 'pairs.json').write_text(json.dumps(evaluations))
  with pytest.raises(InputError, match=message):
    pairs_files.read(tmp_path)


@pytest.mark.parametrize(
  'options, message',
  [
    (['--protocol=blimp'], '--protocol: got it without --pairs'),
    (['--which=all'], '--which: got all; .* needs --pairs'),
    (['--pairs=PAIRS', '--cache=5,0.1,1'], '--cache: got it with --pairs'),
    (['--pairs=PAIRS', '--split=valid'], '--split: got it with --pairs'),
    (['--pairs=PAIRS', '--seen_text=PAIRS/island_1.jsonl'], '--seen_text: got it without --subset=seen'),
    (['--pairs=PAIRS', '--which=all', '--save_rows=ROWS'], '--save_rows: got it with --which=all'),
    (['--pairs=PAIRS', '--save_rows=NGRAMS'], '--save_rows: got .*, a saved n-gram model'),
    (['--pairs=PAIRS', '--which=all', '--output=curve.png'], '--output: got curve.png, .*; name curve.json'),
    (['--pairs=PAIRS', '--good=goood'], 'agreement_1.jsonl, line 1: no column "goood"'),
    (['--pairs=PAIRS', '--subset=babylm'], '--subset_file: got none'),
    (['--pairs=PAIRS', '--subset=babylm', '--subset_file=LIST'], 'no column "UID"; .*; expected the columns UID and'),
    (['--pairs=PAIRS', '--method=pll'], '--method: unknown "pll"'),
  ],
)
def test_faults_of_options(run, found, tmp_path, capsys, options, message):
  (tmp_path / 'ngrams').mkdir()
  (tmp_path / 'ngrams' / 'ngrams.json').write_text('{}')
  (tmp_path / 'list.tsv').write_text('pair\tid\na\t1\n')
  paths = {'PAIRS': found.path, 'ROWS': tmp_path / 'rows', 'NGRAMS': tmp_path / 'ngrams', 'LIST': tmp_path / 'list.tsv'}
  words = [re.sub('PAIRS|ROWS|NGRAMS|LIST', lambda name: str(paths[name[0]]), word) for word in options]
  assert main.main(['evaluate', f'--workdir={run}', *words]) == 2
  assert re.search(message, capsys.readouterr().err)
