"""The scripts of the peers: their protocol, and what they do where their library is there."""

from __future__ import annotations

import sys

import pytest

from lmx.benchmark import made_up_text, peer, whole_process
from lmx.errors import InputError


def test_script_reports_errors_and_peak_memory():
  with peer.Peer(sys.executable, 'torch_step.py') as process, pytest.raises(InputError, match='send a model first'):
    process.send({'steps': 1})


def test_tokenizers_learn_and_encode(tmp_path):
  file = tmp_path / 'text.txt'
  made_up_text.write_sentences(file, 20_000, types=100)
  found = whole_process.run([sys.executable, peer.script('tokenizers_encode.py'), str(file), '300'])
  assert 5000 < found.answer()['tokens'] < 20_000 and found.answer()['learn_seconds'] > 0


@pytest.mark.peer
def test_gensim_trains_for_epochs(tmp_path):
  pytest.importorskip('gensim')
  file = tmp_path / 'text.txt'
  file.write_text('a b c d e\n' * 100)
  with peer.Peer(sys.executable, 'gensim_epochs.py') as process:
    about = process.send({'kind': 'word2vec', 'file': str(file), 'sg': 1, 'hs': 0, 'threads': 1, 'D': 4})
    assert about['vocabulary'] == 5 and process.send({'epochs': 2})['seconds'] > 0
    assert process.peak_bytes > 10**7


@pytest.mark.peer
@pytest.mark.parametrize('kind', ['gpt2', 'marian'])
def test_transformers_generates_requested_token_count(kind):
  pytest.importorskip('torch')
  pytest.importorskip('transformers')
  sizes = {'V': 50, 'T': 32, 'D': 8, 'F': 16, 'H': 2, 'N': 1, 'batch': 2, 'length': 3, 'lengths': [2, 3], 'beams': 2}
  with peer.Peer(sys.executable, 'transformers_generate.py') as process:
    assert process.send({'kind': kind, **sizes, 'threads': 1})['parameters'] > 0
    assert process.send({'tokens': 4})['seconds'] > 0
