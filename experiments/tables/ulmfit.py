"""ULMFiT: error rates of the ensembles of both directions, and the ablations of language model and classifier."""

from experiments.tables import Row, Run, Table, from_run, manual_dir, measured

_DATA = {'imdb': 'imdb', 'trec': 'trec6'}  # name here -> in published.csv
_METHODS = {  # of the classifier -> row of table 7
  'scratch': 'scratch',
  'full': 'full',
  'discriminative': 'full_discr',
  'last': 'last',
  'gradual_unfreezing': 'freez_discr_stlr',
}
_RATES = {'full': 'full', 'discriminative': 'full_discr'}  # of the language model -> row of table 6
_FILES = 'experiments/ulmfit/'


def _general(tail: str = '') -> Run:
  option = ',direction=backward' if tail else ''
  return Run(f'ulmfit/general{tail}', f'{_FILES}general.py:wikitext103{option}', (manual_dir('wikitext103'),), seeds=0)


def _lm(data: str, option: str = '', tail: str = '', name: str = '') -> Run:
  start = from_run(f'ulmfit/general{tail}')
  return Run(f'ulmfit/{data}_lm{tail}{name}', f'{_FILES}lm.py:{data}{option}', (manual_dir(data), start), seeds=0)


def _classifier(name: str, data: str, options: str, start: str, words: str = '') -> Run:
  """Return a classifier that starts from the model of the run `start`, if any, with the tokenizer of `words`."""
  begin = (from_run(start), "train.init_parts=('model',)") if start else ()
  tokens = f'data.tokenizer_path={{{words or start}}}/tokenizer'
  config = f'{_FILES}classifier.py:{data}{options}'
  return Run(f'ulmfit/{name}', config, (manual_dir(data), tokens, *begin), (measured('valid'),), seeds=3)


def _both(data: str) -> list[Run]:
  """Return the runs of table 2 and section 5: all stages in both directions, and the ensemble of both classifiers."""
  back = ',direction=backward'
  ensemble = (
    f'evaluate --workdir={{ulmfit/{data}_forward}} --ensemble={{ulmfit/{data}_backward}} --split=test '
    '--output={dir}/ensemble.json'
  )
  return [
    _lm(data),
    _lm(data, back, '_backward'),
    _classifier(f'{data}_forward', data, '', f'ulmfit/{data}_lm'),
    _classifier(f'{data}_backward', data, back, f'ulmfit/{data}_lm_backward'),
    Run(f'ulmfit/{data}_both', then=(ensemble,), seeds=3),
  ]


def _ablations(data: str) -> list[Run]:
  """Return the runs of tables 6 and 7: 50 epochs of the classifier, evaluated on the validation split."""
  lm, runs = f'ulmfit/{data}_lm', []
  for method in _METHODS:
    start = '' if method == 'scratch' else lm
    runs.append(_classifier(f'{data}_{method}', data, f',method={method},epochs=50', start, lm))
  runs.append(_classifier(f'{data}_no_lm', data, ',epochs=50', 'ulmfit/general', lm))
  for rates in _RATES:
    runs += [
      _lm(data, f',rates={rates}', name=f'_{rates}'),
      _classifier(f'{data}_lm_{rates}_tuned', data, ',epochs=50', f'{lm}_{rates}'),
    ]
  return runs


def _rows(data: str, printed: str) -> list[Row]:
  classifier, lm = 'ulmfit/ablation_classifier', 'ulmfit/ablation_lm_finetuning'
  return [
    Row(f'ulmfit/{printed}/ulmfit', f'ulmfit/{data}_both', 'error', 'ensemble'),
    *(
      Row(f'{classifier}/{row}/{printed}', f'ulmfit/{data}_{method}', 'error', 'valid')
      for method, row in _METHODS.items()
    ),
    Row(f'{lm}/none/{printed}', f'ulmfit/{data}_no_lm', 'error', 'valid'),
    *(
      Row(f'{lm}/{row}/{printed}', f'ulmfit/{data}_lm_{rates}_tuned', 'error', 'valid') for rates, row in _RATES.items()
    ),
    Row(f'{lm}/full_discr_stlr/{printed}', f'ulmfit/{data}_gradual_unfreezing', 'error', 'valid'),
  ]


TABLE = Table(
  'ULMFiT, error rates',
  'Howard and Ruder 2018 (arXiv 1801.06146), tables 2, 6 and 7 and section 5',
  rows=(
    Row('ulmfit/bidirectional/single', 'ulmfit/imdb_forward', 'error'),
    *(row for data, printed in _DATA.items() for row in _rows(data, printed)),
  ),
  runs=(
    _general(),
    _general('_backward'),
    *(run for data in _DATA for run in _both(data)),
    *(run for data in _DATA for run in _ablations(data)),
  ),
  note='Numbers of epochs are tuned in the paper for table 2. The general model and the language models are trained '
  'once, the classifiers once a seed.',
)
