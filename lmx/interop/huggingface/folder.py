"""Folders in the format of `save_pretrained` of transformers: config.json, weights and tokenizer files.

Weights are safetensors or, if there are none, the older pytorch_model.bin. That is a pickle, which
lmx/interop/torch_file.py reads without running it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tokenizers as hf

from lmx import documents, storage
from lmx.errors import InputError, explain, nearest
from lmx.interop import huggingface, mapped, streamed, torch_file
from lmx.interop.huggingface import adapter, architectures, generation, word_vocabulary
from lmx.interop.huggingface.entry import Entry, Tensors, show
from lmx.interop.tensor_table import Row, repeated

CONFIG, WEIGHTS, INDEX = 'config.json', 'model.safetensors', streamed.INDEX
PICKLES, PICKLES_INDEX = 'pytorch_model.bin', 'pytorch_model.bin.index.json'
NEEDED = (
  CONFIG,
  '*.safetensors',
  INDEX,
  'pytorch_model*.bin',
  PICKLES_INDEX,
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'merges.txt',
  'spiece.model',
  'generation_config.json',
  adapter.FILE,
  *adapter.WEIGHTS,
  *adapter.QUANTISED,
  'source.spm',
  'target.spm',
  'target_vocab.json',
  'vocab-src.json',
  'vocab-tgt.json',
  *word_vocabulary.NAMES,
)
_ANY_CLASS = 'PreTrainedTokenizerFast'  # reads the whole file in every version
_FAST = {
  'wordpiece': 'BertTokenizerFast',
  'bpe': 'GPT2TokenizerFast',
  'gpt_bpe': 'OpenAIGPTTokenizerFast',
  'unigram': _ANY_CLASS,
}
# Classes that read the tokenizer of another model as well.
_CLASSES = {_FAST[kind].removesuffix('Fast'): kind for kind in ('wordpiece', 'bpe', 'gpt_bpe')}
# Parts of a class, which transformers 5 does not read from the file; false is any value that is none.
_WHOLE = {'continuing_subword_prefix': '', 'fuse_unk': False, 'byte_fallback': False, 'ignore_merges': False}
_PARTS: dict[str, dict[str, dict[str, Any]]] = {
  'wordpiece': {
    'normalizer': {'type': 'BertNormalizer', 'clean_text': True},
    'pre_tokenizer': {'type': 'BertPreTokenizer'},
    'model': {'type': 'WordPiece', 'max_input_chars_per_word': 100, 'continuing_subword_prefix': '##'},
  },
  'bpe': {
    'normalizer': {'type': None},
    'pre_tokenizer': {'type': 'ByteLevel', 'use_regex': True},
    'model': {'type': 'BPE', 'end_of_word_suffix': '', **_WHOLE},
  },
  'gpt_bpe': {
    'normalizer': {'type': 'BertNormalizer', 'lowercase': True, 'clean_text': True},
    'pre_tokenizer': {'type': 'BertPreTokenizer'},
    'model': {'type': 'BPE', 'end_of_word_suffix': '</w>', **_WHOLE},
  },
}
_ABSENT = {'use_regex': True, 'clean_text': True, 'max_input_chars_per_word': 100}  # defaults of the library
# Unless tokenizer_config.json differs.
_LOWERS = {'wordpiece': True, 'gpt_bpe': True, **dict.fromkeys(('bpe', 'unigram', 'words', 'marian', 'moses'), False)}
_SHOWN = 8  # names of files in a message
_COMMA = -100.0  # added to the log probability of a subword that is not used
_END = '<|endoftext|>'  # GPT-2's only special token


class Rows(NamedTuple):
  """Rows that a run reads and that are not those of its tokenizer's kind.

  Attributes:
    processor: post-processor of the `tokenizers` library that makes them; None adds no special tokens.
    have_types: a token type is not 0.
  """

  processor: Any
  have_types: bool


class Folder(NamedTuple):
  """Contents of a folder.

  Attributes:
    name: the lmx model.
    fields: fields of its Config.
    tensors: name -> array, under the names of the files.
    tokenizer: kind of its tokenizer.
    lower_case: True if a vocab.txt or spiece.model is for lower-cased text; None infers it from the absence of
      capitals.
    architecture: a class of architectures.py; '' is the pre-trained model.
    objective: the `objective` section of lmx's config; {} leaves it to the model.
    labels: names of the labels, () if there are none.
    data: further fields of the config's `data` section.
    evaluation: fields of its `evaluation` section.
    generation: settings of `generate`.
    vocabulary: reads a word list, or a tokenizer's content with its `kind`; None if the folder has neither.
    note: line for the user about that tokenizer.
    remarks: lines for the user about what is not read, or changes the weights.
    names: tensor -> its name in the file, if different.
    unused: tensors in the file but not in `tensors`, with the reason.
    family: the family of its tensors, '' if it is named after the model.
    head: entries of a head that is no class of architectures.py.
    adapted: names of the tensors that an adapter changed.
  """

  name: str
  fields: dict[str, Any]
  tensors: Tensors
  tokenizer: str
  lower_case: bool | None
  architecture: str = ''
  objective: Mapping[str, Any] = {}
  labels: tuple[str, ...] = ()
  data: Mapping[str, Any] = {}
  evaluation: Mapping[str, Any] = {}
  generation: generation.Settings = generation.Settings()
  vocabulary: Callable[[], word_vocabulary.Vocabulary | Mapping[str, Any] | None] | None = None
  note: str = ''
  remarks: Sequence[str] = ()
  names: Mapping[str, str] = {}
  unused: Sequence[Row] = ()
  family: str = ''
  head: Sequence[Entry] = ()
  adapted: Collection[str] = ()


def is_folder(directory: Any) -> bool:
  """Return True if a folder has a config.json with a model type of transformers."""
  path = pathlib.Path(directory) / CONFIG
  return path.is_file() and 'model_type' in read_json(path)


def read(directory: Any) -> Folder:
  """Read a folder.

  Raises:
    InputError: a file is missing, truncated or invalid; or the model is of another kind, or has a feature that lmx does
      not compute.
  """
  directory = pathlib.Path(directory)
  if directory.is_file():
    raise InputError(
      f'{directory} is a file; expected the folder with {CONFIG}, or for a ResNet of torchvision no import, but '
      f'train.init_from={directory}; name its folder, {directory.parent}'
    )
  if not directory.is_dir():
    raise InputError(f'{directory} is not a directory')
  if adapter.is_alone(directory):
    adapter.check_alone(directory)
  if not (directory / CONFIG).exists():
    raise InputError(f'{directory / CONFIG} does not exist; {_content(directory)}')
  config = read_json(directory / CONFIG)
  family = _family(directory, config)
  layout = huggingface.family(family)
  try:
    remarks = adapter.check(directory, config)
    fields, (tensors, unused) = layout.fields(config), _tensors(directory)
    adapted = adapter.merge(directory, layout, tensors, _pickled)
    if hasattr(layout, 'used'):
      tensors = layout.used(fields, tensors)
    architecture = architectures.recognise(family, config, tensors)
    objective, labels = architectures.objective(architecture, config), architectures.labels(architecture, config)
  except InputError as error:
    raise InputError(f'{directory}: {error}') from None
  tokenizer = _tokenizer_kind(directory, layout.TOKENIZER)
  lowers, remarks = _LOWERS[tokenizer], [*remarks, *adapted[0], *_remarks(directory, config, architecture)]
  remarks += _rebuilt(directory, tokenizer) if tokenizer in _FAST else []
  remarks += layout.remarks(directory, config, tensors) if hasattr(layout, 'remarks') else []
  own: dict[str, Any] = {'adapted': adapted[1], 'family': family}
  own |= {'data': getattr(layout, 'DATA', {}), 'note': getattr(layout, 'NOTE', '')}
  if hasattr(layout, 'evaluation'):
    own['evaluation'] = layout.evaluation(directory, config)
    own['generation'] = generation.Settings({}, *generation.source(directory, config))
  if family in generation.FAMILIES and architectures.HEADS[architecture].tied:
    read_settings = generation.read_kept if family == 'xlnet' else generation.read_options
    own['generation'] = read_settings(directory, config, fields['V'])
  if hasattr(layout, 'vocabulary'):
    own['vocabulary'] = functools.partial(layout.vocabulary, directory)
  name = getattr(layout, 'MODEL', family)
  return Folder(
    name, fields, tensors, tokenizer, lowers, architecture, objective, labels, remarks=remarks, unused=unused, **own
  )


def _tokenizer_kind(directory: pathlib.Path, usual: str) -> str:
  """Return the kind of a folder's tokenizer: from the class it names, else its model's default."""
  path = directory / 'tokenizer_config.json'
  if usual not in _CLASSES.values():
    return usual
  name = read_json(path).get('tokenizer_class') if path.exists() else None
  if name in (_ANY_CLASS, 'TokenizersBackend') and (directory / 'tokenizer.json').exists():
    model = read_json(directory / 'tokenizer.json').get('model')
    suffix = model.get('end_of_word_suffix') if isinstance(model, dict) else None
    named = {'WordPiece': 'wordpiece', 'BPE': 'gpt_bpe' if suffix else 'bpe'}
    return named.get(str(model.get('type')), usual) if isinstance(model, dict) else usual
  return _CLASSES.get(name.removesuffix('Fast'), usual) if isinstance(name, str) else usual


def _content(directory: pathlib.Path) -> str:
  """Return a line on the files in a folder without config.json, and the expected ones."""
  names = sorted(path.name for path in directory.iterdir())
  shown = ', '.join(names[:_SHOWN]) + f' and {len(names) - _SHOWN} more' * (len(names) > _SHOWN)
  expected = 'a folder of transformers, or the files of a release (docs/notes/weights.md lists both)'
  pickled = any(name.endswith('.pkl') for name in names)
  fix = "; of fastai's exported Learner (.pkl) save the weights, a .pth beside the words, with learn.save" * pickled
  return f'got {shown or "an empty folder"}; expected {expected}{fix}'


def _family(directory: pathlib.Path, config: Mapping[str, Any]) -> str:
  types = {layout.TYPE: name for name, layout in huggingface.FAMILIES.items() if hasattr(layout, 'TYPE')}
  kind = str(config['model_type']) if 'model_type' in config else ''
  if kind not in types:
    raise InputError(
      f'{directory / CONFIG}: model_type: got "{kind}"{nearest(kind, types)}; expected {", ".join(types)}'
    )
  return types[kind]


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """Return the object in a JSON file; raise InputError if there is none."""
  if not path.exists():
    raise InputError(f'{path} does not exist')
  content = documents.read_json(path)
  if not isinstance(content, dict):
    raise InputError(f'{path}: expected a JSON object')
  return content


def _tensors(directory: pathlib.Path) -> tuple[dict[str, np.ndarray], list[Row]]:
  """Return (tensors from one file or indexed shards, tensors that repeat others); safetensors before pickles."""
  for whole, index in ((WEIGHTS, INDEX), (PICKLES, PICKLES_INDEX)):
    if not (directory / whole).exists() and not (directory / index).exists():
      continue
    names = [whole] if (directory / whole).exists() else _shards(directory, index)
    tensors: dict[str, np.ndarray] = {}
    places: dict[str, str] = {}
    unused: list[Row] = []
    for name in names:
      if not (directory / name).exists():
        raise InputError(f'{directory / name} does not exist; {index} lists it')
      read = mapped.read_safetensors if whole == WEIGHTS else _pickled
      for tensor, x in read(directory / name).items():
        if tensor in tensors:
          unused.append(repeated(f'{tensor} of {name}', x, f'{tensor} of {places[tensor]}', tensors[tensor]))
        else:
          tensors[tensor], places[tensor] = x, name
    return tensors, unused
  raise InputError(f'{directory} has no {WEIGHTS} and no {PICKLES}')


def _remarks(directory: pathlib.Path, config: Mapping[str, Any], architecture: str) -> list[str]:
  """Return lines on the weights and classes of a folder that are not read."""
  remarks = []
  whole, index = (WEIGHTS, INDEX) if (directory / WEIGHTS).exists() else (PICKLES, PICKLES_INDEX)
  shards = [index] * (directory / index).exists()
  shards += [path.name for path in documents.match(directory, whole.replace('.', '-*-of-*.'))]
  if (directory / whole).exists() and shards:
    remarks.append(f'{whole} is read, as transformers does, not {", ".join(shards[:_SHOWN])} beside it')
  if len(named := config.get('architectures') or []) > 1:
    remarks.append(f'architectures: {", ".join(named)}: read as {architecture}')
  return remarks


def _pickled(path: pathlib.Path) -> dict[str, np.ndarray]:
  content = torch_file.read(path)
  if not torch_file.are_tensors(content):
    raise InputError(f'{path}: got a {type(content).__name__}; expected tensors by name, a state_dict')
  return content


def _shards(directory: pathlib.Path, index: str) -> list[str]:
  """Return the names of the files in an index; raise InputError if one is outside the folder."""
  weights = read_json(directory / index).get('weight_map')
  if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights.values()):
    raise InputError(f'{directory / index}: weight_map: got {show(weights)}; expected an object from tensor to file')
  for name in (names := sorted(set(weights.values()))):
    if pathlib.PurePath(name).name != name or not _is_inside(directory.resolve(), (directory / name).resolve()):
      raise InputError(f'{directory / index}: weight_map: got "{name}"; expected a file of this folder')
  return names


def _is_inside(directory: pathlib.Path, path: pathlib.Path) -> bool:
  """Return True if a file is in a folder or, for a snapshot in the Hub's cache, in its blobs."""
  allowed = [directory] + [directory.parent.parent / 'blobs'] * (directory.parent.name == 'snapshots')
  return path.parent in allowed


def write(
  directory: Any,
  name: str,
  cfg: Any,
  params: Mapping[str, Any],
  task: architectures.Task,
  tokenizer: Mapping[str, Any],
  lower_case: bool = True,
  special_tokens: Sequence[str] = (),
  evaluation: Any = None,
  bare: str = '',
  max_shard_size: int = streamed.MAX_SHARD_SIZE,
  options: Mapping[str, Any] = {},
  rows: Rows | None = None,
  row_length: int = 0,
  changes: Mapping[str, Any] = {},
) -> list[str]:
  """Write a folder that `from_pretrained` of transformers loads.

  Args:
    directory: must not exist, or be empty. It is written atomically.
    name: the lmx model.
    cfg: its Config.
    params: {'model': ..., 'objective': ...}.
    task: the task that the run was trained on, which determines the class of the folder.
    tokenizer: content of the tokenizer file: 'kind' and, for subwords, 'model'; with `split_special_tokens` if special
      tokens in a text are text to transformers too.
    lower_case: True if the tokenizer lower-cases.
    special_tokens: special tokens that were added to it: GPT's start, delimiter and classify.
    evaluation: the run's `evaluation` section, for families that write search options.
    bare: the class without a head, written instead of the task's class; see `bare_class`.
    max_shard_size: see `streamed.write_shards`.
    options: fields of `lmx.decoding.text.Options` that the run was imported with.
    rows: the rows that the tokenizer makes; None for those of its kind.
    row_length: tokens to which the run truncates rows, 0 for the model's positions.
    changes: fields of config.json that differ from those of the model and the tokenizer.

  Returns:
    The file names. There is no tokenizer file if Hugging Face has no such kind.

  Raises:
    InputError: no class of transformers computes the same, a parameter is missing, or the directory cannot be written.
  """
  family, architecture = _class(name, cfg, task)
  layout, architecture = huggingface.family(family), bare or architecture
  settings = {'architectures': [architecture], 'model_type': layout.TYPE, **layout.config(cfg)}
  settings |= {'dtype': 'float32'} | _of_task(architectures.config(architecture, task), settings)
  tensors = huggingface.lazy(family, cfg, params, architecture, len(task.labels) or 1)
  with whole(directory) as part:
    positions = getattr(cfg, 'T', 0)  # absent without a position table
    length = min(row_length or positions, positions or row_length)
    if hasattr(layout, 'write'):
      settings |= layout.write(part, tokenizer, evaluation, settings)
    else:
      settings |= _write_tokenizer(part, tokenizer, length, lower_case, special_tokens, rows, family)
    if family in generation.FAMILIES and architectures.HEADS[architecture].tied:
      chosen = generation.keys_of_options(options, settings)
      generation.write(part, chosen)
      settings |= generation.task_params(chosen, 'text-generation')
    settings |= changes
    (part / CONFIG).write_text(json.dumps(settings, indent=2) + '\n', encoding='utf-8')
    streamed.write_shards(part, tensors, max_shard_size)
  return sorted(path.name for path in pathlib.Path(directory).iterdir())


def _class(name: str, cfg: Any, task: architectures.Task) -> tuple[str, str]:
  """Return the family and the class of a run of model `name`; raise InputError if there is none."""
  family = huggingface.family_of(name, cfg)
  if not hasattr(huggingface.family(family), 'TYPE'):
    raise InputError(
      f'model "{name}" is not written as a folder; expected one of '
      + ', '.join(n for n, f in huggingface.FAMILIES.items() if hasattr(f, 'TYPE'))
    )
  return family, architectures.choose(family, task)


def _of_task(fields: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
  """Return the class's own fields of config.json; raise InputError if the model's have other values."""
  for name, value in fields.items():
    if settings.get(name, value) != value:
      raise InputError(
        f'objective: got {value!r} for {name} in config.json; expected {settings[name]!r}, the value of the model; the '
        'class has only one'
      )
  return fields


def notes(name: str, cfg: Any, task: architectures.Task) -> list[str]:
  """Return lines on what transformers computes differently with the folder of a run."""
  family, architecture = _class(name, cfg, task)
  layout = huggingface.family(family)
  return layout.notes(cfg, architecture) if hasattr(layout, 'notes') else []


def bare_class(name: str, cfg: Any, task: architectures.Task, untrained: Collection[str]) -> str:
  """Return the class without a head of pre-training that is among the `untrained` parameters; else ''."""
  parts = {group: paths for group, paths in written(name, cfg, task).items() if group}
  return architectures.without(_class(name, cfg, task)[1], [g for g, paths in parts.items() if paths & {*untrained}])


def spare(name: str, cfg: Any, task: architectures.Task) -> set[str]:
  """Return the paths of the parameters that the class of a run lacks, and of which a folder may have more."""
  groups = architectures.HEADS[_class(name, cfg, task)[1]].spare
  return {path for group, paths in written(name, cfg, task).items() if group in groups for path in paths}


def written(name: str, cfg: Any, task: architectures.Task) -> dict[str, set[str]]:
  """Return the paths of the parameters that are written for a run of model `name`, by part (`Entry.group`)."""
  family, architecture = _class(name, cfg, task)
  entries = architectures.entries(architecture, huggingface.family(family).entries(cfg), cfg.D, len(task.labels) or 1)
  paths: dict[str, set[str]] = {}
  for entry in architectures.class_entries(architecture, entries):
    paths.setdefault(entry.group, set()).add('/'.join(entry.path))
  return paths


@contextlib.contextmanager
def whole(directory: Any) -> Iterator[pathlib.Path]:
  """Yield a directory to fill, which then appears as `directory`, whole or not at all.

  Args:
    directory: must not exist, or be empty.

  Raises:
    InputError: it exists already, or cannot be written.
  """
  directory = pathlib.Path(directory)
  if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
    raise InputError(f'{directory} exists already; choose another directory')
  try:
    with storage.whole(storage.path('--to', directory)) as temporary:
      part = pathlib.Path(temporary)
      part.mkdir(parents=True)
      yield part
  except OSError as error:
    raise InputError(f'{directory} cannot be written: {explain(error)}') from None


def _write_tokenizer(
  directory: pathlib.Path,
  tokenizer: Mapping[str, Any],
  length: int,
  lower_case: bool,
  special_tokens: Sequence[str],
  rows: Rows | None = None,
  family: str = '',
) -> dict[str, int | None]:
  """Write the tokenizer's files; return the ids of its special tokens for config.json."""
  kind = tokenizer['kind']
  if kind == 'words' and (words := word_vocabulary.write(directory, tokenizer)):
    (directory / 'tokenizer_config.json').write_text(json.dumps(words, indent=2) + '\n', encoding='utf-8')
    return {'eos_token_id': tokenizer['tokens'].index('<eos>')} if '<eos>' in tokenizer['tokens'] else {}
  if kind not in _FAST:
    return {}
  model, special = hf.Tokenizer.from_str(json.dumps(tokenizer['model'])), tokenizer.get('special', {})
  settings: dict[str, Any] = {'tokenizer_class': _tokenizer_class(kind, tokenizer['model'])}
  settings |= {'model_max_length': length} if length else {}
  ids: dict[str, str] = {}
  if kind == 'wordpiece':
    names = {role: special.get(role, f'[{role.upper()}]') for role in ('pad', 'unk', 'cls', 'sep', 'mask')}
    settings |= {f'{role}_token': name for role, name in names.items()} | _normalizer(tokenizer['model'], lower_case)
    model.add_special_tokens(list(names.values()))
    sep, cls = ((names[role], int(model.token_to_id(names[role]) or 0)) for role in ('sep', 'cls'))
    model.post_processor = hf.processors.BertProcessing(sep, cls)
    ids = {'pad': names['pad']}
  elif kind == 'bpe':
    ids = {'bos': special.get('bos', _END)} | dict.fromkeys(('eos', 'pad'), special.get('eos', _END))
    settings |= {f'{role}_token': name for role, name in ids.items()} | {'unk_token': ids['eos']}
    settings |= {'add_prefix_space': bool((tokenizer['model']['pre_tokenizer'] or {}).get('add_prefix_space'))}
  elif kind == 'unigram':
    model = _keep_commas_apart(tokenizer) if tokenizer.get('split_commas') else model
    unigram_settings, ids = _unigram(model)
    settings |= unigram_settings | {'do_lower_case': lower_case}
  else:
    settings |= {'unk_token': '<unk>'}
  settings |= {'split_special_tokens': True} if tokenizer.get('split_special_tokens') else {}
  if rows:
    model.post_processor = rows.processor
    settings |= {'tokenizer_class': _ANY_CLASS} if kind in ('wordpiece', 'unigram') else {}
  # Classes of GPT and GPT-2 add the embeddings of token types, which these models lack.
  types = [] if family in ('gpt', 'gpt2') or not family and kind in ('bpe', 'gpt_bpe') else ['token_type_ids']
  if not types or settings['tokenizer_class'] == _ANY_CLASS or (rows and rows.have_types):
    settings |= {'model_input_names': ['input_ids', *types, 'attention_mask']}
  if special_tokens and kind != 'unigram':
    settings |= {'additional_special_tokens': list(special_tokens)} | ({} if ids else {'pad_token': special_tokens[0]})
    ids = ids or {'pad': special_tokens[0]}  # no row ends with this id, so transformers finds each row's last token
  model.save(str(directory / 'tokenizer.json'))
  (directory / 'tokenizer_config.json').write_text(json.dumps(settings, indent=2) + '\n', encoding='utf-8')
  absent = {f'{name}_token_id': None for name in ('bos', 'eos', 'pad')} if kind == 'unigram' else {}
  return absent | {f'{name}_token_id': model.token_to_id(token) for name, token in ids.items()}


def _tokenizer_class(kind: str, model: Mapping[str, Any]) -> str:
  """Return the class of transformers that reads a tokenizer: the kind's own if it has that one's parts."""
  return _ANY_CLASS if _differing(kind, model) else _FAST[kind]


def _differing(kind: str, model: Mapping[str, Any]) -> list[str]:
  """Return the names of the parts of a tokenizer.json that differ from those of the kind's class."""
  found = {name: part if isinstance(part := model.get(name), dict) else {} for name in _PARTS.get(kind, ())}
  return [
    name
    for name, part in found.items()
    if any((part.get(key, _ABSENT.get(key)) or None) != (x or None) for key, x in _PARTS[kind][name].items())
  ]


def _rebuilt(directory: pathlib.Path, kind: str) -> list[str]:
  """Return lines on the parts of a tokenizer.json that transformers 5 replaces by those of the class."""
  path, settings = directory / 'tokenizer.json', directory / 'tokenizer_config.json'
  options = read_json(settings) if settings.exists() else {}
  named = options.get('tokenizer_class')
  if not path.exists() or named in (_ANY_CLASS, 'TokenizersBackend'):
    return []
  model = read_json(path)
  differing = _differing_of_xlnet(model, options) if kind == 'unigram' else _differing(kind, model)
  return [
    f'{path.name}: {part}: {_type(model.get(part))}: read, as by version 4 of transformers; version 5 replaces it by '
    f'that of {named or "the class of the model"}'
    for part in differing
  ]


def _differing_of_xlnet(model: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
  """Return the names of the parts that differ from those of XLNetTokenizer; the file's replacements are alike."""
  normalizers = {step.get('type') for step in _steps(model.get('normalizer'))} - {'Replace', 'Precompiled'}
  words = [(step.get('type'), step.get('prepend_scheme')) for step in _steps(model.get('pre_tokenizer'))]
  own = {'NFKD', 'StripAccents'} | ({'Lowercase'} if options.get('do_lower_case') else set())
  differs = {
    'normalizer': normalizers != own,
    'pre_tokenizer': words != [('WhitespaceSplit', None), ('Metaspace', 'always')],
  }
  return [part for part, is_other in differs.items() if is_other]


def _steps(part: Any) -> list[Mapping[str, Any]]:
  """Return the steps of a normalizer or pre-tokenizer."""
  if not isinstance(part, dict):
    return []
  inner = [part[key] for key in ('normalizers', 'pretokenizers') if isinstance(part.get(key), list)]
  return [step for one in inner[0] for step in _steps(one)] if inner else [part]


def _type(part: Any) -> str:
  return ', '.join(str(step.get('type')) for step in _steps(part)) or 'none'


def _normalizer(model: Mapping[str, Any], lower_case: bool) -> dict[str, Any]:
  """Return the settings with which transformers replaces BERT's normalizer."""
  state = model['normalizer'] or {}
  if state.get('type') != 'BertNormalizer':
    return {'do_lower_case': lower_case}
  return {
    'do_lower_case': state['lowercase'],
    'strip_accents': state['strip_accents'],
    'tokenize_chinese_chars': state['handle_chinese_chars'],
  }


def _keep_commas_apart(tokenizer: Mapping[str, Any]) -> hf.Tokenizer:
  """Return a Unigram model without the subwords of a number with a comma, which XLNet's tokenizer splits again.

  The library cannot split them again, so it sometimes divides a number with commas differently.
  """
  state = copy.deepcopy(dict(tokenizer['model']))
  for entry in state['model']['vocab']:
    entry[1] += _COMMA if entry[0][-1:] == ',' and entry[0][-2:-1].isdigit() else 0
  return hf.Tokenizer.from_str(json.dumps(state))


def _unigram(model: hf.Tokenizer) -> tuple[dict[str, Any], dict[str, str]]:
  """Return (settings with XLNet's special tokens that the tokenizer has, special tokens in config.json)."""
  special = {token.content for token in model.get_added_tokens_decoder().values() if token.special}
  names = dict(bos='<s>', eos='</s>', unk='<unk>', sep='<sep>', pad='<pad>', cls='<cls>', mask='<mask>')
  if _END in special:
    names |= dict(bos=_END, eos=_END)
  names = {name: symbol for name, symbol in names.items() if symbol in special}
  if {'<sep>', '<cls>'} <= special:
    model.post_processor = hf.processors.TemplateProcessing(
      single='$A <sep> <cls>:2',
      pair='$A <sep> $B:1 <sep>:1 <cls>:2',
      special_tokens=[(symbol, model.token_to_id(symbol)) for symbol in ('<sep>', '<cls>')],
    )
  settings: dict[str, Any] = {f'{name}_token': symbol for name, symbol in names.items()}
  settings |= {'padding_side': 'left', 'model_input_names': ['input_ids', 'token_type_ids', 'attention_mask']}
  others = sorted(special - set(names.values()))
  settings |= {'additional_special_tokens': others} if others else {}
  return settings, {name: names[name] for name in ('bos', 'eos', 'pad') if name in names}
