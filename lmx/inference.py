"""Trained runs and published weights in use: they generate, score, predict, embed and translate.

  run = lmx.load('FOLDER')
  print(run.generate('The method returns')[0])

`lmx generate`, `predict`, `embed` and `translate` call the methods of `TrainedRun`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx import documents, objectives
from lmx.config import run_files
from lmx.decoding import text
from lmx.decoding import translate as search_lib
from lmx.decoding.translate import Translation, Translator
from lmx.engine import precision
from lmx.errors import InputError, InputNote, check_range, check_type, nearest
from lmx.evaluation import ensemble as ensembles
from lmx.evaluation import translation
from lmx.prediction import contextual_embeddings, tasks
from lmx.runs import convert
from lmx.runs.restore import RestoredRun
from lmx.scoring import scorer, sentences
from lmx.scoring.sentences import Score
from lmx.types import Model

METHODS = ('generate', 'score', 'predict', 'embed', 'translate')


class Embedding(NamedTuple):
  """Embedding of a line.

  Attributes:
    tokens: its T tokens.
    layers: the outputs of the embeddings and of each layer, (T, width) float32.
  """

  tokens: list[str]
  layers: list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class TrainedRun(RestoredRun):
  """A run that is ready for use."""

  def generate(self, prompt: str = '', **options: Any) -> list[str]:
    """Return texts that begin with a prompt, those of `lmx generate`.

    Args:
      prompt: text to continue; '' begins a text.
      **options: fields of `lmx.decoding.text.Options`, such as tokens=120, samples=1, temperature=0.8, top_p=0.95,
        greedy=False, seed=0, repetition_penalty=1.0 or beam=0.

    Returns:
      `samples` texts, each with the prompt.

    Raises:
      InputError: the model does not predict the next token, the prompt is empty and the tokenizer has no end of a text,
        or an option is unknown or out of its range.
    """
    return [''.join(parts) for parts in self._write(prompt, options, stream=False)]

  def stream(self, prompt: str = '', **options: Any) -> Iterator[Iterator[str]]:
    """Yield for each sample an iterator over the parts of its text, sampled while they are read; see `generate`."""
    return self._write(prompt, options, stream=True)

  def _write(self, prompt: str, options: dict[str, Any], *, stream: bool) -> Iterator[Iterator[str]]:
    self.check('generate')
    check_type('prompt', prompt, str, 'a text')
    chosen = self.writing(**options)
    self._note(options)
    call = (self.model, self.cfg, self.params['model'], self.tokenizer, prompt, chosen)

    def samples() -> Iterator[Iterator[str]]:
      with precision.scope(self.run.matmul_precision):
        yield from text.write(*call, stream=stream)

    return samples()

  @functools.cached_property
  def settings(self) -> dict[str, Any]:
    """Options of `generate` that the imported folder has, recorded in data.json; {} for lmx's defaults."""
    data = run_files.read_data(self.workdir) if run_files.exists(self.workdir) else {}
    return documents.field(data, 'generation', dict, f'{self.workdir}/data.json', {})

  def writing(self, **options: Any) -> text.Options:
    """Return the run's options of generation, with some of them changed; see `generate`."""
    chosen = _fields(text.Options, text.override(self.settings, options), 'generate')
    text.check_used(chosen, options)
    return chosen

  def _note(self, given: Mapping[str, Any]) -> None:
    """Warn of the options that the imported folder has, except those given."""
    if shown := text.describe(text.override(self.settings, given), {*self.settings} - {*given}):
      file = run_files.read_data(self.workdir)['generation_file']
      warnings.warn(f'{file}: generate: {shown}', InputNote, stacklevel=4)

  def score(
    self,
    texts: Sequence[str],
    *,
    method: str = 'auto',
    start: str = 'auto',
    end: bool = False,
    context: str = '',
    leading_space: bool = False,
  ) -> list[Score]:
    """Return the log-probability of each text, in nats, those of `lmx score`.

    Args:
      texts: sentences or other texts; a str is one text.
      method: 'causal' of models that read left to right; 'pll' or 'pll_word_l2r' of BERT; 'left_to_right' or
        'permutation_pll' of XLNet; 'both', 'forward' or 'backward' of ELMo. 'auto' is the first of the model's.
      start: of causal scores: 'symbol' reads a start symbol first, 'none' does not predict the first token; 'auto' is
        'symbol' where the tokenizer has one.
      end: also score the end of each text.
      context: text that each text continues; causal scores only.
      leading_space: score the texts as if a space preceded them.

    Returns:
      A `Score` for each text: sum, tokens, log_p_T, words.

    Raises:
      InputError: the model assigns no probability to a text, a text is empty or too long, or an option does not suit
        the method.
    """
    self.check('score')
    for name, value in (('end', end), ('leading_space', leading_space)):
      check_type(name, value, bool, 'True or False')
    check_type('context', context, str, 'a text')
    found = scorer.RunScorer(self, method, start, end=end)
    if context:
      found.read_context(context)
    lines = list(_texts('texts', [texts] if isinstance(texts, str) else texts))
    with precision.scope(self.run.matmul_precision):
      return list(sentences.score(found, lines, where='texts, line', detail='words', leading_space=leading_space))

  def predict(self, inputs: Any = None, *, split: str = '', n_best: int = 0) -> tasks.Predictions:
    """Return predictions of a fine-tuned run, those of `lmx predict`.

    Args:
      inputs: path of a file (see `lmx predict --help`), or a list. An element of it is a text or a tuple of the texts
        of a row; for a tagger a list of words, or a text with white space between words; for questions a tuple
        (question, passage); or a dict as a line of a .jsonl file has it. Texts of rows are read as they are; in files
        other than .txt they lose the white space around them, as in training. For a segmentation model a folder, a
        path or an array (rows, columns, 3) of uint8, or a list of paths and arrays.
      split: a split of the run's own data, in place of inputs.
      n_best: candidates to return with each answer to a question.

    Returns:
      A list of {'label', 'probabilities'}, {'score'}, {'tokens', 'tags'}, {'id', 'text', 'score', 'start', 'end'} or
      {'image', 'width', 'height', 'shares', 'mask'}, with its metrics where labels are known.

    Raises:
      InputError: the run has no such task, or an input is malformed; its line is named.
    """
    self.check('predict')
    check_type('split', split, str, 'the name of a split')
    check_type('n_best', n_best, int, 'a whole number')
    check_range('n_best', n_best, 0)
    if not tasks.get(self).IMAGES:
      inputs = inputs.tolist() if hasattr(inputs, 'tolist') else inputs  # of NumPy
      check_inputs(inputs)
    return tasks.predict(self, inputs, split, n_best)

  def embed(
    self, lines: Iterable[str], *, batch: int = 32, carry: bool = False, special_tokens: str = ''
  ) -> Iterator[Embedding]:
    """Return an iterator over the embeddings of lines of text by all layers, those of `lmx embed`.

    Args:
      lines: lines of text; a str is one line.
      batch: lines that are computed together.
      carry: the lines are one text: each continues from the state of the line before.
      special_tokens: BERT reads a line as [CLS] text [SEP], XLNet as text <sep> <cls>. 'read', the default, returns the
        vectors of the text, 'return' also those of the special tokens; 'none', the default with `carry`, reads the text
        alone.

    Returns:
      An iterator of (tokens, layers), layers N + 1 arrays of shape (T, width), the embeddings first. The last layer of
      GPT-2 is that before its final normalisation, which transformers includes in `hidden_states[-1]`.

    Raises:
      InputError: the model does not read text alone, or a line is longer than its positions.
    """
    self.check('embed')
    check_type('batch', batch, int, 'a whole number')
    check_range('batch', batch, 1)
    check_type('carry', carry, bool, 'True or False')
    lines = _texts('lines', [lines] if isinstance(lines, str) else lines)
    reader = contextual_embeddings.from_run(self, special_tokens or ('none' if carry else 'read'))
    embedded = contextual_embeddings.vectors(reader, lines, size=batch, carry=carry)
    return (Embedding(tokens, layers) for tokens, layers in embedded)

  def translate(self, lines: Sequence[str], **options: Any) -> list[str]:
    """Return the best translation of each line; see `translations`. A str is one line."""
    return [hypotheses[0].text for hypotheses in self.translations(lines, **options)]

  def translations(
    self,
    lines: Sequence[str],
    *,
    translator: Translator | None = None,
    truncate: bool = False,
    first: int = 1,
    title: str = '',
    **options: Any,
  ) -> list[list[Translation]]:
    """Return the hypotheses of each line, best first, those of `lmx translate`.

    Args:
      lines: lines of text; a str is one line, and a line without text has an empty translation.
      translator: result of `translator`, for several calls or an ensemble; None makes one.
      truncate: truncate lines longer than the model's positions, with a warning.
      first: number of the first line, for messages and for the keys of sampling.
      title: title of a progress bar; '' for none.
      **options: fields of `lmx.decoding.translate.Options`, such as beam=4 or sample=True; others are those of the
        run's `evaluation`.

    Raises:
      InputError: the model is no encoder-decoder, a line is too long, or an option is unknown or out of its range.
    """
    translator = self.translator() if translator is None else translator
    chosen = self.search(**options)
    check_type('truncate', truncate, bool, 'True or False')
    lines = list(_texts('lines', [lines] if isinstance(lines, str) else lines))
    with precision.scope(self.run.matmul_precision):
      return search_lib.translate(translator, lines, chosen, truncate=truncate, first=first, title=title)

  def translator(self, ensemble: Sequence[RestoredRun] = ()) -> Translator:
    """Return the translator of the run, or of it and further runs, of which the mean of the probabilities is searched.

    Raises:
      InputError: the model is no encoder-decoder.
    """
    self.check('translate')
    each = [search_lib.build_translator(one.run, one.params['model'], one.tokenizer) for one in (self, *ensemble)]
    return search_lib.combine(each) if len(each) > 1 else each[0]

  def search(self, **options: Any) -> search_lib.Options:
    """Return the run's options of translation, with some of them changed; see `translations`."""
    chosen = {'beam': self.run.evaluation.beam or search_lib.Options.beam} | options
    if 'max_extra' in options:
      chosen.setdefault('max_ratio', 0.0)  # otherwise the run's max_ratio takes precedence
    if {'max_extra', 'max_ratio'} & {*options}:
      chosen.setdefault('max_length', 0)
    if 'allow_unk' in options:
      chosen.setdefault('forbidden', None)
    found = _fields(search_lib.Options, chosen, 'translate', translation.decoding_options(self.run))
    search_lib.check_used(found, options)
    return found

  def abilities(self) -> list[str]:
    """Return the names in METHODS of the methods that the run can use."""
    return [name for name in METHODS if not self._obstacle(name)]

  def check(self, name: str) -> None:
    """Raise InputError unless the run can use the method `name`."""
    if reason := self._obstacle(name):
      able = ', '.join(self.abilities()) or f'none of {", ".join(METHODS)}'
      raise InputError(f'{getattr(self.files, "source", self.workdir)}: cannot {name}: {reason}; this run can {able}')

  def _obstacle(self, name: str) -> str:
    return obstacle(self.model, self.run.model_name, self.run.objective_name, name, self.cfg)


def obstacle(module: Model, model: str, objective: str, method: str, cfg: Any = None) -> str:
  """Return why runs of a model and an objective cannot use a method, '' if they can.

  Args:
    module: module of the model.
    model: its name.
    objective: name of the objective.
    method: one of METHODS.
    cfg: the model's Config, None for its defaults.
  """
  if method == 'predict':
    if objectives.get(objective).PREDICTION:
      return ''
    able = (name for name in objectives.names() if objectives.get(name).PREDICTION)
    return f'objective: got "{objective}"; expected one of {", ".join(able)}'
  if method == 'score':
    return scorer.obstacle(module, cfg, model, objective)
  if method == 'translate':
    return '' if module.READS == 'source' else f'model "{model}" reads no source text; expected an encoder-decoder'
  if module.READS not in ('tokens', 'characters'):
    return f'model "{model}" reads {module.READS}; expected a model that reads one text'
  if method == 'embed':
    is_pair = contextual_embeddings.reads_pairs(module, module.Config() if cfg is None else cfg)
    return f'model "{model}" reads two texts; expected a model that reads one' if is_pair else ''
  if not module.WORDS:
    return f'model "{model}" predicts no words'
  if module.CAUSAL and getattr(cfg, 'causal', True):
    return ''
  return f'model "{model}" reads in both directions; expected one such as gpt2 or rnn_lm'


_EXPECTED: dict[str, tuple[tuple[type, ...], str]] = {  # annotation of an option -> types, in words
  'int': ((int,), 'a whole number'),
  'float': ((float,), 'a number'),
  'str': ((str,), 'a text'),
  'bool': ((bool,), 'True or False'),
  'int | None': ((int, type(None)), 'a whole number or None'),
  'tuple[int, ...]': ((tuple, list), 'a tuple of token ids'),
  'tuple[int, ...] | None': ((tuple, list, type(None)), 'a tuple of token ids or None'),
  'tuple[tuple[int, ...], ...]': ((tuple, list), 'a tuple of tuples of token ids'),
  'Mapping[str, str]': ((Mapping,), 'a dict from source word to target word'),
}


def _texts(where: str, lines: Any) -> Iterator[str]:
  """Return an iterator over lines; raise InputError, at once or at the line, if one is no text."""
  check_type(where, lines, Iterable, 'lines of text, or one text')

  def each() -> Iterator[str]:
    for number, line in enumerate(lines, 1):
      check_type(f'{where}, line {number}', line, str, 'a text')
      yield line

  return each()


def _is_text(given: str) -> bool:
  """Return True if a str names no file, nor could: it has white space, or no ending."""
  return not os.path.exists(given) and (' ' in given or not os.path.splitext(given)[1])


def check_inputs(inputs: Any) -> None:
  """Raise InputError unless `predict` can read its inputs: None, a path, or a list of texts, of tuples or of dicts."""
  if inputs is None or isinstance(inputs, os.PathLike):
    return
  if isinstance(inputs, str):
    if _is_text(inputs):
      raise InputError(f'inputs: got {inputs[:60]!r}, which is no file; expected a path, or a list: predict([text])')
    return
  check_type('inputs', inputs, (list, tuple), 'a path, or a list of inputs')
  if not inputs:
    raise InputError('inputs: got an empty list; expected at least one input')
  for number, one in enumerate(inputs, 1):
    where = f'inputs, line {number}'
    check_type(where, one, (str, list, tuple, Mapping), 'a text, a tuple of texts, or a dict')
    for part in one if isinstance(one, (list, tuple)) else ():
      check_type(where, part, str, 'a tuple of texts')


def _fields(kind: Any, options: dict[str, Any], method: str, base: Any = None) -> Any:
  """Return a dataclass of options. Raises InputError for an unknown name, with the nearest one."""
  types = {field.name: str(field.type) for field in dataclasses.fields(kind)}
  for name, value in options.items():
    if name not in types:
      raise InputError(f'{method}: unknown option "{name}"{nearest(name, types)}')
    check_type(name, value, *_EXPECTED[types[name]])
    if isinstance(value, (tuple, list)):
      options = {**options, name: _ids(name, value, nested='tuple[tuple' in types[name])}
  return dataclasses.replace(kind() if base is None else base, **options)


def _ids(name: str, values: Sequence[Any], *, nested: bool) -> tuple[Any, ...]:
  """Return a tuple of token ids, or of tuples of them; raise InputError naming the option for other values."""
  for value in values:
    check_type(name, value, *(_EXPECTED['tuple[int, ...]'] if nested else (int, 'a tuple of token ids')))
  return tuple(_ids(name, value, nested=False) for value in values) if nested else tuple(values)


def load(source: Any, which: str | int = 'measured', overrides: Sequence[str] = ()) -> TrainedRun:
  """Load a run from its work directory, or import published weights.

  Published weights are what `lmx import --from` reads: a folder of transformers, a release of the authors or
  'hub:NAME'. They are converted in memory, each time that they are loaded. A temporary work directory holds the config,
  the tokenizer and the labels, but no checkpoint; it is removed when the run is dropped or the process ends. Use `lmx
  import` for a work directory that lasts, to train from or to load faster.

  Args:
    source: work directory, folder or 'hub:NAME'.
    which: checkpoint of a run, see `lmx.runs.restore.load`.
    overrides: `section.key=value`, such as model.dtype=bfloat16.

  Raises:
    InputError: there is neither a run nor such a folder, or it cannot be read.
  """
  return _trained(convert.load_any(source, which, overrides))


def load_ensemble(
  first: TrainedRun, workdirs: Sequence[str], which: str | int = 'measured', overrides: Sequence[str] = ()
) -> list[RestoredRun]:
  """Load further runs that translate together with the first; see `lmx.evaluation.ensemble.load_others`."""
  return list(ensembles.load_others(first, workdirs, which, overrides))


def _trained(loaded: RestoredRun) -> TrainedRun:
  return TrainedRun(**{field.name: getattr(loaded, field.name) for field in dataclasses.fields(loaded)})
