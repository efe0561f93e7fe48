"""Tables of the mixture of softmaxes; lmx has their baseline."""

from experiments.tables import Table, Unmeasured
from experiments.tables.awd_lstm_words import PLAIN, rows

_OWN = "the authors' own run; ours is by the README of the released code, which theirs is built on"
_NONE = 'lmx has no mixture of softmaxes'

TABLE = Table(
  'AWD-LSTM as the baseline of the mixture of softmaxes',
  'Yang, Dai, Salakhutdinov and Cohen 2018 (arXiv 1711.03953), tables 1, 2 and 4',
  rows=(
    *rows('ptb', 'released', 'awd_lstm/mos_ablation/awd_rerun/ptb_{}', note=_OWN),
    *rows('wikitext2', 'released', 'awd_lstm/mos_ablation/awd_rerun/wt2_{}', note=_OWN),
  ),
  runs=PLAIN,
  prints=tuple(('Yang et al. 2018 (MoS)', table) for table in ('1', '2', '4')),
  context=(
    'awd_lstm/mos_ptb/[!m]*',
    'awd_lstm/mos_ptb/mikolov_zweig/*',
    'awd_lstm/mos_ptb/melis/*',
    'awd_lstm/mos_wikitext2/[!m]*',
    'awd_lstm/mos_wikitext2/melis/*',
  ),
  unmeasured=(
    Unmeasured('awd_lstm/mos_*/mos*/*', _NONE),
    Unmeasured('awd_lstm/mos_ablation/moc/*', _NONE + ', nor one of contexts'),
    Unmeasured(
      'awd_lstm/mos_ablation/awd_mos_hparams/*',
      "lmx's last layer is as wide as the tied embedding; with these hyper-parameters it is wider",
    ),
  ),
)
