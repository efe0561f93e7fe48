"""Sequence to sequence learning with LSTMs: English to French, ensembles, beams, and the reversal of the source."""

from experiments.tables import Row, Run, Table, Unmeasured, manual_dir

_FORWARD, _REVERSED = 'rnn_encdec/wmt14_fr_forward', 'rnn_encdec/wmt14_fr_reversed'
_EXPERIMENT = 'experiments/rnn_encdec/wmt14.py:sutskever,paper=sutskever'
_LISTS = "the 1000-best lists of the statistical system are not among WMT's files"
_ENSEMBLES = {'ens5_rev_b1': (5, 1), 'ens2_rev_b12': (2, 12), 'ens5_rev_b2': (5, 2), 'ens5_rev_b12': (5, 12)}


def _ensemble(name: str, count: int, beam: int) -> Run:
  return Run(
    f'rnn_encdec/wmt14_fr_{name}',
    then=(
      f'evaluate --workdir={{{_REVERSED}:0}} --ensemble={{{_REVERSED}:1-{count - 1}}} --split=test '
      f'--config.evaluation.beam={beam} --output={{dir}}/results.json',
    ),
    seeds=0,
  )


TABLE = Table(
  'Sequence to sequence learning, English to French',
  'Sutskever, Vinyals and Le 2014 (arXiv 1409.3215), tables 1 and 2, and section 3.3',
  rows=(
    Row('rnn_encdec/sutskever/fwd_b12', _FORWARD, 'bleu'),
    Row('rnn_encdec/sutskever/rev_b12', _REVERSED, 'bleu'),
    *(Row(f'rnn_encdec/sutskever/{name}', f'rnn_encdec/wmt14_fr_{name}', 'bleu') for name in _ENSEMBLES),
    *(
      Row(f'rnn_encdec/sutskever_reversal/{metric}_{order}', run, metric)
      for order, run in (('forward', _FORWARD), ('reversed', _REVERSED))
      for metric in ('ppl', 'bleu')
    ),
  ),
  runs=(
    Run(_FORWARD, f'{_EXPERIMENT},reverse=false', (manual_dir('wmt14_en_fr'),)),
    Run(_REVERSED, _EXPERIMENT, (manual_dir('wmt14_en_fr'),)),
    *(_ensemble(name, *sizes) for name, sizes in _ENSEMBLES.items()),
  ),
  note='160,000 English and 80,000 French words. newstest2014, Moses tokens; no length penalty, <unk> allowed. An '
  'ensemble averages the probabilities of different seeds; the paper does not state its form.',
  prints=(('Sutskever et al. 2014', '1'), ('Sutskever et al. 2014', '2'), ('Sutskever et al. 2014', 'text')),
  context=(
    'rnn_encdec/sutskever/bahdanau',
    'rnn_encdec/sutskever/smt_baseline',
    'rnn_encdec/sutskever_rescoring/smt_baseline',
    'rnn_encdec/sutskever_rescoring/cho',
    'rnn_encdec/sutskever_rescoring/best_wmt14',
  ),
  unmeasured=tuple(
    Unmeasured(f'rnn_encdec/sutskever_rescoring/{name}', _LISTS) for name in ('fwd', 'rev', 'ens5_rev', 'oracle')
  ),
)
