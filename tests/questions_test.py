"""Questions on passages from files to answers: places of answers, windows, what a run leaves, and bad files."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

from lmx.cli import main
from lmx.data import corpus as corpora
from lmx.data import labels, pipeline
from lmx.data.batching import questions as batching
from lmx.data.builders import questions
from lmx.data.datasets import DATA_SETS
from lmx.data.tokenizers import words
from lmx.errors import InputError
from lmx.evaluation import ensemble
from lmx.prediction import batched, question_answering
from lmx.runs import restore
from tests import saved_rows

PASSAGE = 'Zoë Brown-Lee wrote the first parser in 1987. It was 12,000 lines long; nobody read them all, she said.'
ASKED = [
  ('q1', 'Who wrote the first parser?', ['Zoë Brown-Lee', 'Brown-Lee']),
  ('q2', 'How long was it?', ['12,000 lines']),
  ('q3', 'What colour was it?', []),
  ('q4', 'When?', ['1987']),
]


def paragraph(asked=ASKED, passage=PASSAGE, tag=''):
  qas = [
    {
      'id': f'{tag}{name}',
      'question': question,
      'is_impossible': not texts,
      'answers': [{'text': text, 'answer_start': passage.index(text)} for text in texts],
    }
    for name, question, texts in asked
  ]
  return {'context': passage, 'qas': qas}


def put(folder, *, lines=True):
  for split in ('train', 'dev'):
    paragraphs = [paragraph(tag=f'{split}{i}') for i in range(4)]
    if lines:
      (folder / f'{split}.jsonl').write_text(''.join(json.dumps(p) + '\n' for p in paragraphs))
    else:
      (folder / f'{split}.json').write_text(json.dumps({'data': [{'title': 'x', 'paragraphs': paragraphs}]}))
  return folder


def load(folder, split='valid', train=False, **changes):
  given = {
    'dataset': 'squad_files',
    'manual_dir': str(folder),
    'cache_dir': str(folder / 'cache'),
    'batch_size': 4,
    'tokenizer': 'wordpiece',
    'vocab_size': 150,
    'length': 96,
    **changes,
  }
  options = {'name': 'questions', 'question_length': 20, **given.pop('batching', {})}
  cfg = pipeline.Config(**given, batching=options)
  corpus = pipeline.load(cfg)
  return corpus, pipeline.batches(cfg, corpus, split, 0, train=train)


@pytest.mark.parametrize('lines', [True, False])
def test_answers_map_to_their_tokens(lines, tmp_path):
  corpus, batches = load(put(tmp_path, lines=lines), length=200)
  assert batches.examples == 16 and corpus.manifest['spans']
  rows = {}
  for step in range(batches.steps):
    batch = batches(step)
    for b, index in enumerate(batch['index_B']):
      rows[int(index)] = {key: x[b] for key, x in batch.items()}
  for i, (_, question, texts) in enumerate(ASKED):
    row = rows[i]
    tokens = row['tokens_BT'][row['valid_BT']].tolist()
    asked, passage = (corpus.tokenizer.encode(text).tolist() for text in (question, PASSAGE))
    cls, sep = corpus.tokenizer.cls_id, corpus.tokenizer.sep_id
    assert tokens == [cls, *asked, sep, *passage, sep]
    assert row['types_BT'].sum() == len(passage) + 1 and row['passage_BT'].sum() == row['best_BT'].sum() == len(passage)
    start, end = row['starts_B'], row['ends_B']
    if not texts:
      assert start == end == 0
    else:
      assert tokens[start : end + 1] == corpus.tokenizer.encode(texts[0]).tolist()


def test_xlnet_reads_the_passage_first(tmp_path):
  own = dict(tokenizer='unigram', vocab_size=420, special_tokens=('<cls>', '<sep>'), batching={'form': 'xlnet'})
  corpus, batches = load(put(tmp_path), length=200, **own)
  cls, sep = (corpus.tokenizer.token_id(name) for name in ('<cls>', '<sep>'))
  assert batches.examples == 16
  batch = {key: np.concatenate([batches(s)[key] for s in range(batches.steps)]) for key in batches(0)}
  for b, index in enumerate(batch['index_B']):
    _, question, texts = ASKED[index % 4]
    asked, passage = (corpus.tokenizer.encode(text).tolist() for text in (question, PASSAGE))
    valid, n = batch['valid_BT'][b], len(passage)
    tokens = batch['tokens_BT'][b, valid].tolist()
    assert tokens == [*passage, sep, *asked, sep, cls]
    assert batch['types_BT'][b, valid].tolist() == [0] * (n + 1) + [1] * (len(asked) + 1) + [2]
    assert (np.flatnonzero(batch['passage_BT'][b]) == np.arange(n)).all() and batch['best_BT'][b].sum() == n
    start, end, null = (batch[key][b] for key in ('starts_B', 'ends_B', 'null_B'))
    assert null == len(tokens) - 1 and (start == end == null if not texts else null > end >= start)
    if texts:
      assert texts[0] in corpus.tokenizer.decode(tokens[start : end + 1])
  own['batching'] = {'form': 'xlnet', 'stride': 6, 'question_length': 12}
  _, short = load(tmp_path, length=40, **own)
  assert (short.windows.offset_F == 0).all() and short.examples > 16


def test_long_passages_are_read_in_windows(tmp_path):
  corpus, whole = load(put(tmp_path), length=200)
  _, batches = load(tmp_path, batching={'stride': 6, 'question_length': 12}, length=30)
  found, size = batches.windows, len(corpus.tokenizer.encode(PASSAGE))
  best: dict = {}
  for f in range(len(found.begin_F)):
    i, begin, count, place = (int(x[f]) for x in found)
    assert count <= 30 - place - 1 and place == len(corpus.tokenizer.encode(ASKED[i % 4][1])) + 2
    for t in range(count):
      best.setdefault((i, begin + t), []).append((bool(batches._best_F[f][t]), min(t, count - 1 - t) + 0.01 * count))
  assert set(best) == {(i, t) for i in range(16) for t in range(size)}  # every token is in a window
  assert all(sum(flag for flag, _ in seen) == 1 for seen in best.values())  # and has the most context in one
  assert all(next(s for flag, s in seen if flag) == max(s for _, s in seen) for seen in best.values())
  assert max(map(len, best.values())) > 1
  begins = found.begin_F[found.question_F == 0]
  assert np.diff(begins).tolist() == [6] * (len(begins) - 1)
  batch = {key: np.concatenate([batches(s)[key] for s in range(batches.steps)]) for key in ('starts_B', 'index_B')}
  starts = zip(batch['index_B'], batch['starts_B'], strict=True)
  answered = {int(found.question_F[f]) % 4 for f, start in starts if start}
  assert answered == {0, 1, 3}
  assert 'windows' in load(tmp_path, 'train', train=True, length=30)[1].notes[0]
  with pytest.raises(InputError, match='data.length: got 20'):
    load(tmp_path, length=20)
  assert batching.windows(np.array([5]), np.array([2]), 10, 3).begin_F.tolist() == [0]
  assert whole.examples == 16


APART = {'form': 'separate', 'question_length': 5}


def rows_of(batches):
  """The rows of an evaluation in order."""
  parts = [batches(step) for step in range(batches.steps)]
  rows = {key: np.concatenate([part[key] for part in parts]) for key in ('index_B', 'starts_B', 'ends_B', 'null_B')}
  pad = lambda x, T: np.pad(x, ((0, 0), (0, T - x.shape[1])) + ((0, 0),) * (x.ndim - 2))
  for key in parts[0].keys() - rows.keys() - {'row_weights_B'}:
    rows[key] = np.concatenate([pad(part[key], 40) for part in parts])
  return rows


def test_question_and_passage_are_separate_inputs(tmp_path):
  corpus, batches = load(put(tmp_path), tokenizer='words', characters=12, length=40, vocab_size=9, batching=APART)
  assert batches.examples == 16 and 'truncated to 5 tokens' in batches.notes[0]
  spelled = batches._words
  rows = rows_of(batches)
  assert {len(rows['tokens_BS']), len(rows['characters_BSC'])} == {16}
  for b, i in enumerate(rows['index_B']):
    _, question, texts = ASKED[i % 4]
    passage, asked = corpus.tokenizer.encode(PASSAGE), corpus.tokenizer.encode(question)[:5]
    n = len(passage)
    whole = np.append(passage, corpus.tokenizer.eos_id)
    for axis, ids in (('T', whole), ('S', asked)):
      valid = rows[f'valid_B{axis}'][b]
      assert valid.sum() == len(ids) and valid[: len(ids)].all()
      np.testing.assert_array_equal(rows[f'tokens_B{axis}'][b, valid], spelled.word_ids(ids))
      np.testing.assert_array_equal(rows[f'characters_B{axis}C'][b, valid], spelled.character_ids(ids))
      assert not rows[f'characters_B{axis}C'][b, ~valid].any()
    assert rows['null_B'][b] == n and rows['passage_BT'][b].sum() == rows['best_BT'][b].sum() == n
    start, end = rows['starts_B'][b], rows['ends_B'][b]
    spans_T2 = corpus.tokenizer.encode_spans(PASSAGE)[1]
    assert start == end == n if not texts else PASSAGE[spans_T2[start, 0] : spans_T2[end, 1]] == texts[0]
  trained = load(tmp_path, 'train', train=True, tokenizer='words', length=40, batching=APART)[1](0)
  assert trained['tokens_BS'].shape == (4, 5) and 'types_BT' not in trained


def test_windows_of_a_passage_with_its_question_apart(tmp_path):
  corpus, batches = load(put(tmp_path), tokenizer='words', length=10, batching={**APART, 'stride': 4})
  size, found = len(corpus.tokenizer.encode(PASSAGE)), batches.windows
  begins = found.begin_F[found.question_F == 0]
  assert begins.tolist() == list(range(0, size - 9 + 4, 4))[: len(begins)] and begins[-1] + 9 >= size > begins[-2] + 9
  assert not found.offset_F.any() and found.size_F.max() == 9
  rows = rows_of(batches)
  for b, f in enumerate(rows['index_B']):
    assert rows['null_B'][b] == found.size_F[f] == rows['passage_BT'][b].sum()
  answered_B = rows['starts_B'] != rows['null_B']
  assert set(found.question_F[rows['index_B'][answered_B]] % 4) == {0, 1, 3}  # other windows point to their end
  assert (rows['starts_B'] == rows['null_B']).sum() > 8
  assert batches.tokens_per_epoch == rows['valid_BT'].sum() + rows['valid_BS'].sum()
  assert batches.positions() == sum(
    batches(i)['tokens_BT'].size + batches(i)['tokens_BS'].size for i in range(batches.steps)
  )
  with pytest.raises(InputError, match='data.length: got 1'):
    load(tmp_path, tokenizer='words', length=1, batching=APART)
  _, wordpiece = load(tmp_path, batching=APART)
  assert wordpiece(0)['tokens_BT'][0, wordpiece(0)['null_B'][0]] == load(tmp_path)[0].tokenizer.sep_id
  tokenizer = words.Words(['<unk>', 'parser'], 'space')
  bare = dataclasses.replace(corpus, tokenizer=tokenizer)
  with pytest.raises(InputError, match='data.batching.form: got'):
    cfg = pipeline.Config(dataset='squad_files', manual_dir=str(tmp_path), batching={'name': 'questions', **APART})
    pipeline.batches(cfg, bare, 'valid', 0, train=False)


@pytest.mark.slow
def test_run_of_words_learns_the_answers_and_answers_a_file(tmp_path, capsys):
  """Bidirectional attention flow: words of the file that the training data does not have are read by their letters."""
  settings = {
    'data.manual_dir': put(tmp_path),
    'data.length': 24,
    'data.batching.buckets': '()',
    'data.batching.stride': 9,
    'data.batching.question_length': 8,
    'data.batch_size': 8,
    'data.characters': 12,
    'model.variant': 'tiny',
    'model.V': 0,
    'model.elmo': 'none',
    'model.mix_l2': 0,
    'model.D': 24,
    'model.E': 24,
    'model.dropout': 0,
    'train.epochs': 100,
    'train.patience': 0,
    'train.eval_every': 300,
    'parallel.data': 1,
    'optim.optimizer': 'adam',
    'optim.lr': 5e-3,
    'optim.ema': 0.0,
  }
  command = ['train', '--config=experiments/bidaf/squad.py:base,data=own', f'--workdir={tmp_path}/run']
  assert main.main([*command, *(f'--config.{key}={value}' for key, value in settings.items())]) == 0
  found = json.loads((tmp_path / 'run/results.json').read_text())
  said = json.loads((tmp_path / 'run/predictions.json').read_text())
  assert found['questions'] == len(said) == 16 and found['f1'] > 90 and found['unanswered_f1'] == 100
  assert said['dev0q2'] == '12,000 lines' and said['dev0q3'] == ''
  capsys.readouterr()
  source = f'--input={tmp_path}/dev.jsonl'
  assert main.main(['predict', f'--workdir={tmp_path}/run', source, '--squad', f'--output={tmp_path}/said.json']) == 0
  assert f'F1 {found["f1"]:.2f} of 16 questions' in capsys.readouterr().err
  assert json.loads((tmp_path / 'said.json').read_text()) == said
  passage = PASSAGE.replace('parser', 'zyzzyva')
  other = paragraph([(name, question.replace('parser', 'zyzzyva'), texts) for name, question, texts in ASKED], passage)
  (tmp_path / 'other.jsonl').write_text(json.dumps(other) + '\n')
  assert main.main(['predict', f'--workdir={tmp_path}/run', f'--input={tmp_path}/other.jsonl']) == 0
  rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert [row['id'] for row in rows] == ['q1', 'q2', 'q3', 'q4']
  assert all(row['start'] is None or passage[row['start'] : row['end']] == row['text'] for row in rows)
  loaded = restore.load(tmp_path / 'run')
  read = question_answering.read_file(loaded, str(tmp_path / 'other.jsonl')).corpus.tokenizer
  assert 'zyzzyva' in read.tokens and 'zyzzyva' not in loaded.tokenizer.tokens and read.known == loaded.tokenizer.known


@pytest.mark.real_data
def test_answers_are_recovered_from_their_words(data_dir):
  """Of 1,190 questions of XQuAD in English all but 15 whose answer is a part of a word, such as `Ford` of `Ford's`."""
  names = ('test', 'overlap_with_squad2_part')
  asked = [one for name in names for one in questions.read(str(data_dir / f'qa/xquad_en/{name}.jsonl.gz'))]
  tokenizer = words.Words(['<unk>'], 'prose')
  other = []
  for question in asked:
    text, begin = question.answers[0]
    spans_T2 = tokenizer.encode_spans(question.context)[1]
    assert [question.context[a:z] for a, z in spans_T2] == tokenizer.split(question.context)
    rows = [('', question.context, f'{begin}:{begin + len(text)}')]
    ((_, _, label),) = labels.TokenSpans(rows, tokenizer)
    first, last = map(int, label.split(':'))
    recovered = question.context[spans_T2[first, 0] : spans_T2[last, 1]]
    assert text in recovered
    other += [(text, recovered)] * (recovered != text)
  assert len(asked) == 1190 and len(other) == 15


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  folder = put(tmp_path_factory.mktemp('questions'))
  tiny = {
    'model.variant': 'tiny',
    'model.V': 0,
    'model.N': 1,
    'model.D': 32,
    'data.manual_dir': folder,
    'data.vocab_size': 150,
    'data.length': 64,
    'data.batching.buckets': '()',
    'data.batching.stride': 20,
    'data.batching.question_length': 20,
    'data.batch_size': 8,
    'train.epochs': 80,
    'train.eval_every': 500,
    'train.best_by': 'f1',
    'evaluation.save_rows': True,
    'parallel.data': 1,
    'optim.lr': 6e-3,
    'model.dropout_hidden': 0,
    'model.dropout_attention': 0,
  }
  command = ['train', '--config=experiments/bert/squad.py:own', f'--workdir={folder}/run']
  assert main.main([*command, *(f'--config.{key}={value}' for key, value in tiny.items())]) == 0
  return folder / 'run'


def test_run_learns_the_answers_and_leaves_them(run):
  found = json.loads((run / 'results.json').read_text())
  said = json.loads((run / 'predictions.json').read_text())
  assert len(said) == found['questions'] == 16 and found['metric'] == 'f1'
  assert found['validation_f1'] == found['f1']  # the last validation is of the same split and parameters
  for i in range(4):  # it was trained on the same questions
    assert said[f'dev{i}q2'] == '12,000 lines' and said[f'dev{i}q3'] == '' and said[f'dev{i}q1'] in ASKED[0][2]
  assert found['f1'] > 90 and found['unanswered_f1'] == 100 and found['best_f1'] >= found['f1']
  odds = json.loads((run / 'null_odds.json').read_text())
  assert odds['dev0q3'] > 0 > odds['dev0q2']
  first = json.loads((run / 'nbest_predictions.json').read_text())['dev0q2']
  assert first[0]['text'] == '12,000 lines' and sum(row['probability'] for row in first) == pytest.approx(1)
  assert all(a['score'] >= b['score'] for a, b in zip(first, first[1:], strict=False))


def test_run_saves_every_answer(run):
  rows = saved_rows.check(run, 'f1', 'exact_match')
  said = json.loads((run / 'predictions.json').read_text())
  assert {row['id']: row['prediction'] for row in rows} == said
  assert all(row['exact_match'] == (row['prediction'] in (row['label'] or [''])) for row in rows)


@pytest.mark.slow
def test_run_with_the_head_of_xlnet_learns_the_answers(tmp_path):
  """Those that are none have the greatest odds of it, so that the best threshold leaves every question right."""
  tiny = {
    'model.variant': 'tiny',
    'model.V': 0,
    'model.N': 1,
    'data.manual_dir': put(tmp_path),
    'data.vocab_size': 420,
    'data.length': 160,
    'data.batching.buckets': '()',
    'data.batching.question_length': 40,
    'data.batch_size': 8,
    'data.batching.groups': 1,
    'train.eval_every': 500,
    'model.dropout': 0,
    'model.dropout_attention': 0,
    'optim.weight_decay': 0,
  }
  command = [
    'train',
    '--config=experiments/xlnet/squad.py:own,epochs=150,lr=3e-3,layer_decay=none,recipe=v2,adam=corrected',
    f'--workdir={tmp_path}/run',
  ]
  assert main.main([*command, *(f'--config.{key}={value}' for key, value in tiny.items())]) == 0
  found = json.loads((tmp_path / 'run/results.json').read_text())
  assert found['answered_f1'] > 90 and found['best_f1'] > 95
  odds = json.loads((tmp_path / 'run/null_odds.json').read_text())
  assert min(odds[f'dev{i}q3'] for i in range(4)) > max(odds[f'dev{i}q{j}'] for i in range(4) for j in (1, 2, 4))


def test_thresholds_and_lengths_are_obeyed(run, capsys):
  loaded = restore.load(run, overrides=['evaluation.null_threshold=-1e9'])
  corpus = pipeline.load(loaded.run.data)
  assert all(one.text == '' for one in question_answering.answer(loaded.run, corpus, loaded.params, 'valid'))
  loaded = restore.load(run, overrides=['evaluation.null_threshold=1e9', 'evaluation.answer_length=1'])
  for one in question_answering.answer(loaded.run, corpus, loaded.params, 'valid'):
    assert one.text and len(corpus.tokenizer.encode(one.text)) == 1
  assert main.main(['evaluate', f'--workdir={run}', '--split=valid', '--json']) == 0
  assert json.loads(capsys.readouterr().out)['f1'] == json.loads((run / 'results.json').read_text())['f1']


def test_ensemble_has_the_mean_of_the_scores(run, monkeypatch):
  load, alone = restore.load, json.loads((run / 'results.json').read_text())
  single = question_answering.answer((loaded := load(run)).run, loaded.corpus(), loaded.params, 'valid')
  same = ensemble.evaluate([run, run], 'valid')
  assert (same.metrics['f1'], same.metrics['exact_match']) == (alone['f1'], alone['exact_match'])
  assert same.metrics['members'][1]['f1'] == alone['f1'] and same.metrics['tokens_counted'] == len(single)

  def thrice(workdir, *rest):
    loaded = load(workdir, *rest)
    if workdir == run:
      return loaded
    head = jax.tree.map(lambda x: 3 * x, loaded.params['objective'])
    return dataclasses.replace(loaded, params={**loaded.params, 'objective': head})

  monkeypatch.setattr(restore, 'load', thrice)
  for one, mean in zip(single, ensemble.evaluate([run, str(run)], 'valid').outputs, strict=True):
    assert (mean.id, mean.best) == (one.id, one.best) and mean.null_odds == pytest.approx(2 * one.null_odds, rel=1e-4)


def test_file_is_answered_as_the_split_it_is(run, tmp_path, capsys):
  results = json.loads((run / 'results.json').read_text())
  paragraphs = [json.loads(line) for line in (run.parent / 'dev.jsonl').read_text().splitlines()]
  (tmp_path / 'dev.json').write_text(json.dumps({'data': [{'title': 'x', 'paragraphs': paragraphs}]}))
  said, odds = tmp_path / 'said.json', tmp_path / 'odds.json'
  for source in (f'--input={tmp_path}/dev.json', f'--input={run.parent}/dev.jsonl', '--split=valid'):
    command = ['predict', f'--workdir={run}', source, '--squad', f'--output={said}', f'--null_odds={odds}']
    assert main.main(command) == 0
    err = capsys.readouterr().err
    assert f'exact match {results["exact_match"]:.2f}, F1 {results["f1"]:.2f} of 16 questions' in err
    assert json.loads(said.read_text()) == json.loads((run / 'predictions.json').read_text())
    found, left = json.loads(odds.read_text()), json.loads((run / 'null_odds.json').read_text())
    assert list(found) == list(left) and list(found.values()) == pytest.approx(list(left.values()), abs=1e-4)
    said.unlink(), odds.unlink()


def test_answers_have_offsets_without_gold_answers(run, tmp_path, capsys):
  asked = paragraph()
  for qa in asked['qas']:
    del qa['answers'], qa['is_impossible']
  (tmp_path / 'a.jsonl').write_text(json.dumps(asked) + '\n\n')
  assert main.main(['predict', f'--workdir={run}', f'--input={tmp_path}/a.jsonl', '--n_best=99']) == 0
  out, err = capsys.readouterr()
  rows = {row['id']: row for row in map(json.loads, out.splitlines())}
  assert list(rows) == ['q1', 'q2', 'q3', 'q4'] and 'exact match' not in err and '4 questions' in err
  for row in rows.values():
    assert row['null_odds'] == pytest.approx(
      next(one['score'] for one in row['n_best'] if not one['text'])
      - next(one['score'] for one in row['n_best'] if one['text']),
      abs=1e-4,
    )
    for one in (row, *row['n_best']):
      assert one['text'] == ('' if one['start'] is None else PASSAGE[one['start'] : one['end']])
  assert rows['q3']['text'] == '' and rows['q2'] == rows['q2'] | {
    'text': '12,000 lines',
    'start': PASSAGE.index('12,000'),
    'score': rows['q2']['n_best'][0]['score'],
  }
  for count in (0, 3):
    assert main.main(['predict', f'--workdir={run}', f'--input={tmp_path}/a.jsonl', f'--n_best={count}']) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row.get('n_best', []) for row in found] == [row['n_best'][:count] for row in rows.values()]


def test_questions_without_an_answer_are_counted_apart():
  asked = [questions.Question(name, 'x', 'x?', a) for name, a in (('a', (('cat', 0),)), ('b', ()), ('c', None))]
  said = [{'id': 'a', 'text': 'dog'}, {'id': 'b', 'text': ''}, {'id': 'c', 'text': ''}]
  shown = lambda items: question_answering.score(None, batched.Inputs(None, 'f', items), said)
  assert shown(asked) == (
    'exact match 50.00, F1 50.00 of 2 questions; exact match 0.00, F1 0.00 of 1 questions with an answer; '
    'exact match 100.00, F1 100.00 of 1 questions without an answer'
  )
  assert shown(asked[:1]) == 'exact match 0.00, F1 0.00 of 1 questions' and not shown(asked[2:])
  assert shown(asked[1:]).endswith(
    '100.00 of 1 questions; exact match 100.00, F1 100.00 of 1 questions without an answer'
  )


def test_null_odds_need_unanswerable_questions(run, tmp_path, capsys):
  about = json.loads((run / 'data.json').read_text())
  assert about['unanswered'] == 4
  loaded = restore.load(run, overrides=['evaluation.null_threshold=-1e9'])
  corpus = pipeline.load(loaded.run.data)
  corpus = dataclasses.replace(corpus, manifest={**corpus.manifest, 'unanswered': 0})
  assert all(
    one.text and one.null_odds == -np.inf
    for one in question_answering.answer(loaded.run, corpus, loaded.params, 'valid')
  )
  (tmp_path / 'data.json').write_text('{"hash": "", "imported_from": "x"}')  # as where others trained it
  asked = question_answering.read_file(dataclasses.replace(loaded, workdir=tmp_path), str(run.parent / 'dev.jsonl'))
  assert asked.notes[0] == question_answering.UNANSWERED_UNKNOWN and asked.corpus.manifest['unanswered']
  with pytest.raises(InputError, match='null odds'):
    question_answering.FORMATS['null_odds'](loaded, None, [{'id': 'q', 'text': 'x'}])


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('a.txt', 'Who?', 'questions are read from files whose names end in .json, .jsonl'),
    ('a.jsonl', '\n', 'the file has no questions'),
    ('a.json', '{"data": []}', 'the file has no questions'),
    ('a.json', '{"paragraphs": []}', 'a.json: no field "data"'),
    ('a.jsonl', json.dumps({'context': 'x', 'qas': [{'question': 'Who?'}]}), 'line 1: no field "id"'),
  ],
)
def test_invalid_questions_are_rejected(run, tmp_path, capsys, name, content, message):
  (tmp_path / name).write_text(content)
  command = ['predict', f'--workdir={run}', f'--input={tmp_path}/{name}', f'--output={tmp_path}/out']
  assert main.main(command) == 2
  assert message in capsys.readouterr().err and not (tmp_path / 'out').exists()


@pytest.mark.parametrize(
  'content,message',
  [
    ('{', 'line 1: not JSON'),
    (json.dumps({'context': 'x'}), 'line 1: no field "qas"'),
    (json.dumps(paragraph([('a', 'Who?', ['she'])]) | {'context': 'He.'}), 'got the answer "she", which is not at'),
    (json.dumps(paragraph([('a', 'Who?', []), ('a', 'Who?', [])])), 'question a: got it twice'),
    (json.dumps(paragraph([('a', ' ', [])])), 'question a: got an empty question'),
    ('{"context": 1, "qas": []}', 'line 1: context: got 1'),
    *(
      (json.dumps(paragraph([('a', 'Who?', ['she'])])).replace('start": ', f'start": {value}, "x": '), said)
      for value, said in (
        ('Infinity', 'question a: answer_start: got Infinity; expected an integer'),
        ('null', 'question a: answer_start: got null; expected an integer'),
        ('-3', 'is not at -3'),
      )
    ),
    (json.dumps(paragraph([('a', 'Who?', [' '])])), 'question a: got an empty answer at [0-9]+'),
    (
      json.dumps(paragraph([('a', 'Who?', ['she'])])).replace('"is_impossible": false', '"is_impossible": true'),
      'question a: answers: got 1',
    ),
  ],
)
def test_bad_files_are_reported(content, message, tmp_path):
  (tmp_path / 'train.jsonl').write_text(content + '\n')
  with pytest.raises(InputError, match=message):
    list(questions.read(str(tmp_path / 'train.jsonl')))


def test_incompatible_settings_are_rejected(tmp_path):
  put(tmp_path)
  with pytest.raises(InputError, match='data.tokenizer: got .* "bert"'):
    load(tmp_path, tokenizer='bpe')
  with pytest.raises(InputError, match='data.manual_dir: got .*train-v2.0.json'):
    questions.find('squad2', DATA_SETS['squad2'].layout, str(tmp_path))
  (tmp_path / 'train-v1.1.json').write_text((put(tmp_path, lines=False) / 'train.json').read_text())
  with pytest.raises(InputError, match=r'split train: got 16 questions'):
    corpora.load(
      corpora.Config(
        dataset='squad', tokenizer='wordpiece', manual_dir=str(tmp_path), cache_dir=str(tmp_path / 'cache')
      )
    )
