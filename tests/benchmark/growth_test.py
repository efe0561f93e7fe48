"""Growth of the time of a token: the sizes of every model, exponents, the picture."""

from __future__ import annotations

import pytest
from matplotlib import image

from lmx.benchmark import growth, growth_figure, train_step
from lmx.benchmark import task as task_lib
from lmx.errors import InputError
from lmx.models import registry

QUICK = ('cfnet', 'elmo', 'gpt2', 'ntm', 'rnn_encdec')


@pytest.mark.parametrize(
  'model', [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in registry.names()]
)
def test_every_model_scales_its_applicable_sizes(model):
  sizes = [name for name in growth.VALUES if not growth.inapplicable(model, name)]
  shapes = {}
  for name in ('', *sizes):
    preset = growth.preset(model, {**growth.BASE, **({name: growth.VALUES[name][2]} if name else {})})
    task, _ = task_lib.build_task(preset.model, preset.changes)
    assert task_lib.resolve_length(task, preset.batch, preset.length) == preset.length
    params, batch = task.arguments(preset.batch, preset.length)[:2]
    shapes[name] = str(params), str(batch)
  changed = {name: [a != b for a, b in zip(shapes[name], shapes[''], strict=True)] for name in sizes}
  # Width and vocabulary change parameters, batch and length those that a step reads.
  assert all(changed[name][name in ('length', 'batch')] for name in sizes), changed
  missing = {'ntm': {'vocabulary'}, 'cfnet': {'vocabulary', 'width'}}.get(model, set())
  assert set(growth.VALUES) - set(sizes) == missing


def test_scaling_exponent_of_each_size(monkeypatch):
  seen = []

  def seconds(presets):
    seen.extend(presets.values())
    return {key: preset.length**2 / preset.batch for key, preset in presets.items()}

  monkeypatch.setattr(growth, 'token_seconds', seconds)
  length, batch, absent = growth.measure('ntm', ['length', 'batch', 'vocabulary'])
  assert length['exponent'] == pytest.approx(2) and batch['exponent'] == pytest.approx(-1)
  assert absent['inapplicable'] == 'it reads no tokens' and 'values' not in absent
  assert len(seen) == 5  # the middle size is measured once
  assert 'exponent  2.00' in growth.format_line(length) and 'reads no tokens' in growth.format_line(absent)


def test_time_per_token(monkeypatch):
  steps = {'a': iter([9.0, 4.0, 8.0]), 'b': iter([9.0, 6.0, 5.0])}  # the first is not timed
  task = type('Task', (), {'positions': staticmethod(lambda length: length)})
  subject = lambda name: type(
    'S', (), {'task': task, 'steps': lambda self, k: ([train_step.Step(next(steps[name]), ())], 0)}
  )()
  monkeypatch.setattr(growth, 'subject_from_preset', lambda name, preset: subject(name))
  monkeypatch.setattr(growth, '_SECONDS', 0)
  monkeypatch.setattr(growth, '_ROUNDS', 2)
  presets = {1: train_step.Preset('a', (), 2, 4), 2: train_step.Preset('b', (), 1, 5)}
  assert growth.token_seconds(presets) == {1: 4.0 / 8, 2: 5.0 / 5}


def test_failing_model_drops_only_its_rows(monkeypatch, capsys):
  def seconds(presets):
    if any(preset.model.startswith('gpt2') for preset in presets.values()):
      raise ValueError('no room')
    return dict.fromkeys(presets, 1.0)

  monkeypatch.setattr(growth, 'token_seconds', seconds)
  monkeypatch.setattr(growth, 'models', lambda name: ['gpt2', 'ntm'] if name == 'all' else [name])
  failed, other = growth.measure_all('all', ['batch'])
  assert failed['error'] == 'ValueError: no room' and other['exponent'] == 0
  assert 'error: ValueError: no room' in capsys.readouterr().out
  with pytest.raises(ValueError, match='no room'):
    growth.measure_all('gpt2', ['batch'])


def test_class_names_match_the_data_set(monkeypatch):
  assert growth.parse('length, batch') == ['length', 'batch']
  with pytest.raises(InputError, match='did you mean "width"'):
    growth.parse('widht')
  assert growth.models('all') == registry.names() and growth.models('gpt2') == ['gpt2']
  with pytest.raises(InputError, match='did you mean "gpt2"'):
    growth.models('gpt22')


def test_plot_has_one_panel_per_model(tmp_path):
  row = lambda model, slope: {
    'model': model,
    'size': 'length',
    'values': [16, 32, 64],
    'seconds_per_token': [0.5**slope, 1.0, 2.0**slope],
    'exponent': slope,
  }
  rows = [row(f'model{i}', 1.0) for i in range(9)] + [{'model': 'x', 'size': 'width', 'inapplicable': 'none'}]
  growth_figure.write(tmp_path / 'many.png', rows)
  growth_figure.write(tmp_path / 'one.png', rows[:1])
  many, one = (image.imread(tmp_path / name) for name in ('many.png', 'one.png'))
  assert many.shape[0] > 1.5 * one.shape[0] and many.shape[1] > 2 * one.shape[1]
  growth_figure.write(tmp_path / 'other.png', [row('model0', -1.0)])
  assert (image.imread(tmp_path / 'other.png') != one).any()
