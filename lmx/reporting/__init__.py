"""Log of a run, its pictures and reports; here the `log` section of a config, without JAX."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from lmx import ranges
from lmx.errors import InputError, check_choice

TRACKERS = ('wandb', 'mlflow')
COLOURS = 6  # of curves, in html_report/style.css: the most runs on one page


@dataclasses.dataclass(frozen=True)
class Config:
  """Trackers besides TensorBoard, the `log` section; they never change what is computed.

  Attributes:
    to: trackers, of 'wandb' (Weights & Biases) and 'mlflow'; each needs the extra of its name.
    project: project of W&B; experiment of MLflow.
    run: name of the run there; '' is the work directory's name.
    group: group of the run in W&B, and its tag `group` in MLflow; '' for none. Sweeps and pipelines set their own.
    tags: tags of the run; in MLflow, 'key=value' is a tag with a value.
    mlflow_uri: tracking URI of MLflow, or a directory; '' takes MLFLOW_TRACKING_URI, by default `mlruns` in the work
      directory.
  """

  to: tuple[str, ...] = ()
  project: str = 'lmx'
  run: str = ''
  group: str = ''
  tags: Annotated[tuple[Annotated[str, ranges.Text()], ...], ranges.Distinct()] = ()
  mlflow_uri: str = ''

  def __post_init__(self) -> None:
    for name in self.to:
      check_choice('log.to', name, TRACKERS)
    if self.to and not self.project:
      raise InputError('log.project: got no name; expected one, such as "lmx"')
