"""Resolution of an experiment file and the command line into checked, frozen dataclasses.

An experiment lists only the fields that differ from the defaults in the dataclasses of each part:

  model       Config of lmx/models/<name>.py, on top of VARIANTS[variant]; V = 0 takes the tokenizer's vocabulary
  objective   Config of lmx/objectives/<name>.py, the model's own objective unless named
  data        lmx/data/pipeline.py; data.batching is the Config of lmx/data/batching/<name>.py
  optim, checkpoint  `__init__.py` of lmx/optim and lmx/checkpoint
  parallel    lmx/engine/__init__.py; log         lmx/reporting/__init__.py
  train, evaluation, samples  lmx/config/schema.py
  matmul_precision  one of lmx.engine.PRECISIONS; float32 if the model computes in it

`resolve` fills in all other fields, so the config in a work directory is complete. Every key can be overridden with
`--config.section.key=value`, also one that the experiment does not name.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np

from lmx import cast, documents, engine, objectives, storage
from lmx.config import experiment, paths, renames, run_files, schema, semantics
from lmx.data import batching, pipeline
from lmx.engine import precision
from lmx.errors import InputError, InputWarning, check_choice
from lmx.kernels.implementations import find_except
from lmx.models import registry
from lmx.redaction import redact

_INPUTS = {'images': 'images_BYXC', 'vectors': 'inputs_BTI'}  # of a model's READS: the array of a batch
# Settings that may differ when a run is resumed: they never change what is computed.
FREE = (*experiment.EXECUTION, 'evaluation')


def load(path_and_arg: str, overrides: Iterable[str] = ()) -> ml_collections.ConfigDict:
  """Read `experiments/foo/bar.py[:arg]`, apply `section.key=value` overrides and fill in every default.

  Raises:
    InputError: no such file, no `get_config`, an unknown key (suggests the nearest) or a value of the wrong type.
  """
  return resolve(experiment.read(path_and_arg), overrides)


def resolve(
  config: Mapping[str, Any], overrides: Iterable[str] = (), *, saved: bool = False
) -> ml_collections.ConfigDict:
  """Return the complete, locked config: defaults, then the experiment, then the overrides.

  Args:
    config: settings of an experiment, or a config.json.
    overrides: 'section.key=value', applied last.
    saved: `config` is the config.json of a run, which keeps the rules it began under (lmx/config/semantics.py).

  Raises:
    InputError: an unknown key, or a value of the wrong type or out of its range.
  """
  settings = experiment.plain(config)
  recorded = _saved_rules(settings.pop('semantics', {}))
  rules = recorded if saved else None
  if not saved:
    schema.check_keys('semantics.', recorded, semantics.RULES)
  else:
    for key, value in semantics.old_settings(_complete(copy.deepcopy(settings), rules)).items():
      experiment.set_value(settings, key.split('.'), value)
  overrides = list(overrides)
  experiment.override(settings, overrides)
  given = [text.partition('=')[0] for text in overrides]
  paths.check(settings, given if saved else paths.KINDS)
  _check_length(settings, given)
  return ml_collections.ConfigDict(_complete(settings, rules, given), convert_dict=True).lock()


def _check_length(settings: Mapping[str, Any], given: Collection[str]) -> None:
  """Raise InputError if the command line sets the epochs of a run whose updates are set, which it would ignore."""
  length = settings.get('train', {})
  if 'train.epochs' in given and 'train.steps' not in given and length.get('epochs') and length.get('steps'):
    raise InputError(
      f'train.epochs: got {length["epochs"]} with train.steps={length["steps"]} of the config, which counts; set '
      'train.steps=0 too'
    )


def _defaults(config: Any) -> dict[str, Any]:
  """Return the defaults of a dataclass's fields that have one."""
  has = lambda field: field.default is not dataclasses.MISSING
  return {field.name: field.default for field in dataclasses.fields(config) if has(field)}


def _saved_rules(value: Any) -> dict[str, int]:
  """Return rule -> number under which a run began, from the `semantics` of its config.json."""
  numbers = cast.cast('semantics', dict, value)
  return {name: cast.cast(f'semantics.{name}', int, number) for name, number in numbers.items()}


def _complete(settings: dict[str, Any], rules: Mapping[str, int] | None, given: Collection[str] = ()) -> dict[str, Any]:
  """Return `settings` with every default, and with the current rules of computation or the `rules` of a saved run.

  `given` are the keys that the command line set.
  """
  settings.pop('semantics', None)
  schema.check_sections(settings)
  settings['model'] = model = renames.model(settings.get('model', {}))
  if 'name' not in model:
    raise InputError('model.name: missing in the config; set it')
  _copy_sizes(settings, given)
  _copy_width(settings, given)
  variant = cast.cast('model.variant', str, model.get('variant', 'tiny'))
  module = registry.get(model['name'])
  fields = {k: v for k, v in model.items() if k not in ('name', 'variant')}
  names = schema.field_names(module.Config)
  renames.check_fields(model['name'], fields, names)
  schema.check_keys('model.', fields, ['name', 'variant', *names])
  if rules is not None:  # a run has every field of its version; later ones do not follow its variant
    fields = {**_defaults(module.Config), **fields}
  if rules is None:
    fields |= _texts(model['name'], fields, settings.get('data', {}), given)
  sizes = cast.convert('model', module.Config, fields)
  vocabulary = {'V': sizes.pop('V')} if sizes.get('V') == 0 else {}  # 0: the tokenizer's
  sized = registry.config(model['name'], variant, **sizes)
  complete: dict[str, Any] = {
    'name': cast.cast('name', str, settings.get('name', model['name'])),
    'seed': schema.seed(settings.get('seed', 0)),
    'model': {'name': model['name'], 'variant': variant, **dataclasses.asdict(sized), **vocabulary},
    'objective': _objective(module, settings.get('objective', {})),
  }
  if 'V' in complete['model'] and 'V' not in fields:
    complete['model']['V'] = 0
  for name in schema.SECTIONS:
    complete[name] = dataclasses.asdict(schema.section(name, settings.get(name, {})))
  schema.check_keys('evaluation.model.', complete['evaluation']['model'], names)
  complete['matmul_precision'] = _precision(settings.get('matmul_precision', ''), complete)
  return {**complete, 'semantics': semantics.rule_numbers(complete, rules)}


def _texts(name: str, fields: Mapping[str, Any], data: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
  """Return the fields of a model that follow from the number of texts in a row, if its config has texts=0.

  Args:
    name: of the model.
    fields: its section of the config.
    data: the data section.
    given: keys that the command line set, which are not changed.

  Raises:
    InputError: the user's table has another number of texts than the model reads.
  """
  module = registry.get(name)
  own = fields.get('texts', getattr(module.Config, 'texts', None))
  if not module.TEXTS or not (own == 0 or data.get('dataset') == 'table_files'):
    return {}
  count = schema.section('data', data).documents_per_example
  if count not in module.TEXTS:
    wanted = ' or '.join(map(str, module.TEXTS))
    raise InputError(
      f'data.texts: got {count} with model {name}; expected {wanted} columns, because it reads {wanted} texts; set it, '
      f'or choose --config=experiments/{"bcn/tasks.py:own" if count == 1 else "esim/pairs.py:own_pairs"}'
    )
  if own not in (0, None, count):
    raise InputError(f'model.texts: got {own} with {count} columns in data.texts; expected {count}; set model.texts=0')
  follows = module.TEXTS[count] if own == 0 else {}
  return {key: x for key, x in follows.items() if key == 'texts' or f'model.{key}' not in given}


def _precision(value: Any, complete: Mapping[str, Any]) -> str:
  """Return `matmul_precision`, cast from `value`, by default the one for the dtypes in which the model computes."""
  trained = complete['model'].get('dtype', 'float32')
  dtypes = [trained, complete['evaluation']['model'].get('dtype', trained)]
  name = cast.cast('matmul_precision', str, value) or precision.default(dtypes)
  check_choice('matmul_precision', name, engine.PRECISIONS)
  return name


def with_saved_rules(config: ml_collections.ConfigDict, saved: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Return `config` with the rules under which the run of the resolved config `saved` began."""
  earlier_rules = semantics.old_settings(saved)
  settings = experiment.plain(config)
  for key, value in earlier_rules.items():
    experiment.set_value(settings, key.split('.'), value)
  settings['semantics'] = experiment.plain(saved)['semantics']
  return ml_collections.ConfigDict(settings, convert_dict=True).lock()


# Settings whose "auto" each run resolves on its own machine.
_FOUND = {'attention': ('numba', 'without_numba'), 'backend': ('numba', 'xla'), 'update_kernel': ('numba', 'xla')}


# Vocabulary settings, which a run takes with the tokenizer of its initial run.
_VOCABULARY = (
  *('tokenizer', 'lower_case', 'vocabularies', 'vocab_size', 'target_vocab_size', 'min_count', 'prefix_space', 'marks'),
)


def _copy_sizes(settings: dict[str, Any], given: Collection[str]) -> None:
  """Fill in the settings that `train.like_init` copies from another run; a complete config copies none.

  Raises:
    InputError: there is no such run, or the command line gave another value for one of its settings.
  """
  train, model, data = (settings.setdefault(name, {}) for name in ('train', 'model', 'data'))
  missing = _unnamed_sizes(model)
  chosen = schema.section('train', train) if missing and 'like_init' in train else schema.Train(steps=1)
  if not chosen.like_init or not chosen.init_from:
    return
  start = storage.check_path('train.init_from', chosen.init_from, storage.FOLDER)
  try:
    other = run_files.read_config(start)
  except InputError as error:
    raise InputError(f'train.init_from: {error}; a run that has begun resumes by --config=DIR/config.json') from None
  where = f'train.init_from: {start}/config.json'
  sizes = renames.model(documents.field(other, 'model', dict, where))
  text = documents.field(other, 'data', dict, where)
  if sizes.get('name') != model['name']:
    raise InputError(f'train.init_from: got {start}, a run of {sizes.get("name")}; expected one of {model["name"]}')
  takes_tokenizer = 'tokenizer_path' not in data and pipeline.has_texts(str(data.get('dataset', '')))
  copied = {'model.variant': sizes.get('variant')}
  copied |= {f'data.{name}': text[name] for name in _VOCABULARY if takes_tokenizer and name in text}
  for key in (key for key in copied if key in given):
    section, _, name = key.partition('.')
    if settings[section][name] != copied[key]:
      raise InputError(
        f'{key}: got {settings[section][name]}; runs that begin from {start} have {copied[key]}; omit it'
      )
  model |= {name: sizes[name] for name in ('variant', *missing) if name in sizes}
  model |= {name: 'auto' for name, found in _FOUND.items() if name in missing and model.get(name) in found}
  for name in ('length', 'eval_length'):
    if 'T' in missing and model.get('T') and name in data:  # at most as long as the model's positions
      own, longest = cast.cast(f'data.{name}', int, data[name]), cast.cast('model.T', int, model['T'])
      if own > longest and f'data.{name}' in given:
        raise InputError(
          f'data.{name}: got {own}; runs that begin from {start} have {longest} positions; lower it, or set model.T'
        )
      data[name] = min(own, longest)
  if takes_tokenizer:
    data |= {name: text[name] for name in ('tokenizer', 'lower_case') if name in text}
    data['tokenizer_path'] = str(pathlib.Path(chosen.init_from) / 'tokenizer')


def _copy_width(settings: dict[str, Any], given: Collection[str]) -> None:
  """Set the width of the model's word table to that of the word vectors, unless the command line gave one.

  A model with a single width has it in D, which the vectors set if it is 0.
  """
  model, data, train = (settings[name] for name in ('model', 'data', 'train'))
  single = not registry.get(model['name']).WORD_TABLE
  if 'model.E' in given or single and model.get('D') != 0:
    return
  if data.get('vectors') or train.get('init_from'):
    from lmx.config import word_vectors  # reads files in formats that few configs name

    if (source := word_vectors.source(model, data, train)) and (width := word_vectors.width(source)):
      model['D' if single else 'E'] = width
      if single and width % 2:
        raise InputError(f'{source}: got vectors of width {width}; expected an even width, which becomes model.D')
    elif single:
      del model['D']  # the default, until the reader of the vectors reports what is wrong


def _unnamed_sizes(model: Mapping[str, Any]) -> list[str]:
  """Return the fields that the model section of a config does not set; V is the tokenizer's."""
  return [name for name in schema.field_names(registry.get(model['name']).Config) if name != 'V' and name not in model]


def inherited(config: Mapping[str, Any], overrides: Iterable[str] = ()) -> dict[str, str]:
  """Return key -> source for the keys that `train.like_init` would copy from a run that the config does not name yet.

  Args:
    config: settings of an experiment, complete in a config.json, which copies none.
    overrides: 'section.key=value', applied last.
  """
  settings = experiment.plain(config)
  experiment.override(settings, overrides)
  train = schema.section('train', settings.get('train', {}))
  if not train.like_init or train.init_from:
    return {}
  model, data = renames.model(settings['model']), settings.get('data', {})
  missing = _unnamed_sizes(model)
  keys = [f'model.{name}' for name in (*missing, *(['variant'] if missing else []))]
  if 'dtype' in missing and not settings.get('matmul_precision'):
    keys.append('matmul_precision')
  if missing and 'tokenizer_path' not in data and pipeline.has_texts(str(data.get('dataset', ''))):
    keys += [f'data.{name}' for name in ('tokenizer', 'lower_case', 'tokenizer_path')]
  lengths = [f'data.{name}' for name in ('length', 'eval_length') if 'T' in missing and name in data]
  return dict.fromkeys(lengths, 'at most model.T') | dict.fromkeys(
    keys, 'copied from train.init_from, which is not set; see train.like_init'
  )


def to_run(
  config: Mapping[str, Any], vocab_size: int | None = None, workdir: Any = None, source_size: int = 0
) -> schema.Run:
  """Convert a resolved config to frozen dataclasses.

  Args:
    config: result of `resolve`.
    vocab_size: vocabulary size of the tokenizer; needed if model.V is 0.
    workdir: work directory of the run, where the config's paths are recorded (lmx/config/paths.py).
    source_size: vocabulary size of the source's own tokenizer; 0: source and target share one.

  Raises:
    InputError: a vocabulary of the model is smaller than the tokenizer's, or the length exceeds the model's positions.
  """
  plain = paths.locate(experiment.plain(config), workdir)
  model = dict(plain['model'])
  name, variant = model.pop('name'), model.pop('variant')
  if vocab_size is not None and 'V' in model:
    _set_size(model, 'V', vocab_size, 'the tokenizer')
    if 'source_V' in model and (source_size or model['source_V']):
      _set_size(model, 'source_V', source_size or vocab_size, "the source's tokenizer")
  objective = dict(plain['objective'])
  objective_name = objective.pop('name')
  objective_cls = objectives.get(objective_name).Config
  model_cfg = registry.get(name).Config(**cast.convert('model', registry.get(name).Config, model))
  sections = {name: schema.section(name, plain[name]) for name in schema.SECTIONS}
  longest = max(sections['data'].length, sections['data'].eval_length)
  if 0 < getattr(model_cfg, 'T', 0) < longest:
    raise InputError(f'data.length: got {longest}; expected at most model.T={model_cfg.T} positions')
  if sections['data'].vectors and not registry.get(name).WORD_TABLE:
    others = ', '.join(other for other in registry.names() if registry.get(other).WORD_TABLE)
    raise InputError(
      f'data.vectors: got {sections["data"].vectors} with model {name}; expected a model with a word table ({others}); '
      "set data.vectors to ''"
    )
  find_except(sections['parallel'].equations)  # checks the names
  _check_measurement(name, objective_name, sections)
  _check_direction(model_cfg, sections['data'])
  _check_vocabularies(name, model_cfg, sections['data'].vocabularies == 'separate' or bool(source_size))
  objective_cfg = objective_cls(**cast.convert('objective', objective_cls, objective))
  _check_inputs(name, objective_name, objective_cfg)
  objective_cfg = _with_windows(objective_cfg, sections)
  return schema.Run(
    name=plain['name'],
    seed=plain['seed'],
    matmul_precision=plain['matmul_precision'],
    model_name=name,
    variant=variant,
    model=model_cfg,
    measured=_measured(name, model_cfg, sections['evaluation'].model),
    objective_name=objective_name,
    objective=objective_cfg,
    **sections,
  )


def _set_size(model: dict[str, Any], field: str, size: int, of: str) -> None:
  """Set a vocabulary size of a model section that is 0; raise InputError if it is smaller than the tokenizer's."""
  model[field] = model.get(field) or size
  if model[field] < size:
    raise InputError(
      f'model.{field}: got {model[field]}; expected at least {size}, the vocabulary size of {of}; set model.{field}=0 '
      'to take it from the tokenizer'
    )


def _check_vocabularies(name: str, model_cfg: Any, are_separate: bool) -> None:
  """Raise InputError if source and target have separate vocabularies, and the model has one table for both."""
  if not are_separate:
    return
  if not hasattr(model_cfg, 'source_V'):
    others = [other for other in registry.names() if hasattr(registry.get(other).Config, 'source_V')]
    raise InputError(
      f'data.vocabularies: got "separate" with model {name}, which has no table for a source; expected "shared"; omit '
      f'it, or set model.name to {", ".join(others)}'
    )
  if getattr(model_cfg, 'shared', False):
    raise InputError(
      'data.vocabularies: got "separate" with model.shared=true, one table for both languages; expected model.shared='
      'false; set it, or data.vocabularies=shared'
    )


def _measured(name: str, cfg: Any, changes: Mapping[str, Any]) -> Any:
  """Return the model's Config with `evaluation.model`. Raises InputError for fields unknown or changing parameters."""
  schema.check_keys('evaluation.model.', changes, schema.field_names(type(cfg)))
  if not changes:
    return cfg
  changed = dataclasses.replace(cfg, **cast.convert('evaluation.model', type(cfg), changes))
  check_choice('evaluation.model.dtype', changed.dtype, registry.DTYPES)
  registry.check_layers(changed)
  # V is 0 until the data set is known.
  if getattr(cfg, 'V', 1) and _parameter_shapes(name, changed) != _parameter_shapes(name, cfg):
    raise InputError(f'evaluation.model: got {dict(changes)}; expected settings that change no parameters')
  return changed


@functools.lru_cache(64)
def _parameter_shapes(name: str, cfg: Any) -> Any:
  return jax.eval_shape(functools.partial(registry.get(name).init, cfg), jax.random.key(0))


def _check_measurement(model: str, objective: str, sections: Mapping[str, Any]) -> None:
  """Raise InputError if checkpoints to average, a source to translate or rows to save would be missing."""
  evaluation, optim, data = sections['evaluation'], sections['optim'], sections['data']
  if optim.restore_best and not sections['checkpoint'].keep_best:
    raise InputError(
      'checkpoint.keep_best: got False with optim.restore_best, which reads the best checkpoint; set one of the two'
    )
  if evaluation.which == 'average':
    if sections['checkpoint'].keep_last < evaluation.average:
      raise InputError(
        f'evaluation.average: got {evaluation.average}; expected at most checkpoint.keep_last = '
        f'{sections["checkpoint"].keep_last}; set checkpoint.keep_last={evaluation.average}'
      )
    if optim.ema or optim.asgd != 'off':
      raise InputError(
        'evaluation.which: got "average" with a running average (optim.ema, optim.asgd); expected one average of the '
        'parameters; set one of the two'
      )
  if evaluation.stride > (data.eval_length or data.length) * (data.batching.name in ('windows', 'streams')):
    raise InputError(
      f'evaluation.stride: got {evaluation.stride}; expected data.batching "windows" or "streams" at least as long'
    )
  if evaluation.images:
    if not hasattr(data.batching, 'evaluation'):
      raise InputError(
        f'evaluation.images: got "{evaluation.images}" with data.batching "{data.batching.name}"; expected "", because '
        'only data.batching "images" reads image files'
      )
    module: Any = batching.get(data.batching.name)
    check_choice('evaluation.images', evaluation.images, module.EVALUATIONS)
  if evaluation.beam and registry.get(model).READS != 'source':
    raise InputError(f'evaluation.beam: got {evaluation.beam}; expected 0, because {model} reads no source')
  if (every := sections['samples'].every) and not objectives.get(objective).SAMPLES:
    raise InputError(f'samples.every: got {every}; expected 0, because objective "{objective}" has no samples')
  if evaluation.save_rows and not objectives.get(objective).ROWS:
    raise InputError(
      f'evaluation.save_rows: got true; expected false, because an evaluation by objective "{objective}" has no rows'
    )


def _check_inputs(model: str, objective: str, cfg: Any) -> None:
  """Raise InputError if the objective's input (text, images or vectors) differs from the model's."""
  module = registry.get(model)
  reads, own = module.READS, module.OBJECTIVE
  keys = objectives.get(objective).shapes(cfg, 1, 8).keys()
  for inputs, key in _INPUTS.items():
    if (reads == inputs) != (key in keys):
      verb = 'reads' if reads == inputs else 'does not read'
      raise InputError(f'objective.name: got {objective} with model {model}, which {verb} {inputs}; expected {own}')


def _with_windows(cfg: Any, sections: Mapping[str, Any]) -> Any:
  """Return the objective's Config with the sides of windows and images if images are evaluated with their own pixels.

  Raises:
    InputError: it has such sides, but no evaluation reads windows.
  """
  data, names = sections['data'], [name for name in ('window', 'base') if hasattr(cfg, name)]
  if 'windows' in (sections['evaluation'].images, getattr(data.batching, 'evaluation', '')):
    module: Any = batching.get(data.batching.name)
    sides = {'window': data.length, 'base': module.base_size(data.batching, data.length)}
    return dataclasses.replace(cfg, **{name: getattr(cfg, name) or sides[name] for name in names})
  for name in names:
    if value := getattr(cfg, name):
      raise InputError(
        f'objective.{name}: got {value}; expected 0, because no evaluation reads windows; set evaluation.images=windows'
      )
  return cfg


def _check_direction(model_cfg: Any, data: Any) -> None:
  """Raise InputError if left-to-right prediction uses a model that sees later tokens."""
  if getattr(data.batching, 'masking', '') == 'left_to_right' and not getattr(model_cfg, 'causal', False):
    raise InputError(
      'data.batching.masking: got "left_to_right" with a model that sees the tokens it predicts; set model.causal=true'
    )


def with_corpus(
  config: ml_collections.ConfigDict, corpus: Any, workdir: Any = None
) -> tuple[ml_collections.ConfigDict, schema.Run]:
  """Return config and run with the fields that the data determines: model.V and an objective's number of classes."""
  data = schema.section('data', experiment.plain(config)['data'])
  tokenizer = corpus.tokenizer
  run = to_run(config, pipeline.vocab_size(data, tokenizer), workdir, pipeline.source_size(tokenizer))
  _check_longest(run, corpus)
  run = dataclasses.replace(run, evaluation=dataclasses.replace(run.evaluation, split=measured_split(run, corpus)))
  run = dataclasses.replace(run, model=registry.get(run.model_name).settle(run.model))
  counts = lambda: np.bincount(corpus.splits['train'].tokens, minlength=run.model.V).tolist()
  return _settle(config, with_counts(run, counts), corpus.manifest)


def with_counts(run: schema.Run, counts: Callable[[], Sequence[int]]) -> schema.Run:
  """Return a run with the fields of its model that the counts of the tokens of the training text determine."""
  model = registry.get(run.model_name)
  settled = model.with_counts(run.model, counts)
  counted = {name: getattr(settled, name) for name in model.COUNTED}
  measured = dataclasses.replace(run.measured, **counted) if counted else run.measured
  return dataclasses.replace(run, model=settled, measured=measured)


def _settle(
  config: ml_collections.ConfigDict, run: schema.Run, manifest: Mapping[str, Any]
) -> tuple[ml_collections.ConfigDict, schema.Run]:
  """Return config and run with the model of `run` and the objective's fields that a manifest determines."""
  settled = config.copy_and_resolve_references().unlock()
  settled.model.update({key: x for key, x in dataclasses.asdict(run.model).items() if key in settled.model})
  objective = objectives.get(run.objective_name).resolve(run.objective, manifest)
  settled.objective.update(dataclasses.asdict(objective))
  return settled.lock(), dataclasses.replace(run, objective=objective)


def with_records(config: Mapping[str, Any], saved: Mapping[str, Any], workdir: Any) -> ml_collections.ConfigDict:
  """Return a config with the fields that the run in `workdir` determined when it began, from its own records.

  Args:
    config: resolved config.
    saved: resolved config of the run, whose kernels replace "auto".
    workdir: work directory of the run.
  """
  full = ml_collections.ConfigDict(experiment.plain(config), convert_dict=True).lock()
  data = schema.section('data', experiment.plain(config)['data'])
  tokenizer = run_files.read_tokenizer(workdir)
  run = to_run(full, pipeline.vocab_size(data, tokenizer), workdir, pipeline.source_size(tokenizer))
  chosen = vars(registry.get(run.model_name).settle(run.model))
  kernels = {name: saved['model'][name] for name, value in vars(run.model).items() if chosen[name] != value}
  kernels |= {name: tuple(saved['model'].get(name, ())) for name in registry.get(run.model_name).COUNTED}
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', InputWarning)  # shown when the run started
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, **kernels))
    return _settle(full, run, run_files.read_data(workdir))[0]


def measured_split(run: schema.Run, corpus: Any) -> str:
  """Return the first split of `evaluation.split` that the data has, with labels if the objective needs them."""
  names = run.evaluation.split.split(',')
  if len(names) == 1:
    return names[0]
  available = [name for name in names if name in corpus.splits]
  needs_labels = {'labels_B', 'scores_B'} & objectives.get(run.objective_name).shapes(run.objective, 1, 8).keys()
  texts = corpus.manifest.get('texts', 1)
  usable = [name for name in available if not needs_labels or corpus.splits[name].is_labelled(texts)]
  for name in available[: available.index(usable[0])] if usable else ():
    lines = pipeline.unlabelled_rows(run.data, name) if corpus.splits[name].has_labels(texts) else ''
    message = f'evaluation.split: {name} has rows without a label{lines}; {usable[0]} is measured'
    warnings.warn(message, InputWarning, stacklevel=2)
  return (usable or available or names)[0]


def _check_longest(run: schema.Run, corpus: Any) -> None:
  """Raise InputError if data rows exceed the model's positions, which JAX would not detect."""
  module = batching.get(run.data.batching.name)
  field, bound = ('T', run.model.T) if hasattr(run.model, 'T') else ('S', getattr(run.model, 'longest', None))
  if bound and (longest := module.longest(run.data, corpus)) > bound:
    raise InputError(
      f'model.{field}: got {bound} positions; expected {longest}, the length of the longest row of the held-out '
      f'splits; set model.{field}, or truncate longer rows with data.eval_length'
    )


def digest(config: Mapping[str, Any]) -> str:
  """Return twelve hexadecimal digits that depend on every setting that changes what is computed."""
  flat = flatten(config)
  computed = semantics.in_digest({k: v for k, v in flat.items() if not _is_free(k, flat)})
  return hashlib.sha256(json.dumps(computed, sort_keys=True).encode()).hexdigest()[:12]


def check_same(saved: Mapping[str, Any], config: Mapping[str, Any], workdir: Any) -> None:
  """Raise InputError with the keys that differ if the run in `workdir` computes something else."""
  old, new = redact(flatten(saved)), redact(flatten(config))  # config.json has no password
  lines = [
    f'  {k}: {old.get(k)!r} in the run, {new.get(k)!r} in this config'
    for k in sorted(old.keys() | new.keys())
    if old.get(k) != new.get(k) and not _is_free(k, new)
  ]
  if lines:
    differences = '\n'.join(lines)
    gone = [key for key in ('train.init_from', 'data.vectors') if new.get(key) and not _exists(str(new[key]))]
    reason = f' ({gone[0]}: {new[gone[0]]} is missing, whose sizes the run has)' if gone else ''
    raise InputError(
      f'{workdir} holds a run of another config{reason}; choose another --workdir, resume it with its own config by '
      f'--config={workdir}/config.json, or change these settings back:\n{differences}'
    )


def _exists(path: str) -> bool:
  return storage.is_remote(path) or os.path.exists(storage.expand(path))


def evaluation_changes(saved: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
  """Return a line for each setting of the evaluation that differs from the one with which the run began."""
  old, new = flatten(saved), flatten(config)
  return [
    f'{key}: got {new.get(key)!r}, where the run began with {old.get(key)!r}'
    for key in sorted(old.keys() | new)
    if key.startswith('evaluation.') and old.get(key) != new.get(key)
  ]


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
  """Return {'section.key': value}, with lists for tuples, as after a round trip through JSON."""
  return dict(experiment.flatten(json.loads(json.dumps(experiment.plain(config)))))


def _is_free(key: str, config: Mapping[str, Any]) -> bool:
  """Return True if a setting may change when a run is resumed."""
  if key == 'checkpoint.every_steps' and config['evaluation.which'] == 'average':
    return False  # it determines which checkpoints are averaged
  return key in FREE or key.split('.')[0] in FREE


def _objective(model: Any, section: Mapping[str, Any]) -> dict[str, Any]:
  name = section.get('name', model.OBJECTIVE)
  cls = objectives.get(name).Config
  defaults = model.OBJECTIVE_FIELDS if name == model.OBJECTIVE else {}
  fields = {**defaults, **{k: v for k, v in section.items() if k != 'name'}}
  schema.check_keys('objective.', fields, ['name', *schema.field_names(cls)])
  return {'name': name, **dataclasses.asdict(cls(**cast.convert('objective', cls, fields)))}
