"""GPT-2 generation and Transformer beam search in new tokens per second, alternating with transformers' `generate`.

Weights are random, so no text ends early. `generate_1` and `generate_8`: GPT-2 of 124M parameters continues one or
eight prompts of 32 tokens greedily by 64. Rows `..._first_64`, `..._first_128` and `..._first_256` measure a whole
first call for that many tokens, with its own compilation. lmx compiles for each number of tokens, the peer never. They
show from which length lmx is ahead. `beam_4`: a Transformer of Marian's sizes translates 8 sentences of 20 to 28 tokens
into 32 tokens with 4 hypotheses.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lmx import host
from lmx.benchmark import row
from lmx.benchmark.peer import Peer
from lmx.benchmark.task import build_task

PACKAGES = ('torch', 'transformers:GPT2LMHeadModel', 'transformers:MarianMTModel')
PRESETS = {'generate_1': 1, 'generate_8': 8, 'beam_4': 8}  # rows
PROMPT, TOKENS, FIRST = 32, 64, (64, 128, 256)
BEAM, BEAM_TOKENS, SOURCE = 4, 32, (20, 28)
MARIAN = ('V=58101', 'activation=swish', 'biases=all', 'eps=1e-5', 'dropout=0.0')  # of opus-mt; other sizes as here

Generate = Callable[[int], float]  # generates so many tokens a row, returns the seconds


def measure(name: str, rounds: int, python: str | None) -> list[row.Row]:
  """Return the rows of a preset."""
  count = PRESETS[name]
  ours_of, spec = (_beam if name == 'beam_4' else _greedy)(count)
  tokens, first = (BEAM_TOKENS, ()) if name == 'beam_4' else (TOKENS, FIRST)
  firsts: dict[int, tuple[float, float | None]] = {}
  ours: list[float] = []
  theirs: list[float] = []
  with contextlib.ExitStack() as stack:
    peer, about = None, None
    if python:
      peer = stack.enter_context(Peer(python, 'transformers_generate.py'))
      about = peer.send(spec)
    theirs_of = (lambda k: peer.send({'tokens': k})['seconds']) if peer else None
    for k in first or (tokens,):
      firsts[k] = _first(ours_of, k), theirs_of(k) if theirs_of else None
    ours_of(tokens)
    for _ in range(rounds):
      ours.append(ours_of(tokens))
      if theirs_of:
        theirs.append(theirs_of(tokens))
    peaks = host.process_peak(), peer.peak_bytes if peer else None
  rate = lambda times: [count * tokens / seconds for seconds in times]
  compiling = firsts[tokens][0] - float(np.median(ours))
  more: dict[str, Any] = {'peer': about, 'peaks': peaks}
  rows = [row.make(name, 'tokens/s', rate(ours), rate(theirs), compile_seconds=compiling, **more)]
  for k in first:
    mine, other = firsts[k]
    rows.append(row.make(f'{name}_first_{k}', 's', [mine], [] if other is None else [other], **more))
  return rows


def _first(generate: Generate, tokens: int) -> float:
  """Return the seconds of a call as a process's first, without compiled programs or a compilation cache."""
  import jax

  from lmx.engine import by_layer

  jax.clear_caches()
  by_layer.clear()
  before = jax.config.values['jax_enable_compilation_cache']
  jax.config.update('jax_enable_compilation_cache', False)
  seconds = generate(tokens)
  jax.config.update('jax_enable_compilation_cache', before)
  return seconds


def _greedy(count: int) -> tuple[Generate, dict[str, Any]]:
  """Return (GPT-2's generation, the peer's specification)."""
  import jax

  from lmx.decoding import generate
  from lmx.decoding.sampling import Sampler
  from lmx.engine import precision

  task, _ = build_task('gpt2:124m')
  cfg = task.cfg
  params = jax.block_until_ready(jax.jit(task.init)(jax.random.key(0)))['model']
  prompt_BT = np.random.default_rng(0).integers(1, cfg.V, (count, PROMPT))

  def run(tokens: int) -> float:
    start = time.perf_counter()
    with precision.scope('float32'):
      generate.generate(task.model, cfg, params, prompt_BT, steps=tokens, key=None, sampler=Sampler(greedy=True))
    return time.perf_counter() - start

  sizes = {'V': cfg.V, 'T': cfg.T, 'D': cfg.D, 'H': cfg.H, 'N': cfg.N}
  return run, {'kind': 'gpt2', **sizes, 'batch': count, 'length': PROMPT, 'threads': host.cores()}


def _beam(count: int) -> tuple[Generate, dict[str, Any]]:
  """Return (beam search of a Transformer, the peer's specification)."""
  import jax

  from lmx.decoding import beam_search
  from lmx.engine import precision

  task, _ = build_task('transformer', MARIAN)
  cfg, model = task.cfg, task.model
  params = jax.block_until_ready(jax.jit(task.init)(jax.random.key(0)))['model']
  random = np.random.default_rng(0)
  lengths_B = np.linspace(*SOURCE, count).astype(int)
  source: Any = {
    'source_BS': random.integers(1, cfg.V - 1, (count, SOURCE[1])).astype(np.int32),
    'source_valid_BS': np.arange(SOURCE[1]) < lengths_B[:, None],
  }
  beam = beam_search.Beam(BEAM, alpha=1.0, penalty='power', stop='current', forbidden=(cfg.V - 1,))

  def run(tokens: int) -> float:
    start = time.perf_counter()
    with precision.scope('float32'):
      beam_search.search(model, cfg, params, beam=beam, limits=tokens, least=tokens, eos_ids=(0,), source=source)
    return time.perf_counter() - start

  sizes = {'V': cfg.V, 'D': cfg.D, 'F': cfg.F, 'H': cfg.H, 'N': cfg.encoder_layers}
  spec = {'kind': 'marian', **sizes, 'lengths': lengths_B.tolist(), 'beams': BEAM, 'threads': host.cores()}
  return run, spec
