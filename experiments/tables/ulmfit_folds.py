"""ULMFiT's table 7 on TREC-6 at a size for two cores, by cross-validation."""

from experiments.tables import CORES, Row, Run, Table, from_run, manual_dir, measured
from experiments.tables.ulmfit import CHAIN_THAW, METHODS

_FILES = 'experiments/ulmfit/'
_SIZE = 'size=small,dropmult=0.3'
_FOLDS = 10
_TREC = (manual_dir('trec'), 'data.fold={seed}')
_SMALLER = 'printed: one tenth held out, the sizes of the paper; ours: ten folds, small models and little general text'
_GENERAL, _LM = 'ulmfit/folds_general', 'ulmfit/folds_lm'


def _classifier(method: str) -> Run:
  """Return the classifier of each fold. Early stopping is for all methods but ULMFiT's (section 5)."""
  start = () if method == 'scratch' else (from_run(_LM), "train.init_parts=('model',)")
  which = ('--which=last',) if method == 'gradual_unfreezing' else ()
  return Run(
    f'ulmfit/folds_{method}',
    f'{_FILES}classifier.py:trec,{_SIZE},method={method},epochs=20',
    (*_TREC, f'data.tokenizer_path={{{_LM}}}/tokenizer', *start),
    (measured('valid', *which), measured('valid', '--which=last', file='last')),
    seeds=_FOLDS,
    needs=CORES,
  )


TABLE = Table(
  'ULMFiT, fine-tuning of the classifier by cross-validation',
  'Measured here; the rows follow Howard and Ruder 2018 (arXiv 1801.06146), table 7',
  rows=tuple(
    Row(
      f'ulmfit/folds/{row}/{file}',
      f'ulmfit/folds_{method}',
      'error',
      file,
      note=CHAIN_THAW * (method == 'chain_thaw'),
      differs=_SMALLER if file == 'valid' else '',
      like=f'ulmfit/ablation_classifier/{row}/trec6' if file == 'valid' else '',
    )
    for method, row in METHODS.items()
    for file in ('valid', 'last')
  ),
  runs=(
    Run(
      _GENERAL,
      f'{_FILES}general.py:small,epochs=1',
      (manual_dir('corpus'), 'data.words=6_000_000'),
      seeds=0,
      needs=CORES,
    ),
    Run(_LM, f'{_FILES}lm.py:trec,{_SIZE}', (*_TREC, from_run(_GENERAL)), seeds=_FOLDS, needs=CORES),
    *map(_classifier, METHODS),
  ),
  note='3 layers of 256 for 1,150, 6 million words of general text for 103 million, and 20 epochs of the classifier '
  'for 50. Seeds are folds: each has a tenth of the 5,452 training questions for validation, which its language model '
  'does not read either. `valid`: all but the whole method are stopped early, as in the paper; `last`: none is.',
)
