"""Fine-tuning of a small BERT as a whole process, alternating with transformers' Trainer.

Both start an interpreter, read a folder of random weights (the sizes of the MiniLM in docs/notes/fine_tuning.md: 6
layers of 384, 22.9M parameters) and tables of synthetic text pairs (about 28 tokens per row with a long tail, as in
STS-B), train an epoch of batches of 32, save a checkpoint, validate, and evaluate 64 rows twice. `fine_tuning` compiles
everything. `fine_tuning_again` repeats it with a warm compilation cache (docs/hardware.md). The peer compiles nothing
and is the same in both rows. `details` has the training time without the rest, to estimate longer epochs.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np

from lmx import host, records
from lmx.benchmark import made_up_text, row, whole_process
from lmx.benchmark.peer import environment, script

PACKAGES = ('torch', 'transformers:Trainer', 'transformers:BertForSequenceClassification', 'accelerate')
PRESETS = ('fine_tuning',)
BATCH, LENGTH, EVALUATED = 32, 128, 64
SIZES = {
  'vocab_size': 30_522,
  'hidden_size': 384,
  'num_hidden_layers': 6,
  'num_attention_heads': 12,
  'intermediate_size': 1536,
  'max_position_embeddings': 512,
  'type_vocab_size': 2,
}
_SPECIAL = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']


def measure(name: str, rounds: int, python: str | None, rows: int) -> list[row.Row]:
  """Return the rows; an epoch has `rows` rows."""
  names = (name, f'{name}_again')
  ours: dict[str, list[whole_process.Finished]] = {each: [] for each in names}
  theirs: list[whole_process.Finished] = []
  training: dict[str, float] = {}
  with tempfile.TemporaryDirectory() as directory:
    folder = pathlib.Path(directory)
    write_model(folder / 'model')
    write_data(folder / 'data', rows)
    lmx = [sys.executable, '-m', 'lmx']
    whole_process.run([*lmx, 'import', f'--from={folder / "model"}', f'--workdir={folder / "start"}'])
    for i in range(rounds):
      keep = {**os.environ, 'LMX_COMPILATION_CACHE': str(folder / f'programs{i}')}
      for each in names:
        workdir = folder / f'{each}{i}'
        ours[each].append(whole_process.run([*lmx, *_command(folder, workdir)], keep))
        training[each] = records.read_results(workdir)['training_seconds']
      if python:
        arguments = [str(folder / 'model'), str(folder / 'data'), str(BATCH), str(LENGTH), str(host.cores())]
        theirs.append(whole_process.run([python, script('trainer_epoch.py'), *arguments], environment()))
  about = theirs[-1].answer() if theirs else None
  details = {'rows': rows, 'updates': rows // BATCH}
  if about:
    details['their_training_seconds'] = about.pop('training_seconds')
  seconds = lambda runs: [done.seconds for done in runs]
  return [
    row.make(
      each,
      's',
      seconds(ours[each]),
      seconds(theirs),
      peaks=(whole_process.peak(ours[each]), whole_process.peak(theirs)),
      peer=about,
      details={**details, 'our_training_seconds': training[each]},
    )
    for each in names
  ]


def _command(folder: pathlib.Path, workdir: pathlib.Path) -> list[str]:
  settings = {
    'train.init_from': folder / 'start',
    'data.manual_dir': folder / 'data',
    'data.cache_dir': folder / f'{workdir.name}-cache',
    'data.texts': "('sentence1','sentence2')",
    'data.label': 'label',
    'evaluation.split': 'valid',
  }
  config = '--config=experiments/bert/tasks.py:own,adam=corrected,epochs=1,lr=1e-4'
  return ['train', config, f'--workdir={workdir}', *(f'--config.{key}={value}' for key, value in settings.items())]


def write_model(folder: pathlib.Path) -> None:
  """Write a folder as transformers reads it: sizes, vocabulary and random weights."""
  from safetensors.numpy import save_file

  folder.mkdir()
  words = made_up_text.words(SIZES['vocab_size'] - len(_SPECIAL)).tolist()
  config = {**SIZES, 'model_type': 'bert', 'architectures': ['BertModel'], 'hidden_act': 'gelu', 'pad_token_id': 0}
  settings = {'tokenizer_class': 'BertTokenizer', 'do_lower_case': True, 'model_max_length': 512}
  (folder / 'config.json').write_text(json.dumps(config), encoding='utf-8')
  (folder / 'tokenizer_config.json').write_text(json.dumps(settings), encoding='utf-8')
  (folder / 'vocab.txt').write_text('\n'.join([*_SPECIAL, *words]) + '\n', encoding='utf-8')
  save_file(_weights(), folder / 'model.safetensors', {'format': 'pt'})


def _weights() -> dict[str, np.ndarray]:
  D, F = SIZES['hidden_size'], SIZES['intermediate_size']
  random = np.random.default_rng(0)
  weights: dict[str, np.ndarray] = {}

  def add(name: str, *shape: int, bias: bool = True) -> None:
    weights[f'{name}.weight'] = (0.02 * random.standard_normal(shape)).astype(np.float32)
    if bias:
      weights[f'{name}.bias'] = np.zeros(shape[0], np.float32)

  def add_norm(name: str) -> None:
    weights[f'{name}.weight'], weights[f'{name}.bias'] = np.ones(D, np.float32), np.zeros(D, np.float32)

  for name, size in (
    ('word', 'vocab_size'),
    ('position', 'max_position_embeddings'),
    ('token_type', 'type_vocab_size'),
  ):
    add(f'embeddings.{name}_embeddings', SIZES[size], D, bias=False)
  add_norm('embeddings.LayerNorm')
  for i in range(SIZES['num_hidden_layers']):
    layer = f'encoder.layer.{i}'
    for name in ('self.query', 'self.key', 'self.value', 'output.dense'):
      add(f'{layer}.attention.{name}', D, D)
    add(f'{layer}.intermediate.dense', F, D)
    add(f'{layer}.output.dense', D, F)
    add_norm(f'{layer}.attention.output.LayerNorm')
    add_norm(f'{layer}.output.LayerNorm')
  add('pooler.dense', D, D)
  return weights


def write_data(folder: pathlib.Path, rows: int) -> None:
  """Write train.tsv with `rows` rows, and valid.tsv and test.tsv."""
  folder.mkdir()
  types = SIZES['vocab_size'] - len(_SPECIAL)
  random, words = np.random.default_rng(1), made_up_text.words(types)

  def text() -> str:
    length = max(3, int(random.lognormal(np.log(11.0), 0.5)))
    return ' '.join(words[made_up_text.ranks(random, length, types, 1.0)])

  for name, count in (('train', rows), ('valid', EVALUATED), ('test', EVALUATED)):
    lines: list[Any] = ['sentence1\tsentence2\tlabel']
    lines += [f'{text()}\t{text()}\t{("different", "equal")[i % 2]}' for i in range(count)]
    (folder / f'{name}.tsv').write_text('\n'.join(lines) + '\n', encoding='utf-8')
