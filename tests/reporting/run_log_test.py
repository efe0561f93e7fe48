"""What a run leaves reads as if it had never been killed, and nothing in it is lost or made up."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import image
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
from tensorboardX.proto.summary_pb2 import Summary

import lmx
from lmx.errors import InputError
from lmx.reporting import run_log

DRAWS = True  # of tests/conftest.py


def metrics_of(step: int) -> dict:
  """What a train step gives: scalars, a flag, and a (sum, weight) pair."""
  return {
    'loss': jnp.float32(10 / step),
    'lr': jnp.float32(1e-3),
    'finite': jnp.array(True),
    'nll': (jnp.float32(6 * step), jnp.float32(3)),
  }


def run(workdir, start: int, stop: int, total: int = 40, every: int = 5, **options) -> None:
  """Steps start + 1 ... stop, a validation after every tenth."""
  with run_log.Logger(workdir, total, start_step=start, tokens_per_step=7, every=every, **options) as logger:
    for step in range(start + 1, stop + 1):
      logger.train(step, metrics_of(step))
      if step % 10 == 0:
        logger.evaluation(step, 'valid', {'loss': 5 / step})


def without_times(records: list[dict]) -> list[dict]:
  return [{k: v for k, v in r.items() if k not in ('seconds', 'tokens_per_second', 'wait_share')} for r in records]


def test_records(tmp_path):
  run(tmp_path, 0, 12, total=12)
  records = run_log.read_metrics(tmp_path)
  assert [(r['step'], r['split']) for r in records] == [
    (1, 'train'),
    (5, 'train'),
    (10, 'train'),
    (10, 'valid'),
    (12, 'train'),
  ]
  assert without_times(records)[1] == {
    'step': 5,
    'split': 'train',
    'loss': 2.0,
    'lr': pytest.approx(1e-3),
    'nll': 10.0,
  }
  assert records[3]['loss'] == 0.5
  seconds = [r['seconds'] for r in records]
  assert seconds == sorted(seconds) and seconds[0] > 0
  assert 'tokens_per_second' not in records[0] and records[1]['tokens_per_second'] > 0


def test_killed_run_reads_as_one_never_killed(tmp_path):
  run(tmp_path / 'whole', 0, 40)
  run(tmp_path / 'killed', 0, 23)
  with (tmp_path / 'killed' / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 25, "split": "tr')  # killed in the middle of a line
  assert len(run_log.read_metrics(tmp_path / 'killed')) == 7
  run(tmp_path / 'killed', 15, 31)  # from the checkpoint of step 15
  run(tmp_path / 'killed', 30, 40)
  whole, killed = (run_log.read_metrics(tmp_path / name) for name in ('whole', 'killed'))
  assert without_times(killed) == without_times(whole)
  seconds = [r['seconds'] for r in killed if r['split'] == 'train']
  assert seconds == sorted(seconds)  # of all sessions
  text = (tmp_path / 'killed' / 'metrics.jsonl').read_text()
  assert all(json.loads(line) for line in text.splitlines())
  run(tmp_path / 'killed', 0, 5)  # a run begun anew
  assert [r['step'] for r in run_log.read_metrics(tmp_path / 'killed')] == [1, 5]


def test_measurement_repeated_counts_once(tmp_path):
  with run_log.Logger(tmp_path, 10, tokens_per_step=1) as logger:
    logger.evaluation(4, 'valid', {'loss': 2.0})
    logger.evaluation(4, 'test', {'loss': 3.0})
    logger.evaluation(4, 'valid', {'loss': 1.0})
  assert [(r['split'], r['loss']) for r in run_log.read_metrics(tmp_path)] == [('test', 3.0), ('valid', 1.0)]


def test_nan_and_infinity_are_written_as_strict_json(tmp_path):
  with run_log.Logger(tmp_path, 1, tokens_per_step=1) as logger:
    logger.train(1, {'loss': jnp.float32(math.nan), 'norm': jnp.float32(math.inf), 'pair': (1.0, 0.0)})
    logger.evaluation(1, 'valid', {'loss': -math.inf})
    logger.results({'loss': math.nan, 'array': np.arange(2), 'nested': {'x': np.float32(math.inf)}})

  def refuse(name):
    raise AssertionError(name)

  for line in (tmp_path / 'metrics.jsonl').read_text().splitlines():
    json.loads(line, parse_constant=refuse)
  found = json.loads((tmp_path / 'results.json').read_text(), parse_constant=refuse)
  assert (found['loss'], found['array'], found['nested']) == ('NaN', [0, 1], {'x': 'Infinity'})
  train, valid = run_log.read_metrics(tmp_path)
  assert math.isnan(train['loss']) and math.isnan(train['pair'])
  assert train['norm'] == math.inf and valid['loss'] == -math.inf


def test_step_just_dispatched_is_not_waited_for(tmp_path, monkeypatch):
  fetched = []
  get = jax.device_get
  monkeypatch.setattr(run_log.jax, 'device_get', lambda tree: fetched.append(int(tree['step'])) or get(tree))
  with run_log.Logger(tmp_path, 20, tokens_per_step=1, every=2) as logger:
    for step in range(1, 8):
      logger.train(step, {'loss': jnp.float32(1.0), 'step': jnp.int32(step)})
      assert step not in fetched
    assert fetched == [1, 2, 4, 6]  # and only those that are written or shown
    logger.train(8, {'loss': jnp.float32(1.0), 'step': jnp.int32(8)})
    logger.flush()
    assert fetched[-1] == 8  # as before a checkpoint of step 8
  assert [r['step'] for r in run_log.read_metrics(tmp_path)] == [1, 2, 4, 6, 8]


def test_rates_leave_out_compilation_and_evaluation(tmp_path, monkeypatch):
  now = [0.0]
  monkeypatch.setattr(run_log.time, 'monotonic', lambda: now[0])
  with run_log.Logger(tmp_path, 100, tokens_per_step=50, every=10) as logger:
    now[0] += 30  # the first step compiles
    for step in range(1, 31):
      logger.train(step, metrics_of(step), wait_seconds=step * 0.1)
      if step == 20:
        now[0] += 100
        logger.evaluation(step, 'valid', {'loss': 1.0})
      now[0] += 0.5
  records = [r for r in run_log.read_metrics(tmp_path) if r['split'] == 'train']
  assert [r['step'] for r in records] == [1, 10, 20, 30]
  assert [r['tokens_per_second'] for r in records[1:]] == pytest.approx([100, 100, 100])
  assert [r['wait_share'] for r in records[1:]] == pytest.approx([0.2, 0.2, 0.2], abs=0.03)
  assert records[-1]['seconds'] == pytest.approx(30 + 100 + 29 * 0.5)


def test_rates_leave_out_the_compilation_of_further_shapes(tmp_path, monkeypatch, capsys):
  now = [0.0]
  monkeypatch.setattr(run_log.time, 'monotonic', lambda: now[0])
  short, long = ({'tokens_BT': np.zeros((2, T)), 'seed': np.zeros(())} for T in (8, 16))
  said = []
  monkeypatch.setattr(run_log.waiting, 'waiting', lambda text, show: said.append(text) or contextlib.nullcontext())
  with run_log.Logger(tmp_path, 30, tokens_per_step=50, every=10) as logger:
    for step in range(1, 31):
      batch = long if step % 5 == 0 else short
      with logger.compiling(step, batch):
        now[0] += 40 if step in (1, 5) else 0
      logger.train(step, metrics_of(step))
      now[0] += 0.5
  assert said == [f'compiling batches of 2 x {T} (step {step} of 30)' for step, T in ((1, 8), (5, 16))]
  records = run_log.read_metrics(tmp_path)
  assert [r.get('tokens_per_second', 100) for r in records] == pytest.approx([100] * 4)


def test_finished_run_names_its_files(tmp_path):
  (tmp_path / 'checkpoints').mkdir()
  with run_log.Logger(f'{tmp_path}/', 30, tokens_per_step=50) as logger:
    logger.results({'name': 'x'})
    lines = logger.files()
  assert [line.split()[-1] for line in lines] == [
    f'{tmp_path}/{name}' for name in ('results.json', 'metrics.jsonl', 'tensorboard', 'checkpoints')
  ]
  assert len({line.index(str(tmp_path)) for line in lines}) == 1


@pytest.mark.parametrize('unit', ['tokens', 'pixels'])
def test_plain_lines_where_there_is_no_terminal(tmp_path, monkeypatch, capsys, unit):
  now, options = [0.0], {} if unit == 'tokens' else {'unit': unit}
  monkeypatch.setattr(run_log.time, 'monotonic', lambda: now[0])
  with run_log.Logger(
    tmp_path, 100, tokens_per_step=5000, every=1, every_seconds=10, terminal=False, **options
  ) as logger:
    for step in range(1, 41):
      logger.train(step, metrics_of(step))
      now[0] += 1
  lines = capsys.readouterr().err.splitlines()
  assert [line.split()[1] for line in lines] == ['1/100', '11/100', '21/100', '31/100']
  assert lines[0] == 'step 1/100  loss 10.0000  lr 1.00e-03'
  assert lines[1] == f'step 11/100  loss 0.9091  lr 1.00e-03  5.0k {unit}/s  1:29 left'
  rates = [[name for name in record if name.endswith('_per_second')] for record in run_log.read_metrics(tmp_path)[1:]]
  assert rates == [[f'{unit}_per_second']] * len(rates)


def test_per_class_metrics_of_many_classes_are_only_written(tmp_path, capsys):
  many = {f'accuracy_class_{c}': 0.5 for c in range(11)}
  few = {f'bits_at_{n}': 2.0 for n in (10, 20)}
  with run_log.Logger(tmp_path, 100, tokens_per_step=5000) as logger:
    logger.evaluation(7, 'valid', {'accuracy': 0.25, **many, **few})
  assert capsys.readouterr().err == 'step 7/100  valid: accuracy 0.25, bits at 10 2, bits at 20 2\n'
  (record,) = run_log.read_metrics(tmp_path)
  assert record.keys() >= many.keys() | few.keys()


def test_metrics_are_shown_with_their_captions(tmp_path, capsys):
  values, captions = {'accuracy_class_0': 0.5, 'perplexity_per_word': 3e13}, {'accuracy_class_0': 'accuracy of World'}
  with run_log.Logger(tmp_path, 100, tokens_per_step=5000) as logger:
    logger.evaluation(7, 'valid', values, captions | {'perplexity_per_word': ''})
  assert capsys.readouterr().err == 'step 7/100  valid: accuracy of World 0.5\n'
  assert run_log.read_metrics(tmp_path)[0].keys() >= values.keys()


def test_progress_bar_on_a_terminal(tmp_path, capsys):
  run(tmp_path, 10, 40, terminal=True)
  text = capsys.readouterr().err
  assert ' 10/40 [' in text and '100%' in text and '40/40' in text and ' left]' in text
  assert 'loss 0.250, valid 0.167, ' in text and 'tokens/s' in text
  assert 'step 20/40  valid: loss 0.25' in text


def test_only_the_first_process_writes(tmp_path, capsys):
  with run_log.Logger(tmp_path / 'none', 10, tokens_per_step=1, primary=False) as logger:
    logger.train(1, {'loss': 'never looked at'})
    logger.evaluation(1, 'valid', {'loss': 1.0})
    logger.samples('text')
    logger.results({})
    logger.plot({})
    logger.note('text')
    logger.flush()
  assert not (tmp_path / 'none').exists()
  assert capsys.readouterr().err == ''


def summaries(workdir) -> dict[tuple[str, int], Summary.Value]:
  """Values of the one event file of TensorBoard, by tag and step."""
  (file,) = (workdir / 'tensorboard').iterdir()
  data, found = file.read_bytes(), {}
  while data:
    size = int.from_bytes(data[:8], 'little')  # a length, its CRC, the event, its CRC
    event = Event.FromString(data[12 : 12 + size])
    found |= {(value.tag, event.step): value for value in event.summary.value}
    data = data[16 + size :]
  return found


def points(workdir) -> dict[tuple[str, int], float]:
  return {key: value.simple_value for key, value in summaries(workdir).items()}


def test_tensorboard_matches_the_log(tmp_path):
  run(tmp_path, 0, 10, total=10)
  found = points(tmp_path)
  assert found['train/loss', 5] == 2.0
  assert found['valid/loss', 10] == 0.5
  assert found['train/nll', 10] == 20.0


def test_tensorboard_holds_settings_results_pictures_and_samples(tmp_path):
  settings = {'optim.lr': 0.5, 'optim.schedule': 'cosine', 'model.cutoffs': [1, 2], 'model.tied': True}
  run(tmp_path, 0, 9, total=10, settings=settings)
  (tmp_path / 'broken.png').write_bytes(b'no picture')
  with run_log.Logger(tmp_path, 10, start_step=9, tokens_per_step=1, settings=settings) as logger:
    logger.train(10, metrics_of(10))
    logger.plot({})
    logger.samples('a *sample*\nof two lines')
    logger.results({'accuracy': 0.25, 'name': 'x', 'finite': True, 'baselines': {'loss': 1.0}})
  first, second = sorted((tmp_path / 'tensorboard').iterdir())
  first.unlink()
  found = summaries(tmp_path)
  assert found['results/accuracy', 10].simple_value == 0.25
  assert [tag for tag, _ in found if tag.startswith('results/')] == ['results/accuracy']
  assert found['loss', 10].image.encoded_image_string == (tmp_path / 'loss.png').read_bytes()
  height, width, _ = image.imread(tmp_path / 'loss.png').shape
  assert (found['loss', 10].image.width, found['loss', 10].image.height) == (width, height)
  assert ('broken', 10) not in found
  (text,) = found['samples/text_summary', 10].tensor.string_val
  assert b'    a *sample*\n    of two lines\n' in text
  plugin = lambda tag: HParamsPluginData.FromString(found[tag, 10].metadata.plugin_data.content)
  shown = plugin('_hparams_/session_start_info').session_start_info.hparams
  assert shown['optim.lr'].number_value == 0.5 and shown['optim.schedule'].string_value == 'cosine'
  assert shown['model.cutoffs'].string_value == '[1, 2]' and shown['model.tied'].bool_value is True
  metrics = plugin('_hparams_/experiment').experiment.metric_infos
  assert [metric.name.tag for metric in metrics] == ['results/accuracy']


def test_results(tmp_path, monkeypatch):
  monkeypatch.setenv('LIBTPU_INIT_ARGS', '--xla_tpu_x=1')
  monkeypatch.delenv('XLA_FLAGS', raising=False)
  run(tmp_path, 0, 20)
  with run_log.Logger(tmp_path, 40, start_step=20, tokens_per_step=1) as logger:
    before = run_log.read_metrics(tmp_path)[-1]['seconds']
    logger.results({'metric': 'perplexity_per_word', 'seed': 3, 'baselines': {'unigram': {'loss': 1.5}}})
    assert logger.seconds() > before
  found = json.loads((tmp_path / 'results.json').read_text())
  assert found['seed'] == 3 and found['baselines'] == {'unigram': {'loss': 1.5}}
  assert found['seconds'] > before
  assert found['versions'].keys() >= {'python', 'jax', 'jaxlib', 'flax', 'optax', 'lmx'}
  assert found['versions']['jax'] == jax.__version__ and found['versions']['lmx'] == lmx.__version__
  assert found['flags'] == {'LIBTPU_INIT_ARGS': '--xla_tpu_x=1'}
  assert found['device'].startswith(f'{jax.device_count()} x ') and 'cpu' in found['device']
  assert not list(tmp_path.glob('*.part'))


def test_results_are_replaced_as_a_whole(tmp_path, monkeypatch):
  def fail(path, to):
    raise OSError(errno.ENOSPC, 'disk full')

  with run_log.Logger(tmp_path, 1, tokens_per_step=1) as logger:
    logger.results({'seed': 1})
    with monkeypatch.context() as patch, pytest.raises(InputError, match='disk full'):
      patch.setattr(run_log.pathlib.Path, 'replace', fail)
      logger.results({'seed': 2})
  assert json.loads((tmp_path / 'results.json').read_text())['seed'] == 1


def test_samples(tmp_path):
  with run_log.Logger(tmp_path, 30, tokens_per_step=1) as logger:
    for step in (10, 20, 30):
      logger.samples(f'text of {step}\n', step)
  with run_log.Logger(tmp_path, 30, start_step=20, tokens_per_step=1) as logger:
    logger.samples('at the start')
    logger.train(25, {'loss': 1.0})
    logger.samples('later')
  assert (tmp_path / 'samples.txt').read_text() == (
    '=== step 10 ===\ntext of 10\n\n=== step 20 ===\nat the start\n\n=== step 25 ===\nlater\n\n'
  )


def test_failure_closes_the_files_and_is_not_hidden(tmp_path, capsys):
  with pytest.raises(RuntimeError, match='the reason'):
    with run_log.Logger(tmp_path, 10, tokens_per_step=1, every=1) as logger:
      logger.train(1, {'loss': jnp.float32(1.0)})
      logger.train(2, {'loss': jnp.float32(2.0).delete() or _Broken()})
      raise RuntimeError('the reason')
  assert [r['step'] for r in run_log.read_metrics(tmp_path)] == [1]
  assert 'of the last step are lost' in capsys.readouterr().err
  logger.close()  # again
  assert logger._file.closed


class _Broken:
  """Stands for an array whose computation has failed."""

  def __array__(self, dtype=None, copy=None):
    raise ValueError('device failure')


def test_logged_lines_survive_a_kill(tmp_path):
  program = (
    'import os, signal, sys; from lmx.reporting import run_log\n'
    'logger = run_log.Logger(sys.argv[1], 9, tokens_per_step=1, every=1)\n'
    'for step in range(1, 5): logger.train(step, {"loss": 1.0 / step})\n'
    'if len(sys.argv) > 2: logger.flush()\n'
    'os.kill(os.getpid(), signal.SIGKILL)\n'
  )
  for name, more, steps in (('killed', (), [1, 2, 3]), ('flushed', ('flush',), [1, 2, 3, 4])):
    subprocess.run(
      [sys.executable, '-c', program, str(tmp_path / name), *more], capture_output=True, cwd=lmx.__path__[0] + '/..'
    )
    assert [r['step'] for r in run_log.read_metrics(tmp_path / name)] == steps
  assert [step for tag, step in points(tmp_path / 'flushed') if tag == 'train/loss'] == [1, 2, 3, 4]


def has(pixels: np.ndarray, color: tuple[int, int, int]) -> int:
  """Returns how many pixels have a colour."""
  return int((np.abs(pixels[..., :3] * 255 - color).max(axis=-1) < 3).sum())


def test_plot(tmp_path):
  run(tmp_path, 0, 40, every=1)
  with run_log.Logger(tmp_path, 40, start_step=40, tokens_per_step=7) as logger:
    logger.plot({})  # before there are results
    first = image.imread(tmp_path / 'loss.png')
    logger.plot(
      {
        'name': 'a run',
        'model': 'gpt2:tiny',
        'dataset': 'prose',
        'split': 'test',
        'metric': 'perplexity_per_word',
        'perplexity_per_word': 60.0,
        'baselines': {'unigram': {'loss': 4.0}, 'kneser_ney': {'loss': math.nan, 'order': 5}},
        'validation_baselines': {'unigram': {'loss': 4.1}, 'kneser_ney': {'loss': math.nan, 'order': 5}},
      }
    )
  second = image.imread(tmp_path / 'loss.png')
  blue, orange, grey = (0x1F, 0x5F, 0xA8), (0xD9, 0x54, 0x1E), (115, 115, 115)
  assert first.shape[0] > 600 and first.shape[1] > 1000
  assert has(first, blue) > 500 and has(first, orange) > 100
  assert has(second, blue) > 500 and has(second, grey) > has(first, grey) + 600  # the baseline's line


def test_plots_are_written_through_links_and_pipes(tmp_path):
  link, pipe = tmp_path / 'link', tmp_path / 'pipe'
  link.symlink_to('file')
  os.mkfifo(pipe)
  reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
  for path in (link, pipe):
    run_log.write_json(str(path), {'bleu': 3})
  assert link.is_symlink() and json.loads((tmp_path / 'file').read_text()) == {'bleu': 3}
  assert pipe.is_fifo() and json.loads(os.read(reader, 99)) == {'bleu': 3}
  os.close(reader)


def test_results_name_the_commit_of_a_checkout(monkeypatch, tmp_path):
  root = pathlib.Path(lmx.__file__).parents[1]
  words = ['git', '-C', str(root), 'rev-parse', '--short', 'HEAD']
  head = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
  assert run_log.commit().removesuffix('-dirty') == (head if (root / '.git').exists() else '')
  monkeypatch.setattr(lmx, '__file__', str(tmp_path / 'lmx/__init__.py'))
  assert run_log.commit() == '', 'a package that is installed below another checkout'


def test_packed_rows_are_named_by_their_sequences(tmp_path, monkeypatch):
  said = []
  monkeypatch.setattr(run_log.waiting, 'waiting', lambda text, show: said.append(text) or contextlib.nullcontext())
  with run_log.Logger(tmp_path, 2, tokens_per_step=50, every=1) as logger:
    for step, P in ((1, 3), (2, 4)):
      with logger.compiling(step, {'tokens_BT': np.zeros((8, 16)), 'packed_PT': np.zeros((P, 12))}):
        pass
  assert said[1] == 'compiling batches of 4 x 12 (step 2 of 2)'
