"""`lmx generate --workdir=DIR`: generate text with a trained model, streamed or all at once."""

from __future__ import annotations

import argparse
import io
import sys
from typing import Any

from lmx import documents, ranges
from lmx.errors import InputError

_OPTIONS = (
  *('tokens', 'samples', 'temperature', 'top_k', 'top_p', 'top_p_form'),
  *('greedy', 'seed', 'past_eos', 'allow_unk'),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a trained run')
  parser.add_argument('--prompt', help='text to continue (default: standard input, or the start of a document)')
  parser.add_argument(
    '--tokens', type=ranges.integer(1, 1_000_000), default=120, help='tokens to sample (default %(default)s)'
  )
  parser.add_argument(
    '--samples', type=ranges.integer(1, 100_000), default=1, help='number of texts (default %(default)s)'
  )
  parser.add_argument('--temperature', type=ranges.number(0), help='divides the logits; 0 is greedy (default 0.8)')
  parser.add_argument(
    '--top_k', type=ranges.integer(0), help='sample from the k most probable tokens; 0 is all (default 0)'
  )
  parser.add_argument(
    '--top_p',
    type=ranges.number(0, 1, above=True),
    help='sample from the most probable tokens that reach this probability (default 0.95)',
  )
  parser.add_argument(
    '--top_p_form', choices=('paper', 'released'), help="nucleus of Holtzman et al., or OpenAI's code (default paper)"
  )
  parser.add_argument('--greedy', action='store_true', help='always take the most probable token')
  parser.add_argument('--seed', type=ranges.seed, help='seed of sampling (default 0)')
  parser.add_argument('--past_eos', action='store_true', help='continue after the end of a text')
  parser.add_argument('--allow_unk', action='store_true', help='also sample the unknown word')
  parser.add_argument('--which', default='best', help='checkpoint: best, last or a step (default %(default)s)')
  stream = parser.add_mutually_exclusive_group()
  stream.add_argument('--stream', action='store_true', default=None, help='print tokens as they are sampled (default)')
  stream.add_argument(
    '--no-stream', dest='stream', action='store_false', help='generate all samples at once, then print'
  )


def run(args: argparse.Namespace) -> int:
  from lmx import inference
  from lmx.decoding import generate

  streamed = args.stream is not False
  if not streamed:
    generate.check_positions('--samples, --tokens', args.samples, args.tokens)
  loaded = inference.load(args.workdir, args.which, args.overrides)
  options = given(args)
  prompt = _prompt(args)
  texts = loaded.stream(prompt, **options) if streamed else ([text] for text in loaded.generate(prompt, **options))
  for i, parts in enumerate(texts):
    if args.samples > 1:
      print(f'{"" if i == 0 else chr(10)}--- sample {i + 1} of {args.samples}')
    for part in parts:
      print(part, end='', flush=True)
    print()
  return 0


def given(args: argparse.Namespace) -> dict[str, Any]:
  """Return the options of generation that the command was given; the others have their default."""
  return {name: value for name in _OPTIONS if (value := getattr(args, name)) is not None}


def _prompt(args: argparse.Namespace) -> str:
  if args.prompt is not None or sys.stdin is None or sys.stdin.isatty():
    return args.prompt or ''
  if isinstance(sys.stdin, io.TextIOWrapper):
    sys.stdin.reconfigure(encoding='utf-8', errors='surrogateescape')  # accepts bytes that are not UTF-8
  text = sys.stdin.read(documents.LONGEST + 1)
  if len(text) > documents.LONGEST:
    raise InputError(f'standard input: got more than {documents.LONGEST:,} characters; expected a prompt')
  return text.rstrip('\n')
