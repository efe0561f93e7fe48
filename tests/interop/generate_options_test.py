"""Options of `lmx generate` against `generate` of transformers, on a GPT-2 with random weights.

EXPECTED has the tokens of transformers 5.24, which the test marked `peer` computes again.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from lmx.data.tokenizers import characters
from lmx.decoding import text
from lmx.interop import huggingface
from lmx.models import registry
from tests import drawn

V, PROMPT = 40, (3, 17, 9, 3, 17)
# name -> options of transformers, the same ones of lmx.
CASES = {
  'greedy': (
    dict(max_length=15, repetition_penalty=1.3, no_repeat_ngram_size=2, bad_words_ids=[[2, 13], [31]], min_length=9)
    | dict(suppress_tokens=[20, 21], begin_suppress_tokens=[5], eos_token_id=[7, 12, 30]),
    dict(
      greedy=True, max_length=15, repetition_penalty=1.3, no_repeat_ngram=2, bad_words=((2, 13), (31,)), min_length=9
    )
    | dict(forbidden=(20, 21), forbidden_first=(5,), eos_ids=(7, 12, 30)),
  ),
  'beam': (
    dict(max_new_tokens=10, num_beams=3, length_penalty=-0.7, early_stopping='never', eos_token_id=[7, 12])
    | dict(repetition_penalty=1.3, no_repeat_ngram_size=2, bad_words_ids=[[17, 31], [20]], min_new_tokens=3),
    dict(tokens=10, beam=3, samples=3, alpha=-0.7, penalty='power', stop='bound', eos_ids=(7, 12), forbidden=())
    | dict(repetition_penalty=1.3, no_repeat_ngram=2, bad_words=((17, 31), (20,)), min_tokens=3),
  ),
}
_BEST = (28, 30, 38, 18, 33, 33, 35, 3, 3)
EXPECTED = {'greedy': [[28, 3, 3, 38, 30]], 'beam': [[*_BEST, last] for last in (21, 31, 24)]}


@functools.cache
def model():
  module = registry.get('gpt2')
  cfg = module.Config(V=V, T=32, D=12, H=2, N=1)
  return module, cfg, drawn.params(module.init, cfg)


@pytest.mark.parametrize('name', CASES)
def test_tokens_match_transformers(name):
  options = text.Options(**CASES[name][1])
  decode = text._search if options.beam else text._sample
  found = decode(*model(), characters.Bytes(), np.array(PROMPT), options)
  assert [list(tokens) for tokens in found] == EXPECTED[name]


@pytest.mark.peer
@pytest.mark.parametrize('name', CASES)
def test_expected_tokens_are_of_transformers(name):
  torch, transformers = pytest.importorskip('torch'), pytest.importorskip('transformers')
  _, cfg, params = model()
  sizes = dict(vocab_size=V, n_positions=cfg.T, n_embd=cfg.D, n_head=cfg.H, n_layer=cfg.N)
  theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
  tensors = huggingface.to_hf('gpt2', cfg, {'model': params, 'objective': {}}, 'GPT2LMHeadModel')
  state = {name: torch.tensor(np.asarray(x)) for name, x in dict(tensors).items()}
  assert not theirs.load_state_dict(state, strict=False).unexpected_keys
  given = CASES[name][0]
  prompt = torch.tensor([PROMPT])
  rows = theirs.generate(
    prompt,
    attention_mask=torch.ones_like(prompt),
    pad_token_id=V - 1,
    num_return_sequences=given.get('num_beams', 1),
    **given,
  )
  found = []
  for row in rows[:, len(PROMPT) :].tolist():
    ends = [i for i, token in enumerate(row) if token in given['eos_token_id']]
    found.append(row[: ends[0] + 1] if ends else row)
  assert found == EXPECTED[name]
