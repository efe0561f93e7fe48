"""First rows of a model's word table from pre-trained vectors: `data.vectors`."""

from __future__ import annotations

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from lmx.config import schema
from lmx.data import pipeline, vectors
from lmx.data.corpus import Corpus
from lmx.errors import InputError
from lmx.models import registry
from lmx.runs import init
from lmx.types import Array, Params


def add(taken: Params, run: schema.Run, corpus: Corpus, key: Array) -> tuple[Params, str]:
  """Add the table of the model's WORD_TABLE, with the rows of `data.vectors`, to initial parameters.

  Rows of other words are the model's own. With `data.other_rows` = 'normal' they are shifted and scaled to the mean and
  the standard deviation of all numbers of the vectors found, so they are drawn from the normal distribution of these.

  Args:
    taken: parameters from `train.init_from`, {} without it.
    run: the run, with the vocabulary of its data.
    corpus: its data.
    key: PRNG key of `init_params`.

  Returns:
    (`taken` and the table, a nested dict; a line for the log).

  Raises:
    InputError: `taken` has the table, the model has none, the file differs from the one by which the data were
      prepared, no word has a vector, or `vectors.read` raises.
  """
  path, names = run.data.vectors, ('model', *registry.get(run.model_name).WORD_TABLE.split('/'))
  leaves, name = flatten_dict(dict(taken)), '/'.join(names)
  if names in leaves:
    raise InputError(
      f'data.vectors: got {path} with train.init_from={run.train.init_from}, which gives {name} too; expected one of '
      "them; set train.init_parts to parts without it, or data.vectors to ''"
    )
  if vectors.digest(path) != corpus.manifest['vectors']:
    raise InputError(
      f'data.vectors: got {path} of another content than that by which the vocabulary of this run was made; restore '
      'the file, or start in another --workdir'
    )
  if names not in flatten_dict(dict(jax.eval_shape(lambda key: init.init_params(run, key), key))):
    raise InputError(f"data.vectors: got {path} with a model without {name}; expected one; set data.vectors to ''")
  leaf = jax.jit(lambda key: flatten_dict(dict(init.init_params(run, key)))[names])
  table_VE = np.array(leaf(key))
  words = pipeline.words(run.data, corpus.tokenizer)
  known = vectors.read(path, words, table_VE.shape[1])
  if not len(known.found):
    raise InputError(f'data.vectors: got {path} without a vector of any of the {len(words):,} words; expected some')
  if run.data.other_rows == 'normal':
    table_VE = (table_VE - table_VE.mean()) / table_VE.std() * known.rows_KE.std() + known.rows_KE.mean()
  table_VE[known.found] = known.rows_KE
  leaves[names] = table_VE
  return unflatten_dict(leaves), _note(name, path, known, len(words))


def _note(name: str, path: str, known: vectors.Vectors, count: int) -> str:
  """Return the line for the log."""
  rules = ', '.join(f'{n:,} {rule}' for n, rule in zip(known.counts, vectors.RULES, strict=True) if n)
  repeated = f'; {known.duplicates:,} lines repeat a word, whose first vector is taken' if known.duplicates else ''
  return f'{name}: {len(known.found):,} of {count:,} rows found in {path} ({rules}){repeated}'
