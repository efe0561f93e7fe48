"""Folders that transformers wrote and that it reads: the same numbers, tokens and pieces of text on either side."""

from __future__ import annotations

import json
import random

import jax
import numpy as np
import pytest

import lmx
from lmx import decode, exchanged
from lmx.data import tokenizers

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

pytestmark = pytest.mark.peer

TOLERANCE = 1e-4
T = 12
SIZES = {
  'gpt': dict(n_positions=32, n_embd=24, n_layer=2, n_head=3),
  'gpt2': dict(n_positions=32, n_embd=24, n_layer=2, n_head=3),
  'bert': dict(
    max_position_embeddings=32, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96
  ),
}
CLASSES = {'gpt': 'OpenAIGPTLMHeadModel', 'gpt2': 'GPT2LMHeadModel', 'bert': 'BertForPreTraining'}
TOKENIZERS = {'gpt': 'OpenAIGPTTokenizer', 'gpt2': 'GPT2Tokenizer', 'bert': 'BertTokenizer'}
KINDS = {'gpt': 'gpt_bpe', 'gpt2': 'bpe', 'bert': 'wordpiece'}
PIECES = (  # what the strings are put together from
  'the', 'Thé', 'naïve', 'ÅNGSTRÖM', 'İstanbul', 'straße', "don't", 'U.S.A.', '3.14', '1,000',
  '中文', '日本語テキスト', '한국어', 'русский', 'עברית', 'العربية', 'हिन्दी',
  '👍🏽', '👩‍👩‍👧', '🇩🇪', 'é', 'e\u0301', 'ﬁ', '½', '\u200b', '\u00a0', '\t', '\n', '\r\n', '  ',
  '...', '—', '“quoted”', '<unk>', '[MASK]', '<|endoftext|>', '</w>', 'a' * 150, 'x1y2z3', '\ufffd', '_',
  '#tag', '@user', 'http://a.b/c?d=e', 'C++', '\x07', '\u2028', '😀' * 5, 'word' * 40,
)  # fmt: skip


def strings(count):
  draw = random.Random(0)
  found = ['', ' ', '\n', *PIECES]
  while len(found) < count:
    found.append(draw.choice(['', ' ']).join(draw.choices(PIECES, k=draw.randint(1, 12))))
  return found


@pytest.fixture(scope='module')
def texts(root):
  return [path.read_text() for path in sorted((root / 'lmx').rglob('*.py'))[:40]] + strings(300)


def config(name, **given):
  kind = {'gpt': 'OpenAIGPTConfig', 'gpt2': 'GPT2Config', 'bert': 'BertConfig'}[name]
  marks = dict(bos_token_id=0, eos_token_id=0) if name == 'gpt2' else {}
  return getattr(transformers, kind)(**SIZES[name], **marks, **given)


@pytest.fixture(scope='module')
def folders(tmp_path_factory, texts):
  """name -> a folder that transformers has saved, weights far from their initial values."""
  found = {}
  for name, kind in KINDS.items():
    folder = tmp_path_factory.mktemp(name)
    tokenizer = tokenizers.train(kind, texts, vocab_size=4000, lower_case=name == 'bert')
    tokenizer._model.model.save(str(folder))  # vocab.txt, or vocab.json and merges.txt
    (folder / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': TOKENIZERS[name]}))
    module = getattr(transformers, CLASSES[name])(config(name, vocab_size=tokenizer.vocab_size))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
      for p in module.parameters():
        p.add_(0.1 * torch.randn(p.shape, generator=generator))
    module.save_pretrained(folder)
    found[name] = folder
  return found


def outputs(name, module, tokens_BT):
  """What transformers computes: scores of tokens, and BERT's of the next sentence."""
  with torch.no_grad():
    found = module.eval()(torch.tensor(tokens_BT).long())
  if name == 'bert':
    return found.prediction_logits.numpy(), found.seq_relationship_logits.numpy()
  return (found.logits.numpy(),)


@pytest.mark.parametrize('name', SIZES)
def test_what_transformers_saved_gives_the_same_numbers_here_and_back_there(name, folders, tmp_path):
  exchanged.import_run(str(folders[name]), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  tokens_BT = np.random.default_rng(0).integers(0, run.cfg.V, (3, T)).astype(np.int32)
  theirs = getattr(transformers, CLASSES[name]).from_pretrained(folders[name])
  expected = outputs(name, theirs, tokens_BT)
  features, _ = run.model.apply(run.cfg, run.params['model'], {'tokens_BT': tokens_BT}, ())
  ours = run.model.logits(run.cfg, run.params['model'], features)
  np.testing.assert_allclose(ours, expected[0], rtol=TOLERANCE, atol=TOLERANCE)
  if name == 'bert':
    head = run.params['objective']['nsp']
    ours = np.asarray(features.pooled_BD) @ head['kernel'] + head['bias']
    np.testing.assert_allclose(ours, expected[1], rtol=TOLERANCE, atol=TOLERANCE)
  exchanged.export_run(tmp_path / 'run', tmp_path / 'out')
  back, info = getattr(transformers, CLASSES[name]).from_pretrained(tmp_path / 'out', output_loading_info=True)
  assert not info['missing_keys'] and not info['unexpected_keys'] and not info['mismatched_keys']
  for a, b in zip(outputs(name, back, tokens_BT), expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_greedy_continuations_are_the_same_tokens(name, folders, tmp_path):
  exchanged.import_run(str(folders[name]), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  prompts_BT = np.random.default_rng(1).integers(1, run.cfg.V, (4, 5)).astype(np.int32)
  theirs = getattr(transformers, CLASSES[name]).from_pretrained(folders[name]).eval()
  expected = theirs.generate(
    torch.tensor(prompts_BT).long(), max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0
  )
  found, _ = decode.generate(
    run.model, run.cfg, run.params['model'], prompts_BT, steps=20, key=jax.random.key(0),
    sampler=decode.Sampler(temperature=0.0), eos_id=None,
  )  # fmt: skip
  np.testing.assert_array_equal(found, expected.numpy()[:, 5:])


@pytest.mark.parametrize('name', SIZES)
def test_pieces_and_their_places_are_those_of_transformers(name, folders, tmp_path):
  """1,200 strings, by the tokenizer that transformers makes of the files and by the one that is exported to it."""
  exchanged.import_run(str(folders[name]), tmp_path / 'run')
  exchanged.export_run(tmp_path / 'run', tmp_path / 'out')
  ours = lmx.load(tmp_path / 'run').tokenizer
  theirs = [transformers.AutoTokenizer.from_pretrained(path) for path in (folders[name], tmp_path / 'out')]
  kinds = set()
  for text in strings(1200):
    ids, spans = ours.encode_spans(text)
    np.testing.assert_array_equal(ours.encode(text), ids)
    kinds |= set(ids.tolist())
    for tokenizer in theirs:
      found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True)
      np.testing.assert_array_equal(ids, found['input_ids'], err_msg=repr(text))
      np.testing.assert_array_equal(spans, np.asarray(found['offset_mapping'], np.int32).reshape(-1, 2))
  assert len(kinds) > 100


def test_exported_pairs_have_the_marks_of_bert(folders, tmp_path):
  exchanged.import_run(str(folders['bert']), tmp_path / 'run')
  exchanged.export_run(tmp_path / 'run', tmp_path / 'out')
  ours = lmx.load(tmp_path / 'run').tokenizer
  pair = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')('one name', 'a list')
  a, b = ours.encode('one name').tolist(), ours.encode('a list').tolist()
  assert pair['input_ids'] == [ours.cls_id, *a, ours.sep_id, *b, ours.sep_id]
  assert pair['token_type_ids'] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
