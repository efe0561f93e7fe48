"""Rows that a folder's tokenizer makes, compared with the rows that lmx reads (`data.batching.form`).

A form that makes the same rows is used; else the rows themselves are stored with the tokenizer (form 'template').
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmx import documents
from lmx.data.batching import tagged, texts
from lmx.data.tokenizers import settings as settings_lib
from lmx.data.tokenizers import templates as templates_lib
from lmx.data.tokenizers.base import Absent, row_template
from lmx.data.tokenizers.templates import Templates
from lmx.errors import InputError
from lmx.interop.huggingface import folder as folders
from lmx.models import registry

_LENGTH = 512  # of rows, for models without positions
KINDS = ('wordpiece', 'bpe', 'gpt_bpe', 'unigram')  # of tokenizers with post-processors
COLUMNS = 'lmx_columns'  # in config.json: columns of a user's table, which transformers ignores
_GPT = ('gpt', 'gpt2')
_TYPES = f'{settings_lib.FILE}: model_input_names'


class Rows(NamedTuple):
  """Rows of a fine-tuned model, and of a text.

  Attributes:
    form: `data.batching.form`.
    special_tokens: `data.special_tokens`.
    options: further fields of `data.batching`.
    length: `data.length`, 0 for the default.
    templates: `Tokenizer.templates`.
    notes: lines for the user.
  """

  form: str = ''
  special_tokens: tuple[str, ...] = ()
  options: Mapping[str, Any] = {}
  length: int = 0
  templates: Templates = ()
  notes: Sequence[str] = ()


def read(folder: folders.Folder, directory: Any, tokenizer: Any, special_tokens: Sequence[str], batching: str) -> Rows:
  """Return the rows of a folder or a release.

  Args:
    folder: its content.
    directory: the folder.
    tokenizer: its tokenizer.
    special_tokens: names of GPT's start, delimiter and classify.
    batching: name of the `batching` section of a fine-tuned model, '' without one.

  Raises:
    InputError: lmx cannot read rows as transformers does; the file and its key are named.
  """
  if folder.tokenizer not in KINDS:
    return Rows('plain')
  default = _default(folder, tokenizer, special_tokens, batching)
  if not folders.is_folder(directory):
    return default
  options: dict[str, Any] = {'truncation': 'tokenizers'} if batching == 'texts' else {}
  if folder.name in _GPT and folder.architecture.endswith('ForSequenceClassification'):
    options |= _padding(directory)
  if isinstance(tokenizer, Absent):
    return default._replace(options=options)
  settings = settings_lib.read(directory, folder.tokenizer)
  found = templates_lib.read(directory, tokenizer, settings)
  found, notes = _with_types(folder, directory, settings, found)
  most = _length(folder, settings) if batching else 0
  if batching == 'texts' and most > _LENGTH:
    options |= {'buckets': (_LENGTH,)}
  rows = default._replace(options=options, length=most, notes=notes)
  is_default = tokenizer.around(registry.get(folder.name).SPECIAL_TOKENS) == found[0]
  rows = rows._replace(templates=() if is_default else found)
  return _in_form(rows, folder, directory, tokenizer, batching, found) if batching else rows


def _default(folder: folders.Folder, tokenizer: Any, special_tokens: Sequence[str], batching: str) -> Rows:
  """Return the rows of a release, of the model's own fine-tuning."""
  if folder.name == 'xlnet':  # special tokens at the end of a row; tagged rows have only words
    return Rows('plain' if batching == 'tagged' else 'xlnet')
  if batching != 'texts' or folder.tokenizer == 'wordpiece':
    return Rows('bert')
  if isinstance(tokenizer, Absent) or any(tokenizer.token_id(token) is None for token in special_tokens):
    return Rows('plain')
  return Rows('gpt', tuple(special_tokens))


def _with_types(
  folder: folders.Folder, directory: Any, settings: settings_lib.Settings, found: Templates
) -> tuple[Templates, list[str]]:
  """Return (rows with the token types that the model gets, notes).

  Where versions of transformers differ, it is the version that wrote the folder, 4 if none is named. A model without
  token types is one with types 0: BERT's default, and XLNet's segments are only compared with each other.
  """
  gives, notes = settings.gives_types, []
  if gives is None:
    version = str(folders.read_json(pathlib.Path(directory) / folders.CONFIG).get('transformers_version', ''))
    gives = not version.startswith('5.') and (bool(version) or folder.name not in _GPT)
    if folder.name in _GPT or templates_lib.have_types(found):
      read = f'read {"with" if gives else "without"} token types'
      notes = [
        f'{_TYPES}: missing; rows are {read}; version 4 of transformers gives them to the model, version 5 does not'
      ]
  if folder.name not in _GPT:
    return found if gives else templates_lib.without_types(found), notes
  if gives and folder.objective:
    raise InputError(
      f'{_TYPES}: got {"token_type_ids" if settings.gives_types else "none in a folder of version 4"}; expected '
      f'["input_ids", "attention_mask"], because lmx reads no token types, which {folder.architecture} adds as '
      'embeddings; set it to that'
    )
  if gives:
    notes = [
      f'{_TYPES}: token_type_ids, which {folder.architecture} adds as embeddings, are not read, as in generation'
    ]
  return templates_lib.without_types(found), notes


def _length(folder: folders.Folder, settings: settings_lib.Settings) -> int:
  """Return the length to which transformers truncates rows."""
  most = folder.fields.get('T', 0) or settings.max_length or _LENGTH
  return min(most, settings.max_length or most)


def _in_form(
  rows: Rows, folder: folders.Folder, directory: Any, tokenizer: Any, batching: str, found: Templates
) -> Rows:
  """Return the rows with the form that makes the rows of a tokenizer, or with form 'template'."""
  if batching == 'questions':
    own = templates_lib.of_kind(tokenizer)
    if found == own:
      return rows
    if [one.ids for one in found] != [one.ids for one in own] or own == templates_lib.PLAIN:
      raise InputError(
        f'{pathlib.Path(directory) / templates_lib.FILE}: post_processor: got {templates_lib.show(found, tokenizer)}; '
        f'expected {templates_lib.show(own, tokenizer)}, because lmx reads questions on passages in no other rows'
      )
    return rows._replace(form='template', templates=found)
  if batching == 'tagged':
    own_form = next((form for form in ('plain', 'bert') if _tagged(form, tokenizer) == found[0]), '')
    return rows._replace(form=own_form) if own_form else rows._replace(form='template', templates=found)
  marks = _marks(found, tokenizer)
  if marks and folder.name in _GPT:
    return rows._replace(form='gpt', special_tokens=marks)
  plain = tuple(row_template([()] * (n + 1)) for n in (1, 2))
  if rows.form == 'gpt' and found == plain:
    note = f'{templates_lib.FILE} adds no special tokens; rows are read with {", ".join(rows.special_tokens)}'
    return rows._replace(notes=[*rows.notes, note])
  forms = {'plain': plain, 'bert' if tokenizer.kind == 'wordpiece' else 'xlnet': templates_lib.of_kind(tokenizer)}
  named = [form for form, templates in forms.items() if templates == found]
  if named and not (named[0] == 'plain' and folder.name not in _GPT):
    return rows._replace(form=named[0], special_tokens=())
  return rows._replace(form='template', special_tokens=(), templates=found)


def _tagged(form: str, tokenizer: Any) -> Any:
  return None if form == 'bert' and tokenizer.kind != 'wordpiece' else tagged.template(form, tokenizer)


def _marks(found: Templates, tokenizer: Any) -> tuple[str, ...]:
  """Return the names of GPT's start, delimiter and classify, () if rows have others."""
  ids = sum(found[-1].ids, ())
  if len(found) < 2 or [len(group) for group in found[1].ids] != [1, 1, 1] or found[0].ids != (ids[:1], ids[2:]):
    return ()
  return tuple(map(tokenizer.id_to_token, ids)) if len({*ids}) == 3 else ()


def read_columns(directory: Any, data: Mapping[str, Any]) -> dict[str, Any]:
  """Return the fields of `data` with the columns of a user's table, as an export of lmx records them; {} without.

  Args:
    directory: the folder.
    data: fields of the objective.
  """
  path = pathlib.Path(directory) / folders.CONFIG
  if data.get('dataset') != 'table_files' or not path.is_file():
    return {}
  found = documents.field(folders.read_json(path), COLUMNS, dict, str(path), {})
  where = f'{path}: {COLUMNS}'
  names = documents.field(found, 'texts', list, where, [])
  if len(names) > 2 or not all(isinstance(name, str) and name for name in names):
    raise InputError(f'{where}: texts: got {documents.show(names)}; expected one or two names of columns')
  label = documents.field(found, 'label', str, where, '')
  return ({'texts': tuple(names)} if names else {}) | ({'label': label} if label else {})


def columns(run: Any) -> dict[str, Any]:
  """Return the field of config.json with the columns of the run's table; {} for the default names."""
  names = {'texts': list(run.data.texts), 'label': run.data.label}
  is_own = run.data.dataset == 'table_files' and names != {'texts': ['text'], 'label': 'label'}
  return {COLUMNS: names} if is_own else {}


def _padding(directory: Any) -> dict[str, int]:
  """Return the field of `data.batching` by which rows are read at the last token that is not padding."""
  path = pathlib.Path(directory) / folders.CONFIG
  config = {key: value for key, value in folders.read_json(path).items() if value is not None}
  pad = documents.field(config, 'pad_token_id', int, str(path), -1)
  return {'pad_id': pad} if pad >= 0 else {}


def padding(run: Any, tokenizer: Any) -> dict[str, int | None]:
  """Return `pad_token_id` of config.json for an imported classifier whose rows end with their text."""
  if run.model_name not in _GPT or run.objective_name not in ('classify', 'regress') or not tokenizer.of_folder:
    return {}
  pad = run.data.batching.pad_id
  return {} if pad < 0 and run.data.batching.form == 'gpt' else {'pad_token_id': pad if pad >= 0 else None}


def written(run: Any, model: Any, tokenizer: Any) -> folders.Rows | None:
  """Return the rows that an export writes, None for those of the tokenizer's kind."""
  if tokenizer.kind not in KINDS:
    return None
  found = _of_run(run, model, tokenizer)
  own = templates_lib.of_kind(tokenizer)
  if tokenizer.kind in ('bpe', 'gpt_bpe'):  # their class has the post-processor of the file
    own = templates_lib.probe(tokenizer.post_processor, '')
  if (templates_lib.without_types(own) if run.model_name in _GPT else own)[: len(found)] == found:
    return None
  return folders.Rows(templates_lib.processor(found, tokenizer), templates_lib.have_types(found))


def _of_run(run: Any, model: Any, tokenizer: Any) -> Templates:
  """Return the rows of one text and of two that a run reads."""
  batching = run.data.batching
  form = getattr(batching, 'form', '')
  if tokenizer.templates:
    return tuple(tokenizer.templates)
  if batching.name == 'texts' and form != 'separate':
    return tuple(texts.template(run.data, tokenizer, n) for n in (1, 2))
  if batching.name == 'tagged' and form == 'plain':
    return tuple(row_template([()] * (n + 1)) for n in (1, 2))
  own = templates_lib.of_kind(tokenizer) if any(model.SPECIAL_TOKENS) else templates_lib.PLAIN
  return templates_lib.without_types(own) if run.model_name in _GPT else own
