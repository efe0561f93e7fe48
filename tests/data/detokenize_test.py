"""Tokens become text as people write it, and come back: tricky lines, any line at all, and the real files."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from lmx.data import corpus as corpora
from lmx.data import detokenize, document_reader, sources
from lmx.data.detokenize import RULES
from lmx.errors import InputError

LINES = {  # rules -> (tokens of a line, the line as it is written)
  'wikitext': [
    (' = = Early @-@ life = = ', '== Early-life =='),
    ('A guest @-@ starring role , in " Teddy \'s Story " .', 'A guest-starring role, in "Teddy\'s Story".'),
    ("1 @,@ 000 km ( 3 @.@ 5 % ; $ 5 ) don 't", "1,000 km (3.5%; $5) don't"),
    ("the <unk> @-@ class <unk> 's O 'Brien 's soldiers ' war", "the <unk>-class <unk>'s O'Brien's soldiers' war"),
    ('Mr. A. Smith of the U.S. Army , No. 5 .', 'Mr. A. Smith of the U.S. Army, No. 5.'),
    ('by John Smith Jr . on disc c .', 'by John Smith Jr . on disc c .'),  # touching, they would come back as one
    ('Nos. 1 @-@ @-@ 2 @,@', '  Nos. 1 @-@ @-@ 2 @,@'),  # two blanks: a token that would be cut
    ('" She said : " no " ."', '"She said:" no "  ."'),  # the quote in a quote ends it
  ],
  'ptb': [
    ("mr. <unk> 's dog was n't worth $ N or us$ N a share", "mr. <unk>'s dog wasn't worth $N or us$N a share"),
    ("traders ' index at cities\\/abc corp. 's s&p 's", "traders' index at cities/abc corp.'s s&p's"),
    ("they ca n't say they 've n't", "they can't say they'ven't"),
  ],
  'penn': [
    ("`` Yes , '' he said ; `` I do n't -LRB- know -RRB- ! ''", '"Yes," he said; "I don\'t (know)!"'),
    ('" Odd "', '  " Odd  "'),
  ],
  'lm1b': [('" I don \'t know , " said the U.S. \'s man .', '"I don\'t know," said the U.S.\'s man.')],
}


@pytest.mark.parametrize('name', sorted(LINES))
def test_detokenization_of_tricky_lines_round_trips(name):
  for line, text in LINES[name]:
    assert detokenize.detokenize(RULES[name], line) == text
    assert detokenize.tokenize(RULES[name], text) == ' '.join(line.split())


@pytest.mark.parametrize('name', sorted(RULES))
def test_any_line_round_trips(name):
  """Lines drawn from marks and pieces of words in any order, among them what no tokenizer would leave."""
  rng = np.random.default_rng(0)
  rules = RULES[name]
  marks = [token for token, *_ in (*rules.openers, *rules.closers, *rules.infixes, *rules.inside)]
  odd = "'s n't ' 't Mr. Mr U.S. 1,000 a-b . ... <unk> x\" \"x = == do cats - @ N 5 'Neil 's' (( )). $$ n't's \u00a0"
  words = [*marks, *rules.quotes, *odd.split(' ')]
  for _ in range(2000):
    line = ' '.join(rng.choice(words, rng.integers(1, 9)))
    assert detokenize.tokenize(rules, detokenize.detokenize(rules, line)) == line


def test_line_ends_are_kept_and_trailing_blanks_removed():
  assert detokenize.detokenize(RULES['wikitext'], ' \n = A = \n \n bee , sea . \n') == '\n= A =\n\nbee, sea.\n'


@pytest.mark.real_data
@pytest.mark.parametrize('rules, folder', [('ptb', 'ptb'), ('wikitext', 'wikitext2')])
@pytest.mark.parametrize('split', ['valid', 'test'])
def test_every_real_line_round_trips(data_dir, rules, folder, split):
  escaped = words = 0
  with gzip.open(data_dir / 'lm' / folder / f'{split}.txt.gz', 'rt') as file:
    for line in file:
      text = detokenize.detokenize(RULES[rules], line.rstrip('\n'))
      assert detokenize.tokenize(RULES[rules], text).split(' ') == (
        [w for w in line.split(' ') if w.strip('\n')] or ['']
      )
      escaped, words = escaped + text.count('  '), words + len(line.split())
  assert escaped < 1e-4 * words  # tokens that are marked as whole are rare


def test_detokenized_corpus_counts_original_words(tmp_path):
  for split in ('train', 'valid', 'test'):
    (tmp_path / f'ptb.{split}.txt').write_text(" it was n't mr. x 's \n no \n")
  options = {'manual_dir': str(tmp_path), 'check_sizes': False, 'cache_dir': str(tmp_path / 'cache')}
  plain, read = (
    corpora.load(corpora.Config(dataset='ptb', tokenizer='bytes', detokenize=on, **options)) for on in (False, True)
  )
  assert plain.hash != read.hash and read.manifest['detokenized']
  split = read.splits['test']
  assert read.tokenizer.decode(np.asarray(split.tokens)).startswith("it wasn't mr. x's\nno\n")
  assert split.counts['words'] == 9  # six, one and two <eos>
  assert {**split.counts, 'tokens': 0} == {**plain.splits['test'].counts, 'tokens': 0}


def test_detokenizing_other_data_is_rejected(tmp_path):
  with pytest.raises(InputError, match='got True with data set brown'):
    corpora.Config(dataset='brown', tokenizer='bpe', detokenize=True).data_set()
  with pytest.raises(InputError, match='data.detokenize: got'):
    corpora.Config(dataset='ptb', tokenizer='words', detokenize=True)


def test_detokenization_continues_across_texts_of_a_row():
  rows = [('0', '`` I went', ''), ('1', "home , '' she said .", ''), ('2', "'s , I", '')]
  raw = document_reader.DocumentReader(None, 3)
  assert [read for _, read, _ in raw(rows)] == ['`` I went', " home , '' she said .", " 's , I"]
  nice = document_reader.DocumentReader(RULES['penn'], 3)
  assert [read for _, read, _ in nice(rows)] == ['"I went', ' home," she said.', "'s, I"]
  assert [text for text, _, _ in nice(rows)] == [text for _, text, _ in rows]
  assert document_reader.create(sources.Config(dataset='lambada'), True).documents == 2
