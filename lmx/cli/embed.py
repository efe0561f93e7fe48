"""`lmx embed --workdir=DIR --input=FILE --output=FILE.npz|.hdf5`: embeddings from all layers for lines of text.

For line i (from 0) the output has a float32 array `i` of shape (layers, tokens, width), the embeddings first, and its
tokens as `i_tokens`. BERT reads a line as [CLS] text [SEP], XLNet as text <sep> <cls>. GPT-2's last layer is before its
final layer norm. If the layers have different widths, it has arrays `i_layer_j` of shape (tokens, width) instead.
numpy.load reads the .npz file, h5py the .hdf5 file. `--workdir` may also be what `lmx import` reads, such as an ELMo
release.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import zipfile
from collections.abc import Callable, Iterator

import numpy as np

from lmx import ranges
from lmx.cli import which
from lmx.errors import InputError, explain

Write = Callable[[str, np.ndarray], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a trained run, or an ELMo release')
  parser.add_argument('--input', required=True, help='text file with one sentence or document per line')
  parser.add_argument('--output', required=True, help='file to write, .npz or .hdf5')
  parser.add_argument(
    '--batch', type=ranges.integer(1, 1_000_000), default=32, help='lines per batch (default %(default)s)'
  )
  parser.add_argument('--carry', action='store_true', help='one text: each line continues from the previous state')
  parser.add_argument(
    '--special_tokens',
    choices=('read', 'return', 'none'),
    default='',
    help="for BERT and XLNet: 'read' adds them to each line (default), 'return' also returns their vectors, 'none' "
    'reads only the text (default with --carry)',
  )
  which.add_argument(parser)


def run(args: argparse.Namespace) -> int:
  tokens = 0
  with contextlib.ExitStack() as stack:
    write = stack.enter_context(_writer(args.output))
    lines = _lines(args.input)
    from lmx import inference  # imports JAX
    from lmx.reporting import waiting

    loaded = inference.load(args.workdir, args.which, args.overrides)
    embedded = loaded.embed(lines, batch=args.batch, carry=args.carry, special_tokens=args.special_tokens)
    for number, (words, layers) in enumerate(waiting.bar(embedded, 'embed', len(lines), ' lines')):
      write(f'{number}_tokens', np.asarray(words, np.str_))
      if len({layer.shape[-1] for layer in layers}) == 1:
        write(str(number), np.stack(layers))
      else:
        for j, layer in enumerate(layers):
          write(f'{number}_layer_{j}', layer)
      tokens += len(words)
  print(f'wrote {args.output}: {len(lines):,} lines, {tokens:,} tokens')
  return 0


def _lines(path: str) -> list[str]:
  from lmx import documents

  return [line.rstrip('\n') for line in documents.read_lines(path)]


@contextlib.contextmanager
def _writer(path: str) -> Iterator[Write]:
  """Yield a function that adds a named array to the file; the file is renamed into place when complete."""
  part = f'{path}.part'
  try:
    if path.endswith('.npz'):
      with zipfile.ZipFile(part, 'w', zipfile.ZIP_STORED) as archive:

        def add(name: str, value: np.ndarray) -> None:
          with archive.open(f'{name}.npy', 'w', force_zip64=True) as file:
            np.lib.format.write_array(file, np.asarray(value), allow_pickle=False)

        yield add
    elif path.endswith(('.hdf5', '.h5')):
      from lmx.interop.elmo import import_h5py

      h5py = import_h5py()
      text = h5py.string_dtype()
      with h5py.File(part, 'w') as file:
        yield lambda name, value: file.create_dataset(
          name,
          data=value.astype(object) if value.dtype.kind == 'U' else value,
          dtype=text if value.dtype.kind == 'U' else value.dtype,
        )
    else:
      raise InputError(f'--output: got {path}; expected a name that ends in .npz or .hdf5')
    os.replace(part, path)
  except OSError as error:
    raise InputError(f'{path}: cannot be written ({explain(error)})') from error
  finally:
    if os.path.exists(part):
      os.remove(part)
