"""Stands in for lmx in the tests of launch.tables: does at once what a command leaves behind.

CALLS names a file that every command is written to. MODE is '' or what happens to the training whose argument begins
with WHICH: 'fail', 'refuse' (input error), 'preempt' (once) or 'hang' (once, until SIGTERM).
"""

import importlib
import json
import os
import pathlib
import signal
import sys
import time

FIGURES = {'small': 115.6, 'medium': 83.0, 'large': 79.0}


def main() -> int:
  command, *rest = sys.argv[1:]
  words = dict(word.lstrip('-').partition('=')[::2] for word in rest)
  with open(os.environ['CALLS'], 'a') as calls:
    calls.write(' '.join(sys.argv[1:]) + '\n')
  where = pathlib.Path(words['workdir'])
  if command == 'evaluate':
    config = json.loads((where / 'config.json').read_text())
    figure = {'split': words['split'], 'perplexity_per_token': 120.0 + config['seed']}
    pathlib.Path(words['output']).write_text(json.dumps(figure))
    return 0
  path, _, arg = words['config'].partition(':')
  config = importlib.import_module(path.removesuffix('.py').replace('/', '.')).get_config(arg).to_dict()
  config['seed'] = int(words['config.seed'])
  if isinstance(config['data']['batching'], str):
    config['data']['batching'] = {'name': config['data']['batching']}
  where.mkdir(parents=True, exist_ok=True)
  (where / 'config.json').write_text(json.dumps(config))
  code = happens(where) if arg.startswith(os.environ.get('WHICH', '-')) else 0
  if not code:
    figure = {
      'split': 'test',
      'perplexity_per_token': FIGURES.get(arg, 60.0) + config['seed'],
      'seed': config['seed'],
      'training_seconds': 90.0,
      'device': '1 x stand-in',
    }
    (where / 'results.json').write_text(json.dumps(figure))
  return code


def happens(where: pathlib.Path) -> int:
  """What befalls a training: its exit code."""
  mode, once = os.environ['MODE'], where / 'once'
  if mode == 'fail':
    print('lmx: the loss is not finite')
    return 3
  if mode == 'refuse':
    print('lmx: data.label: got none')
    return 2
  if once.exists():
    return 0
  once.touch()
  if mode == 'hang':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    time.sleep(60)
  return 75


if __name__ == '__main__':
  sys.exit(main())
