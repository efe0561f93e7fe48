"""Neural probabilistic language models and n-gram models on the Brown corpus."""

from experiments.tables import CORES, Row, Run, Table, Unmeasured, manual_dir, measured

_FILE = 'experiments/nplm/brown.py'
_CORPUS = (
  "the corpus has other special tokens than the paper's: 1,161,692 words for 1,181,041, and a vocabulary of 17,904 for "
  '16,383'
)
_SPLITS = ('train', 'valid', 'test')
_NGRAMS = {  # model of `lmx ngrams` -> row of the paper
  'trigram': 'del_int',
  **{
    name: name
    for name in (
      'kn3',
      'kn4',
      'kn5',
      'class3_150',
      'class3_200',
      'class3_500',
      'class3_1000',
      'class3_2000',
      'class4_500',
      'class5_500',
    )
  },
}
_ALONE = (1, 3, 5, 7, 9)  # the networks; the next number is the same one mixed with the trigram


def _network(number: int) -> Run:
  mixed = tuple(measured(split, '--mixture=trigram', file=f'mixed_{split}') for split in _SPLITS[1:])
  alone = tuple(measured(split) for split in _SPLITS)
  return Run(f'nplm/brown_mlp{number}', f'{_FILE}:mlp{number}', (manual_dir('brown'),), (*alone, *mixed), needs=CORES)


def _group(model: str) -> str:
  """Return the run that evaluates a model: one run for each class-based model, because clustering the words is slow."""
  return f'nplm/brown_{model if model.startswith("class") else "ngrams"}'


def _ngrams(name: str) -> Run:
  models = ','.join(model for model in _NGRAMS if _group(model) == name)
  command = f'ngrams --config={_FILE} --split=train,valid,test --models={models} --output={{dir}}/ngrams.json'
  return Run(name, then=(f'{command} --config.{manual_dir("brown")}',), seeds=0, needs=CORES)


TABLE = Table(
  'Neural probabilistic language model, Brown corpus',
  'Bengio, Ducharme, Vincent and Jauvin 2003, tables 1 and 2',
  prints=(('Bengio et al. 2003', '1'), ('Bengio et al. 2003', '2')),
  unmeasured=(Unmeasured('nplm/ap/*', 'the Associated Press news of 1995 and 1996 are not distributed'),),
  rows=(
    *(
      Row(f'nplm/brown/mlp{n}/{split}', f'nplm/brown_mlp{n}', 'ppl', split, differs=_CORPUS)
      for n in _ALONE
      for split in _SPLITS
    ),
    *(
      Row(f'nplm/brown/mlp{n + 1}/{split}', f'nplm/brown_mlp{n}', 'mixed_ppl', f'mixed_{split}', differs=_CORPUS)
      for n in _ALONE
      for split in _SPLITS[1:]
    ),
    *(
      Row(f'nplm/brown/{row}/{split}', _group(model), 'ppl', 'ngrams', f'model={model},split={split}', differs=_CORPUS)
      for model, row in _NGRAMS.items()
      for split in (_SPLITS if model == 'trigram' else _SPLITS[1:])
    ),
  ),
  runs=(*(_network(number) for number in _ALONE), *(_ngrams(name) for name in dict.fromkeys(map(_group, _NGRAMS)))),
  note='Networks are updated with batches of 256 words, by the sum of the gradients.',
)
