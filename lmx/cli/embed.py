"""`lmx embed --workdir=DIR --input=FILE --output=FILE.npz|.hdf5`: all layers of the words of a text's lines.

The output has for line i (from 0) an array named `i` of shape (layers, tokens, width), the embeddings first, float32,
and its tokens as `i_tokens`; where the layers have different widths, arrays `i_layer_j` of shape (tokens, width). The
.npz file is read with numpy.load, the .hdf5 file with h5py. `--workdir` may also be a directory with the two files of
an ELMo release.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lmx.errors import InputError

_ROUND = 16  # tokens of a row are rounded up to this, so that few shapes are compiled
Write = Callable[[str, np.ndarray], None]
Line = tuple[list[str], dict[str, np.ndarray]]  # tokens, and what a batch holds of them


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a trained run, or an ELMo release')
  parser.add_argument('--input', required=True, help='text file, a sentence or document a line')
  parser.add_argument('--output', required=True, help='file to write, .npz or .hdf5')
  parser.add_argument('--batch', type=int, default=32, help='lines at a time (default %(default)s)')
  parser.add_argument('--carry', action='store_true', help='one text: a line goes on from the state before it')
  parser.add_argument('--which', default='best', help='checkpoint: best, last or a step (default %(default)s)')


def run(args: argparse.Namespace) -> int:
  from tqdm import tqdm

  if args.batch < 1:
    raise InputError(f'--batch is {args.batch}; it must be at least 1')
  with contextlib.ExitStack() as stack:
    write = stack.enter_context(_writer(args.output))
    model, cfg, params, read = _model(args.workdir, args.which)
    lines = [read(line, number) for number, line in enumerate(_lines(args.input), 1)]
    size = 1 if args.carry else args.batch
    tokens = sum(len(line[0]) for line in lines)
    with tqdm(total=tokens, unit=' tokens', unit_scale=True, disable=None) as progress:
      for number, (words, layers) in enumerate(embedded(model, cfg, params, lines, size, carry=args.carry)):
        write(f'{number}_tokens', np.asarray(words, np.str_))
        if len({layer.shape[-1] for layer in layers}) == 1:
          write(str(number), np.stack(layers))
        else:
          for j, layer in enumerate(layers):
            write(f'{number}_layer_{j}', layer)
        progress.update(len(words))
  print(f'{len(lines):,} lines, {tokens:,} tokens: {args.output}')
  return 0


def embedded(
  model: Any, cfg: Any, params: Any, lines: Sequence[Line], size: int, *, carry: bool = False
) -> Iterator[tuple[list[str], list[np.ndarray]]]:
  """Yields (tokens, layers, each (tokens, width) float32) of each line in order.

  Args:
    model: module of a model.
    cfg: its Config.
    params: its parameters, without an objective's.
    lines: what `_model` reads.
    size: lines of a batch.
    carry: go on from the state of the line before; needs `size` 1.
  """
  import functools

  import jax

  state = model.init_state(cfg, size)
  apply = jax.jit(functools.partial(model.apply, cfg, all_layers=True))
  for start in range(0, len(lines), size):
    some = lines[start : start + size]
    longest = max(len(words) for words, _ in some)
    features, after = apply(params, _batch(some, size, max(-(-longest // _ROUND) * _ROUND, _ROUND), cfg), state)
    state = after if carry else state
    layers = [np.asarray(layer, np.float32) for layer in features.layers]
    for row, (words, _) in enumerate(some):
      yield words, [layer[row, : len(words)] for layer in layers]


def _batch(lines: Sequence[Line], rows: int, length: int, cfg: Any) -> dict[str, np.ndarray]:
  """Rows padded on the right; the positions of a model are not exceeded."""
  from lmx import decode

  length = min(length, decode.window(cfg) or length)
  batch = {'valid_BT': np.zeros((rows, length), bool)}
  for b, (words, arrays) in enumerate(lines):
    batch['valid_BT'][b, : len(words)] = True
    for name, value in arrays.items():
      whole = batch.setdefault(name, np.zeros((rows, length, *value.shape[1:]), np.int32))
      whole[b, : len(words)] = value
  return batch


def _model(workdir: str, which: str) -> tuple[Any, Any, Any, Callable[[str, int], Line]]:
  """(model, config, parameters, reader of a line) of a run or a release."""
  from lmx import decode, restored
  from lmx.data import spelling
  from lmx.data import words as word_rules
  from lmx.models import registry

  def spelled(line: str, rule: str, lower_case: bool, characters: int) -> Line:
    words = [word for word in word_rules.split(line, rule, lower_case) if word not in ('\n', '<eos>')]
    letters = spelling.spell([word.encode('utf-8', 'replace') for word in words], characters)
    return words, {'characters_BTC': letters.reshape(len(words), characters)}

  if not os.path.exists(os.path.join(workdir, 'config.json')) and list(pathlib.Path(workdir).glob('*options.json')):
    from lmx.interop import elmo as release

    fields, body = release.from_release(*release.find(workdir))
    model = registry.get('elmo')
    return model, model.Config(V=3, **fields), body, lambda line, _: spelled(line, 'space', False, 50)
  loaded = restored.load(workdir, which)
  tokenizer, limit = loaded.tokenizer, decode.window(loaded.cfg)

  def read(line: str, number: int) -> Line:
    ids = tokenizer.encode(line)
    if getattr(loaded.model, 'READS', '') == 'characters':
      words, arrays = spelled(line, tokenizer.rule, tokenizer.lower_case, loaded.run.data.characters)
      arrays['tokens_BT'] = spelling.of(tokenizer, loaded.run.data.characters).ids(ids[: len(words)])
    else:
      words, arrays = tokenizer.pieces(ids), {'tokens_BT': ids}
    if limit and len(words) > limit:
      raise InputError(f'line {number} has {len(words)} tokens, but the model has only {limit} positions; divide it')
    return words, arrays

  return loaded.model, loaded.cfg, loaded.params['model'], read


def _lines(path: str) -> list[str]:
  from lmx.data.builders import files

  if not os.path.isfile(path):
    raise InputError(f'there is no file {path}')
  return [line.rstrip('\n') for line in files.read_lines(path)]


@contextlib.contextmanager
def _writer(path: str) -> Iterator[Write]:
  """Gives a function that adds a named array to the file; the file appears, whole, at the end."""
  part = f'{path}.part'
  try:
    if path.endswith('.npz'):
      with zipfile.ZipFile(part, 'w', zipfile.ZIP_STORED) as archive:

        def add(name: str, value: np.ndarray) -> None:
          with archive.open(f'{name}.npy', 'w', force_zip64=True) as file:
            np.lib.format.write_array(file, np.asarray(value), allow_pickle=False)

        yield add
    elif path.endswith(('.hdf5', '.h5')):
      from lmx.interop.elmo import h5py_or_advice

      h5py = h5py_or_advice()
      text = h5py.string_dtype()
      with h5py.File(part, 'w') as file:
        yield lambda name, value: file.create_dataset(
          name, data=value.astype(object) if value.dtype.kind == 'U' else value,
          dtype=text if value.dtype.kind == 'U' else value.dtype,
        )  # fmt: skip
    else:
      raise InputError(f'--output is {path}; its name must end in .npz or .hdf5')
    os.replace(part, path)
  except OSError as error:
    raise InputError(f'{path}: cannot be written ({error.strerror or error})') from error
  finally:
    if os.path.exists(part):
      os.remove(part)
