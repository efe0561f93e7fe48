"""The conversation of a peer's script with lmx, run by the peer's interpreter; it imports nothing from lmx.

One JSON object per line on standard input, one answer per line on standard output. A request with "kind" builds a
model, which later requests use until the next one builds another. The end of the input ends the program; output of
libraries goes to standard error. Errors are answered with {"error": message}. Every other answer also has "peak_bytes",
the largest resident set of the process so far.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def peak() -> int | None:
  """Return this process's largest resident set so far in bytes, None if unknown."""
  # getrusage's maximum includes the parent process's at the start.
  if not os.path.exists('/proc/self/status'):
    return None
  with open('/proc/self/status', encoding='ascii', errors='replace') as file:
    return next((1024 * int(line.split()[1]) for line in file if line.startswith('VmHWM:')), None)


def serve(documentation: str, build: Callable[[Any], tuple[Any, Any]], run: Callable[[Any, Any], Any]) -> None:
  """Answer requests until standard input ends; any argument prints the documentation instead.

  Args:
    documentation: text of `--help`.
    build: (request with "kind") -> (model, answer).
    run: (model, another request) -> answer.
  """
  if len(sys.argv) > 1:
    print(documentation)
    sys.exit(0 if sys.argv[1] in ('-h', '--help') else 2)
  out, sys.stdout = sys.stdout, sys.stderr  # only answers go to standard output
  model: Any = None
  for line in sys.stdin:
    if not line.strip():
      continue
    try:
      request = json.loads(line)
      if 'kind' in request:
        model, reply = build(request)
      elif model is None:
        raise ValueError('send a model first')
      else:
        reply = run(model, request)
      reply = {**reply, 'peak_bytes': peak()}
    except (ValueError, KeyError, TypeError, ImportError, RuntimeError, OSError) as error:
      reply = {'error': f'{type(error).__name__}: {error}'}
    print(json.dumps(reply), file=out, flush=True)
