"""Import of published weights as a run, and export of a run as a folder of Hugging Face transformers.

An imported run is a work directory like any other, with no updates made. It can be evaluated, generate text, predict
on new rows if it was fine-tuned, and be named in `train.init_from`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from lmx import documents, objectives, storage
from lmx.checkpoint import manager
from lmx.config import resolve as config_lib
from lmx.config import run_files, schema, semantics
from lmx.data.datasets import DATA_SETS
from lmx.data.tokenizers import base, build, fastai, library_files, sentencepiece, word_characters
from lmx.data.tokenizers import settings as settings_lib
from lmx.decoding import text
from lmx.engine import state
from lmx.errors import InputError, InputWarning, check_type, explain
from lmx.interop import (
  awd_lstm,
  elmo,
  fairseq,
  huggingface,
  mem_transformer,
  openai,
  streamed,
  tensorflow,
  transformer_xl,
)
from lmx.interop.huggingface import adapter, architectures
from lmx.interop.huggingface import folder as folders
from lmx.interop.huggingface.entry import fields_of
from lmx.interop.tensor_table import NEW, ROUNDED, Row
from lmx.models import registry
from lmx.reporting import run_log
from lmx.runs import front_matter, hub, hub_upload, init, restore
from lmx.runs import rows as rows_lib

_BATCHING = {'masked_lm': 'pairs', 'permutation_lm': 'permutations'}  # of pre-training, if not 'windows'
_GPT_SPECIAL_TOKENS = ('_start_', '_delimiter_', '_classify_')  # of finetune-transformer-lm, in this order
_UNREAD = 'newly_initialised'  # in data.json: paths of the parameters missing in the imported files
_RELEASES = (openai, tensorflow, fairseq, transformer_xl, awd_lstm, elmo)  # formats other than a transformers folder
# Objective -> section `data`: a data set with suitable rows; its files are needed only for evaluation.
_ROWS: dict[str, dict[str, Any]] = {
  'classify': {'dataset': 'table_files', 'batching': {'name': 'texts'}},
  'regress': {'dataset': 'table_files', 'scores': True, 'batching': {'name': 'texts'}},
  'multiple_choice': {'dataset': 'swag', 'batching': {'name': 'texts'}},
  'tag': {'dataset': 'conll2003', 'batching': {'name': 'tagged'}},
  'span': {'dataset': 'squad_files', 'batching': {'name': 'questions'}},
}


class Imported(NamedTuple):
  """Published weights as a run that is not yet written.

  Attributes:
    run: the run.
    config: its resolved config.
    params: {'model': ..., 'objective': ...}, float32 or of half precision as in the files; a run has them in float32.
    tokenizer: see `lmx.data.tokenizers.build`.
    record: content of its data.json.
    rows: the tensors of the files, each with what became of it.
    lines: lines for the user on what was read.
    notes: lines for the user on what is not as in the files: newly initialised parameters, how text is split.
  """

  run: schema.Run
  config: Any
  params: Any
  tokenizer: Any
  record: dict[str, Any]
  rows: list[Row]
  lines: list[str]
  notes: list[str]


def import_run(source: str, workdir: Any, overrides: Iterable[str] = (), *, with_tokenizer: bool = True) -> list[str]:
  """Import a folder of transformers (lmx/interop/huggingface/folder.py), or the authors' release, as a run.

  Args:
    source: the folder, or 'hub:NAME' or 'hub:NAME@REVISION' to download one (lmx/runs/hub.py).
    workdir: work directory to write; it must be missing or empty. It is written as a whole or not at all.
    overrides: `section.key=value`, such as model.attention=xla.
    with_tokenizer: read the tokenizer too; without one the run reads no text.

  Returns:
    Lines for the user: what was read, and which parameters were not in the files and are newly initialised.

  Raises:
    InputError: see `folder.read`; tensors missing, unknown or of another shape; a vocabulary larger than the model's.
  """
  imported = read(source, workdir, overrides, with_tokenizer=with_tokenizer)
  write(imported, workdir)
  return imported.lines + imported.notes


def is_importable(source: Any) -> bool:
  """Return True for 'hub:NAME' and for published weights, False for a work directory and anything else."""
  path = storage.check_path('source', source, hub=True)
  if path.startswith(hub.PREFIX):
    return True
  _check_files(path)
  if not os.path.exists(path) or run_files.is_run(path):
    return False
  return (os.path.isdir(path) and (folders.is_folder(path) or adapter.is_alone(path))) or any(
    one.is_release(path) for one in _RELEASES
  )


def _check_files(source: str) -> None:
  """Raise InputError if a device, a pipe or a socket is among the files, from which a reader would wait for an end."""
  folder = source if os.path.isdir(source) else os.path.dirname(source)
  for name in documents.list_names(folder) if os.path.isdir(folder) else ():
    documents.check_regular(os.path.join(folder, name))


def load(source: str, overrides: Iterable[str] = ()) -> tuple[restore.RestoredRun, Imported]:
  """Return published weights as a run, and what was read.

  Its work directory is temporary, and has no checkpoint. It is removed with the run.

  Raises:
    InputError: see `import_run`.
  """
  directory = _Temporary(source)
  imported = read(source, directory.path, overrides)
  workdir = storage.path('--workdir', directory.path)
  run_files.write(workdir, _saved_config(imported), imported.record, imported.tokenizer)
  _put_on_device(imported.params)
  run, model = imported.run, registry.get(imported.run.model_name)
  own = (imported.params, imported.tokenizer, imported.config, run)
  return restore.RestoredRun(model, run.model, *own, step=0, workdir=workdir, files=directory), imported


def load_any(source: Any, which: str | int = 'measured', overrides: Sequence[str] = ()) -> restore.RestoredRun:
  """Load the run of a work directory, or published weights; warn of what was not read as in the files.

  Args:
    source: work directory, folder or 'hub:NAME'.
    which: checkpoint of a run, see `restore.load`.
    overrides: `section.key=value`, such as model.dtype=bfloat16.

  Raises:
    InputError: there is neither a run nor such a folder, or it cannot be read.
  """
  check_type('source', source, (str, os.PathLike), 'a work directory, a folder or "hub:NAME"')
  check_type('which', which, (str, int), 'measured, best, last, average or a step')
  source = storage.check_path('source', source, hub=True)
  if not is_importable(source):
    return restore.load(source, which, overrides)
  if which not in ('measured', 'best', 'last'):
    raise InputError(
      f'which: got {which}; expected measured, best or last: {source} holds published weights, no checkpoints'
    )
  loaded, imported = load(source, overrides)
  for note in imported.notes:
    warnings.warn(f'{source}: {note}', InputWarning, stacklevel=4)
  return loaded


class _Temporary:
  """Temporary directory for weights of `source`, removed with this object or when the process ends."""

  def __init__(self, source: str) -> None:
    """Create it."""
    self.source, self.path = source, tempfile.mkdtemp(prefix='lmx-')
    weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def _put_on_device(params: dict[str, Any]) -> None:
  """Convert a nested dict's arrays to float32 one by one, so that memory holds only one of them twice."""
  for name, x in params.items():
    if isinstance(x, dict):
      _put_on_device(x)
    else:
      params[name] = jax.device_put(np.asarray(x, np.float32))


def read(source: str, workdir: Any, overrides: Iterable[str] = (), *, with_tokenizer: bool = True) -> Imported:
  """Read published weights for a work directory without writing; see `import_run`."""
  workdir = storage.path('--workdir', workdir, storage.FOLDER)
  source = storage.check_path('--from', source, hub=True)
  if workdir.exists() and (not workdir.is_dir() or any(workdir.iterdir())):
    raise InputError(f'--workdir: {workdir} exists already; expected a missing or empty directory; choose another')
  directory = hub.download(source) if source.startswith(hub.PREFIX) else source
  _check_files(directory)
  release = next((one for one in _RELEASES if one.is_release(directory)), folders)
  folder = release.read(directory)
  tokenizer, special_tokens, data = _read_tokenizer(folder, directory, with_tokenizer)
  data |= {'tokenizer': folder.tokenizer, 'tokenizer_path': str(workdir / 'tokenizer')}
  own = _ROWS[folder.objective['name']] if folder.objective else {}
  read_rows = rows_lib.read(folder, directory, tokenizer, special_tokens, own.get('batching', {}).get('name', ''))
  tokenizer = tokenizer.with_templates(read_rows.templates)
  data |= _rows(folder, own, read_rows) | folder.data | rows_lib.read_columns(directory, own)
  overrides = list(overrides)
  with contextlib.nullcontext() if overrides else fields_of(directory):
    config = config_lib.resolve(_config(folder, data), overrides)
    if with_tokenizer and config.data.lower_case != data['lower_case']:
      tokenizer = _in_case(folder, directory, tokenizer, config.data.lower_case)
    config, run = _settle(config, folder, tokenizer.target.vocab_size)
  source_V = getattr(run.model, 'source_V', 0)
  if source_V and tokenizer.vocab_size > source_V:
    raise InputError(
      f'config.json: size of the vocabulary of the source: got {source_V}; expected at least '
      f'{tokenizer.vocab_size}, the ids of its tokenizer'
    )
  with fields_of(directory):
    converted = huggingface.convert(
      folder.family or folder.name,
      run.model,
      folder.tensors,
      folder.architecture,
      len(folder.labels),
      folder.names,
      folder.head,
      folder.adapted,
    )
  if converted.nonfinite:
    names = state.format_names(converted.nonfinite)
    warnings.warn(f'{source}: tensors with NaN or infinity: {names}', InputWarning, stacklevel=2)
  if not converted.params['objective'] and 'next_sentence' in config.objective:
    config.unlock()
    config.objective.next_sentence = False
    run = config_lib.to_run(config.lock(), tokenizer.target.vocab_size)
  params, new = _complete(run, converted.params)
  by_row = 'labels_B' in objectives.get(run.objective_name).shapes(run.objective, 1, 8)
  label_names = list(folder.labels) if by_row else []
  record: dict[str, Any] = {'hash': '', 'imported_from': source, 'label_names': label_names}
  record |= {_UNREAD: [row.name for row in new], **_generation(folder, tokenizer)}
  if licence := front_matter.read_licence(directory):
    record['licence'] = licence
  sizes = [np.size(x) for x in jax.tree.leaves(params)]
  about = f'{tokenizer.vocab_size:,} tokens of {tokenizer.kind}' if with_tokenizer else 'without a tokenizer'
  lines = [f'{folder.name} with {sum(sizes):,} parameters in {len(sizes)} arrays, {about}']
  lines += _describe_vocabulary(folder, directory, tokenizer, run) if with_tokenizer else []
  lines += _describe_generation(folder, record)
  notes = [*folder.remarks, *[folder.note] * with_tokenizer, folder.generation.note, *read_rows.notes]
  notes = [*filter(None, notes), *_rounded(converted.rows)]
  if new:
    notes.append(f'not in the files, so newly initialised: {_parts(row.name for row in new)}')
  rows = [*converted.rows, *folder.unused, *new]
  return Imported(run, config, params, tokenizer, record, rows, lines + _describe(folder, run), notes)


def _rounded(rows: Iterable[Row]) -> list[str]:
  """Return a line on the first constant that the files have in half precision."""
  return [f'{row.name}: {row.note}' for row in rows if row.note == ROUNDED][:1]


def _generation(folder: folders.Folder, tokenizer: Any) -> dict[str, Any]:
  """Return the entries of data.json with the options of `generate`, {} if they are lmx's defaults."""
  own = ('eos_ids', _own_ends(tokenizer))
  options = {name: x for name, x in folder.generation.options.items() if (name, x) != own}
  return {'generation': options, 'generation_file': folder.generation.file} if options else {}


def _describe_generation(folder: folders.Folder, record: Mapping[str, Any]) -> list[str]:
  """Return a line with the folder's settings of `generate` or `translate`, if it has any."""
  file, command = folder.generation.file, 'translate' if folder.evaluation else 'generate'
  shown = text.describe(folder.evaluation or record.get('generation', {}))
  return [f'{file}: {command}: {shown}'] if file and shown else []


def _read_tokenizer(
  folder: folders.Folder, directory: str, with_tokenizer: bool
) -> tuple[Any, Sequence[str], dict[str, Any]]:
  """Return (tokenizer, GPT's special tokens, fields of section `data`)."""
  settings = settings_lib.read(directory, folder.tokenizer if with_tokenizer else '')
  lower_case = folder.lower_case if settings.lower_case is None else settings.lower_case
  if lower_case is None and with_tokenizer:
    lower_case = not sentencepiece.has_capitals(os.path.join(directory, sentencepiece.FILE))
  tokenizer: Any = base.Absent(int(folder.fields['V']))
  if with_tokenizer:
    try:
      own = folder.vocabulary() if folder.vocabulary else None
      if isinstance(own, Mapping):
        tokenizer = build.of_content(own)
      elif own:
        with fields_of(directory):
          tokenizer = library_files.of_words(*own)
      else:
        tokenizer = library_files.read(
          folder.tokenizer, str(directory), lower_case=bool(lower_case), special_in_text=folders.is_folder(directory)
        )
    except library_files.MissingTokenizer as error:
      raise InputError(f'{error}; --tokenizer=none imports only the model') from None
  V = int(folder.fields['V'])
  if 0 < V < tokenizer.target.vocab_size:
    raise InputError(
      f'{directory}: got {V:,} embeddings of tokens; expected at least {tokenizer.target.vocab_size:,}, the ids of its '
      'tokenizer; use the files of one model, or --tokenizer=none'
    )
  lower_case = getattr(tokenizer, 'lower_case', lower_case)
  tokenizer = tokenizer.from_folder() if folders.is_folder(directory) else tokenizer
  special_tokens = settings.extra if len(settings.extra) == len(_GPT_SPECIAL_TOKENS) else _GPT_SPECIAL_TOKENS
  return tokenizer, special_tokens, {'lower_case': bool(lower_case)}


def _in_case(folder: folders.Folder, directory: str, tokenizer: Any, lower_case: bool) -> Any:
  """Return the tokenizer with the user's case setting; raise InputError if its files fix another case."""
  other = tokenizer
  if not folder.vocabulary:
    whole = folders.is_folder(directory)
    other = library_files.read(folder.tokenizer, str(directory), lower_case=lower_case, special_in_text=whole)
    other = other.with_rows_of(tokenizer)
  if other.hash == tokenizer.hash:
    raise InputError(
      f'data.lower_case: got {lower_case}; expected {not lower_case}, the case of the tokenizer of {directory}; omit it'
    )
  return other


def write(imported: Imported, workdir: Any) -> None:
  """Write a work directory, as a whole or not at all. Raises InputError if it cannot be written."""
  workdir, record = storage.path('--workdir', workdir, storage.FOLDER), imported.record
  extra = {'versions': run_log.versions(), 'imported_from': record['imported_from']}
  try:
    with storage.whole(workdir) as part:
      with manager.Checkpoints(part / 'checkpoints', manager.Config(asynchronous=False)) as checkpoints:
        checkpoints.save(0, {'params': imported.params}, extra, dtype=np.dtype(np.float32))
      run_files.write(part, _saved_config(imported), record, imported.tokenizer, workdir)
  except OSError as error:
    raise InputError(f'{workdir} cannot be written: {explain(error)}') from None


def _saved_config(imported: Imported) -> dict[str, Any]:
  """Return the content of config.json with the current rules of every data set, because evaluations name their own."""
  rules = {name: rule.number for name, rule in sorted(semantics.RULES.items())}
  return imported.config.to_dict() | {'semantics': rules}


def describe_files(imported: Imported) -> str:
  """Return the names of the files that `write` writes, with the size of the largest."""
  size = sum(x.nbytes for x in jax.tree.leaves(imported.params))
  return f'config.json, data.json, paths.json, checksums.json, tokenizer/, checkpoints/ (up to {size / 1e6:,.1f} MB)'


def _config(folder: folders.Folder, data: Mapping[str, Any]) -> dict[str, Any]:
  """Return the config of an imported run; it trains nothing, and an evaluation names the data."""
  variants = registry.get(folder.name).VARIANTS
  named = [name for name, sizes in variants.items() if all(folder.fields.get(k) == v for k, v in sizes.items())]
  variant = max(named, key=lambda name: len(variants[name])) if named else next(iter(variants))
  length = min(folder.fields.get('T', 512), 512)
  return {
    'name': f'{folder.name}_imported',
    'model': {'name': folder.name, 'variant': variant, **folder.fields},
    'objective': dict(folder.objective),
    'data': {'length': length, 'batch_size': 8, **data},
    'evaluation': dict(folder.evaluation),
    'train': {'steps': 1},
  }


def _rows(folder: folders.Folder, data: Mapping[str, Any], rows: rows_lib.Rows) -> dict[str, Any]:
  """Return the fields of section `data` for rows as the objective, the model and the tokenizer read them.

  Args:
    folder: the folder.
    data: fields of the objective, with a form for BERT.
    rows: rows of the tokenizer.
  """
  if not folder.objective:
    return {'batching': _BATCHING.get(registry.get(folder.name).OBJECTIVE, 'windows')}
  fields = {'length': rows.length} if rows.length else {}
  batching = {**data['batching'], 'form': rows.form, **rows.options}
  return {**data, **fields, 'special_tokens': rows.special_tokens, 'batching': batching}


def _settle(config: Any, folder: folders.Folder, vocab_size: int) -> tuple[Any, schema.Run]:
  """Return (config, run) with the fields that labels and row form determine; see `config.resolve.with_corpus`."""
  run = config_lib.to_run(config, vocab_size)
  objective, rules = objectives.get(run.objective_name), DATA_SETS[run.data.dataset]
  if not folder.objective:
    return config, run
  manifest = {
    'dataset': {'name': run.data.dataset},
    'label_names': list(folder.labels),
    'token_label_names': folder.labels,
    'scores': run.data.scores or rules.columns.scores,
    'choices': rules.columns.choices,
    'spans': rules.spans,
  }
  settled = config.copy_and_resolve_references().unlock()
  settled.objective.update(dataclasses.asdict(objective.resolve(run.objective, manifest)))
  return settled.lock(), config_lib.to_run(settled, vocab_size)


def _describe_vocabulary(folder: folders.Folder, directory: str, tokenizer: Any, run: schema.Run) -> list[str]:
  """Return lines on a vocabulary that is shorter than the model's table, as padded tables are, or repeats a token."""
  count, V = tokenizer.target.vocab_size, getattr(run.model, 'V', 0)
  file = library_files.vocabulary_file(folder.tokenizer, directory) if os.path.isdir(directory) else ''
  lines = [f'{file or "the tokenizer"} has {count:,} of the {V:,} ids of the model'] if count < V else []
  if folder.tokenizer != 'wordpiece' or file != 'vocab.txt':
    return lines
  numbers: dict[str, int] = {}
  for number, line in enumerate(documents.read_lines(os.path.join(directory, file)), 1):
    token = line.rstrip()
    if token in numbers:
      lines.append(f'{file}, line {number}: "{token}" is repeated in line {numbers[token]}; its id is the later line')
    numbers[token] = number
  return lines


def _describe(folder: folders.Folder, run: schema.Run) -> list[str]:
  """Describe a fine-tuned model's predictions and input rows."""
  if not folder.objective:
    return []
  names = objectives.get(run.objective_name).labels(run.objective, lambda: list(folder.labels))
  about = f'read as {folder.architecture or folder.name}, objective "{run.objective_name}"'
  lines = [about + (f', labels {", ".join(names)}' if names else '')]
  if run.data.dataset == 'table_files':
    lines.append(
      f'rows have texts {", ".join(run.data.texts)} and label {run.data.label}; to change them, set '
      "--config.data.texts=\"('premise','hypothesis')\" and --config.data.label"
    )
  if DATA_SETS[run.data.dataset].columns.choices:
    lines.append(f'rows have the columns of {run.data.dataset}; to change them, set --config.data.dataset')
  return lines


def _complete(run: schema.Run, params_read: dict[str, Any]) -> tuple[Any, list[Row]]:
  """Return (parameters of the run, the missing ones newly initialised; the rows of those)."""
  shapes = flatten_dict(jax.eval_shape(lambda: init.init_params(run, jax.random.key(run.seed))))  # compiles nothing
  leaves = flatten_dict(params_read)
  missing = [path for path in shapes if path not in leaves]
  if not missing:
    return params_read, []

  @jax.jit
  def initialise(key: jax.Array) -> list[jax.Array]:  # compiled, so that XLA allocates no other parameter
    params = flatten_dict(init.init_params(run, key))
    return [params[path] for path in missing]

  new = {path: np.asarray(x) for path, x in zip(missing, initialise(jax.random.key(run.seed)), strict=True)}
  params = {path: new[path] if path in new else leaves[path] for path in shapes}  # in model order
  rows = [Row(NEW, '/'.join(path), shapes[path].shape, shapes[path].dtype.name) for path in missing]
  return {'model': {}, 'objective': {}} | unflatten_dict(params), rows


def export_run(
  workdir: Any,
  to: str,
  which: str | int = 'measured',
  max_shard_size: str = '',
  card: Mapping[str, str] = {},
  private: bool = False,
  overwrite: bool = False,
) -> list[str]:
  """Write a run's weights, config and tokenizer as a folder that transformers loads.

  Args:
    workdir: work directory of the run.
    to: the folder; it must be missing or empty. Or 'hub:NAME' or 'hub:NAME@BRANCH' to upload it.
    which: see `lmx.runs.restore.load`.
    max_shard_size: the size of a file of weights at most, such as '200MB'; '' is 5 GB. Files of ELMo and AWD-LSTM are
      never split.
    card: options of the model card, README.md; see `lmx.runs.model_card.options`.
    private: see `lmx.runs.hub_upload.push`.
    overwrite: see `lmx.runs.hub_upload.push`.

  Returns:
    Lines for the user on what was written, and which of the parameters were neither read nor trained.

  Raises:
    InputError: there is no run, no class of transformers computes the same, or the upload fails.
  """
  to = storage.check_path('--to', to, storage.FOLDER, hub=True)
  if to.startswith(hub.PREFIX):
    named = {**card, 'name': to.removeprefix(hub.PREFIX).partition('@')[0]}
    write = lambda directory: _export(workdir, directory, which, max_shard_size, named)
    return hub_upload.push(to, write, private, overwrite)
  for field, is_set in {'--private': private, '--overwrite': overwrite}.items():
    if is_set:
      raise InputError(f'{field}: got --to={to}; expected --to=hub:NAME, for which it is meant; omit it')
  return _export(workdir, to, which, max_shard_size, card)


def _export(workdir: Any, to: str, which: str | int, max_shard_size: str, card: Mapping[str, str]) -> list[str]:
  """Write the folder; return lines for the user."""
  from lmx.runs import model_card  # imports Jinja2, which an import does not need

  options = model_card.options(**card)
  size = streamed.parse_size(max_shard_size) if max_shard_size else streamed.MAX_SHARD_SIZE
  loaded = restore.load(workdir, which)
  run, data = loaded.run, loaded.run.data
  cfg = loaded.cfg
  if not getattr(cfg, 'V', 1):
    cfg = dataclasses.replace(cfg, V=loaded.tokenizer.vocab_size)
  if getattr(data.batching, 'both_orders', False):
    raise InputError(
      f'data.batching.both_orders: {workdir} reads rows in both orders and adds the two, which no class of '
      'transformers does'
    )
  note, about = restore.checkpoint_note(loaded, which), model_card.Card(loaded, options)
  kind = 'mem_transformer' if run.model_name == 'transformer_xl' and mem_transformer.fits(cfg) else run.model_name
  if kind in _EXPORTS and max_shard_size:
    raise InputError(f'--max_shard_size: got {max_shard_size}; {kind} is written as one file; omit it')
  with folders.whole(to) as part:
    if kind in _EXPORTS:
      lines = _EXPORTS[kind](loaded, cfg, str(part))
    else:
      lines = _export_folder(loaded, cfg, str(part), size)
    lines += about.write(part, os.path.basename(os.path.abspath(to)))
  return [line.replace(str(part), str(to)) for line in lines] + [note] * bool(note)


def _export_elmo(loaded: restore.RestoredRun, cfg: Any, to: str) -> list[str]:
  if loaded.tokenizer.kind != 'words':
    raise InputError(
      f'data.tokenizer: got "{loaded.tokenizer.kind}" in {loaded.workdir}; expected "words", because readers of the '
      'release spell whole words'
    )
  words = word_characters.vocabulary(loaded.tokenizer)[word_characters.FIRST :]
  names = elmo.write(to, cfg, loaded.params, words, loaded.run.data.characters)
  missing = ['the output layer'] + ['vocab.txt, because a word has white space'] * (elmo.WORDS not in names)
  return [f'wrote {", ".join(names)} to {to}', f'not written: {", ".join(missing)}']


def _export_awd_lstm(loaded: restore.RestoredRun, cfg: Any, to: str) -> list[str]:
  run, tokenizer = loaded.run, loaded.tokenizer
  if run.objective_name not in ('causal_lm', 'classify'):
    raise InputError(f'objective: got "{run.objective_name}"; expected causal_lm or classify, as fastai has them')
  as_fastai = awd_lstm.is_fastai(cfg)
  tokens = list(tokenizer.tokens) if getattr(tokenizer, 'rule', '') == ('fastai' if as_fastai else 'lines') else []
  classifier = (run.objective, loaded.labels) if run.objective_name == 'classify' else None
  words = fastai.itos(tokens) if as_fastai else tokens
  names = awd_lstm.write(to, cfg, loaded.params, words, run.data.reverse, classifier)
  reader, rules = ('fastai 2 reads', "fastai's rules") if as_fastai else ("salesforce's main.py reads", 'white space')
  missing = [] if words else [f'not written: words, because they are not split by {rules}']
  missing += [f'the classes in order: {", ".join(loaded.labels)}'] * bool(classifier)
  return [f'wrote {", ".join(names)} to {to}, as {reader} them', *missing]


def _export_mem_transformer(loaded: restore.RestoredRun, cfg: Any, to: str) -> list[str]:
  tokenizer = loaded.tokenizer
  symbols = mem_transformer.symbols(tokenizer)
  names = mem_transformer.write(to, cfg, loaded.params, symbols, bool(getattr(tokenizer, 'lower_case', False)))
  missing = (
    [] if symbols else [f'not written: the vocabulary: the program has no format for a {tokenizer.kind} tokenizer']
  )
  lines = [f'wrote {", ".join(names)} to {to}, as the PyTorch program of kimiyoung/transformer-xl reads them']
  return [*lines, *missing]


def _export_folder(loaded: restore.RestoredRun, cfg: Any, to: str, max_shard_size: int) -> list[str]:
  run, data, content = loaded.run, loaded.run.data, loaded.tokenizer.content()
  if loaded.tokenizer.of_folder and not content.get('special_in_text'):
    content |= {'split_special_tokens': True}
  task = architectures.Task(run.objective_name, run.objective, loaded.labels)
  untrained = _untrained(loaded)
  bare = folders.bare_class(run.model_name, cfg, task, untrained)
  spare = set() if bare else folders.spare(run.model_name, cfg, task)
  missing = untrained if bare else spare & untrained if _is_import(loaded) else spare
  names = folders.write(
    to,
    run.model_name,
    cfg,
    _without(loaded.params, missing),
    task,
    content,
    data.lower_case,
    data.special_tokens,
    run.evaluation,
    bare,
    max_shard_size,
    _options(loaded),
    rows_lib.written(run, loaded.model, loaded.tokenizer),
    data.length if data.batching.name == 'texts' else 0,
    rows_lib.columns(run) | (rows_lib.padding(run, loaded.tokenizer) if _is_import(loaded) else {}),
  )
  lines = [f'wrote {", ".join(names)} to {to}']
  if bare:
    lines.append(
      f'not written: {_parts(untrained)}: they were neither in the imported files nor trained; so the class is {bare}'
    )
  elif drawn := untrained & set().union(*folders.written(run.model_name, cfg, task).values()) - missing:
    lines.append(f'newly initialised and never trained: {_parts(drawn)}; the imported files did not have them')
  if 'tokenizer_config.json' not in names:
    lines.append(f'not written: transformers has no format for a {loaded.tokenizer.kind} tokenizer')
  elif content['kind'] == 'moses' and content.get('rules') != 'fsmt':
    lines.append(
      'FSMTTokenizer normalises punctuation and removes control characters before tokenization; this run does not'
    )
  return lines + folders.notes(run.model_name, cfg, task)


def _is_import(loaded: restore.RestoredRun) -> bool:
  """Return True for imported weights without an update."""
  return not loaded.step and 'imported_from' in run_files.read_data(loaded.workdir)


def _options(loaded: restore.RestoredRun) -> dict[str, Any]:
  """Return the imported options of `generate`, with the tokenizer's end of a text if the run generates texts.

  Without an import they have the model's positions, which transformers' default of 256 new tokens may exceed.
  """
  data = run_files.read_data(loaded.workdir)
  own: dict[str, Any] = {'eos_ids': _own_ends(loaded.tokenizer)} if loaded.model.CAUSAL else {}
  positions = 0 if 'imported_from' in data else getattr(loaded.cfg, 'T', 0)
  return own | ({'max_length': positions} if positions else {}) | data.get('generation', {})


def _own_ends(tokenizer: Any) -> tuple[int, ...]:
  return () if tokenizer.eos_id is None else (tokenizer.eos_id,)


def _untrained(loaded: restore.RestoredRun) -> set[str]:
  """Return the paths of the parameters that an import newly initialised, if no update has been made since."""
  return {str(path) for path in run_files.read_data(loaded.workdir).get(_UNREAD, ())} if _is_import(loaded) else set()


def _without(params: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
  """Return parameters without the given paths."""
  leaves = flatten_dict(params)
  return {'model': {}, 'objective': {}} | unflatten_dict({k: x for k, x in leaves.items() if '/'.join(k) not in paths})


def _parts(paths: Iterable[str]) -> str:
  """Return the model parts that parameters belong to."""
  return ', '.join(sorted({'/'.join(path.split('/')[:2]) for path in paths}))


# Models without a transformers class -> writer of another library's files.
_EXPORTS = {'elmo': _export_elmo, 'awd_lstm': _export_awd_lstm, 'mem_transformer': _export_mem_transformer}
