"""Stands for `lmx train` in tests of the sweep: writes the files of a run, saves every step, resumes, obeys SIGTERM.

Its loss is 1 + (log10(optim.lr) + 2)^2 + model.dropout + 1/step + seed/10. CHILD is a dict in JSON:

  steps    updates of a run, with a validation after every second
  seconds  of an update
  fail     the run fails at step 3 if one of its settings is this one
  preempt  the run ends with 75 once, after this step, by itself
  deaf     ignore SIGTERM
  data     the data of each seed are others
  linger   seconds that a run with a bad learning rate waits for SIGTERM before its last update
"""

import fcntl
import json
import math
import os
import pathlib
import signal
import sys
import time


def main():
  told = []
  options = {'steps': 9, 'seconds': 0.02, 'fail': '', 'preempt': 0, 'deaf': False, 'data': False, 'linger': 0}
  options |= json.loads(os.environ['CHILD'])
  signal.signal(signal.SIGTERM, lambda *_: options['deaf'] or told.append(1))
  assert sys.argv[1] == 'train', sys.argv
  given = dict(word.removeprefix('--').split('=', 1) for word in sys.argv[2:])
  folder = pathlib.Path(given['workdir'])
  folder.mkdir(parents=True, exist_ok=True)
  lock = (folder / '.lock').open('w')
  try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    sys.exit(2)  # as lmx, where another process trains
  with (folder / 'begun.txt').open('a') as file:
    print(time.time(), os.environ.get('SLOT', ''), 'PGPASSWORD' in os.environ, file=file)
  if (folder / 'results.json').exists():
    return
  settings = {k.removeprefix('config.'): v for k, v in given.items() if k.startswith('config.')}
  config = {'train': {'steps': options['steps']}, 'settings': settings}
  (folder / 'config.json').write_text(json.dumps(config))
  lr, dropout = float(settings['optim.lr']), float(settings.get('model.dropout', 0))
  done = (folder / 'steps.txt').read_text().count('\n') if (folder / 'steps.txt').exists() else 0
  started = done
  for step in range(done + 1, options['steps'] + 1):
    time.sleep(options['seconds'])
    deadline = time.time() + options['linger'] * (step == options['steps'] and (math.log10(lr) + 2) ** 2 > 0.5)
    while time.time() < deadline and not told:
      time.sleep(0.01)
    if options['fail'] and options['fail'] in sys.argv and step == 3:
      print('about to fail')
      raise ValueError('this setting cannot be trained')
    loss = 1 + (math.log10(lr) + 2) ** 2 + dropout + 1 / step + int(settings.get('seed', 0)) / 10
    records = [{'step': step, 'split': 'train', 'loss': loss, 'seconds': 0.1 * step}]
    if step % 2 == 0 or step == options['steps']:
      records.append({'step': step, 'split': 'valid', 'loss': loss, 'accuracy': 1 / loss, 'seconds': 0.1 * step})
    with (folder / 'metrics.jsonl').open('a') as file:
      file.write(''.join(json.dumps(record) + '\n' for record in records))
    with (folder / 'steps.txt').open('a') as file:
      file.write(f'{step}\n')
    if step == options['preempt'] and not started:
      sys.exit(75)
    if told:
      sys.exit(75)
  result = {'split': 'test', 'loss': loss, 'bleu': 10 / loss}
  result |= {'data_hash': settings.get('seed', '0')} if options['data'] else {}
  (folder / 'results.json').write_text(json.dumps(result))


if __name__ == '__main__':
  main()
