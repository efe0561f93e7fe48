"""ELMo's tables 2 and 3 in miniature: which layers of the biLM, and where, for named entities in WNUT-17."""

from experiments.tables import CORES, Row, Run, Table, from_run, manual_dir, measured

_BILM = 'elmo/wnut17_bilm'
_ARMS = {  # row -> variant and settings; the first four are table 2, the others table 3
  'layers/baseline': ('base', ()),
  'layers/last_only': ('elmo', ('model.mix=last',)),
  'layers/all_lambda1': ('elmo', ('model.mix_l2=1.0',)),
  'layers/all_lambda0.001': ('elmo', ('model.mix_l2=0.001',)),
  'location/input_output': ('elmo,place=both', ('model.mix_l2=0.001',)),
  'location/output': ('elmo,place=output', ('model.mix_l2=0.001',)),
}


def _run(arm: str) -> Run:
  variant, settings = _ARMS[arm]
  start = () if variant == 'base' else (from_run(_BILM),)
  return Run(
    f'elmo/wnut17_{arm.replace("/", "_")}',
    f'experiments/elmo/wnut17.py:{variant}',
    (manual_dir('wnut17'), 'evaluation.which=best', *settings, *start),
    (measured('valid'),),
    seeds=3,
    needs=CORES,
  )


TABLE = Table(
  'ELMo, layers and places on WNUT-17',
  'Measured here; the rows follow Peters et al. 2018 (arXiv 1802.05365), tables 2 and 3',
  rows=tuple(
    Row(
      f'elmo/wnut17/{arm}/{split}',
      f'elmo/wnut17_{arm.replace("/", "_")}',
      'span_f1',
      file,
      differs='printed: semantic roles, the original biLM' if split == 'valid' else '',
      like=f'elmo/{arm.replace("/", "/srl/")}' if split == 'valid' else '',
    )
    for arm in _ARMS
    for split, file in (('valid', 'valid'), ('test', 'results'))
  ),
  runs=(
    Run(
      _BILM,
      'experiments/elmo/text.py:mini,optimizer=adam',
      (manual_dir('corpus'), 'train.steps=5000', 'train.epochs=0'),
      seeds=0,
      needs=CORES,
    ),
    *map(_run, _ARMS),
  ),
  note='The tagger has no other vectors trained elsewhere, the biLM 512 cells, projected to 128, and 5,000 updates of '
  '64 rows of 20 words. The checkpoint of the highest F1 on the validation split is evaluated.',
)
