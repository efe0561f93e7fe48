"""Trainings of recorded lines: the run that a line measures."""

from __future__ import annotations

from launch.tables import trainings
from tests.launch.tables.check_test import GOOD

LINES = {
  one.id: one
  for one in (
    GOOD,
    GOOD._replace(id='evaluated', command='lmx evaluate --workdir=DIR', start=GOOD.id),
    GOOD._replace(id='again', command='lmx vectors --workdir=DIR', start='evaluated'),
    GOOD._replace(id='tuned', command=f'{GOOD.command} --config.train.init_from=RUN --config.seed=SEED', start=GOOD.id),
    GOOD._replace(id='stages', command='lmx pipeline --config=experiments/ulmfit/classifier.py:trec --workdir=DIR'),
    GOOD._replace(id='weights', command='lmx evaluate --workdir=DIR', start='imported minilm'),
    GOOD._replace(id='gensim', command='gensim 4.4.0', start=GOOD.id),
    GOOD._replace(id='quickstart/gpt2', command='python -m launch.tables quickstart --config.optim.lr=1'),
    GOOD._replace(
      id='quickstart/table6/alone/side_by_side', command='python -m launch.tables transformer_xl_miniature'
    ),
  )
}


def found(name: str):
  training = trainings.measured_run(LINES[name], LINES)
  return training[0] if training else None


def test_run_that_a_line_measures_is_its_own_or_the_one_that_it_starts_from():
  assert found(GOOD.id).config == 'experiments/rnn_lm/ptb.py:small'
  assert found('evaluated') == found('again') == found(GOOD.id)
  assert found('weights') is None and found('gensim') is None
  assert found('stages').kind == 'pipeline'
  assert found('tuned').settings[1:] == (f'train.init_from={{{GOOD.id}}}', 'seed=0')
  assert found('quickstart/gpt2').settings[-1] == 'optim.lr=1'
  assert 'transformer_xl' in found('quickstart/table6/alone/side_by_side').config
