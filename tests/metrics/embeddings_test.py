"""Similarity and analogies against plain re-statements of their rules, and against SciPy's and gensim's figures."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from lmx.errors import InputError, InputWarning
from lmx.metrics import embeddings
from lmx.metrics.embeddings import Vectors


def vectors(V=40, D=6, seed=0):
  rng = np.random.default_rng(seed)
  return Vectors([f'w{i}' for i in range(V)], rng.normal(size=(V, D)).astype(np.float32) * rng.uniform(0.5, 3, (V, 1)))


def test_nearest_words_by_cosine():
  made = vectors()
  unit = made.raw_VD / np.linalg.norm(made.raw_VD, axis=1, keepdims=True)
  score = unit @ unit[7]
  order = [i for i in np.argsort(-score) if i != 7][:5]
  found = made.nearest('w7', 5)
  assert [word for word, _ in found] == [f'w{i}' for i in order]
  np.testing.assert_allclose([s for _, s in found], score[order], rtol=1e-5)
  with pytest.raises(InputError, match='did you mean "w7"|has no vector'):
    made.nearest('w77')


def test_similarity_is_spearmans_with_ties_and_unknown_words_skipped():
  made = vectors()
  rng = np.random.default_rng(1)
  pairs = [(f'w{a}', f'W{b}', float(rng.integers(4))) for a, b in rng.integers(0, 40, (60, 2))]  # judgements with ties
  found = made.similarity([*pairs, ('w1', 'nothing', 3.0)])
  assert (found.pairs, found.skipped) == (60, 1)
  cosine = [made.table_VD[int(a[1:])] @ made.table_VD[int(b[1:])] for a, b, _ in pairs]

  def ranks(x):  # mean rank of the equal ones, by definition
    x = np.asarray(x)
    return np.array([(x < v).sum() + ((x == v).sum() + 1) / 2 for v in x])

  expected = np.corrcoef(ranks(cosine), ranks([s for *_, s in pairs]))[0, 1]
  assert found.spearman == pytest.approx(expected, abs=1e-5)
  assert made.similarity(pairs, restrict=10).skipped > 40


@pytest.mark.parametrize(
  ('pairs', 'reason'),
  [
    ([('w1', 'w2', 1.0)], 'got 1 cosines of known pairs; expected at least 2'),
    ([('x', 'w2', 1.0)], 'got 0 cosines of known pairs; expected at least 2'),
    ([('w1', 'w2', 1.0), ('w1', 'w3', 1.0)], 'the 2 ratings of known pairs are all 1'),
  ],
)
def test_undefined_similarity_has_a_reason(pairs, reason):
  with pytest.warns(InputWarning, match=f'^f.tsv: correlations are NaN: {reason}$'):
    assert np.isnan(vectors().similarity(pairs, where='f.tsv: ').spearman)


def answer(made, a, b, c, restrict):
  """b - a + c over unit vectors, the three words left out, one question at a time."""
  unit = made.raw_VD / np.linalg.norm(made.raw_VD, axis=1, keepdims=True)
  wanted = unit[b] - unit[a] + unit[c]
  best = max((i for i in range(restrict) if i not in (a, b, c)), key=lambda i: unit[i] @ wanted)
  return best


def test_analogies_by_section():
  made, restrict = vectors(), 30
  rng = np.random.default_rng(2)
  questions, expected, skipped = [], {'capitals': [0, 0], 'gram1': [0, 0]}, 0
  for n in range(400):
    a, b, c, d = (int(i) for i in rng.choice(40, 4, replace=False))
    section = 'capitals' if n % 2 else 'gram1'
    if n % 3 and max(a, b, c) < restrict:
      d = answer(made, a, b, c, restrict)  # some are right
    questions.append((section, [f'W{i}' if n % 5 else f'w{i}' for i in (a, b, c, d)]))
    if max(a, b, c, d) >= restrict:
      skipped += 1
    else:
      expected[section][0] += answer(made, a, b, c, restrict) == d
      expected[section][1] += 1
  found = made.analogies(questions, restrict)
  assert found.sections == {name: tuple(pair) for name, pair in expected.items()} and found.skipped == skipped
  right, asked = np.sum(list(expected.values()), axis=0)
  assert found.accuracy() == right / asked and 0 < right < asked
  assert found.accuracy('syntactic') == expected['gram1'][0] / expected['gram1'][1]
  assert found.accuracy('semantic') == expected['capitals'][0] / expected['capitals'][1]
  word = made.analogy('w1', 'w2', 'w3', 1)[0][0]
  assert word == f'w{answer(made, 1, 2, 3, 40)}'


def test_analogy_ignores_case_variants():
  table = np.array([[1, 0], [0, 1], [1, 1], [1, 1.01], [-1, 0.3]], np.float32)
  made = Vectors(['a', 'b', 'c', 'C', 'd'], table)
  found = made.analogies([('x', ['a', 'a', 'c', 'd'])], 5)  # c itself would win, then C
  assert found.sections == {'x': (0, 1)}
  assert made.analogies([('x', ['a', 'a', 'c', 'b'])], 5).sections == {'x': (1, 1)}


def test_principal_components():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(12, 5)) * np.array([5, 3, 1, 0.1, 0.1])
  found = embeddings.project(x)
  values, axes = np.linalg.eigh(np.cov(x.T))
  expected = (x - x.mean(0)) @ axes[:, [-1, -2]]
  np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6)


def test_files_are_read(tmp_path):
  questions = tmp_path / 'q.txt.gz'
  with gzip.open(questions, 'wt') as file:
    file.write(': one\na b c d\n\n: two\ne f g h\n')
  assert list(embeddings.read_questions(str(questions))) == [('one', list('abcd')), ('two', list('efgh'))]
  pairs = tmp_path / 'p.csv'
  pairs.write_text('Word 1,Word 2,Human (mean)\nlove,sex,6.77\n# a note\ntiger\tcat\t7\n')
  assert list(embeddings.read_judgements(str(pairs))) == [('love', 'sex', 6.77), ('tiger', 'cat', 7.0)]
  pairs.write_bytes(b'a b 1\rc d 2')
  assert list(embeddings.read_judgements(str(pairs))) == [('a', 'b', 1.0), ('c', 'd', 2.0)]
  pairs.write_bytes(b'a b 1\nc d inf\n')
  with pytest.raises(InputError, match='line 2, cell 3: got "inf"'):
    list(embeddings.read_judgements(str(pairs)))
  (tmp_path / 'half.gz').write_bytes(gzip.compress(b': one\na b c d\n')[:-9])
  with pytest.raises(InputError, match='half.gz: got damaged gzip data'):
    list(embeddings.read_questions(str(tmp_path / 'half.gz')))
  for text, reader in (('a b c\n', embeddings.read_questions), ('w1\tw2\ts\na\tb\tx\n', embeddings.read_judgements)):
    (tmp_path / 'bad').write_text(text)
    with pytest.raises(InputError, match='bad, line'):
      list(reader(str(tmp_path / 'bad')))
  with pytest.raises(InputError, match='cannot be read'):
    list(embeddings.read_questions(str(tmp_path / 'none')))


@pytest.mark.parametrize(
  ('text', 'pairs'),
  [
    ('a b 7.5\n', [7.5]),
    ('w1,w2,mean,1,2\na,b,7.5,8,7\nc,d,1,1,1\n', [7.5, 1]),  # WordSim-353 with the rating of each person
    ('a\tb\t7.5\t8\t7\n', [7.5]),
    ('a;b;7.5\n', [7.5]),
    ('a,b,7,35\n', 'line 1: got 4 cells'),
    ('w1,w2,mean\na,b,7,35\n', 'line 2: got .*expected 3'),
    ('a\tb\t7,35\n', 'line 1, cell 3: got "7,35"'),
    ('a b 7,35\n', 'line 1, cell 3: got "7,35"'),
    ('a b 1_000\n', 'line 1, cell 3: got "1_000"'),
    ('a b \uff17\n', 'line 1, cell 3: got "\uff17"'),
    ('a b nan\nc d 1\n', 'line 1, cell 3: got "nan"'),
    ('a b 1\nc d nan\n', 'line 2, cell 3: got "nan"'),
    ('a b 1\nc d\n', 'line 2: got "c d"'),
  ],
)
def test_ratings_are_read_by_one_rule(tmp_path, text, pairs):
  (tmp_path / 'p').write_text(text)
  if isinstance(pairs, list):
    assert [rating for _, _, rating in embeddings.read_judgements(str(tmp_path / 'p'))] == pairs
    return
  with pytest.raises(InputError, match=pairs):
    list(embeddings.read_judgements(str(tmp_path / 'p')))


@pytest.mark.real_data
def test_published_files_are_whole(data_dir):
  folder = data_dir / 'embed'
  questions = list(embeddings.read_questions(str(folder / 'questions-words.txt.gz')))
  assert len(questions) == 19_544 and len({section for section, _ in questions}) == 14
  for name, count in (('ws353_all', 353), ('simlex999', 999), ('men3k', 3000)):
    assert len(list(embeddings.read_judgements(str(folder / 'similarity' / f'{name}.tsv')))) == count
