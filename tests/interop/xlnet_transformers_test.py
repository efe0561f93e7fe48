"""XLNet's folders that transformers wrote and that it reads: the same numbers, tokens and pieces on either side."""

from __future__ import annotations

import json
import random
import re
import unicodedata

import jax
import numpy as np
import pytest
import tokenizers as hf

import lmx
from lmx.data.tokenizers.subword_models import XLNET_SPECIALS
from lmx.runs import convert
from lmx.types import Features

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

from tests.data.tokenizers import sentencepiece_test as spiece_test  # noqa: E402
from tests.data.tokenizers import strings as texts  # noqa: E402
from tests.interop.transformers_test import save_random  # noqa: E402
from tests.models import xlnet_parity_test as parity  # noqa: E402

pytestmark = pytest.mark.peer

TOLERANCE = 1e-5
CLASS = 'XLNetLMHeadModel'


def strings(count, special=False):
  """Texts, with or without special tokens written out."""
  draw = random.Random(0)
  without = '[\ud800-\udfff]' if special else '<[a-z|/]*>|[\ud800-\udfff]'
  pieces = [p for p in texts.PIECES if not re.search(without, p)]
  pieces += ["``so''", 'a.b.c', '(x)', '"y"', '€5', 'x–y', 'in 2000,', '\u0930\u093f', 'ﾊﾟ', '①', '\u0130', '\u2581a']
  pieces += 'Each method of the class returns arrays, and raises errors where shapes of tensors are not equal'.split()
  found = ['', ' ', '\n', *pieces]
  while len(found) < count:
    found.append(draw.choice(['', ' ', '  ']).join(draw.choices(pieces, k=draw.randint(1, 12))))
  return found


def build(pieces, lower):
  """What transformers' converter makes of a spiece.model without a map of characters."""
  model = hf.Tokenizer(hf.models.Unigram(pieces, unk_id=0, byte_fallback=False))
  steps = [
    hf.normalizers.Replace('``', '"'),
    hf.normalizers.Replace("''", '"'),
    hf.normalizers.NFKD(),
    hf.normalizers.StripAccents(),
    *([hf.normalizers.Lowercase()] if lower else []),
  ]
  model.normalizer = hf.normalizers.Sequence(steps)
  model.pre_tokenizer = hf.pre_tokenizers.Sequence(
    [hf.pre_tokenizers.WhitespaceSplit(), hf.pre_tokenizers.Metaspace(prepend_scheme='always')]
  )
  model.decoder = hf.decoders.Metaspace(prepend_scheme='always')
  model.add_special_tokens(list(XLNET_SPECIALS))
  model.post_processor = hf.processors.TemplateProcessing(
    single='$A:0 <sep>:0 <cls>:2', pair='$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2', special_tokens=[('<sep>', 4), ('<cls>', 3)]
  )
  return model


@pytest.fixture(scope='module')
def pieces(root):
  texts = [path.read_text() for path in sorted((root / 'lmx').rglob('*.py'))[:6]] + strings(300)
  return [(piece, score) for piece, score in spiece_test.learned(texts, 800) if piece != '.'] + [('.', -3.5)]


@pytest.fixture(scope='module', params=[False, True], ids=['cased', 'uncased'])
def folder(request, pieces, tmp_path_factory):
  """A folder that transformers has saved, weights far from their initial values."""
  to = tmp_path_factory.mktemp('xlnet')
  file = tmp_path_factory.mktemp('tokenizer') / 'tokenizer.json'
  build(pieces, request.param).save(str(file))
  kind = getattr(transformers, 'XLNetTokenizerFast', None) or transformers.XLNetTokenizer
  # transformers 5 builds the tokenizer anew from the pieces, 4 reads the file
  given = dict(vocab=pieces) if transformers.__version__.startswith('5') else dict(tokenizer_file=str(file))
  kind(**given, do_lower_case=request.param).save_pretrained(to)
  cfg = transformers.XLNetConfig(
    vocab_size=len(pieces),
    d_model=24,
    n_head=3,
    n_layer=2,
    d_inner=40,
    mem_len=parity.M,
    reuse_len=4,
    dropout=0.0,
    ff_activation='gelu_new' if request.param else 'gelu',
  )
  save_random(CLASS, cfg, to, seed=1)
  return to


@pytest.fixture
def run(folder, tmp_path):
  convert.import_run(str(folder), tmp_path / 'run')
  return lmx.load(tmp_path / 'run')


def theirs_of(module, batches):
  """Scores at the places that are predicted, one segment after another."""
  mems, found = None, []
  for batch in batches:
    with torch.no_grad():
      out = module.eval()(**parity._theirs(batch), mems=mems, use_mems=True)
    mems = out.mems
    found.append(out.logits.numpy())
  return found


def test_transformers_model_round_trips(folder, run, tmp_path):
  """Two segments with orders, the second with the first in memory; and the token that is most likely at each place."""
  batches = [parity._batch(seed, padded=False) for seed in range(2)]
  expected = theirs_of(transformers.XLNetLMHeadModel.from_pretrained(folder), batches)
  state = run.model.init_state(run.cfg, parity.B)
  for batch, scores in zip(batches, expected, strict=True):
    features, state = run.model.apply(run.cfg, run.params['model'], batch, state)
    ours = run.model.logits(run.cfg, run.params['model'], Features(features.query_BPD))
    np.testing.assert_allclose(ours, scores, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_array_equal(np.argmax(ours, -1), np.argmax(scores, -1))
  alone = theirs_of(transformers.XLNetLMHeadModel.from_pretrained(folder), batches[1:])[0]
  assert np.abs(expected[1] - alone).max() > 0.01
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  back, info = transformers.XLNetLMHeadModel.from_pretrained(tmp_path / 'out', output_loading_info=True)
  assert not any(info[key] for key in ('missing_keys', 'unexpected_keys', 'mismatched_keys')), info
  for a, b in zip(theirs_of(back, batches), expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
  config = json.loads((folder / 'config.json').read_text())
  for name in ('mem_len', 'reuse_len', 'clamp_len', 'd_inner', 'ff_activation', 'pad_token_id', 'bos_token_id'):
    assert getattr(back.config, name) == config[name]


def test_rows_without_an_order_and_with_padding_give_the_same_numbers(folder, run):
  batch = parity._batch(3, padded=True)
  theirs = {k: v for k, v in parity._theirs(batch).items() if k not in ('perm_mask', 'target_mapping')}
  with torch.no_grad():
    expected = transformers.XLNetLMHeadModel.from_pretrained(folder).eval()(**theirs, use_mems=False).logits.numpy()
  given = {name: batch[name] for name in ('tokens_BT', 'types_BT', 'valid_BT')}
  features, _ = run.model.apply(run.cfg, run.params['model'], given, ())
  ours, real = np.asarray(run.model.logits(run.cfg, run.params['model'], features)), batch['valid_BT']
  np.testing.assert_allclose(ours[real], expected[real], rtol=TOLERANCE, atol=TOLERANCE)


def test_bare_model_is_read_and_its_output_newly_initialised(folder, tmp_path):
  module = transformers.XLNetModel.from_pretrained(folder)
  (tmp_path / 'bare').mkdir()
  for path in folder.iterdir():
    (tmp_path / 'bare' / path.name).write_bytes(path.read_bytes())
  module.save_pretrained(tmp_path / 'bare')
  lines = convert.import_run(str(tmp_path / 'bare'), tmp_path / 'bare_run')
  assert lines[-1] == 'not in the files, so newly initialised: model/output'
  convert.import_run(str(folder), tmp_path / 'run')
  ours, whole = (dict(lmx.load(tmp_path / name).params['model']) for name in ('bare_run', 'run'))
  jax.tree.map(np.testing.assert_array_equal, ours | {'output': 0}, whole | {'output': 0})


def test_subwords_and_offsets_match_transformers(folder, run, tmp_path):
  """Strings, 700 with special tokens, by the tokenizer of the files and by the one that is exported to transformers."""
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  theirs = [transformers.AutoTokenizer.from_pretrained(path) for path in (folder, tmp_path / 'out')]
  assert theirs[0].__class__.__name__.startswith('XLNetTokenizer')
  kinds = set()
  for text in (*strings(1500), *strings(700, special=True)):
    ids, spans = run.tokenizer.encode_spans(text)
    np.testing.assert_array_equal(run.tokenizer.encode(text), ids)
    kinds |= set(ids.tolist())
    for tokenizer in theirs:
      found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
      np.testing.assert_array_equal(ids, found['input_ids'], err_msg=repr(text))
      np.testing.assert_array_equal(spans, np.asarray(found['offset_mapping'], np.int32).reshape(-1, 2))
    assert run.tokenizer.decode(ids) == theirs[0].decode(ids.tolist(), clean_up_tokenization_spaces=False)
  assert len(kinds) > 100 and run.tokenizer.unk_id in kinds
  assert set(range(1, 8)) <= kinds  # special tokens


def test_exported_pairs_have_final_special_tokens(folder, run, tmp_path):
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  a, b = run.tokenizer.encode('one name').tolist(), run.tokenizer.encode('a list').tolist()
  for path in (folder, tmp_path / 'out'):
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    pair = tokenizer('one name', 'a list', **({} if path == tmp_path / 'out' else {'return_token_type_ids': True}))
    assert pair['input_ids'] == [*a, 4, *b, 4, 3]
    assert pair['token_type_ids'] == [0] * (len(a) + 1) + [1] * (len(b) + 1) + [2]
    names = ('cls', 'sep', 'pad', 'mask', 'unk')
    assert [getattr(tokenizer, f'{name}_token_id') for name in names] == [3, 4, 5, 6, 0]
    assert tokenizer.padding_side == 'left' and (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)


def test_spiece_file_gives_the_subwords_of_the_other_files(folder, run, pieces, tmp_path):
  """Without tokenizer.json, as the release reads text; sentencepiece_test.py compares with SentencePiece."""
  for path in folder.iterdir():
    if path.name != 'tokenizer.json':
      (tmp_path / 'spiece').mkdir(exist_ok=True)
      (tmp_path / 'spiece' / path.name).write_bytes(path.read_bytes())
  spiece_test.write(tmp_path / 'spiece/spiece.model', pieces)
  convert.import_run(str(tmp_path / 'spiece'), tmp_path / 'other')
  other, compared = lmx.load(tmp_path / 'other').tokenizer, 0
  for text in strings(1500):
    # Vowel signs, the sigma that ends a word, white space of Python's alone.
    signs = any(unicodedata.category(c)[0] == 'M' and not unicodedata.combining(c) for c in text)
    there = run.tokenizer.ids_to_tokens(run.tokenizer.encode(text))
    if (
      signs
      or re.search('[\u03a3\x1c-\x1f]', text)
      or any(piece[-2:-1].isdigit() and piece.endswith(',') for piece in there)
    ):  # transformers differs
      continue
    assert other.ids_to_tokens(other.encode(text)) == there
    compared += 1
  assert compared > 500
  convert.export_run(tmp_path / 'other', tmp_path / 'out')
  written = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')
  same = [other.encode(t).tolist() == written(t, add_special_tokens=False)['input_ids'] for t in strings(1500)]
  assert sum(same) >= 1490, sum(same)  # the library cannot encode a number again without its comma


LABELS = {'id2label': {0: 'up', 1: 'down', 2: 'strange'}, 'label2id': {'up': 0, 'down': 1, 'strange': 2}}
# Class -> what its config has besides.
FINE_TUNED = {
  'XLNetForSequenceClassification': LABELS | {'summary_last_dropout': 0.25},
  'XLNetForMultipleChoice': {},
  'XLNetForTokenClassification': LABELS,
  'XLNetForQuestionAnsweringSimple': {},
  'XLNetForQuestionAnswering': {'start_n_top': 3, 'end_n_top': 2},
}


def said(kind, module, batch, theirs):
  """Predictions of transformers by the names of lmx; theirs of QuestionAnswering are in parity's tests."""
  if kind == 'XLNetForMultipleChoice':
    theirs = {k: v.reshape(2, 2, -1) for k, v in theirs.items()}
  if 'Question' in kind:  # rows as ours are, padded on the right
    names = {'input_ids': 'tokens_BT', 'token_type_ids': 'types_BT', 'attention_mask': 'valid_BT'}
    theirs = {there: torch.tensor(batch[here]).long() for there, here in names.items()}
  if kind == 'XLNetForQuestionAnswering':
    among = batch['passage_BT'] | (np.arange(parity.T) == batch['null_B'][:, None])
    theirs |= {'p_mask': torch.tensor(1.0 - among).float(), 'cls_index': torch.tensor(batch['null_B']).long()}
  with torch.no_grad():
    out = module.eval()(**theirs, use_mems=False)
  if kind == 'XLNetForQuestionAnsweringSimple':
    found = torch.stack([out.start_logits, out.end_logits], -1).numpy()
    return {'scores_BT2': np.where(batch['valid_BT'][..., None], found, -1e9)}
  if kind == 'XLNetForQuestionAnswering':
    return {'odds_B': out.cls_logits.numpy(), 'begin_BK': out.start_top_index.numpy()}
  return {'logits_BC' if kind != 'XLNetForTokenClassification' else 'scores_BTL': out.logits.numpy()}


@pytest.mark.parametrize('kind', FINE_TUNED)
def test_fine_tuned_models_round_trip(kind, pieces, tmp_path):
  build(pieces, False).save(str(tmp_path / 'tokenizer.json'))
  cfg = transformers.XLNetConfig(
    vocab_size=len(pieces), d_model=24, n_head=3, n_layer=2, d_inner=40, mem_len=None, dropout=0.0, **FINE_TUNED[kind]
  )
  (tmp_path / 'folder').mkdir()
  save_random(kind, cfg, tmp_path / 'folder', seed=3)
  (tmp_path / 'tokenizer.json').rename(tmp_path / 'folder/tokenizer.json')
  convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  batch, theirs = parity._rows()
  count_B = batch['valid_BT'].sum(1)
  batch |= {'null_B': (count_B - 1).astype(np.int32), 'passage_BT': np.arange(parity.T) < (count_B - 3)[:, None]}
  expected = said(kind, getattr(transformers, kind).from_pretrained(tmp_path / 'folder'), batch, theirs)
  given = batch
  if kind == 'XLNetForMultipleChoice':
    given = {k.replace('_BT', '_BGT'): v.reshape(2, 2, -1) for k, v in batch.items() if k.endswith('_BT')}
    given['row_weights_B'] = np.ones(2, np.float32)
  found = run.objective.predict(run.run.objective, run.model, run.cfg, run.params, given, ())[0]
  for key, values in expected.items():
    ours = np.asarray(found[key])
    if kind == 'XLNetForTokenClassification':  # theirs are padded on the left
      ours = np.concatenate([x[:n] for x, n in zip(ours, count_B, strict=True)])
      values = np.concatenate([x[parity.T - n :] for x, n in zip(values, count_B, strict=True)])
    assert np.std(values) > 0.01
    np.testing.assert_allclose(ours, values, rtol=TOLERANCE, atol=TOLERANCE, err_msg=key)
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  back, info = getattr(transformers, kind).from_pretrained(tmp_path / 'out', output_loading_info=True)
  assert not any(info[key] for key in ('missing_keys', 'unexpected_keys', 'mismatched_keys')), info
  for field, value in FINE_TUNED[kind].items():
    assert getattr(back.config, field) == value
  for key, values in said(kind, back, batch, theirs).items():
    np.testing.assert_allclose(values, expected[key], rtol=1e-6, atol=1e-6)
