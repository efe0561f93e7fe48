"""XLNet fine-tuned: GLUE, SQuAD, RACE and IMDb."""

from experiments.tables import POD, Row, Run, Table, from_run, imported, manual_dir, measured

_START = from_run('imported/xlnet_large')
_GLUE = {
  'mnli_m': ('mnli', 'accuracy'),
  'mnli_mm': ('mnli', 'accuracy'),
  'qnli': ('qnli', 'accuracy'),
  'qqp': ('qqp', 'accuracy'),
  'rte': ('rte', 'accuracy'),
  'sst2': ('sst2', 'accuracy'),
  'mrpc': ('mrpc', 'accuracy'),
  'cola': ('cola', 'matthews'),
  'stsb': ('stsb', 'pearson'),
}


def _glue(task: str) -> Run:
  more = (measured('valid_mismatched', '--which=last'),) if task == 'mnli' else ()
  return Run(f'xlnet/large_{task}', f'experiments/xlnet/tasks.py:{task}', (manual_dir('glue'), _START), more, seeds=5)


TABLE = Table(
  'XLNet, SQuAD, GLUE, RACE and IMDb',
  'Yang et al. 2019 (arXiv 1906.08237, version 2), tables 2 to 5',
  rows=(
    *(
      Row(f'xlnet/v2/squad{version}/dev/xlnet_large/{name}', f'xlnet/large_{data}', metric)
      for version, data, metrics in (
        ('1.1', 'squad', ('exact_match', 'answer_f1')),
        ('2.0', 'squad2', ('best_exact_match', 'best_f1')),
      )
      for name, metric in zip(('em', 'f1'), metrics, strict=True)
    ),
    *(
      Row(
        f'xlnet/v2/glue/dev/xlnet_large/{row}',
        f'xlnet/large_{task}',
        metric,
        'valid_mismatched' if row == 'mnli_mm' else 'results',
      )
      for row, (task, metric) in _GLUE.items()
    ),
    Row('xlnet/v2/race/xlnet_large/accuracy', 'xlnet/large_race', 'accuracy'),
    Row('xlnet/v2/text_classification/xlnet_large/imdb', 'xlnet/large_imdb', 'error'),
  ),
  runs=(
    imported('xlnet_large'),
    *(
      Run(f'xlnet/large_{data}', f'experiments/xlnet/squad.py:{data}', (manual_dir(data), _START), needs=POD)
      for data in ('squad', 'squad2')
    ),
    *(_glue(task) for task in dict.fromkeys(task for task, _ in _GLUE.values())),
    *(
      Run(f'xlnet/large_{data}', f'experiments/xlnet/tasks.py:{data}', (manual_dir(data), _START), needs=POD)
      for data in ('race', 'imdb')
    ),
  ),
  note='From the released weights, which are those of version 1 of the paper: its pre-training of version 2 was not '
  'released. GLUE: validation split, single models, median of ten runs as printed.',
)
