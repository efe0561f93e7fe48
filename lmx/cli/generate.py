"""`lmx generate --workdir=DIR`: generate text with a trained model, streamed or all at once."""

from __future__ import annotations

import argparse
import io
import sys
from typing import Any

from lmx import documents, ranges
from lmx.cli import which
from lmx.errors import InputError

CONSTRAINTS = (
  *('eos_ids', 'forbidden', 'forbidden_first', 'bad_words', 'min_tokens', 'no_repeat_ngram', 'repetition_penalty'),
  *('forced_end', 'renormalise'),
)
_OPTIONS = (
  *('tokens', 'samples', 'temperature', 'top_k', 'top_p', 'top_p_form'),
  *('greedy', 'seed', 'past_eos', 'allow_unk', 'max_length', 'min_length'),
  *('beam', 'alpha', 'penalty', 'stop', *CONSTRAINTS),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of a trained run')
  parser.add_argument('--prompt', help='text to continue (default: standard input, or the start of a document)')
  parser.add_argument(
    '--tokens', type=ranges.integer(1, 1_000_000), help='maximum number of tokens to sample (default 120)'
  )
  parser.add_argument(
    '--samples', type=ranges.integer(1, 100_000), help='number of texts; with --beam, the best ones (default 1)'
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
  switch = argparse.BooleanOptionalAction
  parser.add_argument('--greedy', action=switch, help='always take the most probable token')
  parser.add_argument('--seed', type=ranges.seed, help='seed of sampling (default 0)')
  parser.add_argument('--past_eos', action=switch, help='continue after the end of a text')
  parser.add_argument('--allow_unk', action=switch, help='also sample the unknown word')
  parser.add_argument(
    '--max_length',
    type=ranges.integer(0, 1_000_000),
    help='maximum tokens of prompt and sample; 0 uses tokens (default 0)',
  )
  parser.add_argument(
    '--min_length', type=ranges.integer(0), help='minimum tokens of prompt and sample; 0 uses min_tokens (default 0)'
  )
  add_search(
    parser.add_argument_group('search'), 'beam size of a search, instead of sampling; 0 samples (default 0)', 0
  )
  add_constraints(parser)
  which.add_argument(parser)
  stream = parser.add_mutually_exclusive_group()
  stream.add_argument('--stream', action='store_true', default=None, help='print tokens as they are sampled (default)')
  stream.add_argument(
    '--no-stream', dest='stream', action='store_false', help='generate all samples at once, then print'
  )


def add_search(group: Any, beam: str, least: int) -> None:
  """Add the options of a beam search, with the help text of --beam and its least value."""
  group.add_argument('--beam', type=ranges.integer(least, 1000), help=beam)
  group.add_argument(
    '--alpha',
    type=ranges.number(-1000, 1000),
    help='exponent of the length penalty; a negative one favours short texts',
  )
  group.add_argument('--penalty', choices=('gnmt', 'power'), help='((5 + n) / 6)^alpha, or n^alpha')
  group.add_argument('--stop', choices=('bound', 'current', 'full'), help='bound is exact, full ends soonest')


def add_constraints(parser: argparse.ArgumentParser) -> None:
  """Add the options that exclude or penalise tokens; ids are those of the tokenizer, such as 5,6."""
  group = parser.add_argument_group('constraints', 'on the tokens of a text; IDS are token ids, such as 5,6')
  group.add_argument(
    '--eos_ids', type=ranges.ids, metavar='IDS', help="ids that end a text (default: the tokenizer's end-of-text token)"
  )
  group.add_argument(
    '--forbidden',
    type=ranges.ids,
    metavar='IDS',
    help='ids that are never chosen, instead of padding and unknown words',
  )
  group.add_argument('--forbidden_first', type=ranges.ids, metavar='IDS', help='ids that a text does not begin with')
  group.add_argument(
    '--bad_words',
    type=ranges.sequences,
    metavar='IDS/IDS',
    help='sequences of ids that no text completes, such as 5,6/7',
  )
  group.add_argument('--min_tokens', type=ranges.integer(0), help='minimum number of tokens before the end of a text')
  group.add_argument(
    '--no_repeat_ngram', type=ranges.integer(0), help='n: no n-gram of tokens occurs twice; 0 for none'
  )
  group.add_argument(
    '--repetition_penalty', type=ranges.number(0.001, 1000), help='above 1 makes earlier tokens less probable'
  )
  switch = argparse.BooleanOptionalAction
  group.add_argument('--forced_end', action=switch, help='the last token is the end-of-text token')
  group.add_argument('--renormalise', action=switch, help='a search normalises over the allowed tokens')


def run(args: argparse.Namespace) -> int:
  from lmx import inference
  from lmx.decoding import generate

  streamed = args.stream is not False
  if not streamed:
    generate.check_positions('--samples, --tokens', args.samples or 1, args.tokens or 1)
  loaded = inference.load(args.workdir, args.which, args.overrides)
  options = given(args)
  prompt = _prompt(args)
  samples = loaded.writing(**options).samples
  texts = loaded.stream(prompt, **options) if streamed else ([text] for text in loaded.generate(prompt, **options))
  for i, parts in enumerate(texts):
    if samples > 1:
      print(f'{"" if i == 0 else chr(10)}--- sample {i + 1} of {samples}')
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
