"""Words tagged from the command line: every kind of file, sentences that are too long, what is written, bad files."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from lmx.cli import main
from lmx.config import resolve
from lmx.data import pipeline
from lmx.data.builders import tagged
from lmx.errors import InputError, InputWarning
from lmx.objectives import tag
from lmx.prediction import tagging
from lmx.runs import restore
from tests import saved_rows, untrained
from tests.reference import conlleval

NAMES, OTHERS = 'ano bori celu'.split(), 'the of saw a gave to went'.split()


def made(count, seed):
  """(words, labels) of sentences in which names of one or two words stand, some of them labelled by chance."""
  draw = np.random.default_rng(seed)
  for _ in range(count):
    words, labels = [], []
    for _ in range(draw.integers(1, 5)):
      kind = 'per' if draw.random() < 0.5 else 'loc'
      name = [f'{word}{"x" if kind == "per" else "q"}' for word in draw.choice(NAMES, draw.integers(1, 3))]
      other = draw.choice(OTHERS, draw.integers(1, 3)).tolist()
      words += name + other
      labels += [f'B-{kind}', *[f'I-{kind}'] * (len(name) - 1)] + ['O'] * len(other)
    if draw.random() < 0.3:
      labels[draw.integers(len(labels))] = 'O'
    yield words, labels


def columns(pairs, between='\t'):
  return ''.join(''.join(f'{w}{between}{t}\n' for w, t in zip(*pair, strict=True)) + '\n' for pair in pairs)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('tags')
  for seed, (split, count) in enumerate((('train', 96), ('dev', 8), ('test', 24))):
    (folder / f'{split}.conll').write_text(columns(made(count, seed)))
  return folder


@pytest.fixture(scope='module')
def run(folder):
  tiny = {
    'model.variant': 'tiny',
    'model.V': 0,
    'model.N': 1,
    'model.D': 32,
    'data.manual_dir': folder,
    'data.check_sizes': False,
    'data.vocab_size': 60,
    'data.length': 96,
    'data.batching.buckets': '()',
    'data.batch_size': 16,
    'train.epochs': 8,
    'train.eval_every': 500,
    'evaluation.save_rows': True,
    'parallel.data': 1,
    'optim.lr': 8e-3,
    'model.dropout_hidden': 0,
    'model.dropout_attention': 0,
  }
  command = ['train', '--config=experiments/bert/tagging.py:wnut17,crf', f'--workdir={folder}/run']
  assert main.main([*command, *(f'--config.{key}={value}' for key, value in tiny.items())]) == 0
  return folder / 'run'


@pytest.fixture(scope='module')
def loaded(run):
  return restore.load(run)


def said(run, path, capsys, *options):
  capsys.readouterr()
  assert main.main(['predict', f'--workdir={run}', f'--input={path}', *options]) == 0
  out, err = capsys.readouterr()
  return [json.loads(line) for line in out.splitlines()], err


def figures(run, capsys):
  capsys.readouterr()
  assert main.main(['evaluate', f'--workdir={run}', '--split=test', '--json']) == 0
  return json.loads(capsys.readouterr().out)


def test_run_saves_the_labels_of_every_sentence(run):
  rows = saved_rows.check(run, 'span_f1', 'span_precision', 'span_recall', 'accuracy', 'error_percent')
  assert [row['label'] for row in rows] == [tagged.bio(labels) for _, labels in made(24, 2)]


def test_metrics_of_predict_equal_those_of_evaluate(run, folder, tmp_path, capsys):
  found = figures(run, capsys)
  for source in ('--split=test', f'--input={folder}/test.conll'):
    assert main.main(['predict', f'--workdir={run}', source, f'--output={tmp_path}/out.conll']) == 0
    err = capsys.readouterr().err
    assert f'F1 of spans {found["span_f1"]:.2f}' in err and f'{found["accuracy"]:.2%} of' in err
    written = (tmp_path / 'out.conll').read_text()
    rows = [[line.split(' ') for line in part.splitlines()] for part in written.strip().split('\n\n')]
    assert [[row[0] for row in part] for part in rows] == [words for words, _ in made(24, 2)]
    right, predicted, true = conlleval.counts([tuple(zip(*part, strict=True))[:0:-1] for part in rows])
    assert 200 * right / (predicted + true) == pytest.approx(found['span_f1'])
    assert 30 < found['span_f1'] < 100


def test_labels_in_another_field_are_reported(loaded, tmp_path):
  path = tmp_path / 'a.jsonl'
  for row, notes in (
    (
      {'tokens': ['ba'], 'ner_tags': ['O']},
      (f'{path}: no field tags, so nothing is measured; it has tokens, ner_tags',),
    ),
    ({'tokens': ['ba'], 'id': 3}, ()),
  ):
    path.write_text(json.dumps(row) + '\n')
    assert tagging.read_file(loaded, str(path)).notes == notes


def test_words_without_a_true_span_are_warned_of():
  cfg = tag.Config(labels=('B-x', 'I-x', 'O'))
  with pytest.warns(InputWarning, match='F1 of spans: got no true spans'):
    assert tagging.compute_metrics(cfg, [(('O', 'B-x'), ('O', 'O'))])['span_f1'] == 0
  found = tagging.compute_metrics(cfg, [(('O', 'B-x'), ('O', 'O')), (('B-x', 'O'), ('B-x', 'I-x'))])
  assert (found['accuracy'], found['span_f1']) == (0.5, 0.0)


def test_every_kind_of_file_gives_the_same(run, folder, tmp_path, capsys):
  pairs = list(made(24, 2))
  wanted, scored = said(run, folder / 'test.conll', capsys)
  assert [row['tokens'] for row in wanted] == [words for words, _ in pairs]
  lines = lambda rows: ''.join(json.dumps(row) + '\n' for row in rows)
  universal = '\n'.join(
    '# text\n1-2\tdel\t_\t_\n' + ''.join(f'{i}\t{w}\t_\t{t}\n' for i, (w, t) in enumerate(zip(*p, strict=True), 1))
    for p in pairs
  )
  for name, content, judged in (
    ('a.conll', columns(pairs, ' '), True),
    ('a.conllu', universal, True),
    ('a.bio', columns(pairs, ' '), True),
    ('a.tsv', columns(pairs), True),
    ('a.jsonl', lines({'tokens': w, 'tags': t} for w, t in pairs), True),
    ('b.jsonl', lines({'tokens': w} for w, t in pairs), False),
    ('a.txt', ''.join(' '.join(w) + '\n' for w, _ in pairs), False),
    ('b.conll', columns((w, [''] * len(w)) for w, _ in pairs).replace('\t', ''), False),
  ):
    (tmp_path / name).write_text(content)
    found, err = said(run, tmp_path / name, capsys)
    assert found == wanted and err == (scored if judged else ''), name
  found, err = said(run, tmp_path / 'a.txt', capsys, f'--output={tmp_path}/out', '--conll')
  assert (tmp_path / 'out').read_text().split('\n')[0] == f'{pairs[0][0][0]} {wanted[0]["tags"][0]}'


def test_long_sentences_are_read_in_parts_and_every_word_is_tagged(run, tmp_path, capsys):
  words = [word for some, _ in made(12, 3) for word in some]
  (tmp_path / 'a.txt').write_text(' '.join(words) + '\n' + ' '.join(words[:3]) + '\n')
  (whole, short), err = said(run, tmp_path / 'a.txt', capsys, '--config.data.length=24')
  assert whole['tokens'] == words and len(whole['tags']) == len(words) and len(set(whole['tags'])) > 2
  assert '1 of 2 sentences have more than 22 tokens and are split into' in err
  count = int(err.split(' parts')[0].split()[-1])
  assert 22 * count >= len(words)
  parts = tagging._split_sentence([np.zeros(n) for n in (3, 1, 4, 1, 5, 2, 6, 5)], 9)
  assert [[len(ids) for ids in part] for part in parts] == [[3, 1, 4, 1], [5, 2], [6], [5]]
  assert [len(p) for p in tagging._split_sentence([np.zeros(1)] * 100, 64)] == [50, 50]
  (tmp_path / 'b.txt').write_text('the\n')  # one token
  assert said(run, tmp_path / 'b.txt', capsys) == ([{'tokens': ['the'], 'tags': ['O']}], '')
  (tmp_path / 'c.txt').write_text(f'the {"went" * 20} saw\n')
  (row,), err = said(run, tmp_path / 'c.txt', capsys, '--config.data.length=24')
  assert len(row['tags']) == 3 and '1 words have more than 22 tokens and are truncated to their first 22' in err


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    (
      'a.csv',
      'the,O\n',
      'sentences are read from files whose names end in .conll, .conllu, .bio, .iob, .tsv, .jsonl, .txt',
    ),
    ('a.txt', 'the of\n\nsaw\n', 'a.txt, line 2: got an empty line'),
    ('a.conll', '\n\n', 'the file has no sentences'),
    ('a.conll', 'the\tO\nof\n', 'a.conll, line 2: got 1 columns'),
    ('a.conll', 'the\tO\n\nof\tB-pre\n', 'line 3: the tagger has no label "B-pre"; did you mean "B-per"'),
    ('a.conllu', '1\n', 'a.conllu, line 1: has no column 2'),
    ('a.conllu', '1-2\tdu\n\n', 'a.conllu, line 1: got a sentence'),
    ('a.jsonl', '{"tokens": ["the"]}\n{"words": []}\n', 'line 2: no field "tokens"'),
    ('a.jsonl', '{"tokens": []}\n', 'line 1: a sentence without words'),
    ('a.jsonl', '{"tokens": ["the", " "]}\n', 'line 1: a sentence with an empty word'),
    ('a.jsonl', '{"tokens": ["the"], "tags": ["O", "O"]}\n', 'line 1: got 2 tags; expected 1'),
    ('a.jsonl', '{"tokens": "the"}\n', 'line 1: tokens: got "the"'),
    ('a.jsonl', '{"tokens": ["the", 1]}\n', 'line 1: tokens: got 1'),
  ],
)
def test_untaggable_files_are_rejected(loaded, tmp_path, name, content, message):
  (tmp_path / name).write_text(content)
  with pytest.raises(InputError, match=re.escape(message)):
    tagging.read_file(loaded, str(tmp_path / name))


def test_split_with_a_label_that_the_run_does_not_know_is_reported(loaded, monkeypatch):
  monkeypatch.setattr(tagging.pipeline, 'examples', lambda cfg, split: [('0', 'the', 'O'), ('1', 'of ano', 'O B-pre')])
  with pytest.raises(InputError, match='line 2: .*did you mean "B-per"'):
    tagging.read_split(loaded, 'test')


def test_formats_of_other_tasks_are_rejected(run, tmp_path, capsys):
  (tmp_path / 'a.txt').write_text('the\n')
  command = ['predict', f'--workdir={run}', f'--input={tmp_path}/a.txt', f'--output={tmp_path}/out']
  for option, message in (
    ('--squad', 'expected runs that answer questions;'),
    ('--glue', 'runs of a task of GLUE; '),
    (f'--null_odds={tmp_path}/odds', 'with objective "tag"'),
    ('--n_best=2', 'runs that answer questions'),
  ):
    assert main.main([*command, option]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / 'out').exists()
  (tmp_path / 'a.txt').write_text('\n')
  assert main.main(command) == 2 and not (tmp_path / 'out').exists()
  assert 'a.txt: the file has no sentences' in capsys.readouterr().err
  assert main.main(['predict', f'--workdir={run}', '--split=tset']) == 2
  assert 'no split "tset"; did you mean "test"' in capsys.readouterr().err


def test_comment_like_word_is_kept_in_columns(tmp_path):
  path = tmp_path / 'a.conll'
  path.write_text('# id 1 of 2\nthe X\n# X\n-DOCSTART- X\n\n# id 2\n# id 3 of 3\nof Y\n')
  found = [(one.words, one.tags, one.lines) for one in tagged.read(str(path))]
  assert found == [(('the', '#'), ('X', 'X'), (2, 3)), (('of',), ('Y',), (8,))]


def test_sentences_are_predicted_in_the_context_in_which_they_are_evaluated(tmp_path):
  def news(seed):
    return ''.join(f'-DOCSTART- O\n\n{columns(made(5, seed + i), " ")}' for i in range(6))

  for seed, name in enumerate(('eng.train', 'eng.testa', 'eng.testb')):
    (tmp_path / name).write_text(news(10 * seed))
  data = {'manual_dir': tmp_path, 'cache_dir': tmp_path / 'cache', 'check_sizes': False, 'vocab_size': 60, 'length': 64}
  settings = [f'data.{key}={value}' for key, value in data.items()]
  settings += ['model.variant=tiny', 'model.V=0', 'train.like_init=False', 'data.batching.buckets=()']
  run = resolve.to_run(resolve.load('experiments/bert/tagging.py:conll2003', settings))
  corpus = pipeline.load(run.data)
  settings.append(f'objective.labels={tuple(corpus.manifest["token_label_names"])}')
  loaded = untrained.load('experiments/bert/tagging.py:conll2003', *settings, tokenizer=corpus.tokenizer)
  batch_of = lambda inputs: pipeline.batches(loaded.run.data, inputs.corpus, inputs.split, 0, train=False)(0)
  evaluated = pipeline.batches(run.data, corpus, 'test', 0, train=False)(0)
  file = tmp_path / 'eng.conll'
  file.write_text(news(20))
  for inputs in (tagging.read_file(loaded, str(file)), tagging.read_split(loaded, 'test')):
    assert not inputs.notes and [one.document for one in inputs.items] == [1 + i // 5 for i in range(30)]
    for name in ('tokens_BT', 'valid_BT', 'weights_BT', 'index_B'):
      np.testing.assert_array_equal(batch_of(inputs)[name], evaluated[name])
  assert tag.protocol(loaded.run.objective, run.data, None)[0] == 'in the context of its document'
  file.write_text(news(20).replace('-DOCSTART- O\n\n', ''))
  inputs = tagging.read_file(loaded, str(file))
  assert [note for note in inputs.notes if 'marks no documents' in note]
  assert batch_of(inputs)['valid_BT'].sum() < evaluated['valid_BT'].sum()  # each sentence by itself
  np.testing.assert_array_equal(batch_of(inputs)['weights_BT'].sum(), evaluated['weights_BT'].sum())
