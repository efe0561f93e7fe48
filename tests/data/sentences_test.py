"""The sentence splitter."""

from __future__ import annotations

import pytest

from lmx.data import sentences


def test_prose_is_split_only_at_sentence_ends():
  text = 'Mr. Smith met J. Doe (see sec. 3). "Why?" he asked. It cost 3.5 pounds, i.e. Too much! Yes.\nNew line'
  assert sentences.split(text, 'prose') == [
    'Mr. Smith met J. Doe (see sec. 3). ',
    '"Why?" he asked. ',
    'It cost 3.5 pounds, i.e. Too much! ',
    'Yes.\n',
    'New line',
  ]


@pytest.mark.parametrize('mode', ['lines', 'prose', 'wrapped'])
@pytest.mark.parametrize('space_leads', [True, False])
def test_sentences_join_to_the_text_and_none_is_blank(mode, space_leads):
  text = ' \n = A Title = \n \n One here . Two there . \n\n\nThree. Four!  \n '
  pieces = sentences.split(text, mode, space_leads=space_leads)
  assert ''.join(pieces) == text
  assert all(piece.strip() for piece in pieces)
  assert len(pieces) == {'lines': 3, 'prose': 5, 'wrapped': 5}[mode]


def test_line_wraps_are_not_sentence_ends():
  assert sentences.split('one two\nthree. Four\nfive', 'wrapped') == ['one two\nthree. ', 'Four\nfive']


def test_mode_is_guessed_from_line_ends():
  assert sentences.infer_mode('A first one.\nAnd "two."\nThree?', lines=True) == 'lines'
  assert sentences.infer_mode('A first one. And two.\nThree?', lines=False) == 'prose'
  assert sentences.infer_mode('this line is\nwrapped and so\nis this. The\nend.', lines=True) == 'wrapped'
