"""`--compile_first`: compile the training step for the slice, here, before the slice is rented (`lmx compile`)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from launch import accelerators, command
from lmx.errors import InputError
from lmx.redaction import redact

GENERATIONS = {'v4': 'v4', 'v5litepod': 'v5e', 'v5p': 'v5p', 'v6e': 'v6e'}  # Google's name -> name in lmx compile


def compile_command(words: Sequence[str], slice_: accelerators.Slice, slices: int = 1) -> list[str]:
  """Return the `lmx compile` of a training on a slice or several.

  Args:
    words: the lmx command to launch.
    slice_: the slice.
    slices: their number.

  Raises:
    InputError: the command trains nothing, or XLA does not compile for the accelerator.
  """
  if not words or words[0] != 'train':
    raise InputError(
      f'--compile_first: got `lmx {" ".join(words[:1])}`; expected `lmx train`; leave --compile_first out'
    )
  generation = GENERATIONS.get(slice_.name.rpartition('-')[0])
  if generation is None:
    known = ', '.join(GENERATIONS)
    raise InputError(f'--compile_first: got {slice_.name}; expected a TPU of {known}; leave --compile_first out')
  times = f'{slices}x' if slices > 1 else ''
  return ['compile', f'--topology={times}{generation}:{slice_.topology}', *command.config_options(words[1:])]


def check(words: Sequence[str], slice_: accelerators.Slice, slices: int = 1, *, dry_run: bool) -> None:
  """Compile the step of a training for a slice or several, or with `dry_run` print the command.

  Raises:
    InputError: the step does not compile or does not fit.
  """
  words = compile_command(words, slice_, slices)
  command.write(f'lmx {redact(shlex.join(words))}')
  # Through this process, because the compilation would end if its own output were gone.
  if not dry_run and command.Runner().follow([sys.executable, *command.MODULE, *words]):
    raise InputError(
      '--compile_first: the training step does not compile for the slice or does not fit; nothing was rented'
    )
