"""Saved n-gram models: they score as `lmx ngrams` does, their probabilities sum to 1, and damage is found."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from lmx.cli import main
from lmx.data.corpus import Corpus
from lmx.data.tokenizers import build
from lmx.data.tokenizers.words import Words
from lmx.errors import InputError
from lmx.evaluation.parts import mixture
from lmx.scoring import loading, ngrams, sentences
from tests import small_text

TRAIN = ['a b a', 'b a', 'a a b b a', 'b', 'a b a b', 'b b a c']
TEST = ['a b', 'c a b a', 'b b b', 'd a']


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  """Saves models of the texts: saved(name, boundaries) -> (folder, corpus)."""
  tokenizer = build.train('words', TRAIN, rule='prose')
  corpus = Corpus.from_texts({'train': TRAIN, 'test': TEST}, tokenizer)
  made: dict[tuple[str, str], str] = {}

  def get(name, boundaries='document'):
    if (name, boundaries) not in made:
      to = made[name, boundaries] = str(tmp_path_factory.mktemp('model') / 'saved')
      model = mixture.estimate(corpus, name, boundaries)
      ngrams.save(to, name, model, boundaries, tokenizer, {'data_hash': corpus.hash})
    return made[name, boundaries], corpus

  return get


def total(scorer, texts):
  return sum(one.sum for one in sentences.score(scorer, texts))


@pytest.mark.parametrize('name', ['ikn3', 'kn3', 'ikn1'])
def test_scores_of_documents_equal_lmx_ngrams(saved, name):
  folder, corpus = saved(name)
  scorer = loading.load(folder, end=True)
  assert scorer.name == name and scorer.protocol == 'log-likelihood, after a start symbol, with the end'
  (record,) = mixture.evaluate_ngrams(corpus, ['test'], [name], 'document')
  assert total(scorer, TEST) == pytest.approx(-record['loss'] * record['tokens_counted'], rel=1e-12)
  (unknown,) = sentences.score(scorer, ['d a'])
  assert unknown.unknown_T.tolist() == [True, False, False] and unknown.tokens[0] == '<unk>'


def test_context_continues_a_stream(saved):
  """After a context the tokens have the probabilities that they have in the stream."""
  folder, corpus = saved('ikn3', 'stream')
  (record,) = mixture.evaluate_ngrams(corpus, ['test'], ['ikn3'])
  scorer = loading.load(folder, end=True)
  eos = corpus.tokenizer.eos_id
  assert scorer.prefix_id == eos
  first, *others = corpus.split('test').tokens.tolist()
  row = scorer.row('a')._replace(ids_T=np.asarray(others), context_S=np.asarray([scorer.model.V, first]))
  begin = scorer.row('a')._replace(ids_T=np.asarray([first]), context_S=np.asarray([scorer.model.V]))
  each = scorer.score([row, begin])
  assert sum(one.log_p_T.sum() for one in each) == pytest.approx(-record['loss'] * record['tokens_counted'])
  scorer = loading.load(folder)
  (whole,) = sentences.score(scorer, ['a b c a b'])
  with pytest.raises(InputError, match='--context: got a text without a token'):
    scorer.read_context(' ')
  scorer.read_context('a b')
  (continued,) = sentences.score(scorer, ['c a b'])
  np.testing.assert_allclose(continued.log_p_T, whole.log_p_T[2:], rtol=1e-12)


@pytest.mark.parametrize('boundaries', ['document', 'stream'])
@pytest.mark.parametrize('name', ['ikn3', 'kn2'])
def test_probabilities_of_all_strings_sum_to_one(saved, name, boundaries):
  folder, corpus = saved(name, boundaries)
  scorer = loading.load(folder)
  V, eos = corpus.tokenizer.vocab_size, corpus.tokenizer.eos_id
  strings = [ids for n in (1, 2, 3) for ids in itertools.product(range(V), repeat=n)]
  strings = [ids for ids in strings if eos not in ids[:-1] and (len(ids) == 3 or ids[-1] == eos)]
  rows = [scorer.row('a')._replace(ids_T=np.asarray(ids)) for ids in strings]
  scored = scorer.score(rows, greedy=True)
  assert sum(np.exp(one.log_p_T.sum()) for one in scored) == pytest.approx(1, abs=1e-12)
  best = max(scored, key=lambda one: (one.greedy, one.log_p_T[0]))
  assert best.greedy and best.log_p_T[0] == max(one.log_p_T[0] for one in scored)
  assert not all(one.greedy for one in scored)


def test_first_token_without_a_start(saved):
  folder, _ = saved('ikn3')
  none, symbol = (next(sentences.score(loading.load(folder, start=start), ['a b a'])) for start in ('none', 'symbol'))
  assert np.isnan(none.log_p_T[0]) and none.predicted == 2 and symbol.predicted == 3


def test_options_of_runs_are_refused(saved, tmp_path):
  folder, corpus = saved('ikn3')
  for options, field in (
    ({'method': 'pll'}, '--method'),
    ({'which': '3'}, '--which'),
    ({'overrides': ['model.D=3']}, '--config'),
    ({'start': 'maybe'}, '--start'),
  ):
    with pytest.raises(InputError, match=field):
      loading.load(folder, **options)
  plain = Words(['<unk>', 'a', 'b'], 'space')
  other = Corpus.from_texts({'train': ['a b a'], 'test': TEST}, plain)
  ngrams.save(str(tmp_path / 'plain'), 'ikn2', mixture.estimate(other, 'ikn2'), 'stream', plain, {})
  for options, field in (({'start': 'symbol'}, '--start'), ({'end': True}, '--end')):
    with pytest.raises(InputError, match=field):
      loading.load(tmp_path / 'plain', **options)
  assert loading.load(tmp_path / 'plain').start == 'none'
  for name in ('trigram', 'class3_4'):
    with pytest.raises(InputError, match=f'--models: got {name}'):
      mixture.evaluate_ngrams(corpus, ['test'], [name], 'document')


def test_damage_is_found(saved, tmp_path):
  _, corpus = saved('ikn3')
  for name, change in (
    ('arrays.npz', lambda path: path.write_bytes(path.read_bytes()[:-1])),
    ('arrays.npz', lambda path: path.unlink()),
    ('tokenizer/vocabulary.json', lambda path: path.write_text(path.read_text().replace('"c"', '"e"'))),
    ('ngrams.json', lambda path: path.write_text('{"format": 2}')),
    *(
      ('ngrams.json', lambda path, field=field: path.write_text(json.dumps(json.loads(path.read_text()) | field)))
      for field in ({'discounts': 3}, {'boundaries': 'x'}, {'backoff': True}, {'order': 3})
    ),
  ):
    folder = tmp_path / f'{len(list(tmp_path.iterdir()))}'
    ngrams.save(str(folder), 'ikn2', mixture.estimate(corpus, 'ikn2'), 'stream', corpus.tokenizer, {})
    change(folder / name)
    with pytest.raises(InputError, match=name):
      loading.load(folder)


def test_greedy_texts_have_no_more_probable_token(saved):
  """Of a document's first tokens the model prefers one; the others are not greedy."""
  folder, corpus = saved('ikn3')
  scorer = loading.load(folder)
  words = [corpus.tokenizer.id_to_token(i) for i in range(corpus.tokenizer.vocab_size)]
  scored = scorer.score([scorer.row(word, word) for word in words if word.strip() and word != '<eos>'], greedy=True)
  best = max(one.log_p_T[0] for one in scored)
  assert [one.greedy for one in scored] == [one.log_p_T[0] == best for one in scored]
  (longer,) = scorer.score([scorer.row('b a b')], greedy=True)
  each = [scorer.score([scorer.row(text)], greedy=True)[0].greedy for text in ('b', 'b a', 'b a b')]
  assert each == sorted(each, reverse=True) and longer.greedy == each[-1]


def test_from_the_command_line(tmp_path, capsys):
  """A saved model scores through `lmx score`; a folder with files is not written."""
  settings = [f'--config.{setting}' for setting in small_text.settings(tmp_path)]
  command = ['ngrams', '--config=experiments/rnn_lm/quickstart.py:tiny', *settings, '--split=test']
  folder = tmp_path / 'saved'
  assert main.main([*command, '--models=ikn2', '--boundaries=document', f'--save={folder}']) == 0
  record = json.loads((folder / 'ngrams.json').read_text())
  assert record['data_hash'] and record['config']['data']['dataset'] == 'text_files' and record['order'] == 2
  (tmp_path / 'in.txt').write_text('the end\n')
  assert main.main(['score', f'--workdir={folder}', f'--input={tmp_path}/in.txt', '--by=word']) == 0
  printed = capsys.readouterr()
  assert json.loads(printed.out.splitlines()[-1])['sum'] < 0 and 'ikn2: log-likelihood' in printed.err
  for options, field in (
    (['--models=ikn2', f'--save={folder}'], '--save'),
    (['--models=ikn2,ikn3', f'--save={tmp_path}/new'], '--models'),
    (['--models=trigram', f'--save={tmp_path}/new'], '--models'),
  ):
    assert main.main([*command, *options]) == 2 and f'lmx: {field}: got' in capsys.readouterr().err
  assert not (tmp_path / 'new').exists() and len(list(folder.iterdir())) == 3
