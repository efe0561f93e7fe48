"""Folders that transformers wrote and that it reads: the same numbers, tokens and pieces of text on either side."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import unicodedata

import jax
import numpy as np
import pytest

import lmx
from experiments.bert import recipe as bert
from lmx.cli import main
from lmx.data.tokenizers import build as tokenizers
from lmx.data.tokenizers import library_files
from lmx.decoding import generate
from lmx.engine import state as lmx_state
from lmx.engine import step
from lmx.optim import build
from lmx.prediction import classification
from lmx.runs import convert
from tests.data.tokenizers import strings

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')
safetensors_torch = pytest.importorskip('safetensors.torch')

pytestmark = pytest.mark.peer

TOLERANCE = 1e-5
UPDATES = 1e-4  # after eight steps of training
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


@pytest.fixture(scope='module')
def texts(root):
  return [path.read_text() for path in sorted((root / 'lmx').rglob('*.py'))[:40]] + [
    strings.without_surrogates(text) for text in strings.strings(400)
  ]


def config(name, **given):
  kind = {'gpt': 'OpenAIGPTConfig', 'gpt2': 'GPT2Config', 'bert': 'BertConfig'}[name]
  marks = dict(bos_token_id=0, eos_token_id=0) if name == 'gpt2' else {}
  return getattr(transformers, kind)(**SIZES[name] | marks | given)


def save_random(kind, cfg, folder, seed):
  """Saves a model of the class `kind` with weights far from their initial values."""
  torch.manual_seed(seed)
  module = getattr(transformers, kind)(cfg)
  with torch.no_grad():
    for p in module.parameters():
      p.add_(0.1 * torch.randn(p.shape))
  module.save_pretrained(folder)


@pytest.fixture(scope='module')
def folders(tmp_path_factory, texts):
  """name -> a folder that transformers has saved, weights far from their initial values."""
  found = {}
  for name, kind in KINDS.items():
    folder = tmp_path_factory.mktemp(name)
    tokenizer = tokenizers.train(kind, texts, vocab_size=4000, lower_case=name == 'bert')
    tokenizer._model.model.save(str(folder))  # vocab.txt, or vocab.json and merges.txt
    (folder / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': TOKENIZERS[name]}))
    save_random(CLASSES[name], config(name, vocab_size=tokenizer.vocab_size), folder, seed=1)
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
def test_transformers_model_round_trips(name, folders, tmp_path):
  convert.import_run(str(folders[name]), tmp_path / 'run')
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
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  back, info = getattr(transformers, CLASSES[name]).from_pretrained(tmp_path / 'out', output_loading_info=True)
  assert not info['missing_keys'] and not info['unexpected_keys'] and not info['mismatched_keys']
  for a, b in zip(outputs(name, back, tokens_BT), expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


BUFFERS = {
  'bert': {'bert.embeddings.position_ids': torch.arange(32)[None]},
  'gpt': {'transformer.position_ids': torch.arange(32)}
  | {f'transformer.h.{i}.attn.bias': torch.tril(torch.ones(1, 1, 32, 32)) for i in range(2)},
  'gpt2': {f'transformer.h.{i}.attn.bias': torch.tril(torch.ones(1, 1, 32, 32)).bool() for i in range(2)}
  | {f'transformer.h.{i}.attn.masked_bias': torch.tensor(-1e9) for i in range(2)},
}
NAMES = {'LayerNorm.weight': 'LayerNorm.gamma', 'LayerNorm.bias': 'LayerNorm.beta'}
# What a folder is like -> type of its numbers, file, fields of its config, whether it has buffers and names of old.
LAYOUTS = {
  'padded': (torch.float32, 'safetensors', {'vocab_size': 5000}, False),
  'untied': (torch.float32, 'safetensors', {'tie_word_embeddings': False}, False),
  'untied, padded, shards of bfloat16': (
    torch.bfloat16,
    'shards',
    dict(vocab_size=5000, tie_word_embeddings=False),
    False,
  ),
  'shards of float16': (torch.float16, 'shards', {}, False),
  'bin of old': (torch.float32, 'bin', {}, True),
  'buffers': (torch.float32, 'safetensors', {}, True),
}


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('name', SIZES)
def test_file_layouts_round_trip(name, layout, folders, tmp_path):
  """Feed-forward width of BERT 40, not 96; both directions bit by bit."""
  dtype, file, changes, old = LAYOUTS[layout]
  size = {'vocab_size': json.loads((folders[name] / 'config.json').read_text())['vocab_size']}
  cfg = config(name, **size | changes | ({'intermediate_size': 40} if name == 'bert' else {}))
  folder = tmp_path / 'folder'
  save_random(CLASSES[name], cfg, folder, seed=4)
  module = getattr(transformers, CLASSES[name]).from_pretrained(folder).to(dtype)
  tensors = {key: x.clone() for key, x in module.state_dict().items()} | (BUFFERS[name] if old else {})
  for now, then in NAMES.items() if old else ():
    tensors = {key.replace(now, then): x for key, x in tensors.items()}
  if file == 'shards':
    (folder / 'model.safetensors').unlink()
    module.save_pretrained(folder, max_shard_size='100KB')
    assert len(list(folder.glob('model-*.safetensors'))) > 1
  elif file == 'bin':
    (folder / 'model.safetensors').unlink()
    torch.save(tensors, folder / 'pytorch_model.bin')
  else:
    safetensors_torch.save_file(tensors, folder / 'model.safetensors', metadata={'format': 'pt'})
  for path in folders[name].iterdir():
    if path.name not in ('config.json', 'model.safetensors', 'generation_config.json'):
      (folder / path.name).write_bytes(path.read_bytes())
  convert.import_run(str(folder), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  assert run.cfg.V == cfg.vocab_size and run.cfg.tied == cfg.tie_word_embeddings
  tokens_BT = np.random.default_rng(0).integers(0, run.tokenizer.vocab_size, (3, T)).astype(np.int32)
  expected = outputs(name, module.float(), tokens_BT)
  features, _ = run.model.apply(run.cfg, run.params['model'], {'tokens_BT': tokens_BT}, ())
  ours = run.model.logits(run.cfg, run.params['model'], features)
  np.testing.assert_allclose(ours, expected[0], rtol=0, atol=1e-5)
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  back = getattr(transformers, CLASSES[name]).from_pretrained(tmp_path / 'out').state_dict()
  for key, x in module.state_dict().items():
    if name == 'bert' and key == 'cls.predictions.bias' and not run.cfg.tied:
      continue  # not computed with; version 4 ties it to the decoder's
    assert torch.equal(x, back[key]), key


@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_greedy_continuations_are_the_same_tokens(name, folders, tmp_path):
  convert.import_run(str(folders[name]), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  prompts_BT = np.random.default_rng(1).integers(1, run.cfg.V, (4, 5)).astype(np.int32)
  theirs = getattr(transformers, CLASSES[name]).from_pretrained(folders[name]).eval()
  expected = theirs.generate(
    torch.tensor(prompts_BT).long(), max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0
  )
  found, _ = generate.generate(
    run.model,
    run.cfg,
    run.params['model'],
    prompts_BT,
    steps=20,
    key=jax.random.key(0),
    sampler=generate.Sampler(temperature=0.0),
  )
  np.testing.assert_array_equal(found, expected.numpy()[:, 5:])


def same_pieces(ours, theirs, text):
  """Holds a tokenizer to others and returns its ids; surrogates are U+FFFD."""
  ids, spans = ours.encode_spans(text)
  if not re.search('[\udc80-\udcff]', text):  # bytes, to `encode` of GPT-2's
    np.testing.assert_array_equal(ours.encode(text), ids)
  for tokenizer in theirs:
    given = strings.without_surrogates(text)
    split = not ours.special_in_text
    found = tokenizer(given, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=split)
    np.testing.assert_array_equal(ids, found['input_ids'], err_msg=repr(text))
    np.testing.assert_array_equal(spans, np.asarray(found['offset_mapping'], np.int32).reshape(-1, 2))
  return set(ids.tolist())


@pytest.mark.parametrize('chinese', [True, False])
@pytest.mark.parametrize('accents', [None, True, False])
@pytest.mark.parametrize('lower', [True, False])
def test_subwords_of_cased_multilingual_and_chinese_vocabularies(lower, accents, chinese, tmp_path):
  """Of vocab.txt with these settings and of the tokenizer.json that transformers writes of it."""
  texts = [strings.without_surrogates(text) for text in strings.strings(2000)]
  letters = {c for text in texts for c in unicodedata.normalize('NFD', text + text.lower()) + text + text.lower()}
  letters = sorted(c for c in letters if not c.isspace() and c.isprintable())
  words = sorted({w for text in texts for w in re.findall(r'\w+', f'{text} {text.lower()}') if 1 < len(w) < 12})
  vocabulary = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *letters, *words[::2]]
  vocabulary += [f'##{c}' for i, c in enumerate(letters) if i % 8]
  (tmp_path / 'vocab.txt').write_text('\n'.join(dict.fromkeys(vocabulary)) + '\n')
  settings = {'do_lower_case': lower, 'strip_accents': accents, 'tokenize_chinese_chars': chinese}
  (tmp_path / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'BertTokenizer', **settings}))
  theirs, kinds = transformers.AutoTokenizer.from_pretrained(tmp_path), set()
  theirs.save_pretrained(tmp_path / 'saved')
  (tmp_path / 'saved/vocab.txt').unlink(missing_ok=True)
  for path in (tmp_path, tmp_path / 'saved'):
    for special_in_text in (False, True):
      ours = library_files.read('wordpiece', str(path), lower_case=lower, special_in_text=special_in_text)
      for text in strings.strings(2000):
        kinds |= same_pieces(ours, [theirs], text)
  assert len(kinds) > 400


@pytest.mark.parametrize('name', SIZES)
def test_subwords_and_offsets_match_transformers(name, folders, tmp_path):
  """2,000 strings, by the tokenizer that transformers makes of the files and by the one that is exported to it."""
  convert.import_run(str(folders[name]), tmp_path / 'run')
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  ours = lmx.load(tmp_path / 'run').tokenizer
  theirs = [transformers.AutoTokenizer.from_pretrained(path) for path in (folders[name], tmp_path / 'out')]
  kinds = set()
  for text in strings.strings(2000):
    kinds |= same_pieces(ours, theirs, text)
  assert len(kinds) > 100


FURTHER = ('[E1]', '[/E1]', '<x>')


@pytest.mark.parametrize('fast', [True, False])
@pytest.mark.parametrize('name', SIZES)
def test_further_special_tokens_in_a_text_match_transformers(name, fast, folders, tmp_path):
  """Special tokens that a program added, of tokenizer.json and of a vocabulary alone."""
  theirs = transformers.AutoTokenizer.from_pretrained(folders[name])
  theirs.add_special_tokens({'additional_special_tokens': [*FURTHER]})
  theirs.save_pretrained(tmp_path / 'folder')
  if not fast:
    (tmp_path / 'folder/tokenizer.json').unlink()
    for path in folders[name].iterdir():
      if path.name in ('vocab.txt', 'vocab.json', 'merges.txt'):
        (tmp_path / 'folder' / path.name).write_bytes(path.read_bytes())
  ours = library_files.read(KINDS[name], str(tmp_path / 'folder'), lower_case=name == 'bert', special_in_text=True)
  pieces = (*strings.PIECES, *FURTHER * 8, '[MASK]', '[SEP]', '<|endoftext|>', '<unk>', '[e1]', '[E1')
  kinds = set()
  for text in strings.strings(2000, pieces=pieces):
    kinds |= same_pieces(ours, [theirs], text)
  assert {theirs.convert_tokens_to_ids(token) for token in FURTHER} <= kinds


def test_exported_pairs_have_bert_special_tokens(folders, tmp_path):
  convert.import_run(str(folders['bert']), tmp_path / 'run')
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  ours = lmx.load(tmp_path / 'run').tokenizer
  pair = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')('one name', 'a list')
  a, b = ours.encode('one name').tolist(), ours.encode('a list').tolist()
  assert pair['input_ids'] == [ours.cls_id, *a, ours.sep_id, *b, ours.sep_id]
  assert pair['token_type_ids'] == [0] * (len(a) + 2) + [1] * (len(b) + 1)


LABELS = ('up', 'down', 'strange')
NAMED = dict(id2label=dict(enumerate(LABELS)), label2id={label: i for i, label in enumerate(LABELS)})
# What is tested -> class of transformers, model, further fields of its config.
HEADS = {
  'classification': ('BertForSequenceClassification', 'bert', NAMED),
  'regression': ('BertForSequenceClassification', 'bert', dict(num_labels=1, problem_type='regression')),
  'tagging': ('BertForTokenClassification', 'bert', NAMED | dict(classifier_dropout=0.25)),
  'questions': ('BertForQuestionAnswering', 'bert', {}),
  'choices': ('BertForMultipleChoice', 'bert', {}),
  'masked': ('BertForMaskedLM', 'bert', {}),
  'gpt_double': ('OpenAIGPTDoubleHeadsModel', 'gpt', {}),
  'gpt2_double': ('GPT2DoubleHeadsModel', 'gpt2', {}),
  'gpt_classification': ('OpenAIGPTForSequenceClassification', 'gpt', NAMED | dict(pad_token_id=0)),
  'gpt2_classification': ('GPT2ForSequenceClassification', 'gpt2', NAMED | dict(pad_token_id=0)),
  'gpt2_regression': ('GPT2ForSequenceClassification', 'gpt2', dict(num_labels=1, pad_token_id=0)),
}
OBJECTIVES = {
  'classification': 'classify',
  'regression': 'regress',
  'tagging': 'tag',
  'questions': 'span',
  'choices': 'multiple_choice',
  'masked': 'masked_lm',
  'double': 'multiple_choice',
}


@pytest.fixture(scope='module')
def heads(folders, tmp_path_factory):
  """What is tested -> a folder that transformers has saved, weights far from their initial values."""
  found = {}
  for case, (kind, name, given) in HEADS.items():
    folder = tmp_path_factory.mktemp(case)
    for path in folders[name].iterdir():
      if path.suffix != '.safetensors':
        (folder / path.name).write_bytes(path.read_bytes())
    size = json.loads((folders[name] / 'config.json').read_text())['vocab_size']
    save_random(kind, config(name, vocab_size=size, **given), folder, seed=2)
    found[case] = folder
  return found


def rows(V, choices=0):
  """A batch of rows of different lengths, of which the last places are padding."""
  rng, shape = np.random.default_rng(3), (3, choices, T) if choices else (3, T)
  size = rng.integers(3, T + 1, shape[:-1])
  valid = np.arange(T) < size[..., None]
  tokens = np.where(valid, rng.integers(1, V, shape), 0).astype(np.int32)
  types = np.where(valid & (np.arange(T) > 4), 1, 0).astype(np.int32)
  letters = 'BGT' if choices else 'BT'
  batch = {f'tokens_{letters}': tokens, f'valid_{letters}': valid, f'types_{letters}': types}
  return batch | {'row_weights_B': np.ones(3, np.float32)}


def theirs_of(case, module, batch):
  """What transformers computes of the rows: arrays by the names of lmx."""
  tokens, valid, types = (torch.tensor(np.asarray(batch[key])).long() for key in list(batch)[:3])
  inputs = {'input_ids': tokens}
  if 'gpt' not in case:  # GPT sees nothing of padding on the right; transformers' GPT takes no mask of choices
    inputs |= {'attention_mask': valid, 'token_type_ids': types}
  if 'double' in case:
    inputs['mc_token_ids'] = valid.sum(-1) - 1
  with torch.no_grad():
    out = module.eval()(**inputs)
  if case == 'questions':
    found = np.stack([out.start_logits.numpy(), out.end_logits.numpy()], -1)
    return {'scores_BT2': np.where(batch['valid_BT'][..., None], found, -1e9)}
  if 'double' in case:
    return {'logits_BC': out.mc_logits.numpy(), 'lm': out.logits.numpy()}
  logits = out.logits.numpy()
  if 'regression' in case:
    return {'scores_B': logits[:, 0]}
  if case == 'tagging':
    return {'scores_BTL': logits}
  return {'lm': logits} if case == 'masked' else {'logits_BC': logits}


def ours_of(run, batch):
  """The same by lmx, with the language model's scores of valid places as 'lm' where the class has them."""
  found = {}
  if run.run.objective_name != 'masked_lm':
    found = dict(run.objective.predict(run.run.objective, run.model, run.cfg, run.params, batch, ())[0])
  shape = next(iter(batch.values())).shape
  flat = {f'{key.partition("_")[0]}_BT': batch[key].reshape(-1, T) for key in list(batch)[:3]}
  features, _ = run.model.apply(run.cfg, run.params['model'], flat, ())
  found['lm'] = np.asarray(run.model.logits(run.cfg, run.params['model'], features)).reshape(*shape, -1)
  return {name: np.asarray(x) for name, x in found.items()}


@pytest.mark.parametrize('case', HEADS)
def test_task_heads_round_trip(case, heads, tmp_path):
  kind, name, _ = HEADS[case]
  lines = convert.import_run(str(heads[case]), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  assert run.run.objective_name == OBJECTIVES[case.removeprefix('gpt_').removeprefix('gpt2_')], lines
  batch = rows(run.cfg.V, 4 if run.run.objective_name == 'multiple_choice' else 0)
  valid = next(x for key, x in batch.items() if key.startswith('valid'))
  expected = theirs_of(case, getattr(transformers, kind).from_pretrained(heads[case]), batch)
  found = ours_of(run, batch)
  for key, values in expected.items():
    at = valid if key in ('lm', 'scores_BTL') else slice(None)
    assert np.std(values[at]) > 0.01
    np.testing.assert_allclose(found[key][at], values[at], rtol=TOLERANCE, atol=TOLERANCE, err_msg=key)
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  back, info = getattr(transformers, kind).from_pretrained(tmp_path / 'out', output_loading_info=True)
  left = [name for name in info['unexpected_keys'] if case != 'masked' or 'pooler' not in name]
  assert not any([info['missing_keys'], left, info['mismatched_keys']]), info
  for field in ('id2label', 'label2id', 'problem_type', 'classifier_dropout'):
    if field in HEADS[case][2]:
      assert getattr(back.config, field) == HEADS[case][2][field]
  if case == 'gpt_classification':
    back.config.pad_token_id = 0  # GPT's tokenizer has no padding, so an export names none
  for key, values in theirs_of(case, back, batch).items():
    np.testing.assert_allclose(values, expected[key], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize('name,kind', [('bert', 'BertModel'), ('gpt', 'OpenAIGPTModel'), ('gpt2', 'GPT2Model')])
def test_bare_model_round_trips(name, kind, folders, tmp_path):
  """Its tensors have no prefix; heads that it lacks are newly initialised and exported beside it."""
  module = getattr(transformers, kind).from_pretrained(folders[name])
  (tmp_path / 'bare').mkdir()
  for path in folders[name].iterdir():
    if path.suffix != '.safetensors':
      (tmp_path / 'bare' / path.name).write_bytes(path.read_bytes())
  module.save_pretrained(tmp_path / 'bare')
  convert.import_run(str(tmp_path / 'bare'), tmp_path / 'run')
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  back, info = getattr(transformers, kind).from_pretrained(tmp_path / 'out', output_loading_info=True)
  assert not info['missing_keys'] and not info['mismatched_keys']
  expected, found = module.state_dict(), back.state_dict()
  assert expected.keys() == found.keys()
  for key, tensor in expected.items():
    assert torch.equal(tensor, found[key]), key


@pytest.mark.parametrize('case', ['classification', 'regression', 'gpt_classification', 'gpt2_classification'])
def test_rows_are_classified_as_by_transformers(case, heads, tmp_path):
  """Texts and pairs of texts, by the tokenizer and the class of transformers."""
  kind, name, _ = HEADS[case]
  columns = ('one', 'two') if name == 'bert' else ('one',)
  convert.import_run(str(heads[case]), tmp_path / 'run', [f'data.texts={columns}'])
  texts = [('The method', 'returns a list of names'), ('a string', 'of names'), ('it', 'is: returned')]
  file = tmp_path / 'rows.jsonl'
  file.write_text(''.join(json.dumps(dict(zip(columns, row, strict=False))) + '\n' for row in texts))
  run = lmx.load(tmp_path / 'run')
  said = classification.predict(run, classification.read_file(run, str(file)))
  tokenizer = transformers.AutoTokenizer.from_pretrained(heads[case])
  module = getattr(transformers, kind).from_pretrained(heads[case]).eval()
  for row, found in zip(texts, said, strict=True):
    with torch.no_grad():
      logits = module(**tokenizer(*row[: len(columns)], return_tensors='pt')).logits[0]
    if case == 'regression':
      assert found['score'] == pytest.approx(logits.item(), abs=TOLERANCE)
    else:
      expected = torch.softmax(logits, -1).tolist()
      assert found['probabilities'] == pytest.approx(dict(zip(LABELS, expected, strict=True)), abs=TOLERANCE)


@pytest.mark.parametrize('case', ['classification', 'regression'])
def test_updates_match_the_trainer(case, heads, tmp_path):
  """Fine-tuning as experiments/bert/tasks.py has it, with bias correction and without dropout, batch by batch."""
  kind, total = HEADS[case][0], 8
  convert.import_run(str(heads[case]), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  still = {'hidden_dropout_prob': 0.0, 'attention_probs_dropout_prob': 0.0, 'classifier_dropout': 0.0}
  module = getattr(transformers, kind).from_pretrained(heads[case], **still).train()
  settings = transformers.TrainingArguments(
    output_dir=str(tmp_path / 'trainer'),
    learning_rate=1e-2,
    weight_decay=0.01,
    adam_epsilon=1e-6,
    warmup_steps=2,
    lr_scheduler_type='linear',
    use_cpu=True,
    report_to='none',
  )
  trainer = transformers.Trainer(model=module, args=settings)
  trainer.create_optimizer_and_scheduler(total)
  optim = build.Config(**bert.fine_tuning('corrected', 1e-2, 1.0)['optim'] | {'warmup_fraction': 2 / total})
  cfg = dataclasses.replace(run.cfg, dropout_hidden=0.0, dropout_attention=0.0)
  objective_cfg = dataclasses.replace(run.run.objective, dropout_pooled=0.0)
  tx = build.make(optim, run.params, functools.partial(run.model.depth, cfg), cfg.N, total, total)
  parts = (run.model, cfg, run.objective, objective_cfg)
  update = jax.jit(step.make_train_step(*parts, tx, build.rate(optim, total, total)))
  state = lmx_state.create(run.params, tx, None)
  for i in range(total):
    batch = rows(run.cfg.V)
    batch['tokens_BT'] = np.where(batch['valid_BT'], (batch['tokens_BT'] * (i + 3)) % run.cfg.V, 0).astype(np.int32)
    inputs = dict(zip(('input_ids', 'attention_mask', 'token_type_ids'), list(batch.values())[:3], strict=True))
    if case == 'regression':
      batch['scores_B'] = labels = np.asarray([0.5, 3.0, 4.5], np.float32)
    else:
      batch['labels_B'] = labels = np.asarray([i % 3, 1, 2], np.int32)
    inputs = {name: torch.tensor(x).long() for name, x in inputs.items()}
    loss = module(**inputs, labels=torch.tensor(labels) if case == 'regression' else torch.tensor(labels).long()).loss
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), settings.max_grad_norm)
    trainer.optimizer.step()
    trainer.lr_scheduler.step()
    trainer.optimizer.zero_grad()
    state, _, metrics = update(state, (), batch, jax.random.key(0))
    assert float(metrics['loss']) == pytest.approx(loss.item(), rel=UPDATES, abs=UPDATES), i
    assert float(metrics['grad_norm']) == pytest.approx(norm.item(), rel=1e-3), i
  before, after = (np.asarray(x.params['objective']['block_0']['kernel']) for x in (run, state))
  assert np.abs(after - before).max() > 0.01
  np.testing.assert_allclose(after, module.classifier.weight.detach().numpy().T, atol=UPDATES)


TRAINED = {  # experiment -> class, further settings
  'bert/tasks.py:tiny': ('BertForSequenceClassification', ()),
  'bert/tagging.py:tiny': ('BertForTokenClassification', ('data.length=500',)),
  'bert/squad.py:tiny': ('BertForQuestionAnswering', ()),
  'gpt/tasks.py:tiny': ('OpenAIGPTForSequenceClassification', ('objective.head_bias=false', 'data.tokenizer=gpt_bpe')),
}


@pytest.mark.slow
@pytest.mark.parametrize('experiment', TRAINED)
def test_transformers_loads_lmx_trained_model(experiment, tmp_path):
  kind, settings = TRAINED[experiment]
  settings = ('train.steps=4', 'train.eval_every=4', 'data.batch_size=8', *settings)
  command = ['train', f'--config=experiments/{experiment}', f'--workdir={tmp_path}/run']
  assert main.main([*command, *(f'--config.{setting}' for setting in settings)]) == 0
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  run = lmx.load(tmp_path / 'run')
  module, info = getattr(transformers, kind).from_pretrained(tmp_path / 'out', output_loading_info=True)
  assert not any(info[key] for key in ('missing_keys', 'unexpected_keys', 'mismatched_keys')), info
  case = {'tag': 'tagging', 'span': 'questions'}.get(run.run.objective_name, run.run.model_name)
  if module.config.pad_token_id:  # places of padding, which transformers looks for
    batch = {
      key: np.where(rows(run.cfg.V)['valid_BT'], x, module.config.pad_token_id) if key == 'tokens_BT' else x
      for key, x in rows(run.cfg.V - 3).items()
    }
  else:
    batch = rows(run.cfg.V)
  found = ours_of(run, batch)
  for key, values in theirs_of(case, module, batch).items():
    at = batch['valid_BT'] if key == 'scores_BTL' else slice(None)
    np.testing.assert_allclose(found[key][at], values[at], rtol=TOLERANCE, atol=TOLERANCE, err_msg=key)
  labels = list(run.run.objective.labels) if case == 'tagging' else None
  if run.run.objective_name == 'classify':
    labels = json.loads((tmp_path / 'run/data.json').read_text())['label_names']
  if labels:
    assert [module.config.id2label[i] for i in range(len(labels))] == labels


def test_cached_decoding_matches_transformers_step_by_step(folders, tmp_path):
  """GPT-2's scores after a prompt and each token after it, past_key_values there and lmx's cache here."""
  convert.import_run(str(folders['gpt2']), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  tokens_BT = np.random.default_rng(4).integers(0, run.cfg.V, (3, T)).astype(np.int32)
  module = transformers.GPT2LMHeadModel.from_pretrained(folders['gpt2']).eval()
  state, past = run.model.init_state(run.cfg, 3, T), None
  for begin, end in ((0, 5), *((t, t + 1) for t in range(5, T))):
    part = tokens_BT[:, begin:end]
    with torch.no_grad():
      out = module(torch.tensor(part).long(), past_key_values=past, use_cache=True)
    past = out.past_key_values
    features, state = run.model.apply(run.cfg, run.params['model'], {'tokens_BT': part}, state)
    ours = run.model.logits(run.cfg, run.params['model'], features)
    np.testing.assert_allclose(ours, out.logits.numpy(), rtol=TOLERANCE, atol=TOLERANCE, err_msg=f'from {begin}')
