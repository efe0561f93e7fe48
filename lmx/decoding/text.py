"""Text that a causal model writes after a prompt, sample by sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from lmx.decoding import generate
from lmx.decoding.generate import Sampler
from lmx.errors import InputError, check_range
from lmx.ranges import SEEDS
from lmx.types import Model, Params


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of `lmx generate`.

  Attributes:
    tokens: maximum number of tokens per sample.
    samples: number of samples.
    temperature: divides the logits; 0 is greedy.
    top_k: sample from the k most probable tokens; 0 is all.
    top_p: sample from the most probable tokens that reach this probability.
    top_p_form: 'paper' (Holtzman et al. 2020) or 'released' (OpenAI's code).
    greedy: always take the most probable token.
    seed: seed of sampling; each sample has its own key.
    past_eos: continue after the end of a text.
    allow_unk: also sample the unknown word.
  """

  tokens: int = 120
  samples: int = 1
  temperature: float = 0.8
  top_k: int = 0
  top_p: float = 0.95
  top_p_form: str = 'paper'
  greedy: bool = False
  seed: int = 0
  past_eos: bool = False
  allow_unk: bool = False

  def __post_init__(self) -> None:
    check_range('tokens', self.tokens, 1)
    check_range('samples', self.samples, 1)
    check_range('seed', self.seed, 0, SEEDS)

  def sampler(self, tokenizer: Any, vocab_size: int) -> Sampler:
    """Return the options of sampling a token."""
    forbidden = generate.forbidden_ids(tokenizer, vocab_size, allow_unk=self.allow_unk)
    return Sampler(self.temperature, self.top_k, self.top_p, self.top_p_form, self.greedy, forbidden)


_SAMPLING = ('temperature', 'top_k', 'top_p', 'top_p_form', 'seed')


def check_used(options: Options, given: Collection[str]) -> None:
  """Raise InputError if one of the `given` options has no effect, because of others."""
  greedy = 'greedy' if options.greedy else 'temperature=0' if not options.temperature else ''
  for name in _SAMPLING if greedy else ():
    value = getattr(options, name)
    if name in given and (name, value) != ('temperature', 0):
      raise InputError(
        f'{name}: got {value} with {greedy}, which always takes the most probable token; omit one of them'
      )
  if 'top_p_form' in given and options.top_p == 1:
    raise InputError(
      f'top_p_form: got {options.top_p_form} with top_p=1, which keeps all tokens; omit it, or set top_p'
    )


def write(
  model: Model, cfg: Any, params: Params, tokenizer: Any, prompt: str, options: Options, *, stream: bool
) -> Iterator[Iterator[str]]:
  """Yield for each sample an iterator over the parts of its text, the prompt first.

  Args:
    model: a causal model's module.
    cfg: its Config.
    params: its parameters, without an objective's.
    tokenizer: its tokenizer.
    prompt: text to continue; '' begins a text.
    options: options of generation.
    stream: sample token by token while the parts are read, instead of all samples together first; the text is equal.

  Raises:
    InputError: the model cannot continue the prompt; see `generate.generate`.
  """
  prompt_T = generate.prompt_ids(tokenizer, prompt)
  key, call = jax.random.key(options.seed), (model, cfg, params)
  given: dict[str, Any] = {'steps': options.tokens, 'sampler': options.sampler(tokenizer, cfg.V)}
  given['eos_id'] = None if options.past_eos else tokenizer.eos_id
  if stream:
    for i in range(options.samples):
      own = jax.random.fold_in(key, i)[None]
      sampled = (int(token_B[0]) for token_B in generate.stream(*call, prompt_T[None], key=own, **given))
      yield decode_stream(tokenizer, prompt_T, sampled)
    return
  generate.check_positions('samples, tokens', options.samples, options.tokens)
  generated = generate.generate(*call, np.repeat(prompt_T[None], options.samples, 0), key=key, **given)
  for tokens_T, count in zip(generated.tokens_BT, generated.counts_B, strict=True):
    yield decode_stream(tokenizer, prompt_T, tokens_T[:count].tolist())


def decode_stream(tokenizer: Any, prompt_T: np.ndarray, sampled: Iterable[int]) -> Iterator[str]:
  """Yield the prompt and then, token by token, the text that each token adds.

  The whole text is decoded each time, because tokens may join (subwords, spaces before punctuation). The bytes of an
  unfinished character are held back, because they may still change.
  """
  is_start = prompt_T.size == 1 and prompt_T[0] == tokenizer.eos_id
  ids = [] if is_start else prompt_T.tolist()
  text = shown = tokenizer.decode(ids) if ids else ''
  if shown:
    yield shown
  for token in sampled:
    if token != tokenizer.eos_id or ids:
      ids.append(token)
    text = tokenizer.decode(ids)
    stable = text.rstrip('\ufffd')
    if stable.startswith(shown) and len(stable) > len(shown):
      yield stable[len(shown) :]
      shown = stable
  if text != shown and text.startswith(shown):
    yield text[len(shown) :]
