"""`lmx generate --workdir=DIR`: generate text with a trained model, streamed or all at once."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from lmx import ranges
from lmx.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a trained run')
  parser.add_argument('--prompt', help='text to continue; without it standard input, or the start of a document')
  parser.add_argument(
    '--tokens', type=ranges.integer(1, 1_000_000), default=120, help='tokens to sample (default %(default)s)'
  )
  parser.add_argument(
    '--samples', type=ranges.integer(1, 100_000), default=1, help='how many texts (default %(default)s)'
  )
  parser.add_argument('--temperature', type=ranges.number(0), default=0.8, help='divides the logits; 0 is greedy')
  parser.add_argument(
    '--top_k', type=ranges.integer(0), default=0, help='sample from the k most probable tokens; 0 = all'
  )
  parser.add_argument(
    '--top_p',
    type=ranges.number(0, 1, above=True),
    default=0.95,
    help='sample from the most probable tokens that reach this probability',
  )
  parser.add_argument('--top_p_form', choices=('paper', 'released'), default='paper', help='Holtzman et al., or OpenAI')
  parser.add_argument('--greedy', action='store_true', help='always the most probable token')
  parser.add_argument('--seed', type=ranges.seed, default=0, help='same seed, same text (default %(default)s)')
  parser.add_argument('--past_eos', action='store_true', help='continue after the end of a text')
  parser.add_argument('--allow_unk', action='store_true', help='also sample the unknown word')
  parser.add_argument('--which', default='best', help='checkpoint: best, last or a step (default %(default)s)')
  stream = parser.add_mutually_exclusive_group()
  stream.add_argument('--stream', action='store_true', default=None, help='print tokens as they are sampled (default)')
  stream.add_argument(
    '--no-stream', dest='stream', action='store_false', help='generate all samples at once, then print'
  )


def run(args: argparse.Namespace) -> int:
  from lmx.decoding import generate
  from lmx.engine import precision
  from lmx.runs import restore

  if args.stream is False:
    generate.check_positions('--samples, --tokens', args.samples, args.tokens)
  loaded = restore.load(args.workdir, args.which, args.overrides)
  if not getattr(loaded.model, 'WORDS', True):
    raise InputError(f'{args.workdir}: the model predicts no words, so it generates no text')
  prompt_T = generate.prompt_ids(loaded.tokenizer, _prompt(args))
  with precision.scope(loaded.run.matmul_precision):
    for i, parts in enumerate(_texts(args, loaded, prompt_T)):
      if args.samples > 1:
        print(f'{"" if i == 0 else chr(10)}--- sample {i + 1} of {args.samples}')
      for part in parts:
        print(part, end='', flush=True)
      print()
  return 0


def _prompt(args: argparse.Namespace) -> str:
  if args.prompt is not None or sys.stdin is None or sys.stdin.isatty():
    return args.prompt or ''
  if isinstance(sys.stdin, io.TextIOWrapper):
    sys.stdin.reconfigure(encoding='utf-8', errors='surrogateescape')  # accepts bytes that are no UTF-8
  return sys.stdin.read().rstrip('\n')


def build_sampler(args: argparse.Namespace, tokenizer: Any, vocab_size: int) -> Any:
  """Return the `generate.Sampler` of the options."""
  from lmx.decoding import generate

  forbidden = generate.forbidden_ids(tokenizer, vocab_size, allow_unk=args.allow_unk)
  return generate.Sampler(args.temperature, args.top_k, args.top_p, args.top_p_form, args.greedy, forbidden)


def _texts(args: argparse.Namespace, loaded: Any, prompt_T: np.ndarray) -> Iterator[Iterable[str]]:
  """Yield the text parts of each sample; sample i has the same text with and without streaming."""
  import jax

  from lmx.decoding import generate

  key = jax.random.key(args.seed)
  options = dict(steps=args.tokens, sampler=build_sampler(args, loaded.tokenizer, loaded.cfg.V))
  options['eos_id'] = None if args.past_eos else loaded.tokenizer.eos_id
  call = (loaded.model, loaded.cfg, loaded.params['model'])
  if args.stream is not False:
    for i in range(args.samples):
      own = jax.random.fold_in(key, i)[None]
      sampled = (int(token_B[0]) for token_B in generate.stream(*call, prompt_T[None], key=own, **options))
      yield decode_stream(loaded.tokenizer, prompt_T, sampled)
    return
  generated = generate.generate(*call, np.repeat(prompt_T[None], args.samples, 0), key=key, **options)
  for tokens_T, count in zip(generated.tokens_BT, generated.counts_B, strict=True):
    yield decode_stream(loaded.tokenizer, prompt_T, tokens_T[:count].tolist())


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
