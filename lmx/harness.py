"""lmx's language models in lm-evaluation-harness (https://github.com/EleutherAI/lm-evaluation-harness), as model `lmx`.

  lmx harness --model_args workdir=runs/gpt2 --tasks lambada_openai
  lm_eval --model lmx --model_args workdir=runs/gpt2 --tasks FOLDER     a folder of `lmx harness --write_tasks`

The harness makes requests of texts; its `TemplateLM` tokenizes them and gives an empty context the start symbol. Causal
models answer them, and saved n-gram models all but those that generate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import lm_eval.models  # noqa: F401 (registers the harness's own models, before this one)
import numpy as np
from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import model_registry
from lm_eval.models.utils import normalize_gen_kwargs

from lmx import cast
from lmx.decoding import generate, text
from lmx.engine import precision
from lmx.errors import InputError, check_range
from lmx.reporting import waiting
from lmx.scoring import loading
from lmx.scoring.rows import Row

_WINDOW = 2048  # positions of a model without a bound of its own
_MOST_NEW = 256  # tokens that a request may generate if it does not say


def keep(documents: Any) -> Any:
  """Return the documents of a task: a task file that names this function registers the model `lmx`."""
  return documents


class LMX(TemplateLM):
  """A run, published weights or a saved n-gram model.

  Args:
    workdir: work directory, or folder of published weights (see `lmx.load`); `pretrained` is another name for it.
    which: checkpoint: measured, best, last or a step.
    max_length: positions; 0 is the model's own bound.
    batch_size, max_batch_size, device: have no effect; the harness gives them to every model. Rows are batched by their
      lengths, on the device of JAX.

  Raises:
    InputError: the model is not causal, or its tokenizer has no start symbol.
  """

  def __init__(
    self,
    workdir: str = '',
    pretrained: str = '',
    which: str = 'measured',
    max_length: int = 0,
    batch_size: Any = None,
    max_batch_size: Any = None,
    device: Any = None,
    **unknown: Any,
  ):
    super().__init__()
    if unknown:
      raise InputError(f'--model_args: got {min(unknown)}; expected workdir, which or max_length')
    max_length = cast.cast('--model_args: max_length', int, max_length)
    check_range('--model_args: max_length', max_length, 0)
    source = workdir or pretrained
    if not source:
      raise InputError('--model_args: got no workdir; expected workdir=RUN')
    self._scorer = loading.load(source, str(which))
    if self._scorer.method != 'causal':
      raise InputError(
        f'{source}: got a model that is scored by {self._scorer.protocol}; expected a causal model; '
        'for minimal pairs use lmx evaluate --pairs'
      )
    if self._scorer.prefix_id is None:
      raise InputError(f'{source}: got a tokenizer without a start or end symbol; expected one for empty contexts')
    self._loaded: Any = getattr(self._scorer, 'loaded', None)  # None of an n-gram model
    own = self._scorer.positions
    if max_length and own and max_length > own:
      raise InputError(f'--model_args: got max_length={max_length}; expected at most {own}, the positions of {source}')
    self.max_length = max_length or own or _WINDOW

  @property
  def eot_token_id(self) -> int:
    assert self._scorer.prefix_id is not None  # checked
    return self._scorer.prefix_id

  @property
  def tokenizer_name(self) -> str:
    return self._scorer.tokenizer.hash

  def tok_encode(self, string: str, add_special_tokens: bool | None = None, **more: Any) -> list[int]:
    return [int(i) for i in self._scorer.tokenizer.encode(string)]

  def _loglikelihood_tokens(self, requests: Sequence[Any], **more: Any) -> list[tuple[float, bool]]:
    """Return (log-likelihood in nats, greedy) of continuations; a context is cut on its left to fit the positions."""
    rows = []
    for key, before, ids in requests:
      continuation = key[1] if key else ''
      if len(ids) > self.max_length:
        raise InputError(
          f'continuation {continuation[:60]!r}: got {len(ids):,} tokens; expected at most {self.max_length:,}'
        )
      context = before[-(self.max_length + 1 - len(ids)) :]
      rows.append(Row(np.asarray(ids, np.int32), np.asarray(context, np.int32), repr(continuation[:60])))
    scored = self._scorer.score(rows, greedy=True)
    answers = [(one.sum, bool(one.greedy)) for one in scored]
    for (key, *_), answer in zip(requests, answers, strict=True):
      if key is not None:
        self.cache_hook.add_partial('loglikelihood', key, answer)
    return answers

  def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
    """Return the log-likelihood of each text, in windows as large as the positions, in which each token counts once."""
    windows: list[Any] = []
    owners: list[int] = []
    for i, request in enumerate(requests):
      ids = self.tok_encode(request.args[0])
      for pair in utils.get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, 1):
        windows.append((None, *utils.make_disjoint_window(pair)))
        owners.append(i)
    sums = np.zeros(len(requests))
    np.add.at(sums, owners, [score for score, _ in self._loglikelihood_tokens(windows)])
    for request, total in zip(requests, sums, strict=True):
      self.cache_hook.add_partial('loglikelihood_rolling', request.args, float(total))
    return [float(total) for total in sums]

  def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
    """Return the continuation of each context up to the first of its stop strings."""
    if self._loaded is None:
      raise InputError('generate_until: got a model that generates no text; expected a causal model')
    answers = []
    for i in waiting.bar(range(len(requests)), '' if disable_tqdm else 'generate', len(requests)):
      context, options = requests[i].args
      answers.append(self._generate(context, options, i))
      self.cache_hook.add_partial('generate_until', requests[i].args, answers[-1])
    return answers

  def _generate(self, context: str, given: Mapping[str, Any], number: int) -> str:
    """Return the text of greedy or sampled tokens after a context, without its first stop string and what follows."""
    wanted = normalize_gen_kwargs(dict(given), _MOST_NEW)
    stops, most, sampled = wanted.pop('until'), wanted.pop('max_gen_toks'), wanted.pop('do_sample')
    options = text.Options(tokens=most, greedy=not sampled, **_sampling(wanted, sampled))
    room = max(1, self.max_length - most)
    ids = self.tok_encode(context)[-room:]
    written = ''
    for part in self._parts(np.asarray(ids, np.int32), options, number):
      written += part
      if ends := [written.index(stop) for stop in stops if stop and stop in written]:
        return written[: min(ends)]
    return written

  def _parts(self, shown_T: np.ndarray, options: text.Options, number: int) -> Iterator[str]:
    """Yield the parts of a text after its prompt; an empty prompt starts a text."""
    loaded = self._loaded
    prompt_T = shown_T if shown_T.size else np.array([self.prefix_token_id], np.int32)
    call = loaded.model, loaded.cfg, loaded.params['model'], prompt_T[None]
    given: dict[str, Any] = {
      'sampler': options.sampler(loaded.tokenizer, loaded.cfg.V, prompt_T.size),
      'eos_ids': options.ends(loaded.tokenizer),
    }
    key = jax.random.fold_in(jax.random.key(options.seed), number)
    with precision.scope(loaded.run.matmul_precision):
      tokens = generate.stream(*call, steps=options.tokens, key=key[None], **given)
      parts = text.decode_stream(loaded.tokenizer, shown_T, (int(token_B[0]) for token_B in tokens))
      if shown_T.size:
        next(parts, '')  # the prompt
      yield from parts


def _sampling(wanted: dict[str, Any], sampled: bool) -> dict[str, Any]:
  """Return the fields of `text.Options` for the harness's; raise InputError for one that has no counterpart."""
  if unknown := [name for name in wanted if name not in ('temperature', 'top_k', 'top_p', 'seed')]:
    raise InputError(
      f'gen_kwargs: got {unknown[0]}; expected until, max_gen_toks, do_sample, temperature, top_k, top_p'
    )
  return {'top_p': 1.0, **wanted} if sampled else {}


if 'lmx' not in model_registry:  # later releases find it by its entry point
  model_registry.register('lmx', target=LMX)
