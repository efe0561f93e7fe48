"""AWD-LSTM on Penn Treebank and WikiText-2: the paper's recipe with its ablations, and the README's recipe."""

from experiments.tables import Row, Run, Table, from_run, manual_dir, measured

_SPLITS = {'valid': 'valid', 'test': 'results'}  # split -> file of the metrics without a cache
_FILES = {'ptb': 'experiments/awd_lstm/ptb.py', 'wikitext2': 'experiments/awd_lstm/wikitext2.py'}
_SHORT = {'ptb': 'ptb', 'wikitext2': 'wt2'}
_CACHES = {  # data set, recipe -> window, lambda, theta; of the README but for the paper's on Penn Treebank
  **{('ptb', recipe): '500,0.1,1.0' for recipe in ('released', 'qrnn')},
  ('ptb', 'paper'): '2000,0.1,1.0',
  **{('wikitext2', recipe): '3785,0.1279,0.662' for recipe in ('paper', 'released', 'qrnn')},
}
# Hours of the authors' Quadro GP100, by the seconds of an epoch that the README states. Fine-tuning takes as many
# epochs, but for qrnn on Penn Treebank.
_HOURS = {
  ('ptb', 'paper'): 9.4,
  ('ptb', 'released'): 9.0,
  ('ptb', 'qrnn'): 4.3,
  ('wikitext2', 'paper'): 37.0,
  ('wikitext2', 'released'): 37.0,
  ('wikitext2', 'qrnn'): 12.0,
}
# Table 4: settings that remove an item from the paper's recipe.
_WITHOUT = {
  'no_varlen': ('data.batching.random_length=false',),
  'no_embdrop': ('model.dropout_embedding=0',),
  'no_wd': ('optim.weight_decay=0',),
  'no_ar_tar': ('model.alpha=0', 'model.beta=0'),
  'full_emb': ('model.E=1150',),
  'no_wdrop': ('model.dropout_weight=0',),
}
# SGD with the learning rate halved when NT-ASGD would start averaging (section 6): after more than 5 validations
# without improvement.
_PLATEAU = ('optim.asgd=off', 'optim.schedule=plateau', 'optim.factor=0.5', 'optim.patience=5')


def _runs(data: str, recipe: str, without: str = '', *, cache: bool = True) -> list[Run]:
  """Return a training and the second run of averaged SGD from it, which is also evaluated with a cache."""
  first = f'awd_lstm/{data}_{without or recipe}'
  common = (manual_dir(data), *_WITHOUT.get(without, ()))
  flag = f'--cache={_CACHES[data, recipe]}'
  caches = tuple(measured(split, flag, file=f'cache_{split}') for split in _SPLITS) if cache else ()
  hours, valid = _HOURS[data, recipe], measured('valid')
  tuned = (*common, from_run(first))
  return [
    Run(first, f'{_FILES[data]}:{recipe}', common, (valid,) if cache else (), gpu_hours=hours),
    Run(f'{first}_tuned', f'{_FILES[data]}:finetune,of={recipe}', tuned, (valid, *caches), gpu_hours=hours),
  ]


def rows(data: str, run: str, id: str, *, cache: bool = False, note: str = '') -> list[Row]:
  """Return the rows of both splits; `id` has the split in braces."""
  metric = 'cache_ppl' if cache else 'ppl'
  return [
    Row(id.format(split), f'awd_lstm/{data}_{run}', metric, f'cache_{split}' if cache else file, note=note)
    for split, file in _SPLITS.items()
  ]


def _paper(data: str) -> list[Row]:
  """Return the rows of tables 1 or 2, and 4."""
  short = _SHORT[data]
  note = "the paper does not print its cache for this set; the README's is taken" if data == 'wikitext2' else ''
  ablation = lambda item, run, note='': rows(data, run, f'awd_lstm/ablation/{item}/{short}_{{}}', note=note)
  averaged = 'SGD with a halved rate; not fine-tuned, as fine-tuning averages'
  tuned = 'fine-tuned; the paper does not state whether its variants are'
  return [
    *ablation('no_finetune', 'paper'),
    *rows(data, 'paper_tuned', f'awd_lstm/{data}/finetuned/{{}}'),
    *rows(data, 'paper_tuned', f'awd_lstm/{data}/cache/{{}}', cache=True, note=note),
    *ablation('full', 'paper_tuned'),
    *ablation('no_ntasgd', 'no_ntasgd', averaged),
    *(row for item in _WITHOUT for row in ablation(item, f'{item}_tuned', tuned)),
  ]


def _readme(data: str, recipe: str, cell: str) -> list[Row]:
  base = f'awd_lstm/readme/{cell}_{_SHORT[data]}'
  return [
    *rows(data, recipe, f'{base}/base/{{}}'),
    *rows(data, f'{recipe}_tuned', f'{base}/finetune/{{}}'),
    *rows(data, f'{recipe}_tuned', f'{base}/pointer/{{}}', cache=True),
  ]


# Trainings by the README without fine-tuning, which another table reads too.
PLAIN = tuple(_runs(data, 'released')[0] for data in _FILES)

TABLE = Table(
  'AWD-LSTM, Penn Treebank and WikiText-2',
  'Merity, Keskar and Socher 2018 (arXiv 1708.02182), tables 1, 2 and 4; the README of salesforce/awd-lstm-lm',
  rows=tuple(
    row
    for data in _FILES
    for row in (*_paper(data), *_readme(data, 'released', 'lstm'), *_readme(data, 'qrnn', 'qrnn'))
  ),
  runs=(
    *(run for data in _FILES for recipe in ('paper', 'released', 'qrnn') for run in _runs(data, recipe)),
    *(
      Run(
        f'awd_lstm/{data}_no_ntasgd',
        f'{file}:paper',
        (manual_dir(data), *_PLATEAU),
        (measured('valid'),),
        gpu_hours=_HOURS[data, 'paper'],
      )
      for data, file in _FILES.items()
    ),
    *(run for data in _FILES for item in _WITHOUT for run in _runs(data, 'paper', item, cache=False)),
  ),
  note="The README's metrics are approximate; its authors report that they vary with PyTorch and GPU. We use a "
  'partly filled cache, where the release waits until it is full; this lowers ours by at most 0.3.',
  prints=(
    ('Merity et al. 2017', '1'),
    ('Merity et al. 2017', '2'),
    ('Merity et al. 2017', '4'),
    ('Merity et al. 2017 (code)', 'text'),
  ),
  context=tuple(
    f'awd_lstm/ptb/{system}/*'
    for system in (
      'zaremba_medium',
      'zaremba_large',
      'gal_*',
      'kim_charcnn',
      'inan_*',
      'zilly_rhn',
      'zoph_nas_*',
      'melis_4layer',
    )
  ),
)
