"""Transformer-XL's folders that transformers before 5 wrote and that it reads: the same numbers and ids in both."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import lmx
from lmx.models import registry
from lmx.runs import convert

torch = pytest.importorskip('torch')
theirs = pytest.importorskip('transformers.models.deprecated.transfo_xl', reason='transformers before 5 is not here')

pytestmark = pytest.mark.peer

B, T, V, M = 2, 7, 60, 9
SYMBOLS = ['<eos>', '<unk>', 'the', '=', ',', '@-@', '.', *(f'w{i}' for i in range(V - 7))]
CASES = {
  'div_val 4': dict(div_val=4, d_embed=32),
  'div_val 4, shared u and v': dict(div_val=4, d_embed=32, untie_r=False),
  'div_val 4, narrower': dict(div_val=4, d_embed=16),
  'div_val 4, no ties': dict(div_val=4, d_embed=32, proj_share_all_but_first=False),
  'div_val 1': dict(div_val=1, d_embed=32, clamp_len=4),
  'div_val 1, narrower': dict(div_val=1, d_embed=12),
  'div_val 1, narrower, no ties': dict(div_val=1, d_embed=12, proj_share_all_but_first=False, untie_r=False),
  'div_val 1, narrower, all ties': dict(div_val=1, d_embed=12, tie_projs=[True] * 3),
  'one cluster, narrower': dict(div_val=1, d_embed=12, cutoffs=[]),
  'same length': dict(div_val=4, d_embed=32, same_length=True),
  'untied': dict(div_val=4, d_embed=32, tie_word_embeddings=False, layer_norm_epsilon=1e-3),
}


@pytest.fixture(autouse=True)
def type_as(monkeypatch):
  """The module of 4.57 calls `x.type_as(dtype=...)`, which torch does not know."""
  cast = lambda x, other=None, dtype=None: x.to(other.dtype if dtype is None else dtype)
  monkeypatch.setattr(torch.Tensor, 'type_as', cast)
  monkeypatch.setenv('TRUST_REMOTE_CODE', 'True')


def save(folder, *, pickled=True, **given):
  """A folder that transformers has saved, weights far from their initial values, with the pickle of a tokenizer."""
  sizes = dict(
    vocab_size=V,
    cutoffs=[20, 45],
    d_model=32,
    n_head=4,
    d_head=8,
    d_inner=40,
    n_layer=2,
    mem_len=M,
    clamp_len=-1,
    same_length=False,
  )
  module = theirs.TransfoXLLMHeadModel(theirs.TransfoXLConfig(**(sizes | given))).eval()
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, p in module.named_parameters():
      p.copy_((1.0 if name.endswith('layer_norm.weight') else 0.0) + 0.15 * torch.randn(p.shape, generator=generator))
  module.save_pretrained(folder, safe_serialization=not pickled)
  tokenizer(folder).save_pretrained(folder)
  return module


def tokenizer(folder):
  folder.mkdir(exist_ok=True)
  made = folder.parent / 'symbols.txt'
  made.write_text(''.join(f'{symbol}\n' for symbol in SYMBOLS))
  return theirs.TransfoXLTokenizer(vocab_file=str(made), additional_special_tokens=[])


def log_probabilities(run, tokens_BL):
  model = registry.get('transformer_xl')
  state, found = model.init_state(run.cfg, B), []
  for start in range(0, tokens_BL.shape[1], T):
    features, state = model.apply(run.cfg, run.params['model'], {'tokens_BT': tokens_BL[:, start : start + T]}, state)
    found.append(jax.nn.log_softmax(model.logits(run.cfg, run.params['model'], features)))
  return found


def expected(module, tokens_BL):
  mems, found = None, []
  with torch.no_grad():
    for start in range(0, tokens_BL.shape[1], T):
      out = module(torch.tensor(tokens_BL[:, start : start + T]).long(), mems=mems)
      mems = out.mems
      found.append(torch.log_softmax(out.prediction_scores, -1).numpy())
  return found


@pytest.mark.parametrize('case', CASES)
def test_probabilities_and_files_match(case, tmp_path):
  pickled = list(CASES).index(case) % 2 == 0 or 'untie_r' in CASES[case]  # shared u and v are not saved otherwise
  module = save(tmp_path / 'folder', pickled=pickled, **CASES[case])
  convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  tokens_BL = np.random.default_rng(0).integers(0, V, (B, 3 * T)).astype(np.int32)
  theirs_BTV = expected(module, tokens_BL)
  for ours, other in zip(log_probabilities(run, tokens_BL), theirs_BTV, strict=True):
    np.testing.assert_allclose(ours, other, atol=1e-5, rtol=0)
  convert.export_run(tmp_path / 'run', str(tmp_path / 'out'))
  back, info = theirs.TransfoXLLMHeadModel.from_pretrained(tmp_path / 'out', output_loading_info=True)
  assert not any(info[kind] for kind in ('missing_keys', 'unexpected_keys', 'mismatched_keys'))
  saved, loaded = module.state_dict(), back.state_dict()
  assert saved.keys() == loaded.keys()
  for name in saved.keys() - {'transformer.pos_emb.inv_freq'}:
    assert torch.equal(loaded[name], saved[name]), name
  for field in (
    'cutoffs',
    'tie_projs',
    'd_embed',
    'untie_r',
    'same_length',
    'mem_len',
    'layer_norm_epsilon',
    'tie_word_embeddings',
  ):
    assert getattr(back.config, field) == getattr(module.config, field), field
  for ours, other in zip(expected(back.eval(), tokens_BL), theirs_BTV, strict=True):
    np.testing.assert_allclose(ours, other, atol=2e-6, rtol=0)  # inv_freq differs in its last bit
  convert.import_run(str(tmp_path / 'out'), tmp_path / 'again')
  again = lmx.load(tmp_path / 'again')
  assert again.cfg == run.cfg
  jax.tree.map(np.testing.assert_array_equal, again.params, run.params)


def test_vocabulary_ids_match(tmp_path):
  save(tmp_path / 'folder', div_val=4, d_embed=32)
  assert (tmp_path / 'folder' / 'vocab.pkl').exists()
  convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')
  ours = lmx.load(tmp_path / 'run').tokenizer
  assert ours.tokens == SYMBOLS
  text = 'the w3 w3 nothing w1'
  theirs_ids = tokenizer(tmp_path / 'folder')(text)['input_ids']
  assert ours.encode(text + '\n').tolist() == [*theirs_ids, SYMBOLS.index('<eos>')]
  convert.export_run(tmp_path / 'run', str(tmp_path / 'out'))
  back = theirs.TransfoXLTokenizer.from_pretrained(tmp_path / 'out')
  assert back.idx2sym == SYMBOLS and back.convert_tokens_to_ids('nothing') == 1
