"""Folders with wrong values and damaged bytes are imported, or refused with an InputError, and none takes long."""

from __future__ import annotations

import json
import random
import warnings

import jax
import pytest
import safetensors.numpy

from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.interop import huggingface
from lmx.interop.huggingface import architectures
from lmx.models import registry
from lmx.runs import convert

TEXTS = ['The method returns a list of names.', 'A name is a string, and so is a list of them.'] * 20
KINDS = {'bert': 'wordpiece', 'gpt': 'gpt_bpe', 'gpt2': 'bpe'}
VALUES = [
  None,
  True,
  False,
  0,
  -1,
  1,
  2,
  3.5,
  float('nan'),
  float('inf'),
  10**30,
  2**70,
  10**9,
  '',
  'x',
  '8',
  [],
  ['a'],
  [[]],
  [{}],
  {},
  {'a': 1},
  {'content': 5},
  {'0': 'a'},
  {'0': None},
  1e-12,
]
CONFIG = [
  'architectures',
  'id2label',
  'num_labels',
  'problem_type',
  'tie_word_embeddings',
  'intermediate_size',
  'n_inner',
  'classifier_dropout',
  'hidden_act',
  'is_decoder',
  'summary_type',
  'summary_first_dropout',
]
TOKENIZER = [
  'do_lower_case',
  'strip_accents',
  'pad_token',
  'unk_token',
  'eos_token',
  'added_tokens_decoder',
  'tokenizer_class',
  'additional_special_tokens',
  'extra_special_tokens',
  'never_split',
  'add_prefix_space',
  'model_max_length',
]


@pytest.fixture(scope='module')
def contents():
  """Model -> (name of a file -> its bytes) of a folder that is right."""
  found = {}
  for name, kind in KINDS.items():
    model, tokenizer, of = registry.get(name), build.train(kind, TEXTS, vocab_size=300), huggingface.family(name)
    cfg = model.Config(V=tokenizer.vocab_size, T=16, D=8, H=2, N=1)
    shapes = jax.eval_shape(lambda model=model, cfg=cfg: model.init(cfg, jax.random.key(0)))
    params = {'model': jax.tree.map(lambda x: jax.numpy.full(x.shape, 0.5), shapes), 'objective': {}}
    files = {'config.json': json.dumps({'model_type': of.TYPE, **of.config(cfg)}).encode()}
    files['model.safetensors'] = safetensors.numpy.save(huggingface.to_hf(name, cfg, params))
    state = tokenizer.content()['model']['model']
    if kind == 'wordpiece':
      files['vocab.txt'] = '\n'.join(sorted(state['vocab'], key=state['vocab'].get)).encode()
    else:
      merges = '#version: 0.2\n' + '\n'.join(' '.join(pair) for pair in state['merges'])
      files |= {'vocab.json': json.dumps(state['vocab']).encode(), 'merges.txt': merges.encode()}
    found[name] = files
  return found


def wrong(draw, name, files):
  """The files with one to four faults."""
  files = dict(files)
  config = json.loads(files['config.json'])
  for _ in range(draw.randrange(3)):
    config[draw.choice([*config, *CONFIG])] = draw.choice(VALUES)
  if draw.random() < 0.3:
    config['architectures'] = [draw.choice([kind for kind, head in architectures.HEADS.items() if head.model == name])]
  files['config.json'] = json.dumps(config).encode()
  if draw.random() < 0.4:
    given = {draw.choice(TOKENIZER): draw.choice(VALUES)}
    files[draw.choice(('tokenizer_config.json', 'special_tokens_map.json'))] = json.dumps(given).encode()
  if draw.random() < 0.2:
    added = {draw.choice(('a', '<x>', '[CLS]', '')): draw.choice(VALUES)}
    files['added_tokens.json'] = json.dumps(added).encode()
  if draw.random() < 0.2:
    shards = draw.choice((*VALUES, {'a': '../x'}, {'a': 'model'}, {'a': 'model.safetensors'}))
    files['model.safetensors.index.json'] = json.dumps({'weight_map': shards}).encode()
    files['model'] = files.pop('model.safetensors')
  if draw.random() < 0.3:
    damaged = draw.choice(sorted(files))
    data = bytearray(files[damaged])
    for _ in range(draw.randint(1, 4)):
      data[draw.randrange(min(len(data), 3000))] = draw.randrange(256)
    files[damaged] = bytes(data[: draw.choice((len(data), draw.randrange(len(data))))])
  return files


@pytest.mark.parametrize('count', [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_wrong_folders_are_read_or_rejected(count, contents, tmp_path, monkeypatch):
  monkeypatch.setattr(convert, 'write', lambda *_: None)
  draw = random.Random(0)
  refused = 0
  for i in range(count):
    name = draw.choice(list(KINDS))
    folder = tmp_path / str(i)
    folder.mkdir()
    for file, content in wrong(draw, name, contents[name]).items():
      (folder / file).write_bytes(content)
    try:
      with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        convert.import_run(str(folder), tmp_path / 'run')
    except InputError as error:
      assert str(error)
      refused += 1
  assert count / 4 < refused < count
