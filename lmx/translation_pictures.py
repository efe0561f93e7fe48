"""Pictures of translations: where each word looked, and the score by the length of the source."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.errors import InputError


def alignment(path: Any, a_TS: np.ndarray, source: Sequence[str], target: Sequence[str]) -> None:
  """Draws the weights of one pair of sentences as figure 3 of Bahdanau et al. 2015: black 0, white 1.

  Args:
    path: image file to write.
    a_TS: weights, a row for each word of the target.
    source: its words, along the top.
    target: its words, down the side.
  """
  from matplotlib.figure import Figure  # half a second that other commands need not pay

  T, S = a_TS.shape
  figure = Figure(figsize=(2 + 0.28 * S, 1.6 + 0.28 * T), layout='constrained')
  axes = figure.add_subplot()
  axes.imshow(a_TS, cmap='gray', vmin=0, vmax=1, aspect='equal', interpolation='nearest')
  axes.set_xticks(np.arange(S), [_plain(word) for word in source], rotation=90)
  axes.set_yticks(np.arange(T), [_plain(word) for word in target])
  axes.xaxis.tick_top()
  axes.tick_params(length=0)
  _save(figure, path)


def by_length(path: Any, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
  """Draws BLEU by the words of the source, a line for each model, as figure 2 of Bahdanau et al. 2015.

  Args:
    path: image file to write.
    rows: name of the model -> what `lmx.metrics.translation.bleu_by_length` found.
  """
  from matplotlib.figure import Figure

  figure = Figure(figsize=(6, 4), layout='constrained')
  axes = figure.add_subplot()
  labels = {(row['above'], row['up_to'] or np.inf): _range(row) for found in rows.values() for row in found}
  places = {key: x for x, key in enumerate(sorted(labels))}
  for name, found in rows.items():
    x = [places[row['above'], row['up_to'] or np.inf] for row in found]
    axes.plot(x, [row['bleu'] for row in found], marker='o', label=_plain(name), clip_on=False)
  axes.set_xticks(list(places.values()), [labels[key] for key in places])
  axes.set(xlabel='words of the source', ylabel='BLEU', ylim=(0, None))
  axes.legend(frameon=False)
  _save(figure, path)


def _range(row: Mapping[str, Any]) -> str:
  return f'over {row["above"]}' if row['up_to'] is None else f'{row["above"] + 1}-{row["up_to"]}'


def _plain(text: str) -> str:
  return text.replace('$', r'\$')  # else a formula begins there


def _save(figure: Any, path: Any) -> None:
  try:
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(str(path), dpi=120)
  except (OSError, ValueError) as error:
    raise InputError(f'cannot write {path}: {error}') from None
