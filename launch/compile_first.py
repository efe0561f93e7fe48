"""`--compile_first`: compile the training step for the machines, here, before they are rented (`lmx compile`)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from launch import accelerators, command
from lmx.compilation import cards
from lmx.compilation.slices import GENERATIONS
from lmx.errors import InputError
from lmx.redaction import redact


def compile_command(words: Sequence[str], slice_: accelerators.Slice, number: int = 1, flags: str = '') -> list[str]:
  """Return the `lmx compile` of a training on TPU slices or on a machine with GPUs.

  Args:
    words: the lmx command to launch.
    slice_: the slice or machine.
    number: how many of it.
    flags: value of --flags, '' for none.

  Raises:
    InputError: the command trains nothing, or XLA does not compile for the accelerator.
  """
  if not words or words[0] != 'train':
    raise InputError(
      f'--compile_first: got `lmx {" ".join(words[:1])}`; expected `lmx train`; leave --compile_first out'
    )
  name, times = slice_.name.rpartition('-')[0], f'{number}x' if number > 1 else ''
  if name in GENERATIONS:
    topology = f'{times}{GENERATIONS[name]}:{slice_.topology}'
  elif name in cards.GOOGLE and number == 1:
    topology = f'{cards.GOOGLE[name]}x{slice_.devices}'
  else:
    known = f'a TPU of {", ".join(GENERATIONS)} or one machine of {", ".join(cards.GOOGLE)}'
    got = slice_.name if number == 1 else f'{number} of {slice_.name}'
    raise InputError(f'--compile_first: got {got}; expected {known}; leave --compile_first out')
  options = [f'--flags={flags}'] if flags else []
  return ['compile', f'--topology={topology}', *options, *command.config_options(words[1:])]


def check(words: Sequence[str], slice_: accelerators.Slice, number: int = 1, flags: str = '', *, dry_run: bool) -> None:
  """Compile the step of a training for slices or a machine, or with `dry_run` print the command.

  Raises:
    InputError: the step does not compile or does not fit.
  """
  words = compile_command(words, slice_, number, flags)
  command.write(f'lmx {redact(shlex.join(words))}')
  # Through this process, because the compilation would end if its own output were gone.
  if not dry_run and command.Runner().follow([sys.executable, *command.MODULE, *words]):
    raise InputError(
      '--compile_first: the training step does not compile for the machines or does not fit; nothing was rented'
    )
