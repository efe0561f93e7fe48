"""Sections of a config: their dataclasses, and their checks, without JAX; and the resolved run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from lmx import cast, checkpoint, decoding, documents, engine, optim, ranges, reporting
from lmx.config import experiment
from lmx.data import batching, pipeline
from lmx.errors import InputError, check_choice, check_least, check_range, check_share, nearest
from lmx.reporting import profile_schedule


@dataclasses.dataclass(frozen=True)
class Train:
  """Training loop.

  Attributes:
    steps: number of updates; 0 takes it from `epochs`.
    epochs: passes over the training split, used if `steps` is 0; may be a fraction.
    eval_every: updates between two validations; 0 validates once an epoch.
    log_every: updates between two lines of metrics.
    on_nan: effect of a non-finite loss: 'stop' ends the run, 'skip' skips that update.
    max_skips: skipped updates after which the run stops with an error.
    init_from: work directory of a finished run whose best parameters initialise this run; a file of word vectors
      (GloVe, word2vec, fastText) or a run of word2vec for its word table (lmx/runs/word_table.py); or for an image
      model a torchvision ResNet file for its backbone (.safetensors or .pth; lmx/interop/torchvision.py); ''
      initialises randomly.
    init_parts: parts of its parameters to copy, such as 'model' (without the objective's head) or
      'model=model/encoder' (origin=target); () copies all, which requires the same parameters in both runs.
    like_init: copy the model's sizes and the tokenizer from init_from too, unless the config names them. Rows are then
      at most as long as its positions. Another value on the command line for a setting of that vocabulary, for
      model.variant or for a longer row is refused. No effect without init_from.
    patience: validations without improvement after which the run stops; 0 never stops it.
    patience_form: 'best': that many validations without a new best. 'recent': a validation that is no better than each
      of the `patience` before it, from the validation number `patience` + 2 on (nyu-mll/GLUE-baselines, src/trainer.py,
      lines 137 to 150).
    best_by: score of the validations by which one is better, for `patience`, evaluation.which=best and
      optim.schedule=plateau: 'loss', 'headline' (the objective's own), or the name of a metric that the log shows, such
      as accuracy or span_f1. 'f1' and 'exact_match' of answers, and 'bleu' and the other metrics of translations (with
      evaluation.beam), need predictions of the whole split: every validation then makes them.
    heartbeat: seconds between two heartbeats of a process; see lmx/cluster/hosts.py.
    watchdog: seconds without progress in an update after which a process writes the stacks of its threads to its log
      and exits with code 75, which launchers start again; None is the larger of half an hour and 20 times the slowest
      update, 0 is never. Compilation, validation and saving do not count.
    ties: of validations with the same best score, the best one: 'earlier', or 'later' (lukecq1231/nli,
      scripts/ESIM/main.py, line 909).
    profile: updates whose operations are traced, for `lmx profile`, XProf and Perfetto: 'START:STOP' from update START,
      counted from 1, to STOP - 1, such as 100:110; 'every=N' five after each N-th; '' none.
    profile_hosts: numbers of the processes that trace; () all.
  """

  steps: int = 0
  epochs: float = 0.0
  eval_every: int = 0
  log_every: int = 10
  on_nan: str = 'stop'
  max_skips: int = 100
  init_from: str = ''
  init_parts: tuple[Annotated[str, ranges.Text()], ...] = ()
  like_init: bool = False
  patience: int = 0
  patience_form: str = 'best'
  best_by: str = 'loss'
  heartbeat: Annotated[float, ranges.Limits(0, is_open=True)] = 60.0
  watchdog: float | None = None
  ties: str = 'earlier'
  profile: str = ''
  profile_hosts: Annotated[tuple[int, ...], ranges.Distinct()] = (0,)

  def __post_init__(self) -> None:
    if self.on_nan not in ('stop', 'skip'):
      raise InputError(f'train.on_nan: got "{self.on_nan}"; expected "stop" or "skip"')
    check_choice('train.patience_form', self.patience_form, ('best', 'recent'))
    check_choice('train.ties', self.ties, ('earlier', 'later'))
    if self.profile:
      profile_schedule.parse(self.profile)
    if min(self.profile_hosts, default=0) < 0:
      raise InputError(f'train.profile_hosts: got {self.profile_hosts}; expected process numbers from 0')
    if self.steps <= 0 and self.epochs <= 0:
      raise InputError('train.steps: got 0 with train.epochs of 0; expected one of them above 0')
    check_range('train.epochs', self.epochs, 0, 1e9)
    check_least('train', self, steps=0, eval_every=0, log_every=1, max_skips=0, patience=0)


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """Evaluation at the end of a run.

  Attributes:
    split: the split that `results.json` reports; of several, separated by commas, the first that the data has, with
      labels if the objective needs them.
    which: evaluated parameters: 'best' by `train.best_by`, 'last', or 'average': the mean of the newest checkpoints
      (Vaswani et al. 2017, section 6.1).
    average: number of checkpoints in that mean; `checkpoint.keep_last` must be at least as many.
    beam: beam size of the search that also translates the split (lmx/evaluation/translation.py); 0 for no
      translation.
    alpha: exponent of its length penalty.
    penalty: 'gnmt': ((5 + n) / 6)^alpha for n tokens (Wu et al. 2016, equation 14), or 'power': n^alpha.
    stop: stopping criterion of the search, 'bound', 'current' or 'full', see lmx/decoding/beam_search.py.
    max_extra: maximum tokens of a translation beyond its source's length.
    min_ratio: minimum translation tokens per source token, see lmx/decoding/translate.py; 0 for no such bound.
    max_ratio: maximum translation tokens per source token, instead of `max_extra`; 0 uses `max_extra`.
    max_length: maximum translation tokens, instead of both; 0 uses these.
    allow_unk: whether a translation may contain the unknown word.
    forbidden: ids that no translation contains; None forbids padding, the unknown word without `allow_unk`, and rows of
      the model's table beyond the tokenizer's ids.
    eos_ids: ids that end a translation; None for the tokenizer's end-of-text token.
    forbidden_first, bad_words, min_tokens, no_repeat_ngram, repetition_penalty: constraints of the search, see
      lmx/decoding/translate.py.
    renormalise: renormalise log-probabilities over the allowed tokens.
    forced_first: id of every translation's first token; None for none.
    forced_end: force the end-of-text token at the length limit.
    replace_unknown: replace it by the source word with the most attention; needs a model with attention.
    dictionary: file with a source word and its translation per line, used instead of copying; '' copies.
    coverage_penalty: beta of the coverage penalty, see lmx/decoding/translate.py; 0 for none.
    known_only: translate only the pairs without an unknown word on either side.
    compounds: pairs whose tokenised BLEU splits hyphenated words: 'en_de' (English-German), 'always' or 'never'.
    n_best: number of best starts, ends and spans of a question (lmx/prediction/question_answering.py).
    answer_length: maximum tokens of an answer.
    null_threshold: the null answer is predicted if its score exceeds the best span's by more than this.
    baselines: also evaluate simple models on the same split. For language models: unigram and interpolated Kneser-Ney
      of the same vocabulary, and the model mixed with the latter (lmx/evaluation/parts/ngrams.py), which reads the
      splits once more on one device. For classes and scores of texts: the most frequent class or the mean score, and
      with `pip install 'lmx[baselines]'` logistic or ridge regression on TF-IDF (lmx/metrics/bag_of_words.py), trained
      on the same rows, if these are at most 100,000 and have at most 50 million characters.
    bag_of_words: also evaluate classifiers of one text's words, by scikit-learn: naive Bayes and logistic regression on
      TF-IDF.
    order: the order n of the Kneser-Ney model.
    mixture: also evaluate the mean of the model's and an n-gram model's probabilities on the same tokens: 'trigram'
      (interpolated, lmx/metrics/interpolated_trigram.py), 'kneser_ney' (of `order`) or '' for none.
    mixture_weight: the model's weight in that mean.
    batch_size: rows per batch, and so the number of streams; 0 is the validation's.
    stride: tokens from one window to the next; 0 is data.batching.stride, 1 a window for every token.
    images: data.batching.evaluation of the final evaluation: 'crop', 'whole' or 'windows'; '' is the validation's.
    cache: (window, lambda, theta) also evaluates the model with a continuous cache (continuous_cache.py); () does not.
    save_rows: also predict every row of the split and write rows.jsonl (lmx/evaluation/rows), with a 95% bootstrap
      interval of the headline metric.
    model: model fields that differ in every evaluation, such as a longer memory; they must not change parameters.
  """

  split: str = 'test'
  which: str = 'best'
  average: int = 5
  beam: int = 0
  alpha: Annotated[float, ranges.Limits(-10, 10)] = 0.6  # Wu et al. 2016, and Vaswani et al. 2017, section 6.1
  penalty: str = 'gnmt'
  stop: str = 'bound'
  max_extra: int = 50  # Vaswani et al. 2017, section 6.1
  min_ratio: float = 0.0
  max_ratio: float = 0.0
  max_length: int = 0
  allow_unk: bool = False
  forbidden: tuple[int, ...] | None = None
  eos_ids: tuple[int, ...] | None = None
  forbidden_first: tuple[int, ...] = ()
  bad_words: tuple[tuple[int, ...], ...] = ()
  min_tokens: int = 0
  no_repeat_ngram: int = 0
  repetition_penalty: float = 1.0
  renormalise: bool = False
  forced_first: int | None = None
  forced_end: bool = False
  replace_unknown: bool = False
  dictionary: str = ''
  coverage_penalty: float = 0.0
  known_only: bool = False
  compounds: str = 'en_de'
  n_best: int = 20  # run_squad.py
  answer_length: int = 30  # run_squad.py
  null_threshold: Annotated[float, ranges.SIGNED] = 0.0  # run_squad.py
  baselines: bool = True
  bag_of_words: bool = False
  order: int = 5
  mixture: str = ''
  mixture_weight: float = 0.5  # Bengio et al. 2003, section 4.2
  batch_size: int = 0
  stride: int = 0
  images: str = ''
  cache: tuple[float, ...] = ()
  save_rows: bool = False
  model: dict = dataclasses.field(default_factory=dict, hash=False)

  def __post_init__(self) -> None:
    if self.cache:
      self._check_cache()
    check_choice('evaluation.mixture', self.mixture, ('', 'trigram', 'kneser_ney'))
    check_share('evaluation.mixture_weight', self.mixture_weight)
    check_choice('evaluation.penalty', self.penalty, decoding.PENALTIES)
    check_choice('evaluation.stop', self.stop, decoding.STOPS)
    check_choice('evaluation.compounds', self.compounds, ('en_de', 'always', 'never'))
    decoding.check_ratios('evaluation.', self.min_ratio, self.max_ratio)
    decoding.check_constraints(
      'evaluation.', self.bad_words, self.min_tokens, self.no_repeat_ngram, self.repetition_penalty
    )
    check_choice('evaluation.which', self.which, ('best', 'last', 'average'))
    for name in ('replace_unknown', 'dictionary', 'coverage_penalty', 'known_only'):
      if (value := getattr(self, name)) and not self.beam:
        raise InputError(f'evaluation.{name}: got {value} without a translation; set evaluation.beam, such as 12')
    check_least(
      'evaluation',
      self,
      average=1,
      beam=0,
      coverage_penalty=0,
      max_extra=0,
      max_length=0,
      n_best=1,
      answer_length=1,
      batch_size=0,
      stride=0,
      order=1,
    )

  def _check_cache(self) -> None:
    if len(self.cache) != 3 or self.cache[0] != int(self.cache[0]):
      raise InputError(
        f'evaluation.cache: got {self.cache}; expected (window, lambda, theta), the window a whole number'
      )
    check_range('the window of evaluation.cache', self.cache[0], 1)
    check_range('the lambda of evaluation.cache', self.cache[1], 0, 1)
    check_range('the theta of evaluation.cache', self.cache[2], 0)


@dataclasses.dataclass(frozen=True)
class Samples:
  """Samples generated at the end of a run and, with `every`, during it.

  Attributes:
    prompts: prefixes of the samples, '' being an end-of-text token; for word2vec, words whose neighbours are shown.
    default_prompts: the same if `prompts` is empty; those outside the vocabulary are skipped with a note.
    count: samples for each prompt.
    tokens: tokens of a sample.
    temperature: divides the logits; 0 is greedy.
    top_k: keep the k most probable tokens; 0 keeps all.
    top_p: keep the most probable tokens up to this mass (Holtzman et al. 2020); 1 keeps all.
    every: also write samples to samples.txt after every so many updates; 0 writes only the last.
  """

  prompts: tuple[str, ...] = ()
  default_prompts: tuple[str, ...] = ('',)
  count: int = 2
  tokens: int = 120
  temperature: float = 0.8
  top_k: int = 0
  top_p: float = 0.95
  every: int = 0

  def __post_init__(self) -> None:
    if self.every and not self.count:
      raise InputError(f'samples.every: got {self.every} with samples.count=0; expected 0; set samples.count')
    for name, low, high in (('count', 0, 10_001), ('tokens', 1, 1_000_001)):
      check_range(f'samples.{name}', getattr(self, name), low, high)
    decoding.check_temperature('samples.temperature', self.temperature)
    check_least('samples', self, top_k=0)
    check_share('samples.top_p', self.top_p)
    if not self.top_p:
      raise InputError('samples.top_p: got 0; expected above 0 and at most 1; 1 keeps every token')


@dataclasses.dataclass(frozen=True)
class Run:
  """Resolved run: `model` and `objective` are Configs of the named modules, `measured` the model's in evaluations."""

  name: str
  seed: int
  matmul_precision: str
  model_name: str
  variant: str
  model: Any
  measured: Any
  objective_name: str
  objective: Any
  data: pipeline.Config
  optim: optim.Config
  parallel: engine.Config
  checkpoint: checkpoint.Config
  train: Train
  evaluation: Evaluation
  samples: Samples
  log: reporting.Config


SECTIONS = {
  'data': pipeline.Config,
  'optim': optim.Config,
  'parallel': engine.Config,
  'checkpoint': checkpoint.Config,
  'train': Train,
  'evaluation': Evaluation,
  'samples': Samples,
  'log': reporting.Config,
}


def check(config: Mapping[str, Any], overrides: Iterable[str] = (), *, whole: bool = True) -> dict[str, Any]:
  """Check all settings except those of `model` and `objective`, whose files import JAX; return a copy of all.

  Args:
    config: settings of an experiment, or a config.json.
    overrides: 'section.key=value', applied last.
    whole: also check the settings of a section against each other; else only their keys and types.

  Raises:
    InputError: an unknown key, or a value of the wrong type or out of its range.
  """
  settings = experiment.plain(config)
  settings.pop('semantics', None)
  experiment.override(settings, overrides)
  check_sections(settings)
  seed(settings.get('seed', 0))
  precision = cast.cast('matmul_precision', str, settings.get('matmul_precision', ''))
  check_choice('matmul_precision', precision or 'default', engine.PRECISIONS)
  train = settings.get('train', {})
  is_copied = train.get('like_init') and train.get('init_from')  # `resolve` copies the vocabulary of that run
  for name in SECTIONS:
    is_whole = whole and not (name == 'data' and is_copied)
    (section if is_whole else _convert)(name, settings.get(name, {}))
  return settings


def check_sections(settings: Mapping[str, Any]) -> None:
  """Raise InputError for an unknown section, or for a value that is no section."""
  check_keys('', settings, ['name', 'seed', 'matmul_precision', 'model', 'objective', *SECTIONS])
  for name in ('model', 'objective', *SECTIONS):
    if not isinstance(value := settings.get(name, {}), Mapping):
      raise InputError(f'{name}: got {documents.show(value)}; expected a section, {name}.key=value')


def seed(value: Any) -> int:
  """Return a seed; seeds below 2**32 give distinct random numbers in JAX and in the data."""
  number = cast.cast('seed', int, value, bound=ranges.SEEDS)
  check_range('seed', number, 0)
  return number


def section(name: str, fields: Mapping[str, Any]) -> Any:
  """Return the Config of a section from its fields. Raises InputError as `check` does."""
  return SECTIONS[name](**_convert(name, fields))


def _convert(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
  """Return the fields of a section, converted to their types."""
  cls = SECTIONS[name]
  check_keys(f'{name}.', fields, field_names(cls))
  if name == 'data':
    fields = {**fields, 'batching': _batching(fields.get('batching', pipeline.Config.batching))}
  return cast.convert(name, cls, fields)


def _batching(value: Any) -> Any:
  fields = batching.fields(value)
  cls = batching.get(fields['name']).Config
  check_keys('data.batching.', fields, field_names(cls))
  return cls(**cast.convert('data.batching', cls, fields))


def field_names(cls: Any) -> list[str]:
  """Return the names of a dataclass's fields."""
  return [field.name for field in dataclasses.fields(cls)]


def check_keys(prefix: str, fields: Mapping[str, Any], known: Iterable[str]) -> None:
  """Raise InputError with the nearest known key if one of `fields`, each with `prefix`, is unknown."""
  known = list(known)
  for key in fields:
    if key not in known:
      raise InputError(f'{prefix}{key}: got a key that the config does not have{nearest(str(key), known)}')
