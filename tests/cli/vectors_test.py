"""`lmx vectors` on a trained run and on files, and the run's own nearest words."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lmx.cli import main
from lmx.data import corpus
from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.prediction import word_vectors
from lmx.runs import restore
from tests import untrained

CONFIG = '--config=experiments/word2vec/quickstart.py:tiny'


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  path = tmp_path_factory.mktemp('run') / 'vectors'
  settings = '--config.parallel.data=1', '--config.model.update_kernel=xla'  # whose step compiles ten times as fast
  assert main.main(['train', CONFIG, f'--workdir={path}', *settings]) == 0
  return path


def command(capsys, *argv):
  code = main.main(['vectors', *map(str, argv)])
  captured = capsys.readouterr()
  return code, captured.out, captured.err


def test_run_reports_nearest_words_and_headline(workdir):
  results = json.loads((workdir / 'results.json').read_text())
  assert results['metric'] == 'loss' and results['loss'] > 0
  assert not any('perplexity' in key for key in results)
  assert 'noise words' in results['protocol'] and 'window 5' in results['protocol']
  lines = (workdir / 'samples.txt').read_text().split('\n', 1)[1].split('\n\n----\n\n')
  assert [line.split(':')[0] for line in lines] == ['list', 'error', 'returns', 'file', 'class', 'integer']


def test_evaluate_names_its_loss(workdir, capsys):
  assert main.main(['evaluate', f'--workdir={workdir}', '--split=valid']) == 0
  out = capsys.readouterr().out
  assert 'loss of a pair' in out and 'perplexity' not in out


def test_vectors_gives_metrics_neighbours_and_files(workdir, tmp_path, capsys):
  (tmp_path / 'q.txt').write_text(': plural\nlist lists file files\nlist lists file qwxyz\n')
  (tmp_path / 's.tsv').write_text('word1\tword2\tscore\nlist\tlists\t9\nfile\tfiles\t8\nlist\tqwxyz\t1\n')
  code, out, _ = command(
    capsys,
    f'--workdir={workdir}',
    f'--analogies={tmp_path}/q.txt',
    f'--similarity={tmp_path}/s.tsv',
    '--nearest=list',
    '--analogy=list,lists,file',
    '--count=3',
    f'--export={tmp_path}/v.bin',
    f'--plot={tmp_path}/map.png',
    '--words=list,lists,file,files',
    '--pairs',
    '--json',
    f'--output={tmp_path}/found.json',
  )
  assert code == 0
  found = json.loads(out)
  assert json.loads((tmp_path / 'found.json').read_text()) == found
  assert found['analogies']['sections'] == {'plural': [found['analogies']['sections']['plural'][0], 1]}
  assert found['analogies']['skipped'] == 1
  assert found['similarity'][f'{tmp_path}/s.tsv']['pairs'] == 2
  assert len(found['nearest']['list']) == len(found['nearest']['list,lists,file']) == 3
  assert (tmp_path / 'map.png').read_bytes()[:4] == b'\x89PNG'
  (tmp_path / 's.tsv').write_text('list\tqwxyz\t9\nfile\tfiles\t8\n')  # one pair is known, and has no correlation
  options = (f'--vectors={tmp_path}/v.bin', f'--similarity={tmp_path}/s.tsv')
  assert 'Spearman - (undefined) over 1 pairs, 1 skipped' in command(capsys, *options)[1]
  assert json.loads(command(capsys, *options, '--json')[1])['similarity'][f'{tmp_path}/s.tsv']['spearman'] is None
  exported = word_vectors.from_file(str(tmp_path / 'v.bin'))
  words, table = exported.words, exported.raw_VD
  assert len(words) == found['words'] and table.shape[1] == found['width'] and np.isfinite(table).all()
  assert '<unk>' not in words and ',' not in words  # the run reads words only
  code, again, _ = command(capsys, f'--vectors={tmp_path}/v.bin', '--nearest=list', '--count=3', '--json')
  assert code == 0 and json.loads(again)['nearest']['list'] == found['nearest']['list']


def test_errors_name_the_input(workdir, tmp_path, capsys):
  for argv, message in (
    (['--nearest=lst'], '"lst" has no vector'),
    (['--analogy=a,b'], 'three words'),
    ([f'--analogies={tmp_path}/x'], 'expected an existing file'),
    ([f'--plot={tmp_path}/m.png', '--words=list'], 'at least two'),
    ([f'--export={tmp_path}/none/v.txt'], 'a folder that exists'),
    ([f'--output={tmp_path}/none/f.json'], 'a folder that exists'),
  ):
    code, _, err = command(capsys, f'--workdir={workdir}', *argv)
    assert code == 2 and message in err


TEXT = 'b a a , a b c'


def loaded(embed, kind='words', *settings):
  params, tokenizer = {'model': {'embed': embed}}, build.train(kind, [TEXT])
  return untrained.load('experiments/rnn_lm/quickstart.py:tiny', *settings, params=params, tokenizer=tokenizer)


@pytest.mark.parametrize('name', ['table', 'tokens'])
def test_word_language_model_has_vectors(name, monkeypatch):
  of = loaded({name: np.arange(20.0).reshape(10, 2)})
  monkeypatch.setattr(restore.pipeline, 'load', lambda _: corpus.Corpus.from_texts({'train': [TEXT]}, of.tokenizer))
  vectors = word_vectors.from_run(of)
  assert vectors.words[:2] == ['a', 'b'] and sorted(vectors.words) == [',', 'a', 'b', 'c']
  np.testing.assert_array_equal(
    vectors.raw_VD, [of.params['model']['embed'][name][of.tokenizer.tokens.index(w)] for w in vectors.words]
  )


def test_run_without_word_vectors_is_rejected():
  table = {'table': np.zeros((9, 2))}
  for of, message in (
    (loaded({'positions': np.zeros((9, 2))}), 'the model has no word vector table'),
    (loaded({'tokens': {'a': np.zeros((9, 2))}}), 'the model has no word vector table'),
    (loaded(table, 'characters'), 'got a run with the tokenizer "characters"'),
    (loaded(table, 'words', 'data.characters=8'), 'got a run with data.characters'),
  ):
    with pytest.raises(InputError, match=f'{message}'):
      word_vectors.from_run(of)
  with pytest.raises(InputError, match='--side: got source; expected none'):
    word_vectors.from_run(loaded(table), 'source')
