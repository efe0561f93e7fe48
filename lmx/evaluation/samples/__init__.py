"""Samples of a finished run: text, masked tokens, nearest words, translations, memory plots or images.

`SAMPLES` of an objective names a file of this folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lmx import objectives
from lmx.config import schema
from lmx.data.corpus import Corpus
from lmx.engine import precision
from lmx.errors import InputError
from lmx.registry import Registry
from lmx.types import Params


class Trained(NamedTuple):
  """A trained run whose samples are shown.

  Attributes:
    run: the run.
    corpus: its data.
    params: {'model': ..., 'objective': ...}, unsharded on one device.
    outputs: translations of the evaluated split; () translates its first pairs.
    workdir: work directory of the run.
    prompts: the possible prompts.
  """

  run: schema.Run
  corpus: Corpus
  params: Params
  outputs: Sequence[Any]
  workdir: Any
  prompts: Sequence[str] = ()


class Samples:
  """Interface of a file of this folder. `get` adds the defaults below to the names of the file.

  Attributes:
    PROMPTS: samples begin with `samples.prompts`.
  """

  PROMPTS: bool = False

  def check(self, run: schema.Run, corpus: Any) -> None:
    """Raise InputError for settings that would fail in `generate`, after the training."""

  def check_prompt(self, run: schema.Run, corpus: Any, prompt: str) -> None:
    """Raise InputError if no sample can begin with a prompt."""

  def generate(self, trained: Trained) -> Iterable[str]:
    """Yield the samples as text; pictures are written to the work directory."""
    return ()


_registry = Registry(__name__, 'samples', Samples)


def _samples(run: schema.Run) -> Samples:
  kind = objectives.get(run.objective_name).SAMPLES
  return _registry.get(kind) if kind and run.samples.count else Samples()


def select_prompts(run: schema.Run, corpus: Any) -> tuple[list[str], list[str]]:
  """Return the prompts that are in a run's vocabulary, and a note on default ones that are not.

  Raises:
    InputError: one of `samples.prompts` is not in the vocabulary, or the samples are too many or too long.
  """
  samples = _samples(run)
  samples.check(run, corpus)
  if not samples.PROMPTS:
    return [], []
  possible, refused = [], []
  for prompt in run.samples.prompts or run.samples.default_prompts:
    try:
      samples.check_prompt(run, corpus, prompt)
      possible.append(prompt)
    except InputError as error:
      if run.samples.prompts:
        raise InputError(f'samples.prompts: got "{prompt}"; {error}') from None
      refused.append(prompt)
  names = ', '.join(f'"{prompt}"' if prompt else 'end-of-text token to begin after' for prompt in refused)
  return possible, [f'samples: the vocabulary has no {names}; choose others with samples.prompts'] if refused else []


@precision.run_scope
def generate_samples(run: schema.Run, corpus: Corpus, params: Params, outputs: Sequence[Any], workdir: Any) -> str:
  """Return the samples of a run as text, '' if there are none; see `Trained`."""
  samples = _samples(run)
  prompts = select_prompts(run, corpus)[0] if samples.PROMPTS else []
  return '\n\n----\n\n'.join(samples.generate(Trained(run, corpus, params, outputs, workdir, prompts)))
