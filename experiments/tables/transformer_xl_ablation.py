"""Ablations of Transformer-XL: recurrence, relative positions, loss, attention length, and effective context length."""

from experiments.tables import GPU, Row, Run, Table, awd_lstm_scales, manual_dir, measured

_DATA = (manual_dir('wikitext103'),)
_FILE = 'experiments/transformer_xl/wikitext103.py'
_SAME = 'table 1 prints 24.0 for 151M parameters; what differs is not stated'
_ARMS = {
  'recurrence_ours_full': 'ours',
  'recurrence_shaw_full': 'shaw',
  'recurrence_ours_half': 'half',
  'norecurrence_ours_full': 'alone',
  'norecurrence_ours_half': 'alone_half',
  'norecurrence_shaw_full': 'alone_shaw',
  'norecurrence_shaw_half': 'alone_shaw_half',
  'norecurrence_vaswani_half': 'vaswani_half',
  'norecurrence_alrfou_half': 'alrfou_half',
}
_RECURRENT = ('ours', 'shaw', 'half')
# Table 10: row -> run, and for the two longer windows without recurrence (length in training, best attention length).
_BUDGET = {
  'bp128_recurrence_full': 'ours',
  'bp128_recurrence_partial': 'half',
  'bp176_norecurrence_full': 'alone_176',
  'bp172_norecurrence_partial': 'alone_half_172',
}
_LONGER = {'alone_176': ('alone,length=176', 176, 400), 'alone_half_172': ('alone_half,length=172', 172, 120)}
# Table 8: evaluation run -> row -> model run, in command order. The paper's Transformer is the last row of table 6.
_GROUPS = {
  'transformer_xl/context_151m': {
    'txl_151m': 'transformer_xl/wikitext103_base',
    'qrnn': 'awd_lstm/wikitext103_qrnn',
    'lstm': 'awd_lstm/wikitext103_lstm',
  },
  'transformer_xl/context_128m': {
    'txl_128m': 'transformer_xl/ablation_ours',
    'txl_128m_shaw': 'transformer_xl/ablation_shaw',
    'txl_128m_norecurrence': 'transformer_xl/ablation_alone',
    'transformer': 'transformer_xl/ablation_alrfou_half',
  },
}
_RECURRENT_NETWORKS = (
  'the paper prints neither sizes nor training of its QRNN and LSTM, and lengths are relative to the group; those of '
  'Merity et al. 2018 and Grave et al. 2017 are taken'
)


def _best(*, recurrent: bool) -> str:
  """Return the command that searches the attention length; windows start every 20 tokens to save time."""
  flags = ('--attention=100:700:20',) if recurrent else ('--attention=100:420:20', '--config.evaluation.stride=20')
  return f'evaluate --workdir={{dir}} --split=test {" ".join(flags)} --output={{dir}}/attention.json'


def _init(length: int, *, recurrent: bool) -> str:
  """Return the command that evaluates a run as trained: segments of `length` with a memory of the same length, or none.

  For Shaw's positions the paper prints 256, twice the segment, as the shortest attention length as good as init.
  """
  memory = ('model.M=' + str(length), 'model.same_length=false') if recurrent else ()
  settings = (f'data.eval_length={length}', *(f'evaluation.{text}' for text in memory))
  return measured('test', *(f'--config.{text}' for text in settings), file='init')


def _run(arm: str) -> Run:
  recurrent = arm in _RECURRENT
  then = (_init(128, recurrent=recurrent), _best(recurrent=recurrent))
  return Run(f'transformer_xl/ablation_{arm}', f'{_FILE}:{arm}', _DATA, then, needs=GPU)


WIKITEXT103_BASE = Run(
  'transformer_xl/wikitext103_base',
  f'{_FILE}:base',
  _DATA,
  (
    measured('valid'),
    _init(150, recurrent=True),
    *(measured('test', f'--config.evaluation.model.M={length}', file=f'attention_{length}') for length in (300, 450)),
    _best(recurrent=True),
  ),
  needs=GPU,
)

TABLE = Table(
  'Transformer-XL, ablation on WikiText-103',
  'Dai et al. 2019 (arXiv 1901.02860), tables 6, 8 and 10',
  rows=(
    *(
      Row(f'transformer_xl/wikitext103/ablation/{row}/ppl_{when}', f'transformer_xl/ablation_{arm}', 'ppl', file)
      for row, arm in _ARMS.items()
      for when, file in (('init', 'init'), ('best', 'results'))
    ),
    *(
      Row(f'transformer_xl/wikitext103/ablation/151m_{row}', WIKITEXT103_BASE.name, 'ppl', file, note=_SAME)
      for row, file in (
        ('attn640/ppl_init', 'init'),
        ('attn640/ppl_best', 'results'),
        ('attn450/ppl', 'attention_450'),
        ('attn300/ppl', 'attention_300'),
      )
    ),
    *(
      Row(f'transformer_xl/wikitext103/{row}/attn_len', run, 'attention_length', 'attention')
      for row, run in (
        *((f'ablation/{row}', f'transformer_xl/ablation_{arm}') for row, arm in _ARMS.items()),
        ('ablation/151m_attn640', WIKITEXT103_BASE.name),
        *((f'memory_budget/{row}', f'transformer_xl/ablation_{arm}') for row, arm in _BUDGET.items()),
      )
    ),
    *(
      Row(f'transformer_xl/wikitext103/memory_budget/{row}/ppl_{when}', f'transformer_xl/ablation_{arm}', 'ppl', file)
      for row, arm in _BUDGET.items()
      for when, file in (('init', 'init'), ('best', 'results'))
    ),
    *(
      Row(
        f'transformer_xl/wikitext103/recl/{row}/r{share}',
        name,
        'recl',
        'context',
        f'index={index},share={float(share):g}',
        note=_RECURRENT_NETWORKS if name == 'transformer_xl/context_151m' else '',
      )
      for name, group in _GROUPS.items()
      for index, row in enumerate(group)
      for share in ('0.1', '0.5', '1.0')
    ),
  ),
  runs=(
    *map(_run, _ARMS.values()),
    *(
      Run(
        f'transformer_xl/ablation_{name}',
        f'{_FILE}:{arg}',
        (*_DATA, f'data.eval_length={best}'),
        (_init(length, recurrent=False), _best(recurrent=False)),
        needs=GPU,
      )
      for name, (arg, length, best) in _LONGER.items()
    ),
    WIKITEXT103_BASE,
    *(run for run in awd_lstm_scales.TABLE.runs if 'wikitext103' in run.name and run.config),
    *(
      Run(
        name,
        then=(
          f'context --workdirs={",".join(f"{{{run}}}" for run in group.values())} --lengths=100:1000:100 --split=test '
          '--tokens=10000 --output={dir}/context.json',
        ),
      )
      for name, group in _GROUPS.items()
    ),
  ),
  note='128M parameters, windows of 128; sizes are ours, the paper prints none. The best perplexity is that at the '
  'printed attention length, the shortest of the best there; ours is searched in steps of 20. Init is as in the '
  'training. Without recurrence every token is predicted at the last position of a window. Effective context lengths '
  'are of 10,000 tokens, in steps of 100 (threshold 1%).',
  prints=(('Dai et al. 2019', '6'), ('Dai et al. 2019', '8'), ('Dai et al. 2019', '10')),
)
