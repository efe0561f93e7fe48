"""Transformer: variations of the base model, and constituency parsing."""

from experiments.tables import CORES, GPUS, Row, Run, Table, Unmeasured, manual_dir, measured
from experiments.tables.transformer_mt import hours, trained

_SUBWORDS = "perplexity per token of another vocabulary of subwords than the paper's"
_FIELDS = {  # rows with a printed number of parameters: fields for `lmx describe`, millions
  'base': ('', 65),
  'B_dk16': ('K=16', 58),
  'B_dk32': ('K=32', 60),
  'C_n2': ('encoder_layers=2 decoder_layers=2', 36),
  'C_n4': ('encoder_layers=4 decoder_layers=4', 50),
  'C_n8': ('encoder_layers=8 decoder_layers=8', 80),
  'C_d256': ('D=256', 28),
  'C_d1024': ('D=1024', 168),
  'C_ff1024': ('F=1024', 53),
  'C_ff4096': ('F=4096', 90),
  'big': ('', 213),
}
_ROWS = (
  'base',
  *(f'A_h{heads}' for heads in (1, 4, 16, 32)),
  *list(_FIELDS)[1:-1],
  *(f'D_{rate}' for rate in ('drop0.0', 'drop0.2', 'ls0.0', 'ls0.2')),
  'E_learnedpos',
  'big',
)


def _run(row: str) -> Run:
  if row in ('base', 'big'):
    return trained(row)
  return Run(
    f'transformer/wmt14_{row}',
    f'experiments/transformer/wmt14.py:base,row={row}',
    (manual_dir('wmt14_en_de'),),
    (measured('valid', '--which=last', file='dev'),),
    needs=GPUS,
    gpu_hours=hours(_FIELDS.get(row, ('', 65))[1]),
  )


def _described(row: str) -> Run:
  changes = ''.join(f'--set={field} ' for field in _FIELDS[row][0].split())
  command = f'describe transformer:{"big" if row == "big" else "base"} {changes}--output={{dir}}/described.json'
  return Run(f'transformer/described_{row}', then=(command,), seeds=0, needs=CORES)


TABLE = Table(
  'Transformer, variations',
  'Vaswani et al. 2017 (arXiv 1706.03762), tables 3 and 4',
  prints=(('Vaswani et al. 2017', '3'), ('Vaswani et al. 2017', '4')),
  context=(
    *(f'transformer/parsing/{name}' for name in ('vinyals_*', 'petrov', 'zhu_*', 'dyer_*')),
    *(f'transformer/parsing/{name}' for name in ('huang_semi', 'mcclosky_semi', 'luong_multi')),
  ),
  unmeasured=(Unmeasured('transformer/parsing/transformer_*', 'lmx has no constituency parsing'),),
  rows=(
    *(
      Row(f'transformer/variations/{row}/{column}', _run(row).name, metric, 'dev', differs=differs)
      for row in _ROWS
      for column, metric, differs in (('ppl', 'ppl', _SUBWORDS), ('bleu', 'bleu', ''))
    ),
    *(
      Row(f'transformer/variations/{row}/params', f'transformer/described_{row}', 'millions', 'described')
      for row in _FIELDS
    ),
  ),
  runs=(*(_run(row) for row in _ROWS), *(_described(row) for row in _FIELDS)),
  note='newstest2013, the last checkpoint, beam 4, length penalty 0.6. Parameter counts assume the vocabularies '
  'that explain the printed ones, see lmx/models/transformer.py.',
)
