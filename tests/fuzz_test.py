"""Damaged input ends in an InputError or a valid result: never in another exception, never in a hang.

Every case follows from a seed: a target, its files, and what is changed in them. A failure shows the seed; `case(seed)`
repeats it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import math
import os
import pathlib
import random
import signal
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import safetensors.numpy

from lmx import cast
from lmx.cli import main
from lmx.config import resolve, run_files
from lmx.data import corpus, text_files
from lmx.data.builders import cells, cloze, files, parallel, questions, tables, tagged
from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.interop import elmo, huggingface, openai, word2vec
from lmx.metrics import embeddings
from lmx.models import registry
from lmx.prediction import classification, question_answering, word_vectors
from lmx.runs import convert
from tests import untrained

SECONDS = 10  # after which a case counts as a hang
Files = Mapping[str, bytes]


class Target(NamedTuple):
  """A reader: what it reads, files that it accepts, and how often it is chosen."""

  read: Callable[[pathlib.Path], Any]
  files: Files
  weight: int = 1


# What is put into files and settings


WORDS = [
  b'\0',
  b'\xff\xfe',
  b'\xef\xbb\xbf',
  b'\xc3',
  b'\r',
  b'\n',
  b'\r\n',
  b'\t',
  b'"',
  b'""',
  b',',
  b':',
  b'[',
  b'{',
  b'NaN',
  b'Infinity',
  b'-1',
  b'1e999',
  b'9' * 5000,
  b'[' * 100_000,
  b'{"a":' * 50_000,
  b'null',
  b'true',
  b'\\ud800',
  b'99999999999999999999',
  b'\xf0\x9f\x98\x80',
  b' ',
  b'\xe2\x80\xa8',
  b'=',
  b'#',
  b'_',
  b'-',
  b'|',
]
VALUES = [
  None,
  True,
  False,
  0,
  1,
  -1,
  2,
  1.0,
  0.5,
  -0.5,
  2**31,
  2**62,
  2**70,
  10**20,
  10**400,
  1e308,
  float('nan'),
  float('inf'),
  -float('inf'),
  '',
  'x',
  '0',
  '\ud800',
  'é' * 3,
  'x' * 3000,
  [],
  {},
  [[]],
  [None],
  ['x'],
  [1, 2],
  {'a': 1},
  {'0': 'x'},
  {'x': {}},
  [0] * 100,
]


def damage(rng: random.Random, content: bytes) -> bytes:
  """Return other bytes: a value of JSON replaced, or bytes changed, removed, inserted or doubled."""
  if rng.random() < 0.5:
    with contextlib.suppress(ValueError):
      return json.dumps(replaced(rng, json.loads(content))).encode()
    lines = content.split(b'\n')
    with contextlib.suppress(ValueError):
      i = rng.randrange(len(lines))
      lines[i] = json.dumps(replaced(rng, json.loads(lines[i]))).encode()
      return b'\n'.join(lines)
  for _ in range(rng.randint(1, 3)):
    begin = rng.randrange(len(content) + 1)
    end = min(begin + rng.choice((0, 1, 1, 4, 30, 1000)), len(content))
    middle = rng.choice((b'', bytes([rng.randrange(256)]), rng.choice(WORDS), content[begin:end] * 2))
    content = content[:begin] + middle + content[end:]
  return content


def replaced(rng: random.Random, tree: Any) -> Any:
  """Return JSON with one value replaced, removed or put under another name."""
  if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.1:
    return rng.choice(VALUES)
  key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
  tree = dict(tree) if isinstance(tree, dict) else list(tree)
  draw = rng.random()
  if draw < 0.1:
    del tree[key]
  elif draw < 0.15 and isinstance(tree, dict):
    tree[rng.choice(('', 'x', '0', key + key))] = tree[key]
  else:
    tree[key] = replaced(rng, tree[key])
  return tree


# Readers


@functools.cache
def untrained_run(path: str, kind: str) -> Any:
  return untrained.load(f'experiments/{path}', tokenizer=build.train(kind, ['a b c']))


def load(folder: pathlib.Path, path: str, kind: str) -> Any:
  (folder / 'data.json').write_text('{"hash": "", "imported_from": "x", "label_names": ["a", "b"]}')
  return dataclasses.replace(untrained_run(path, kind), workdir=folder)


def table(name: str, **options: Any) -> Callable[[pathlib.Path], Any]:
  found = files.Table((('text',),), ('label',), **options)
  return lambda folder: [*tables.read(found, str(folder / name), 'train')]


def rows(folder: pathlib.Path, name: str) -> Any:
  return classification.read_rows(str(folder / name), load(folder, 'gpt/tasks.py:own', 'bytes'))


def texts(folder: pathlib.Path, name: str) -> Any:
  return [*text_files.Documents([str(folder / name)], 'blank_line', 'text')]


def asked(folder: pathlib.Path) -> Any:
  return question_answering.read_file(load(folder, 'bert/squad.py:tiny', 'wordpiece'), f'{folder}/q.json')


SQUAD = {
  'data': [
    {
      'paragraphs': [
        {
          'context': 'a b c',
          'qas': [
            {'id': '1', 'question': 'b?', 'answers': [{'text': 'b', 'answer_start': 2}]},
            {'id': '2', 'question': 'd?', 'answers': [], 'is_impossible': True},
          ],
        }
      ]
    }
  ]
}
CBT = '\n'.join(f'{i} a b' for i in range(1, 21)) + '\n21 a XXXXX\tb\t\tb|' + '|'.join('cdefghijk') + '\n\n'
TABLE = {
  'csv': b'text,label\n"a, b",a\nb,b\n',
  'tsv': b'text\tlabel\na b\ta\nb\tb\n',
  'jsonl': b'{"text": "a b", "label": "a"}\n{"text": "b", "label": 1.0}\n{"text": "c", "label": "b"}\n',
}
SCORES = {
  'csv': b'text,label\n"a, b",0.5\nb,3\n',
  'tsv': b'text\tlabel\na b\t1\nb\t-2e1\n',
  'jsonl': b'{"text": "a b", "label": "0.5"}\n{"text": "b", "label": 3}\n',
}


def readers() -> dict[str, Target]:
  found, squad = {}, json.dumps(SQUAD).encode()
  for ending, content in TABLE.items():
    found[f'table {ending}'] = Target(table(f'a.{ending}'), {f'a.{ending}': content}, 2)
    found[f'scores {ending}'] = Target(table(f'a.{ending}', scores=True), {f'a.{ending}': SCORES[ending]})
    labels = content.replace(b'1.0', b'null')
    found[f'predict {ending}'] = Target(lambda folder, e=ending: rows(folder, f'a.{e}'), {f'a.{ending}': labels})
    found[f'cells {ending}'] = Target(
      lambda folder, e=ending: [*cells.read(f'{folder}/a.{e}', broken=True)], {f'a.{ending}': content}
    )
  conll = b'a\tNOUN\nb\tVERB\n\nc\tNOUN\n'
  universal = b'# x\n1\ta\ta\tNOUN\t_\t_\t0\troot\t_\t_\n2\tb\tb\tVERB\t_\t_\t0\troot\t_\t_\n'
  words = b'{"tokens": ["a", "b"], "tags": ["X", "Y"]}\n'
  for name, content in {'conll': conll, 'conllu': universal, 'jsonl': words, 'txt': b'a b c\n'}.items():
    found[f'tagged {name}'] = Target(lambda folder, n=name: [*tagged.read(f'{folder}/a.{n}')], {f'a.{name}': content})
  return found | {
    'predict txt': Target(lambda folder: rows(folder, 'a.txt'), {'a.txt': b'a b\nc\n'}),
    'questions': Target(lambda folder: [*questions.read(f'{folder}/q.json')], {'q.json': squad}, 2),
    'questions of no answer': Target(asked, {'q.json': squad}),
    'lambada': Target(lambda folder: [*cloze.lambada(f'{folder}/a.jsonl')], {'a.jsonl': b'{"text": "a b c"}\n'}),
    'children': Target(lambda folder: [*cloze.children(f'{folder}/a.txt')], {'a.txt': CBT.encode()}),
    'pairs': Target(
      lambda folder: [*parallel.read([(f'{folder}/a.en', f'{folder}/a.de')], ('en', 'de'), drop=True)],
      {'a.en': b'a\nb\n', 'a.de': b'c\nd\n'},
    ),
    'pairs in a table': Target(
      lambda folder: [*parallel.read([(f'{folder}/a.tsv',)], ('en', 'de'), drop=False)], {'a.tsv': b'en\tde\na\tb\n'}
    ),
    'texts': Target(lambda folder: texts(folder, 'a.txt'), {'a.txt': b'a b\n\nc\n'}),
    'texts in lines': Target(lambda folder: texts(folder, 'a.jsonl'), {'a.jsonl': TABLE['jsonl']}),
    'vectors': Target(
      lambda folder: word_vectors.from_file(f'{folder}/a.vec'),
      {'a.vec': b'2 3\nthe 1.5 2 3\nof 4 5e-1 -6\n'},
      2,
    ),
    'binary vectors': Target(
      lambda folder: [*word2vec.rows(f'{folder}/a.bin')],
      {'a.bin': b'2 3\nthe ' + np.arange(3, dtype='<f4').tobytes() + b'\nof ' + np.ones(3, '<f4').tobytes() + b'\n'},
    ),
    'analogies': Target(lambda folder: [*embeddings.read_questions(f'{folder}/a')], {'a': b': x\na b c d\n'}),
    'similarity': Target(lambda folder: [*embeddings.read_judgements(f'{folder}/a')], {'a': b'a\tb\t0.5\nc,d,1\n'}),
  }


# Work directories, token caches, configs and command lines


SMALL = {'model': {'name': 'rnn_lm', 'variant': 'tiny'}, 'train': {'steps': 1}}
CONFIGS = [
  SMALL,
  {
    'model': {'name': 'bert', 'variant': 'mini', 'V': 99},
    'objective': {'name': 'masked_lm'},
    'data': {'batching': {'name': 'pairs'}, 'tokenizer': 'wordpiece', 'length': 32},
    'train': {'steps': 1},
  },
  {
    'model': {'name': 'transformer', 'variant': 'tiny'},
    'data': {'batching': 'translation', 'dataset': 'multi30k'},
    'train': {'epochs': 1},
    'evaluation': {'beam': 4},
  },
]


def resolved(folder: pathlib.Path) -> Any:
  resolve.to_run(resolve.resolve(run_files.read_config(folder), saved=True), 99)
  run_files.read_labels(folder)
  return run_files.read_tokenizer(folder).encode('a b')


def loaded(folder: pathlib.Path) -> Any:
  return resolve.to_run(resolve.load(f'{folder}/config.json'))


def opened(folder: pathlib.Path) -> Any:
  split = corpus.read(str(folder)).splits['train']
  assert np.asarray(split.tokens).max(initial=0) < 2**16
  return split.offsets[:]


def written(folder: pathlib.Path, keep: Callable[[str], bool] = lambda name: True) -> Files:
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for path in sorted(folder.rglob('*'))
    if path.is_file() and keep(path.name)
  }


def work_directories(folder: pathlib.Path) -> dict[str, Target]:
  found = {}
  for number, given in enumerate(CONFIGS):
    full = resolve.resolve(given)
    made = corpus.Corpus.from_texts({'train': ['a b c']}, build.train('words' if number else 'bytes', ['a b c']))
    run_files.write(folder / f'run{number}', full.to_dict(), {'hash': made.hash, **made.manifest}, made.tokenizer)
    earlier = written(folder / f'run{number}', lambda name: name != 'checksums.json')
    found[f'run {number}'] = Target(resolved, earlier, 4)
    found[f'config {number}'] = Target(loaded, {'config.json': json.dumps(given).encode()}, 4)
  found['run with checksums'] = Target(resolved, written(folder / 'run1'))
  (folder / 'train.txt').write_text('a b c\n\nd e f\n' * 30)
  made = corpus.load(
    corpus.Config(dataset='text_files', manual_dir=str(folder / 'train.txt'), cache_dir=str(folder / 'cache'))
  )
  found['token cache'] = Target(opened, written(pathlib.Path(made.dir)), 3)
  manifest = json.loads(pathlib.Path(made.dir, 'manifest.json').read_text())
  earlier = {name: x for name, x in manifest.items() if name not in ('blocks', 'sha256')}
  found['earlier cache'] = Target(
    opened, {**written(pathlib.Path(made.dir)), 'manifest.json': json.dumps(earlier).encode()}, 3
  )
  for kind in ('words', 'characters', 'bpe', 'wordpiece', 'unigram', 'gpt_bpe'):
    tokenizer = build.train(kind, ['a b c the cat sat on a mat'] * 9, vocab_size=400)
    tokenizer.save(str(folder / kind))
    found[f'tokenizer {kind}'] = Target(lambda place: build.load(str(place)).encode('a b the'), written(folder / kind))
  return found


def overrides(rng: random.Random) -> None:
  """Resolve a config with random overrides."""
  given = rng.choice(CONFIGS)
  keys = [key for key in resolve.flatten(RESOLVED[CONFIGS.index(given)]) if not key.startswith('semantics')]
  keys += ['model', 'data', 'x', '', 'model.x', 'data.batching']
  words = [f'{rng.choice(keys)}={value(rng)}' for _ in range(2)]
  resolve.to_run(resolve.resolve(given, words[: rng.randint(1, 2)]))


def value(rng: random.Random) -> str:
  """Return the text of a value, as it is given on a command line."""
  if rng.random() < 0.3:
    return rng.choice(WORDS).decode('utf-8', 'surrogateescape').replace('\0', '')[:5000]
  drawn = rng.choice(VALUES)
  return str(drawn) if not isinstance(drawn, int) or abs(drawn) < 10**300 else '1' + '0' * 400


def command_line(rng: random.Random) -> None:
  """Parse a random command line: every option of a command gets any value."""
  name = rng.choice(list(main.COMMANDS))
  parser = main.argparse.ArgumentParser()
  main._module(name).add_arguments(parser)
  known = [option for action in parser._actions for option in action.option_strings if option not in ('-h', '--help')]
  known += ['--x', '--config.seed', '--workdir']
  words = [f'{rng.choice(known)}={value(rng)}' for _ in range(rng.randint(1, 3))]
  needed = [f'{action.option_strings[0]}=x' for action in parser._actions if action.required and action.option_strings]
  with contextlib.suppress(SystemExit):
    main.parse([name, *needed, *(words if rng.random() < 0.9 else [value(rng)])])


def literal(rng: random.Random) -> None:
  cast.parse(value(rng) * rng.choice((1, 1, 3)))


# Importers


def importer(folder: pathlib.Path, **options: Any) -> Any:
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(convert, 'write', lambda *_: None)
    patch.setattr(convert, '_complete', lambda run, params: (params, []))
    return convert.import_run(str(folder), folder / 'run', **options)


bare = functools.partial(importer, with_tokenizer=False)


def zeros(name: str, **sizes: int) -> tuple[Any, Any]:
  """Return (Config, parameters of zeros) of a model, without compiling anything."""
  model = registry.get(name)
  cfg = model.Config(**sizes)
  shapes = jax.eval_shape(lambda: model.init(cfg, jax.random.key(0)))
  return cfg, {'model': jax.tree.map(lambda x: np.zeros(x.shape, np.float32), shapes), 'objective': {}}


def importers() -> dict[str, Target]:
  found = {}
  tokenizer = build.train('bpe', ['a b c the cat sat'] * 9, vocab_size=270)
  for name, architecture in (('gpt2', ''), ('bert', ''), ('gpt', ''), ('gpt2', 'GPT2ForSequenceClassification')):
    cfg, params = zeros(name, V=tokenizer.vocab_size, T=8, D=8, H=2, N=1)
    of = huggingface.family(name)
    settings = {'model_type': of.TYPE, **of.config(cfg)}
    tensors = huggingface.to_hf(name, cfg, params)
    if architecture:
      settings |= {'architectures': [architecture], 'id2label': {'0': 'a', '1': 'b'}, 'num_labels': 2}
      tensors['score.weight'] = np.zeros((2, 8), np.float32)
    files = {'config.json': json.dumps(settings).encode(), 'model.safetensors': safetensors.numpy.save(tensors)}
    found[f'import {name} {architecture}'] = Target(bare, files, 5)
    if name == 'gpt2':
      vocabulary = json.loads(tokenizer._model.to_str())
      files |= {
        'tokenizer.json': json.dumps(vocabulary).encode(),
        'tokenizer_config.json': json.dumps(
          {'tokenizer_class': 'GPT2Tokenizer', 'model_max_length': 8, 'add_prefix_space': False}
        ).encode(),
      }
      found[f'import {name} {architecture} with its tokenizer'] = Target(importer, files, 3)
  index = {'metadata': {}, 'weight_map': dict.fromkeys(tensors, 'part.safetensors')}
  sharded = {
    'config.json': files['config.json'],
    'part.safetensors': files['model.safetensors'],
    'model.safetensors.index.json': json.dumps(index).encode(),
  }
  found['import shards'] = Target(bare, sharded, 3)
  cfg, params = zeros('bert', V=9, T=8, D=8, H=2, N=1)
  of = huggingface.family('bert')
  vocabulary = b'[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##c\nd\n'
  settings = {'model_type': 'bert', **of.config(cfg)}
  found['import vocab.txt'] = Target(
    importer,
    {
      'config.json': json.dumps(settings).encode(),
      'vocab.txt': vocabulary,
      'model.safetensors': safetensors.numpy.save(huggingface.to_hf('bert', cfg, params)),
      'tokenizer_config.json': b'{"do_lower_case": true, "strip_accents": null, "unk_token": "[UNK]"}',
      'special_tokens_map.json': b'{"unk_token": "[UNK]", "cls_token": {"content": "[CLS]"}}',
      'added_tokens.json': b'{"[MASK]": 4}',
    },
    5,
  )
  shapes = [
    [8, 64],
    [9, 64],
    *([1, 64, 192], [192], [1, 64, 64], [64], [64], [64], [1, 64, 256], [256], [1, 256, 64], [64], [64], [64]),
  ]
  numbers = io.BytesIO()
  np.save(numbers, np.zeros(sum(map(math.prod, shapes)), np.float32))
  found['import OpenAI'] = Target(
    lambda folder: openai.read(folder) if openai.is_release(folder) else None,
    {'params_shapes.json': json.dumps(shapes).encode(), 'params_0.npy': numbers.getvalue()},
    2,
  )
  settings = {
    'vocab_size': 9,
    'hidden_size': 8,
    'num_hidden_layers': 1,
    'num_attention_heads': 2,
    'hidden_act': 'gelu',
    'intermediate_size': 32,
    'max_position_embeddings': 8,
    'type_vocab_size': 2,
  }
  released = {'bert_config.json': json.dumps(settings).encode(), 'vocab.txt': vocabulary}
  found['import TensorFlow'] = Target(importer, released, 2)
  options = {
    'lstm': {
      'use_skip_connections': True,
      'projection_dim': 4,
      'cell_clip': 3,
      'proj_clip': 3,
      'dim': 8,
      'n_layers': 2,
    },
    'char_cnn': {
      'activation': 'relu',
      'filters': [[1, 4], [2, 4]],
      'n_highway': 1,
      'embedding': {'dim': 4},
      'n_characters': 262,
      'max_characters_per_token': 50,
    },
  }
  found['import ELMo'] = Target(
    elmo.read,
    {'options.json': json.dumps(options).encode(), 'weights.hdf5': b'\x89HDF\r\n\x1a\n'},
    2,
  )
  return found


# One case


RESOLVED = [resolve.resolve(given) for given in CONFIGS]
GENERATED = {'overrides': (overrides, 8), 'command line': (command_line, 8), 'literal': (literal, 3)}


@pytest.fixture(scope='module')
def targets(tmp_path_factory) -> dict[str, Target]:
  return readers() | work_directories(tmp_path_factory.mktemp('made')) | importers()


def case(seed: int, targets: Mapping[str, Target], folder: pathlib.Path) -> str:
  """Try one damaged input; return '' or what went wrong."""
  rng = random.Random(seed)
  weights = [target.weight for target in targets.values()] + [weight for _, weight in GENERATED.values()]
  (name,) = rng.choices([*targets, *GENERATED], weights)
  if name in GENERATED:
    return outcome(name, seed, lambda: GENERATED[name][0](rng))
  place = folder / str(seed)
  changed = rng.choice(list(targets[name].files))
  for file, content in targets[name].files.items():
    (place / file).parent.mkdir(parents=True, exist_ok=True)
    if file != changed:
      (place / file).write_bytes(content)
    elif rng.random() < 0.97:
      (place / file).write_bytes(damage(rng, content))
  return outcome(f'{name}: {changed}', seed, lambda: targets[name].read(place))


def outcome(name: str, seed: int, read: Callable[[], Any]) -> str:
  """Return '' if `read` ends in a result or an InputError, else the exception."""

  def stop(*_: Any) -> None:
    raise TimeoutError(f'no end after {SECONDS} seconds')

  before = signal.signal(signal.SIGALRM, stop)
  signal.alarm(SECONDS)
  try:
    with warnings.catch_warnings(action='ignore'), open(os.devnull, 'w') as silent, contextlib.redirect_stderr(silent):
      with contextlib.redirect_stdout(silent):
        read()
  except InputError as error:
    return '' if len(str(error)) < 6_000 else f'seed {seed}, {name}: a message of {len(str(error)):,} characters'
  except BaseException as error:  # panics of Rust libraries are BaseExceptions
    if isinstance(error, KeyboardInterrupt):
      raise
    return f'seed {seed}, {name}: {type(error).__name__}: {str(error)[:200]}'
  finally:
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
  return ''


WITHOUT_WEIGHTS = ('import TensorFlow', 'import ELMo')  # which take a library to write


def test_intact_files_are_accepted(targets, tmp_path):
  for number, (name, target) in enumerate(targets.items()):
    place = tmp_path / str(number)
    for file, content in target.files.items():
      (place / file).parent.mkdir(parents=True, exist_ok=True)
      (place / file).write_bytes(content)
    with warnings.catch_warnings(action='ignore'):
      try:
        target.read(place)
      except InputError as error:
        assert name in WITHOUT_WEIGHTS, f'{name}: {error}'


def run(seeds: range, targets: Mapping[str, Target], folder: pathlib.Path) -> None:
  wrong = [found for seed in seeds if (found := case(seed, targets, folder))]
  assert not wrong, f'{len(wrong)} of {len(seeds)}:\n' + '\n'.join(wrong)


def test_fuzzed_input_ends_in_input_error_or_result(targets, tmp_path):
  began = time.process_time()
  run(range(800), targets, tmp_path)
  assert time.process_time() - began < 12


@pytest.mark.slow
def test_40_000_characters_are_predicted(targets, tmp_path):
  run(range(10_000, 50_000), targets, tmp_path)
