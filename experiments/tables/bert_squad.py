"""BERT on SQuAD."""

from experiments.tables import Row, Run, Table, from_run, imported, manual_dir

_FILE = 'experiments/bert/squad.py'

TABLE = Table(
  'BERT, SQuAD',
  'Devlin et al. 2019 (arXiv 1810.04805), tables 2 and 3; google-research/bert; NVIDIA, ten seeds',
  rows=(
    *(
      Row(f'bert/squad1.1/{size}/dev_{name}', f'bert/{size}_squad', metric)
      for size in ('base', 'large')
      for name, metric in (('em', 'exact_match'), ('f1', 'answer_f1'))
    ),
    *(
      Row(f'bert/readme_squad1.1/{size}_run/{name}', f'bert/{size}_squad', metric)
      for size in ('base', 'large')
      for name, metric in (('em', 'exact_match'), ('f1', 'answer_f1'))
    ),
    Row('bert/nvidia_seeds/squad_large/em', 'bert/large_squad', 'exact_match'),
    Row('bert/nvidia_seeds/squad_large/f1', 'bert/large_squad', 'answer_f1'),
    Row('bert/squad2.0/large/dev_em', 'bert/large_squad2', 'best_exact_match'),
    Row('bert/squad2.0/large/dev_f1', 'bert/large_squad2', 'best_f1'),
  ),
  runs=(
    imported('bert_base'),
    imported('bert_large'),
    *(
      Run(f'bert/{size}_squad', f'{_FILE}:squad', (manual_dir('squad'), from_run(f'imported/bert_{size}')), seeds=3)
      for size in ('base', 'large')
    ),
    Run('bert/large_squad2', f'{_FILE}:squad2', (manual_dir('squad2'), from_run('imported/bert_large')), seeds=3),
  ),
  note='From the released weights; single models, no TriviaQA; development sets. In version 2.0 the threshold of no '
  'answer is chosen on the same set, as in the paper.',
)
