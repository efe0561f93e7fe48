"""Scores of exported models equal those that transformers' modules give, each method restated in PyTorch."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy

from lmx.data.tokenizers import build
from lmx.interop import huggingface
from lmx.scoring import sentences
from lmx.scoring.scorer import RunScorer
from tests import drawn, untrained

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

pytestmark = [pytest.mark.peer, pytest.mark.slow]

LINES = [
  'The cats of the house sleep.',
  'A dog',
  'The houseboats, unsleeping, catnap.',
  'dogs sleep in the house of a cat',
]
CLASSES = {'gpt2': 'GPT2LMHeadModel', 'bert': 'BertForMaskedLM', 'xlnet': 'XLNetLMHeadModel'}


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
  """Returns a run with drawn parameters, and transformers' module of its exported weights: exported(name)."""

  def export(name):
    kind = 'bpe' if name == 'gpt2' else 'wordpiece'
    tokenizer = build.train(kind, LINES * 20, vocab_size=290 if kind == 'bpe' else 60)
    run = untrained.load(f'experiments/{name}/quickstart.py:tiny', tokenizer=tokenizer)
    params = {'model': drawn.params(run.model.init, run.cfg, std=0.1), 'objective': {}}
    to, family = tmp_path_factory.mktemp(name), huggingface.family(name)
    config = {'model_type': family.TYPE, 'architectures': [CLASSES[name]], **family.config(run.cfg)}
    (to / 'config.json').write_text(json.dumps(config))
    tensors = huggingface.to_hf(name, run.cfg, params, CLASSES[name], 0)
    safetensors.numpy.save_file(tensors, to / 'model.safetensors', metadata={'format': 'pt'})
    module = getattr(transformers, CLASSES[name]).from_pretrained(to).eval()
    return dataclasses.replace(run, params=params), module

  return export


def compare(run, method, expected, first=0):
  """Compare the scores of the tokens from `first` on with `expected(ids)`."""
  scorer = RunScorer(run, method)
  for text, one in zip(LINES, sentences.score(scorer, LINES), strict=True):
    with torch.no_grad():
      known = expected(run.tokenizer.encode(text))
      np.testing.assert_allclose(one.log_p_T[first:], known[first:], atol=1e-4, rtol=0)


def log_p(logits, ids):
  return torch.log_softmax(logits.float(), -1)[torch.arange(len(ids)), torch.tensor(ids).long()].numpy()


def test_gpt2(exported):
  run, module = exported('gpt2')
  read = lambda ids: module(torch.tensor([[run.tokenizer.eos_id, *ids]])).logits[0, :-1]
  compare(run, 'causal', lambda ids: log_p(read(ids), ids))


@pytest.mark.parametrize('method', ['pll', 'pll_word_l2r'])
def test_bert(exported, method):
  run, module = exported('bert')
  tokenizer = run.tokenizer
  assert not tokenizer.starts_word(tokenizer.encode(LINES[2])).all()

  def expected(ids):
    rows = torch.tensor([tokenizer.cls_id, *ids, tokenizer.sep_id]).repeat(len(ids), 1)
    subwords = tokenizer.ids_to_tokens(ids)
    for t in range(len(ids)):
      rows[t, t + 1] = tokenizer.mask_id
      after = t + 1
      while method == 'pll_word_l2r' and after < len(ids) and subwords[after].startswith('##'):
        rows[t, after + 1] = tokenizer.mask_id
        after += 1
    t = torch.arange(len(ids))
    return log_p(module(rows).logits[t, t + 1], ids)

  compare(run, method, expected)


def test_xlnet_from_left_to_right(exported):
  run, module = exported('xlnet')

  def expected(ids):
    T = len(ids)
    later = torch.triu(torch.ones(T, T))[None]  # a query sees neither its token nor those after it
    read = module(torch.tensor(ids)[None].long(), perm_mask=later, target_mapping=torch.eye(T)[None])
    return log_p(read.logits[0], ids)

  # The first query sees nothing, and transformers then lets it see everything.
  compare(run, 'left_to_right', expected, first=1)


def test_xlnet_from_all_others(exported):
  run, module = exported('xlnet')

  def expected(ids):
    T, row = len(ids), [*ids, run.tokenizer.sep_id, run.tokenizer.cls_id]
    hidden = torch.zeros(T, T + 2, T + 2)  # in row t nobody sees token t
    hidden[torch.arange(T), :, torch.arange(T)] = 1
    target = torch.eye(T + 2)[:T, None]
    types = torch.tensor([[0] * (T + 1) + [2]]).repeat(T, 1)
    read = module(torch.tensor([row] * T), token_type_ids=types, perm_mask=hidden, target_mapping=target)
    return log_p(read.logits[:, 0], ids)

  compare(run, 'permutation_pll', expected)
