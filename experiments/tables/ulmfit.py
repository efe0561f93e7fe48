"""ULMFiT: error rates of bidirectional ensembles, and ablations of all stages."""

from experiments.tables import Row, Run, Table, from_run, manual_dir, measured

_PAPER = 'Howard and Ruder 2018'
_ABLATED = {'imdb': 'imdb', 'trec': 'trec6', 'ag_news': 'ag'}  # name here -> in published.csv
_TESTED = {  # name here -> id of its bidirectional metric
  'imdb': 'imdb/ulmfit',
  'trec': 'trec6/ulmfit',
  'ag_news': 'text_classification/ulmfit/ag',
  'dbpedia': 'text_classification/ulmfit/dbpedia',
  'yelp_polarity': 'text_classification/ulmfit/yelp_bi',
  'yelp_full': 'text_classification/ulmfit/yelp_full',
}
METHODS = {  # of the classifier -> row of table 7
  'scratch': 'scratch',
  'full': 'full',
  'discriminative': 'full_discr',
  'last': 'last',
  'chain_thaw': 'chain_thaw',
  'freez': 'freez',
  'freez_discr': 'freez_discr',
  'freez_stlr': 'freez_stlr',
  'freez_cos': 'freez_cos',
  'gradual_unfreezing': 'freez_discr_stlr',
}
_RATES = {'full': 'full', 'discriminative': 'full_discr'}  # of the language model -> row of table 6
_FILES = 'experiments/ulmfit/'
_WHOLE = ("data.train_splits=('train','valid')", 'evaluation.which=last')  # no document is held out
_NO_PENALTIES = ('model.alpha=0', 'model.beta=0')
CHAIN_THAW = "the paper does not give the epochs and rates of chain-thaw; ours are train_clas.py's of fastai 0.7"


def _general(tail: str = '', options: str = '', settings: tuple[str, ...] = ()) -> Run:
  config = f'{_FILES}general.py:wikitext103{options}'
  return Run(f'ulmfit/general{tail}', config, (manual_dir('wikitext103'), *settings), seeds=0)


def _lm(data: str, option: str = '', tail: str = '', name: str = '', settings: tuple[str, ...] = ()) -> Run:
  """Return a data set's language model, initialised from the general one; '_unpretrained' in `name` starts from
  scratch.
  """
  start = () if name == '_unpretrained' else (from_run(f'ulmfit/general{name if name == "_vanilla" else tail}'),)
  config = f'{_FILES}lm.py:{data}{option}'
  return Run(f'ulmfit/{data}_lm{tail}{name}', config, (manual_dir(data), *start, *settings), seeds=0)


def _classifier(
  name: str, data: str, options: str, start: str, words: str = '', settings: tuple[str, ...] = (), which: str = ''
) -> Run:
  """Return a classifier that starts from the model of the run `start`, if any, with the tokenizer of `words`.

  Early stopping is for all methods but ULMFiT's (section 5): `which` is then '--which=last'.
  """
  begin = (from_run(start), "train.init_parts=('model',)") if start else ()
  tokens = f'data.tokenizer_path={{{words or start}}}/tokenizer'
  config = f'{_FILES}classifier.py:{data}{options}'
  then = (measured('valid', *filter(None, (which,))),)
  return Run(f'ulmfit/{name}', config, (manual_dir(data), tokens, *begin, *settings), then, seeds=3)


def _both(data: str) -> list[Run]:
  """Return the runs of tables 2 and 3 and section 5: all stages in both directions, and the ensemble of both."""
  back = ',direction=backward'
  ensemble = (
    f'evaluate --workdir={{ulmfit/{data}_forward}} --ensemble={{ulmfit/{data}_backward}} --which=last --split=test '
    '--output={dir}/ensemble.json'
  )
  whole = lambda name, options, start: _classifier(name, data, options, start, settings=_WHOLE, which='--which=last')
  return [
    _lm(data),
    _lm(data, back, '_backward'),
    whole(f'{data}_forward', '', f'ulmfit/{data}_lm'),
    whole(f'{data}_backward', back, f'ulmfit/{data}_lm_backward'),
    Run(f'ulmfit/{data}_both', then=(ensemble,), seeds=3),
  ]


def _ablations(data: str) -> list[Run]:
  """Return the runs of tables 4 to 7: 50 epochs of the classifier, evaluated on the validation split."""
  lm, runs = f'ulmfit/{data}_lm', []
  for method in METHODS:
    start, which = '' if method == 'scratch' else lm, '--which=last' if method == 'gradual_unfreezing' else ''
    runs.append(_classifier(f'{data}_{method}', data, f',method={method},epochs=50', start, lm, which=which))
  tuned = lambda name, start, options=',epochs=50', words='', settings=(): _classifier(
    f'{data}_{name}', data, options, start, words, settings, '--which=last'
  )
  runs.append(tuned('no_lm', 'ulmfit/general', words=lm))
  for rates in _RATES:
    runs += [_lm(data, f',rates={rates}', name=f'_{rates}'), tuned(f'lm_{rates}_tuned', f'{lm}_{rates}')]
  return [
    *runs,
    _lm(data, name='_unpretrained'),
    tuned('unpretrained', f'{lm}_unpretrained'),
    _lm(data, ',dropmult=0', name='_vanilla', settings=_NO_PENALTIES),
    # Five epochs, and dropout 0.4 only in the classifier: a footnote in section 5.
    tuned('vanilla', f'{lm}_vanilla', ',dropmult=0,epochs=5', settings=('objective.dropout_pooled=0.4',)),
  ]


def _ablation_rows(data: str, printed: str) -> list[Row]:
  """Return the rows of tables 4 to 7 of a data set."""
  ablation, whole = 'ulmfit/ablation', f'ulmfit/{data}_gradual_unfreezing'
  runs = {  # id without the data set -> run
    'pretraining/without': f'ulmfit/{data}_unpretrained',
    'pretraining/with': whole,
    'lm/vanilla': f'ulmfit/{data}_vanilla',
    'lm/awd_lstm': whole,
    'lm_finetuning/none': f'ulmfit/{data}_no_lm',
    **{f'lm_finetuning/{row}': f'ulmfit/{data}_lm_{rates}_tuned' for rates, row in _RATES.items()},
    'lm_finetuning/full_discr_stlr': whole,
    **{f'classifier/{row}': f'ulmfit/{data}_{method}' for method, row in METHODS.items()},
  }
  notes = {'classifier/chain_thaw': CHAIN_THAW}
  return [
    Row(f'{ablation}_{name}/{printed}', run, 'error', 'valid', note=notes.get(name, '')) for name, run in runs.items()
  ]


TABLE = Table(
  'ULMFiT, error rates',
  'Howard and Ruder 2018 (arXiv 1801.06146), tables 2 to 7 and section 5',
  rows=(
    *(Row(f'ulmfit/{printed}', f'ulmfit/{data}_both', 'error', 'ensemble') for data, printed in _TESTED.items()),
    Row('ulmfit/bidirectional/single', 'ulmfit/imdb_forward', 'error'),
    Row('ulmfit/bidirectional/bidirectional', 'ulmfit/imdb_both', 'error', 'ensemble'),
    *(row for data, printed in _ABLATED.items() for row in _ablation_rows(data, printed)),
  ),
  runs=(
    _general(),
    _general('_backward', ',direction=backward'),
    _general('_vanilla', ',dropmult=0', _NO_PENALTIES),
    *(run for data in _TESTED for run in _both(data)),
    *(run for data in _ABLATED for run in _ablations(data)),
  ),
  note='The paper tunes the number of epochs for tables 2 and 3; ours are in experiments/ulmfit/. The general model '
  'and the language models are trained once, the classifiers once per seed. Tables 4 to 7: a held-out tenth of '
  'the training documents; the lowest validation loss stops all methods except ULMFiT.',
  prints=(*((_PAPER, str(number)) for number in range(2, 8)), (_PAPER, 'text')),
  context=(
    *(f'ulmfit/imdb/{system}' for system in ('cove', 'oh_lstm', 'virtual')),
    *(f'ulmfit/trec6/{system}' for system in ('cove', 'tbcnn', 'lstm_cnn')),
    *(f'ulmfit/text_classification/{system}/*' for system in ('char_cnn', 'cnn', 'dpcnn')),
    'ulmfit/bidirectional/dai_le',
  ),
)
