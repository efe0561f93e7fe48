"""Scores of translations against n-grams counted here, and worked examples of the papers."""

from __future__ import annotations

import collections
import gzip
import math

import numpy as np
import pytest
import sacrebleu

from lmx.errors import InputError, InputWarning
from lmx.metrics import translation

# Papineni et al. 2002, section 2.1, with one reference each.
CATS = ['the the the the the the the', 'the cat sat on the mat']
MATS = ['the cat is on the mat', 'the cat sat on a mat']
GERMAN = [
  'Ein T-Shirt-Träger sagt: "Ja, gut!"',
  'Zwei Hunde laufen über die Wiese.',
  'Der Mann ist z.B. 3,5 Jahre alt.',
]
OTHERS = ['Ein T-Shirt-Träger sagt: "Nein, gut!"', 'Zwei Hunde rennen über eine Wiese.', 'Der Mann ist 3,5 Jahre alt.']


def plain_bleu(hypotheses, references) -> float:
  """Papineni et al. 2002, section 2.3, over tokens between spaces, without smoothing."""
  hits, totals = collections.Counter(), collections.Counter()
  lengths = np.zeros(2)
  for hypothesis, reference in zip(hypotheses, references, strict=True):
    pair = hypothesis.split(), reference.split()
    lengths += [len(words) for words in pair]
    for n in range(1, 5):
      found, wanted = (collections.Counter(zip(*(w[i:] for i in range(n)), strict=False)) for w in pair)
      hits[n] += sum((found & wanted).values())
      totals[n] += sum(found.values())
  if not all(hits[n] for n in range(1, 5)):
    return 0.0
  penalty = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
  return 100 * penalty * math.exp(sum(math.log(hits[n] / totals[n]) for n in range(1, 5)) / 4)


def test_bleu_of_known_example():
  found = translation.bleu(CATS[1:], MATS[1:])
  assert found.precisions == pytest.approx((500 / 6, 60, 50, 100 / 3))
  assert found.score == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
  assert (found.brevity_penalty, found.ratio) == (1, 1)
  assert 'tok:13a' in found.signature and 'version:' in found.signature and 'case:mixed' in found.signature
  clipped = translation.bleu(CATS, MATS)
  assert clipped.precisions == pytest.approx((100 * 7 / 13, 100 * 3 / 11, 100 * 2 / 9, 100 / 7))  # 'the' counts twice
  short = translation.bleu(['the cat is on the'], MATS[:1])
  assert short.score == pytest.approx(100 * math.exp(1 - 6 / 5)) == pytest.approx(100 * short.brevity_penalty)
  assert short.ratio == pytest.approx(5 / 6)
  assert translation.bleu(['The Cat Is On'], ['the cat is on']).score < 1
  assert translation.bleu(['The Cat Is On'], ['the cat is on'], lower_case=True).score == pytest.approx(100)


@pytest.mark.parametrize('split', [True, False])
@pytest.mark.parametrize('lower', [True, False])
def test_tokenised_bleu_of_known_example(split, lower):
  tokens = {
    True: 'Ein T ##AT##-##AT## Shirt ##AT##-##AT## Träger sagt : " {} , gut ! "',
    False: 'Ein T-Shirt-Träger sagt : " {} , gut ! "',
  }[split]
  rows = lambda yes, *rest: [tokens.format(yes), *rest]
  one = rows('Ja', 'Zwei Hunde laufen über die Wiese .', 'Der Mann ist z.B. 3,5 Jahre alt .')
  two = rows('Nein', 'Zwei Hunde rennen über eine Wiese .', 'Der Mann ist 3,5 Jahre alt .')
  if lower:
    one, two = ([row.lower().replace('##at##', '##AT##') for row in rows] for rows in (one, two))
    assert [translation.moses(text, 'de', split, True) for text in GERMAN[:2]] == one[:2]
  else:
    assert [translation.moses(text, 'de', split) for text in GERMAN] == one
  found = translation.tokenised_bleu(GERMAN, OTHERS, split_compounds=split, lower_case=lower)
  assert found.score == pytest.approx(plain_bleu(one, two)) and 5 < found.score < 95
  assert f'compounds:{"split" if split else "whole"}' in found.signature and 'sacremoses:' in found.signature
  assert ('case:lc' in found.signature) == lower


def test_hyphens_are_split_as_the_script_does():
  assert translation.moses('a-b-c x - y -z', 'de', True) == 'a ##AT##-##AT## b-c x - y -z'  # matches do not overlap
  assert translation.moses('rot-blau-grün', 'de', True) == 'rot ##AT##-##AT## blau ##AT##-##AT## grün'
  split, whole = (translation.tokenised_bleu(GERMAN, OTHERS, split_compounds=s).score for s in (True, False))
  assert split != whole


def test_punctuation_is_normalised_on_request():
  assert translation.moses('„Ja“ – gut', 'de') == '„ Ja “ – gut'
  assert translation.moses('„Ja“ – gut', 'de', normalise=True) == '" Ja " - gut'
  same = translation.tokenised_bleu(['Er sagt „Ja“ .'], ['Er sagt "Ja" .'], normalise=True)
  assert same.score == pytest.approx(100) and 'punct:normalised' in same.signature
  assert translation.tokenised_bleu(['Er sagt „Ja“ .'], ['Er sagt "Ja" .']).score == 0  # no 4-gram, not smoothed


@pytest.mark.real_data
def test_tokens_of_multi30k_match_published_figures(data_dir):
  lengths = {'test_2016_flickr': 12_103, 'test_2017_flickr': 10_758, 'test_2017_mscoco': 5_158}
  for name, wanted in lengths.items():  # the first is printed by Wu et al. 2021's release, 'reflen=12103'
    with gzip.open(data_dir / 'translate' / 'multi30k' / f'{name}.de.gz', 'rt', encoding='utf-8') as file:
      tokens = [translation.moses(line.strip(), 'de', False, True, True).split() for line in file]
    assert sum(map(len, tokens)) == wanted


def test_chrf_of_known_example():
  def plain(hypothesis, reference):  # Popovic 2015: F2 of the means over character 1- to 6-grams, without spaces
    scores = []
    texts = [text.replace(' ', '') for text in (hypothesis, reference)]
    for n in range(1, 7):
      found, wanted = (collections.Counter(t[i : i + n] for i in range(len(t) - n + 1)) for t in texts)
      same = sum((found & wanted).values())
      scores.append([same / sum(found.values()), same / sum(wanted.values())])
    precision, recall = np.mean(scores, axis=0)
    return 100 * 5 * precision * recall / (4 * precision + recall)

  score, signature = translation.chrf(['the cat sat on mats'], ['a cat sits on the mat'])
  assert score == pytest.approx(plain('the cat sat on mats', 'a cat sits on the mat'), abs=1e-6)
  assert 'nc:6' in signature and translation.chrf(CATS, CATS)[0] == pytest.approx(100)


def test_bleu_by_length_is_the_bleu_of_each_part():
  hypotheses, references = GERMAN * 2, OTHERS * 2
  lengths = [4, 10, 11, 30, 31, 99]
  found = translation.bleu_by_length(hypotheses, references, lengths, edges=(10, 20, 30))
  parts = [
    ('1 to 10', 0, 10, [0, 1]),
    ('11 to 20', 10, 20, [2]),
    ('21 to 30', 20, 30, [3]),
    ('over 30', 30, None, [4, 5]),
  ]
  assert found == [
    {
      'words': words,
      'unit': 'words',
      'above': low,
      'up_to': high,
      'sentences': len(chosen),
      'bleu': translation.bleu([hypotheses[i] for i in chosen], [references[i] for i in chosen]).score,
    }
    for words, low, high, chosen in parts
  ]
  assert [part['above'] for part in translation.bleu_by_length(CATS, MATS, [25, 26], edges=(10, 20))] == [20]
  assert [part['words'] for part in translation.bleu_by_length(CATS, MATS, [0, 26], edges=(10, 20))] == [
    '0 to 10',
    'over 20',
  ]
  scored = translation.bleu_by_length(GERMAN, OTHERS, [1, 1, 1], (5,), score=translation.tokenised_bleu)
  assert scored[0]['bleu'] == pytest.approx(translation.tokenised_bleu(GERMAN, OTHERS).score)


def test_alignment_error_rate_of_known_example():
  lines = ['0-0 1-1 1p2 2?3\n', '\n', '0-1\n']
  sure, possible = translation.parse_alignments(lines)
  assert sure == [{(0, 0), (1, 1)}, set(), {(0, 1)}]
  assert possible == [{(0, 0), (1, 1), (1, 2), (2, 3)}, set(), {(0, 1)}]
  found = [{(0, 0), (1, 2), (2, 2)}, set(), {(0, 1)}]
  # |A & S| = 2, |A & P| = 3, |A| = 4, |S| = 3
  assert translation.alignment_error_rate(found, sure, possible) == pytest.approx(1 - 5 / 7)
  assert translation.alignment_error_rate(sure, sure, possible) == 0
  assert translation.alignment_error_rate(possible, sure, possible) == 1 - (3 + 5) / (5 + 3)
  assert translation.alignment_error_rate(found, sure, [set()] * 3) == pytest.approx(1 - 4 / 7)  # sure are possible
  assert translation.parse_alignments(['1-1 3-12'], first=1)[0] == [{(0, 0), (2, 11)}]


def test_alignments_are_read_from_files_and_from_attention(tmp_path):
  path = tmp_path / 'gold.txt'
  path.write_text('0-0 2p1\n')
  assert translation.read_alignments(str(path)) == ([{(0, 0)}], [{(0, 0), (2, 1)}])
  a_TS = np.array([[0.5, 0.2, 0.2, 0.1], [0.1, 0.4, 0.1, 0.4], [0.0, 0.3, 0.3, 0.4]])
  assert translation.links(a_TS) == {(0, 0), (1, 1), (3, 2)}
  words = translation.between_words(a_TS, np.array([True, False, True, True]), np.array([True, True, False]))
  np.testing.assert_allclose(words, [[0.7, 0.2, 0.1], [(0.5 + 0.3) / 2, (0.1 + 0.3) / 2, 0.4]])
  assert translation.links(words) == {(0, 0), (0, 1)}


def test_every_corpus_metric():
  found = translation.compute_metrics(GERMAN, OTHERS, sides=('en', 'de'), sources=['a ' * n for n in (5, 15, 25)])
  assert found['bleu'] == translation.bleu(GERMAN, OTHERS).score
  assert 'case:lc' in found['bleu_lower_signature'] and found['bleu_lower'] == found['bleu']
  assert (found['chrf'], found['chrf_signature']) == translation.chrf(GERMAN, OTHERS)
  assert found['bleu_tokenised'] == translation.tokenised_bleu(GERMAN, OTHERS, split_compounds=True).score
  lower = translation.tokenised_bleu(GERMAN, OTHERS, split_compounds=False, lower_case=True, normalise=True)
  assert (found['bleu_tokenised_lower'], found['bleu_tokenised_lower_signature']) == lower[:2]
  international = translation.bleu(GERMAN, OTHERS, tokens='intl')
  assert (found['bleu_international'], found['bleu_international_signature']) == international[:2]
  assert 'tok:intl' in found['bleu_international_signature']
  assert 'bleu_international' not in translation.compute_metrics(['猫'], ['猫'], sides=('en', 'zh'))
  assert [part['sentences'] for part in found['bleu_by_length']] == [1, 1, 1]
  assert not [name for name in translation.compute_metrics(CATS, MATS) if 'tokenised' in name or 'length' in name[4:]]


@pytest.mark.parametrize(
  ('sides', 'compounds', 'split'),
  [
    (('en', 'de'), 'en_de', True),
    (('fr', 'de'), 'en_de', False),
    (('en', 'fr'), 'en_de', False),
    (('en', 'ro'), 'en_de', False),
    (('en', 'fr'), 'always', True),
    (('en', 'de'), 'never', False),
  ],
)
def test_compounds_are_split_only_for_english_german(sides, compounds, split):
  found = translation.compute_metrics(GERMAN, OTHERS, sides=sides, compounds=compounds)
  plain = translation.tokenised_bleu(GERMAN, OTHERS, language=sides[1], split_compounds=split)
  assert (found['bleu_tokenised'], found['bleu_tokenised_signature']) == plain[:2]
  assert f'compounds:{"split" if split else "whole"}' in plain.signature


CHINESE = ['我喜欢在公园里散步。', '他昨天买了三本新书。', '今天的天气非常好']
ORIGINALS = ['我喜欢在公园散步。', '他昨天买了三本书。', '今天天气非常好']


@pytest.mark.parametrize(
  ('language', 'tokens'),
  [
    ('zh', 'zh'),
    ('zh_CN', 'zh'),
    ('cmn', 'zh'),
    ('ja', 'char'),
    ('ko', 'char'),
    ('th', 'char'),
    ('km', 'char'),
    ('', 'char'),
    ('tgt', 'char'),
  ],
)
def test_bleu_tokens_follow_the_target_language(monkeypatch, language, tokens):
  monkeypatch.setattr(translation.importlib.util, 'find_spec', lambda name: None)
  found = translation.compute_metrics(CHINESE, ORIGINALS, sides=('en', language))
  wanted = sacrebleu.corpus_bleu(CHINESE, [ORIGINALS], tokenize=tokens)
  assert found['bleu'] == pytest.approx(wanted.score) and f'tok:{tokens}' in found['bleu_signature']
  assert 'bleu_tokenised' not in found or language == 'ko'  # Moses separates words at spaces, which Korean has
  monkeypatch.setattr(translation.importlib.util, 'find_spec', lambda name: name)
  assert translation.bleu_tokens('ja', ORIGINALS) == 'ja-mecab' and translation.bleu_tokens('kor', []) == 'ko-mecab'
  assert translation.bleu_tokens('de', OTHERS) == translation.bleu_tokens('', OTHERS) == '13a'
  assert translation.bleu_tokens('', ['我 喜欢 在 公园 散步 。']) == '13a'  # segmented into words


def test_source_lengths_without_spaces_are_in_characters():
  assert translation.source_lengths(['我喜欢 猫', ''], 'zh') == ([4, 1], 'characters')
  assert translation.source_lengths(['a cat', ''], 'en') == ([2, 1], 'words')
  rows = translation.compute_metrics(MATS, CATS, sides=('zh', 'en'), sources=[ORIGINALS[0] * 2, '猫'])['bleu_by_length']
  assert [(row['words'], row['unit']) for row in rows] == [('1 to 10', 'characters'), ('11 to 20', 'characters')]


def test_references_without_text_are_counted():
  with pytest.warns(InputWarning, match='references: got 1 of 2 without text'):
    translation.compute_metrics(CATS, ['', CATS[1]])


def test_unknown_word_is_one_token():
  assert translation.moses('the <unk> of <unk>, 3 < 4', 'de') == 'the <unk> of <unk> , 3 < 4'
  found = translation.tokenised_bleu(['the <unk> sat on it now'], ['the cat sat on it now'])
  assert found.precisions[0] == pytest.approx(500 / 6) and found.ratio == 1


def test_invalid_input_is_reported(tmp_path):
  for score in (translation.bleu, translation.tokenised_bleu, translation.chrf):
    for bad, message in (
      ((['a'], ['a', 'b']), '1 translations for 2 references'),
      (([], []), 'no translations to score'),
      (('abc', ['a']), 'translations must be a list of strings'),
      ((['a'], [b'a']), 'references must be a list'),
    ):
      with pytest.raises(InputError, match=message):
        score(*bad)
  with pytest.raises(InputError, match='1 source lengths for 2 translations'):
    translation.bleu_by_length(CATS, MATS, [3])
  for edges in ((), (5, 5), (0, 5)):
    with pytest.raises(InputError, match='expected rising'):
      translation.bleu_by_length(CATS, MATS, [3, 4], edges)
  with pytest.raises(InputError, match='alignments of 1 sentences, sure links of 2'):
    translation.alignment_error_rate([set()], [set()] * 2, [set()] * 2)
  with pytest.raises(InputError, match='no link'):
    translation.alignment_error_rate([set()], [set()], [{(0, 0)}])
  for line in ('0-0 1:2', '0-', 'a', '0-' + '9' * 5_000):
    with pytest.raises(InputError, match='alignments, line 2: got'):
      translation.parse_alignments(['0-0', line])
  with pytest.raises(InputError, match='line 1: got "0-1"'):
    translation.parse_alignments(['0-1'], first=1)
  with pytest.raises(InputError, match='none: cannot be read'):
    translation.read_alignments(str(tmp_path / 'none'))
