"""Initialisation of a run from the parameters of a finished one: `train.init_from`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from lmx import storage
from lmx.config import run_files, schema
from lmx.data import labels as labels_lib
from lmx.data.corpus import Corpus
from lmx.data.tokenizers import word_characters
from lmx.errors import InputError
from lmx.models import registry
from lmx.runs import restore
from lmx.types import Array, Params


def take(run: schema.Run, shapes: Params, corpus: Corpus, key: Array) -> tuple[Params, str]:
  """Return the parameters of the finished run that `train.init_from` names; see `copy`."""
  del key
  _check_counted(run)
  names = labels_lib.label_names(corpus.manifest)
  return copy(run.train.init_from, shapes, run.train.init_parts, corpus.tokenizer, names)


def _check_counted(run: schema.Run) -> None:
  """Raise InputError if fields that follow from a training text are others than those of the finished run."""
  start = storage.path('train.init_from', run.train.init_from, storage.FOLDER)
  try:
    theirs = run_files.read_config(start)['model']
  except InputError:
    return  # `copy` reports it
  for name in registry.get(run.model_name).COUNTED if theirs.get('name') == run.model_name else ():
    if theirs.get(name) and tuple(theirs[name]) != getattr(run.model, name):
      raise InputError(
        f'model.{name}: got values of this training text; expected those of {start}, whose parameters depend on them; '
        'set train.like_init=true'
      )


def copy(
  workdir: Any, shapes: Params, parts: Sequence[str], tokenizer: Any, labels: Sequence[str] = ()
) -> tuple[Params, str]:
  """Return parameters of a finished run as initial values of another.

  Vocabulary rows (the leaves that the finished run's model names in VOCABULARY) are matched by token if the two
  tokenizers differ, and by id if the finished run has no tokenizer. A token unknown to the finished run gets the mean
  of its rows (Howard and Ruder 2018, released code). The head's label axes (the objective's `labelled`) are permuted
  to the order of this run's labels. Learned position embeddings (POSITIONS) are truncated if this run has fewer. If it
  has more, they are repeated from the first on (Beltagy et al. 2020, arXiv 2004.05150, section 5).

  Args:
    workdir: the finished run, whose best parameters are read.
    shapes: shapes of the new run's parameters.
    parts: 'part' or 'origin=target', each a prefix of names such as 'model' or 'model/encoder'; () takes all.
    tokenizer: the new run's tokenizer.
    labels: names of the new run's labels.

  Returns:
    (the leaves taken, as a nested dict; a line for the log).

  Raises:
    InputError: no run can be loaded, a leaf of a part is missing in it or has another shape, the vocabularies share no
      token, or the labels differ.
  """
  workdir = storage.path('train.init_from', workdir, storage.FOLDER)
  try:
    loaded = restore.load(workdir, 'best')
  except InputError as error:
    raise InputError(f'train.init_from: {error}') from None
  theirs = {'/'.join(path): x for path, x in flatten_dict(loaded.params).items()}
  ours = {'/'.join(path): x for path, x in flatten_dict(shapes).items()}
  source = _sources(workdir, parts, ours, theirs)
  by_word = {f'model/{name}' for name in loaded.model.VOCABULARY}
  by_position = {f'model/{name}' for name in loaded.model.POSITIONS}
  by_id = loaded.tokenizer.hash == tokenizer.hash or loaded.tokenizer.kind == 'none'
  of_source = {f'model/{name}' for name in loaded.model.SOURCE_VOCABULARY}

  @functools.cache
  def tokens(of_source: bool) -> list[list[str]]:
    """Return the finished run's tokens and this run's, of the source or of the target."""
    return [_tokens(loaded, one if of_source else one.target) for one in (loaded.tokenizer, tokenizer)]

  with_head = any(origin.startswith('objective/') for origin in source.values())
  heads = loaded.objective.labelled(loaded.run.objective) if with_head and loaded.labels else {}
  by_label = {f'objective/{name}': axes for name, axes in heads.items()}
  taken, wrong = {}, []
  for target, origin in source.items():
    x = np.asarray(theirs[origin])
    if origin in by_word and (not by_id or x.shape[0] != ours[target].shape[0]):
      known, own = tokens(origin in of_source)
      x = _by_word(x, _rows(known, own), len(known), ours[target].shape[0])
    if origin in by_position and x.shape[1:] == ours[target].shape[1:]:
      x = x[np.arange(ours[target].shape[0]) % x.shape[0]]
    if origin in by_label:
      x = _by_label(x, by_label[origin], loaded, labels)
    if x.shape != ours[target].shape:
      wrong.append(f'got {origin} {x.shape}; expected {target} {ours[target].shape}')
    taken[tuple(target.split('/'))] = x
  if wrong:
    raise InputError(f'train.init_from: parameters of {workdir} have other shapes: {", ".join(wrong[:5])}')
  note = f'initialised from step {loaded.step} of {workdir}: {len(taken)} of {len(ours)} arrays taken'
  position_counts = [
    (len(theirs[origin]), ours[target].shape[0]) for target, origin in source.items() if origin in by_position
  ]
  note += ''.join(f'; {new} positions of {old}' for old, new in position_counts if old != new)
  if not by_id and (read := by_word & set(source.values())):
    note += _matched(workdir, [_rows(*tokens(side)) for side in sorted({name in of_source for name in read})])
  return unflatten_dict(taken), note


def _matched(workdir: Any, rows_of: Sequence[np.ndarray]) -> str:
  """Return a part of the log line for the rows of each vocabulary; raise InputError if one has no common token."""
  note = ''
  for rows in rows_of[:1] if len({rows.tobytes() for rows in rows_of}) == 1 else rows_of:
    if not (known := int((rows >= 0).sum())):
      raise InputError(f'train.init_from: the vocabularies of {workdir} and of this run have no token in common')
    note += f'; {known:,} of {len(rows):,} vocabulary rows matched, the others are the mean row'
  return note


def _sources(workdir: Any, parts: Sequence[str], ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, str]:
  """Return the parameters to take: name in the new run -> name in the finished run."""
  source: dict[str, str] = {}
  for part in parts or ('',):
    origin, equals, target = part.partition('=')
    target = target if equals else origin
    below = lambda name, prefix: not prefix or name == prefix or name.startswith(prefix + '/')
    names = [name for name in ours if below(name, target)]
    if not names:
      raise InputError(f'train.init_parts: this run has no parameters "{target}"; it has {_top_level(ours)}')
    source |= {name: (origin + name.removeprefix(target)) if origin else name for name in names}
  missing = [origin for origin in source.values() if origin not in theirs]
  unused = [] if parts else [name for name in theirs if name not in ours]
  if missing or unused:
    raise InputError(
      f'train.init_from: {workdir} lacks {", ".join(missing[:5]) or "none"} of the parameters to take'
      + (f', and has {", ".join(unused[:5])}, which this run has not' if unused else '')
      + f'; it has {_top_level(theirs)}; {_advice(ours, theirs)}'
    )
  return source


def _advice(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
  """Return the fix for runs of different parameters: the parts that both have, whose vocabularies may differ."""

  def holds(origin: str, target: str) -> bool:
    pairs = [(origin + name.removeprefix(target), name) for name in ours if name.startswith(target + '/')]
    return all(one in theirs and theirs[one].shape[1:] == ours[name].shape[1:] for one, name in pairs)

  parts = sorted({'/'.join(name.split('/')[:2]) for name in ours if name.startswith('model/')})
  for found in (
    ['model'] * holds('model', 'model'),
    [f'model={part}' for part in parts if holds('model', part)],
    [part for part in parts if holds(part, part)],
  ):
    if found:
      return f'set train.init_parts="({"".join(f"{part!r}," for part in found)})"'
  return 'choose another run, because the two have no part in common'


def _top_level(names: Iterable[str]) -> str:
  return ', '.join(sorted({'/'.join(name.split('/')[:2]) for name in names}))


def _tokens(loaded: restore.RestoredRun, tokenizer: Any) -> list[str]:
  """Return the tokens of the rows of the tables of a run's model, under its own or another tokenizer."""
  model, characters = loaded.model, loaded.run.data.characters
  if model.READS == 'characters' and (tokenizer.kind == 'words' or characters):
    return word_characters.vocabulary(tokenizer)
  return [tokenizer.id_to_token(i) for i in range(tokenizer.vocab_size)]


def _rows(theirs: Sequence[str], ours: Sequence[str]) -> np.ndarray:
  """Return the source table's row of each target token, -1 if there is none."""
  known = {token: i for i, token in enumerate(theirs)}
  return np.asarray([known.get(token, -1) for token in ours])


def _by_word(x: np.ndarray, rows: np.ndarray, count: int, size: int) -> np.ndarray:
  """Return the rows of `x` in target order, padded after `count`; unknown tokens and padding get the mean row."""
  mean = x[:count].mean(axis=0)
  index = np.concatenate([rows, np.full(max(size - len(rows), 0), -1)])
  known = (index >= 0).reshape((-1,) + (1,) * (x.ndim - 1))
  return np.where(known, x[np.maximum(index, 0)], mean).astype(x.dtype)


def _by_label(x: np.ndarray, axes: Sequence[int], loaded: restore.RestoredRun, labels: Sequence[str]) -> np.ndarray:
  """Permute a head parameter's label axes to the order of `labels`."""
  if sorted(labels) != sorted(loaded.labels):
    raise InputError(
      f'train.init_from: {loaded.workdir} has labels {", ".join(loaded.labels)}, this run '
      f'{", ".join(labels) or "none"}; to take only the model, set train.init_parts=("model",)'
    )
  order = [loaded.labels.index(label) for label in labels]
  for axis in axes:
    x = np.take(x, order, axis)
  return x
