"""Text that a causal model writes after a prompt, sample by sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from lmx.decoding import beam_search, check_constraints, generate
from lmx.decoding.generate import Sampler
from lmx.errors import InputError, check_range
from lmx.ranges import SEEDS
from lmx.types import Array, Model, Params


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of `lmx generate`.

  Attributes:
    tokens: maximum number of tokens per sample.
    samples: number of samples; with `beam`, the best texts of the search.
    temperature: divides the logits; 0 is greedy.
    top_k: sample from the k most probable tokens; 0 is all.
    top_p: sample from the most probable tokens that reach this probability.
    top_p_form: 'paper' (Holtzman et al. 2020) or 'released' (OpenAI's code).
    greedy: always take the most probable token.
    seed: seed of sampling; each sample has its own key.
    past_eos: continue after the end of a text.
    allow_unk: also sample the unknown word.
    max_length: maximum number of tokens of prompt and sample, instead of `tokens`; 0 uses `tokens`.
    eos_ids: ids that end a text; None for the tokenizer's end-of-text token.
    forbidden: ids that are never chosen; None forbids padding, the unknown word without `allow_unk`, and rows of the
      model's table beyond the tokenizer's ids.
    forbidden_first: ids that a sample does not begin with.
    bad_words: sequences of ids that are never completed.
    min_tokens: minimum number of tokens of a sample before its end.
    min_length: minimum number of tokens of prompt and sample, instead of `min_tokens`; 0 uses `min_tokens`.
    no_repeat_ngram: n; no n-gram of tokens occurs twice in prompt and sample; 0 for none.
    repetition_penalty: divides the positive logits of earlier tokens, and multiplies negative ones; 1 for none.
    forced_end: the last token is the end-of-text token.
    beam: beam size of a search for the most probable text, instead of sampling; 0 samples.
    alpha: exponent of the search's length penalty (lmx/decoding/beam_search.py).
    penalty: 'gnmt' or 'power', see lmx/decoding/beam_search.py.
    stop: 'bound', 'current' or 'full', see lmx/decoding/beam_search.py.
    renormalise: the search normalises probabilities over the allowed tokens.
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
  max_length: int = 0
  eos_ids: tuple[int, ...] | None = None
  forbidden: tuple[int, ...] | None = None
  forbidden_first: tuple[int, ...] = ()
  bad_words: tuple[tuple[int, ...], ...] = ()
  min_tokens: int = 0
  min_length: int = 0
  no_repeat_ngram: int = 0
  repetition_penalty: float = 1.0
  forced_end: bool = False
  beam: int = 0
  alpha: float = 0.6
  penalty: str = 'gnmt'
  stop: str = 'bound'
  renormalise: bool = False

  def __post_init__(self) -> None:
    check_range('tokens', self.tokens, 1)
    check_range('samples', self.samples, 1)
    check_range('seed', self.seed, 0, SEEDS)
    check_range('max_length', self.max_length, 0)
    check_range('min_length', self.min_length, 0)
    check_constraints('', self.bad_words, self.min_tokens, self.no_repeat_ngram, self.repetition_penalty)
    if self.min_tokens > self.tokens and not self.max_length:
      raise InputError(f'min_tokens: got {self.min_tokens}; expected at most tokens, {self.tokens}; set both')
    if self.beam and self.samples > self.beam:
      raise InputError(f'samples: got {self.samples}; expected at most beam, {self.beam}; raise the beam size')
    if self.beam:
      self._beam({})  # checks its options
    check_range('beam', self.beam, 0)

  def ends(self, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids that end a text."""
    if self.past_eos:
      return ()
    if self.eos_ids is not None:
      return tuple(dict.fromkeys(self.eos_ids))
    return () if tokenizer.eos_id is None else (tokenizer.eos_id,)

  def limit(self, prompt: int) -> int:
    """Return the maximum number of tokens after `prompt` tokens. Raises InputError if there is none."""
    if self.max_length and self.max_length <= prompt:
      raise InputError(
        f'max_length: got {self.max_length} with a prompt of {prompt} tokens; expected more; set tokens instead'
      )
    return self.max_length - prompt if self.max_length else self.tokens

  def _constraints(self, tokenizer: Any, vocab_size: int, prompt: int) -> dict[str, Any]:
    """Return the fields of `sampling.Constraints` after `prompt` tokens."""
    forbidden = self.forbidden
    if forbidden is None:
      unwanted = generate.forbidden_ids(tokenizer, vocab_size, allow_unk=self.allow_unk)
      forbidden = tuple(i for i in unwanted if i not in (self.eos_ids or ()))
    return {
      'forbidden': forbidden,
      'forbidden_first': self.forbidden_first,
      'bad_words': self.bad_words,
      'min_tokens': self.min_tokens or max(self.min_length - prompt, 0),
      'no_repeat_ngram': self.no_repeat_ngram,
      'repetition_penalty': self.repetition_penalty,
      'force_end': self.forced_end,
    }

  def sampler(self, tokenizer: Any, vocab_size: int, prompt: int = 0) -> Sampler:
    """Return the options of sampling a token after a prompt of `prompt` tokens."""
    rules = self._constraints(tokenizer, vocab_size, prompt)
    return Sampler(self.temperature, self.top_k, self.top_p, self.top_p_form, self.greedy, **rules)

  def search(self, tokenizer: Any, vocab_size: int, prompt: int = 0) -> beam_search.Beam:
    """Return the options of the beam search after a prompt of `prompt` tokens."""
    return self._beam(self._constraints(tokenizer, vocab_size, prompt))

  def _beam(self, rules: Mapping[str, Any]) -> beam_search.Beam:
    return beam_search.Beam(self.beam, self.alpha, self.penalty, self.stop, self.renormalise, **rules)


_SAMPLING = ('temperature', 'top_k', 'top_p', 'top_p_form', 'seed')
_SEARCH = ('alpha', 'penalty', 'stop', 'renormalise')
_SHOWN = 4  # ids in a line about the options
# Option -> the option that it replaces, where only one of them is given.
_INSTEAD = {'tokens': 'max_length', 'min_tokens': 'min_length', 'allow_unk': 'forbidden', 'past_eos': 'eos_ids'}


def override(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
  """Return the options of a run, `settings`, overridden by those given.

  `tokens` also overrides `max_length`, `min_tokens` `min_length`, `allow_unk` `forbidden`, and `past_eos` `eos_ids`. An
  option of sampling also overrides `greedy` and `beam`, and `greedy` overrides `beam`.
  """
  replaced = {other: getattr(Options, other) for name, other in _INSTEAD.items() if name in given}
  if given.keys() & {*_SAMPLING}:
    replaced |= {'greedy': False, 'beam': 0}
  if given.get('greedy'):
    replaced['beam'] = 0
  if given.get('past_eos'):
    replaced['forced_end'] = False
  if 'tokens' in given and 'min_tokens' in settings:
    replaced['min_tokens'] = min(settings['min_tokens'], given['tokens'])
  return {**settings, **replaced, **given}


def describe(settings: Mapping[str, Any], names: Collection[str] | None = None) -> str:
  """Return options as text, such as 'greedy=True, forbidden=(9 ids)', without defaults and those without effect.

  Args:
    settings: fields of `Options`, or of the options of translation.
    names: those to show; None is all.
  """
  beam, greedy = settings.get('beam'), settings.get('greedy')
  unused = (*_SAMPLING, 'greedy') if beam else (*_SEARCH, *_SAMPLING) if greedy else _SEARCH
  shown = [name for name in settings if name not in unused and (names is None or name in names)]
  used = {name: settings[name] for name in shown if settings[name] != getattr(Options, name, None)}
  ids = lambda x: f'({len(x)} ids)' if len(x) > _SHOWN else tuple(x)
  show = lambda x: ids(x) if isinstance(x, (list, tuple)) else x
  return ', '.join(f'{name}={show(x)}' for name, x in used.items() if name == 'eos_ids' or x not in ([], ()))


def check_used(options: Options, given: Collection[str]) -> None:
  """Raise InputError if one of the `given` options has no effect, because of others."""
  conflicts = [(name, 'beam=0', 'which searches nothing') for name in _SEARCH if not options.beam]
  if options.beam:
    conflicts += [(name, f'beam={options.beam}', 'which samples nothing') for name in (*_SAMPLING, 'greedy')]
    conflicts += [('penalty', 'alpha=0', 'which penalises no length')] * (not options.alpha)
  elif options.greedy or not options.temperature:
    greedy = 'greedy' if options.greedy else 'temperature=0'
    zero = ('temperature', 0)  # greedy too
    always = [name for name in _SAMPLING if (name, getattr(options, name)) != zero]
    conflicts += [(name, greedy, 'which always takes the most probable token') for name in always]
  if options.top_p == 1:
    conflicts += [('top_p_form', 'top_p=1', 'which keeps all tokens')]
  if options.past_eos or options.eos_ids == ():
    other = 'past_eos' if options.past_eos else 'no eos_ids'
    ending = ('min_tokens', 'min_length', 'forced_end', *('eos_ids',) * options.past_eos)
    conflicts += [(name, other, 'which ends no text') for name in ending]
  for name, other in _INSTEAD.items():
    if other in given and getattr(options, other) != getattr(Options, other):
      conflicts += [(name, f'{other}={getattr(options, other)}', 'which replaces it')]
  for name, other, reason in conflicts:
    if name in given and getattr(options, name) is not False:
      raise InputError(f'{name}: got {getattr(options, name)} with {other}, {reason}; omit one of them')


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
    stream: sample token by token while the parts are read, instead of all samples together first; the text is equal. A
      beam search knows its texts only at the end.

  Raises:
    InputError: the model cannot continue the prompt; see `generate.generate`.
  """
  shown_T = generate.encode_prompt(tokenizer, prompt)
  prompt_T = generate.begin_row(tokenizer, shown_T)
  call = (model, cfg, params)
  if options.beam:
    found = _search(*call, tokenizer, prompt_T, options)
  elif stream:
    found = _stream(*call, tokenizer, prompt_T, options)
  else:
    found = _sample(*call, tokenizer, prompt_T, options)
  return (decode_stream(tokenizer, shown_T, tokens) for tokens in found)


def _given(tokenizer: Any, cfg: Any, prompt_T: np.ndarray, options: Options) -> dict[str, Any]:
  """Return keyword arguments of `generate.generate` and `generate.stream`."""
  sampler = options.sampler(tokenizer, cfg.V, prompt_T.size)
  return {'steps': options.limit(prompt_T.size), 'sampler': sampler, 'eos_ids': options.ends(tokenizer)}


def _stream(
  model: Model, cfg: Any, params: Params, tokenizer: Any, prompt_T: np.ndarray, options: Options
) -> Iterator[Iterable[int]]:
  given = _given(tokenizer, cfg, prompt_T, options)
  for i in range(options.samples):
    own = None if given['sampler'].is_greedy else _sample_keys(np.uint32(options.seed), i)
    yield (int(token_B[0]) for token_B in generate.stream(model, cfg, params, prompt_T[None], key=own, **given))


@jax.jit
def _sample_keys(seed: Any, sample: Any) -> Array:
  """Return the key of a sample, (1,), by one program instead of one per function."""
  return jax.random.fold_in(jax.random.key(seed), sample)[None]


def _sample(
  model: Model, cfg: Any, params: Params, tokenizer: Any, prompt_T: np.ndarray, options: Options
) -> Iterator[Iterable[int]]:
  given = _given(tokenizer, cfg, prompt_T, options)
  generate.check_positions('samples, tokens', options.samples, given['steps'])
  prompt_BT = np.repeat(prompt_T[None], options.samples, 0)
  key = None if given['sampler'].is_greedy else jax.random.key(options.seed)
  generated = generate.generate(model, cfg, params, prompt_BT, key=key, **given)
  for tokens_T, count in zip(generated.tokens_BT, generated.counts_B, strict=True):
    yield tokens_T[:count].tolist()


def _search(
  model: Model, cfg: Any, params: Params, tokenizer: Any, prompt_T: np.ndarray, options: Options
) -> Iterator[Iterable[int]]:
  """Yield the tokens of the best texts of a beam search, best first."""
  steps, window = options.limit(prompt_T.size), generate.window(cfg)
  if window is not None and prompt_T.size + steps > window + 1:
    raise InputError(
      f'tokens: got {steps} after a prompt of {prompt_T.size} tokens; expected at most '
      f"{max(window + 1 - prompt_T.size, 0)}, because beam search keeps to the model's window of {window} positions"
    )
  generate.check_positions('beam, tokens', options.beam, steps)
  rules = options.search(tokenizer, cfg.V, prompt_T.size)
  prompt_BT, lengths_B = generate.pad_prompts(prompt_T[None], np.array([prompt_T.size]), window)
  found = beam_search.search(
    model, cfg, params, prompt_BT, lengths_B, beam=rules, limits=steps, eos_ids=options.ends(tokenizer)
  )
  counts = found.counts_BK[0, : options.samples].tolist()
  if not all(counts):
    raise InputError(
      f'samples: got {options.samples}; the search found {sum(map(bool, counts))} texts, because the model or '
      f'{generate.name_constraints(rules) or "the vocabulary"} leaves no others; lower samples'
    )
  for tokens_T, count in zip(found.tokens_BKT[0], counts, strict=False):
    yield tokens_T[:count].tolist()


def decode_stream(tokenizer: Any, shown_T: np.ndarray, sampled: Iterable[int]) -> Iterator[str]:
  """Yield the text of the prompt's ids `shown_T`, if there are any, and then the text that each sampled token adds.

  The whole text is decoded each time, because tokens may join (subwords, spaces before punctuation). The bytes of an
  unfinished character are held back, because they may still change.
  """
  ids = shown_T.tolist()
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
