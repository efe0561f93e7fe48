"""Labels of a data set as arrays: class ids, scores, answer spans."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lmx import documents
from lmx.data.tokenizers.base import Tokenizer
from lmx.errors import InputError, InputWarning

SHOWN = 20  # labels in a line


def arrays(
  labels: Mapping[str, Sequence[str]], *, spans: bool, scores: bool, predicates: bool = False, choices: int = 0
) -> tuple[list[str], dict[str, np.ndarray]]:
  """Return (class names, split -> document labels); without names for spans, scores and predicates.

  With `choices` the names are the choices' indices, even those that are never correct.
  """
  if predicates:
    return [], {split: np.asarray(split_labels, np.int32) for split, split_labels in labels.items()}
  if spans:
    return [], token_spans(labels)
  return ([], parse_scores(labels)) if scores else number_labels(labels, choice_names(choices))


def choice_names(choices: int) -> list[str]:
  """Return the labels of rows with a number of choices."""
  return [str(choice) for choice in range(choices)]


def number_labels(
  labels: Mapping[str, Sequence[str]], known: Sequence[str] = ()
) -> tuple[list[str], dict[str, np.ndarray]]:
  """Return (label names in order, split -> label indices, -1 for none); no splits if there are no labels. The names are
  `known` if given, else the labels'.
  """
  found = set().union(*labels.values()) - {''}
  names = list(known or sorted(found)) if found else []
  ids = {label: i for i, label in enumerate(names)}
  number = lambda split_labels: np.asarray([ids.get(label, -1) for label in split_labels], np.int32)
  return names, {split: number(split_labels) for split, split_labels in labels.items()} if names else {}


def label_names(manifest: Mapping[str, Any]) -> list[str]:
  """Return a data set's label names, the word labels' if it has any; [] without labels."""
  return list(manifest['token_label_names'] if 'token_label_names' in manifest else manifest['label_names'])


def known_names(names: Sequence[str]) -> dict[str, str]:
  """Return {label as read today: its name in a run}: earlier versions kept "1.0", and JSON's true as "true".

  A composed label may have a decomposed name in a run of an earlier version.
  """
  known = {name.capitalize(): name for name in names if name in ('true', 'false')}
  for form in (lambda name: documents.compose(documents.label_name(name)), documents.label_name, str):
    known |= {form(name): name for name in names}
  return known


def compose(corpus: Any) -> Any:
  """Return a corpus that merges labels that differ only in Unicode form, with a warning; itself if there are none. The
  cached corpus keeps the original texts, so that runs of earlier versions keep their classes.
  """
  own = list(corpus.manifest.get('label_names', ()))
  forms = [documents.compose(name) for name in own]
  if forms == own:
    return corpus
  if merged := sorted({form for form in forms if forms.count(form) > 1}):
    note = f'data.label: got labels in two Unicode forms, which are one class each: {", ".join(merged[:SHOWN])}'
    warnings.warn(note, InputWarning, stacklevel=2)
  names = sorted(set(forms))
  found = _numbered(corpus, forms, names)
  return dataclasses.replace(corpus, splits=found.splits).with_record({'label_names': names})


def renumber(corpus: Any, names: Sequence[str]) -> Any:
  """Return a corpus whose labels are numbered by a run's `names`; the corpus itself if they already are.

  Raises:
    InputError: the data set has labels that are not in `names`.
  """
  own = label_names(corpus.manifest)
  if own == list(names):
    return corpus
  known = known_names(names)
  own = [known.get(name, known.get(documents.compose(name), name)) for name in own]
  unknown = [name for name in own if name not in names]
  if unknown:
    raise InputError(
      f'data set {corpus.manifest["dataset"]["name"]}: got labels {", ".join(unknown)}; expected those of the run, '
      f'{", ".join(names)}'
    )
  return _numbered(corpus, own, names)


def _numbered(corpus: Any, own: Sequence[str], names: Sequence[str]) -> Any:
  """Return a corpus whose labels, `own` by id, are numbered by `names`."""
  words = 'token_label_names' in corpus.manifest
  part = 'token_labels' if words else 'labels'
  number = np.asarray([*(list(names).index(name) for name in own), -1], np.int32)  # -1, no label, is the last
  splits = {
    name: split
    if getattr(split, part) is None
    else dataclasses.replace(split, **{part: number[np.asarray(getattr(split, part))]})
    for name, split in corpus.splits.items()
  }
  manifest = {**corpus.manifest, 'token_label_names' if words else 'label_names': list(names)}
  return dataclasses.replace(corpus, splits=splits, manifest=manifest)


def number_choices(corpus: Any) -> Any:
  """Return a corpus whose labels are choice indices; itself if they already are, as earlier versions assumed."""
  own, names = label_names(corpus.manifest), choice_names(corpus.manifest.get('choices', 0))
  if not names or own in (names, []):
    return corpus
  found = _numbered(corpus, own, names)
  return dataclasses.replace(corpus, splits=found.splits).with_record({'label_names': names})


def untaught(corpus: Any) -> tuple[str, ...]:
  """Return a line for the log that names the labels of other splits that no training example has, if there are any."""
  names, lines = label_names(corpus.manifest), []
  if not names or 'train' not in corpus.splits or (ids := _label_ids(corpus, 'train')) is None:
    return ()
  count = lambda ids: np.bincount(ids + 1, minlength=len(names) + 1)[1:]  # -1 is none
  taught = count(ids) > 0
  for split in corpus.splits:
    if (ids := _label_ids(corpus, split)) is not None:
      missing = [f'{names[i]} ({n:,})' for i, n in enumerate(count(ids)) if n and not taught[i]]
      more = f' and {len(missing) - SHOWN:,} more' if len(missing) > SHOWN else ''
      if missing:
        lines.append(f'labels of "{split}" that no training example has: {", ".join(missing[:SHOWN])}{more}')
  return tuple(lines)


def check_training(corpus: Any, files: str) -> None:
  """Raise InputError if all training examples with a label have the same one; `files` names the training data."""
  ids = _label_ids(corpus, 'train') if 'train' in corpus.splits else None
  names = label_names(corpus.manifest)
  if ids is not None and names:
    check_classes(names, ids, files)


def check_classes(names: Sequence[str], ids: np.ndarray, files: str) -> None:
  """Raise InputError unless the label ids of training examples, -1 for none, have at least two of the `names`."""
  classes = np.unique(ids[ids >= 0])
  if len(classes) < 2:
    only = f'only the label "{names[classes[0]]}"' if len(classes) else 'no label'
    raise InputError(
      f'{files}: got {only} in the training examples; expected at least two labels; add examples, or name the column '
      'of the labels by --config.data.label='
    )


def _label_ids(corpus: Any, split: str) -> np.ndarray | None:
  """Return a split's label ids, the words' if it has word labels, -1 for none; None without labels."""
  ids = getattr(corpus.splits[split], 'token_labels' if 'token_label_names' in corpus.manifest else 'labels')
  return None if ids is None else np.asarray(ids)


def parse_scores(labels: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
  """Return {split: document scores}, float32, NaN for none."""
  parse = lambda split_labels: np.asarray([float(label) if label else np.nan for label in split_labels], np.float32)
  return {split: parse(split_labels) for split, split_labels in labels.items()}


def token_spans(labels: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
  """Return {split: the answer's first token for each passage, its last one for each question}, int32, -1 for none."""

  def parse(split_labels: Sequence[str]) -> np.ndarray:
    pairs = [label.split(':') if label != 'none' else ('-1', '-1') for label in split_labels[::2]]
    return np.asarray(pairs, np.int32).ravel()

  return {split: parse(split_labels) for split, split_labels in labels.items()}


def count_unanswered(spans: np.ndarray | None) -> int:
  """Return the number of questions without an answer, from the span labels of passages and questions."""
  return 0 if spans is None else int((np.asarray(spans) < 0).sum()) // 2


class TokenSpans:
  """Examples of passages and questions with the answer's span in tokens as label.

  Raises:
    InputError: the tokenizer has no offsets.
  """

  def __init__(self, examples: Any, tokenizer: Tokenizer):
    self._examples, self._tokenizer = examples, tokenizer

  @property
  def size(self) -> int:
    """Bytes of the prepared files."""
    return int(self._examples.size)

  def __iter__(self) -> Iterator[tuple[str, str, str]]:
    context, offsets_T2 = '', np.zeros((0, 2), np.int32)
    for i, (name, text, label) in enumerate(self._examples):
      if i % 2:
        yield name, text, ''
        continue
      if label != 'none':
        if text != context:  # questions on the same passage are consecutive
          context, offsets_T2 = text, self._tokenizer.encode_spans(text)[1]
        begin, end = map(int, label.split(':'))
        inside = np.flatnonzero(
          (offsets_T2[:, 1] > begin) & (offsets_T2[:, 0] < end) & (offsets_T2[:, 1] > offsets_T2[:, 0])
        )
        label = f'{inside[0]}:{inside[-1]}' if inside.size else 'none'
      yield name, text, label


def file_documents(dataset: str, splits: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Return the document number of each sentence, int32, by split. Raises InputError if the files mark no documents."""
  from lmx.data.builders import tagged

  found = {}
  for name, examples in splits.items():
    numbers = [tagged.document_of(id) for id, _, _ in examples]
    if None in numbers:
      raise InputError(
        f'data.batching.context: got "document" with data set {dataset}, whose split {name} marks no documents; '
        'expected lines -DOCSTART- (CoNLL 2003) or # newdoc (CoNLL-U) in its file; set data.batching.context=sentence'
      )
    found[name] = np.asarray(numbers, np.int32)
  return found
