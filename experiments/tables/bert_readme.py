"""BERT: the runs in google-research/bert's README."""

from experiments.tables import Row, Run, Table, from_run, imported, manual_dir
from experiments.tables.bert_glue import best, tuned, tuned_at_all_rates
from experiments.tables.bert_squad import HOURS

_SQUAD = (('em', 'exact_match'), ('f1', 'answer_f1'))
_MNLI = (
  "neither settings, split nor the number of runs are printed; ours: the matched part, section 4.1's best rate, a mean "
  'over seeds'
)
_WEIGHTS = {  # model of the README's table -> imported weights
  'large_uncased': 'large',
  'large_uncased_wwm': 'large_wwm',
  'large_cased': 'large_cased',
  'large_cased_wwm': 'large_cased_wwm',
}


def squad_as_in_readme(weights: str) -> Run:
  """Return the fine-tuning on SQuAD 1.1 with the README's batch, rate and epochs."""
  batch = 12 if weights == 'base' else 24
  settings = (manual_dir('squad'), from_run(f'imported/bert_{weights}'), f'data.batch_size={batch}')
  hours = round(HOURS['base' if weights == 'base' else 'large'] * 2 / 3, 2)
  return Run(
    f'bert/{weights}_squad_readme',
    'experiments/bert/squad.py:squad,lr=3e-5,epochs=2',
    settings,
    seeds=3,
    gpu_hours=hours,
  )


TABLE = Table(
  'BERT, runs of the release',
  'google-research/bert, README: its examples, and the models with whole-word masking of May 2019',
  rows=(
    *(
      Row(f'bert/readme_squad1.1/{size}_run/{name}', f'bert/{size}_squad_readme', metric)
      for size in ('base', 'large')
      for name, metric in _SQUAD
    ),
    Row('bert/readme_mrpc/base_run', 'bert/base_mrpc', 'accuracy', note='printed: one run; 84 to 88 over restarts'),
    *(
      Row(
        f'bert/readme_wwm/{model}/squad_{name}',
        f'bert/{weights}_squad_readme',
        metric,
        note="neither settings nor the number of runs are printed; ours: the README's example, the mean of three",
      )
      for model, weights in _WEIGHTS.items()
      for name, metric in _SQUAD
    ),
    *(
      best(f'bert/readme_wwm/{model}/mnli', f'bert/{weights}_mnli', 'accuracy', note=_MNLI)
      for model, weights in _WEIGHTS.items()
    ),
  ),
  runs=(
    *(imported(f'bert_{weights}') for weights in ('base', *_WEIGHTS.values())),
    *(squad_as_in_readme(weights) for weights in ('base', *_WEIGHTS.values())),
    tuned('bert/base', 'imported/bert_base', 'mrpc'),
    *(
      run
      for weights in _WEIGHTS.values()
      for run in tuned_at_all_rates(f'bert/{weights}', f'imported/bert_{weights}', 'mnli')
    ),
  ),
  prints=(('Devlin et al. 2019 (code)', 'text'),),
)
