"""Ablations of XLNet: pre-trained on the same text, fine-tuned on four tasks."""

from experiments.tables import MEDIAN, POD, Row, Run, Table, from_run, manual_dir, measured

_ARMS = {  # row of table 6 -> variant of experiments/xlnet/ablation.py
  '1_bert_base': 'bert',
  '2_dae_txl': 'dae',
  '3_k7': 'k7',
  '4_k6': 'xlnet',
  '5_no_memory': 'no_memory',
  '6_no_span': 'no_span',
  '7_no_bidir': 'no_bidirectional',
  '8_nsp': 'next_sentence',
}
_COLUMNS = {
  'race': ('race', 'accuracy'),
  'squad2.0_f1': ('squad2', 'best_f1'),
  'squad2.0_em': ('squad2', 'best_exact_match'),
  'mnli_m': ('mnli', 'accuracy'),
  'mnli_mm': ('mnli', 'accuracy'),
  'sst2': ('sst2', 'accuracy'),
}
_DIFFERS = 'pre-trained on books of yours with Wikipedia: BooksCorpus is no longer distributed'
_MASKS = ('data.tokenizer=wordpiece', 'data.batching.form=bert')  # rows of `dae` begin with [CLS]


def _pretrained(arm: str) -> Run:
  return Run(
    f'xlnet/ablation_{arm}', f'experiments/xlnet/ablation.py:{arm}', (manual_dir('books'),), seeds=0, needs=POD
  )


def _tuned(arm: str, task: str) -> Run:
  system, file = 'bert' if arm == 'bert' else 'xlnet', 'squad' if task == 'squad2' else 'tasks'
  pooling = () if task == 'squad2' else ('objective.pooling=first',)
  masks = (*_MASKS, *pooling) if arm == 'dae' else ()
  data = task if task in ('race', 'squad2') else 'glue'
  settings = (manual_dir(data), from_run(f'xlnet/ablation_{arm}'), *masks)
  then = (measured('valid_mismatched', '--which=last'),) if task == 'mnli' else ()
  return Run(f'xlnet/ablation_{arm}_{task}', f'experiments/{system}/{file}.py:{task}', settings, then, seeds=5)


TABLE = Table(
  'XLNet, ablation',
  'Yang et al. 2019 (arXiv 1906.08237, version 2), table 6',
  rows=tuple(
    Row(
      f'xlnet/ablation/{row}/{column}',
      f'xlnet/ablation_{arm}_{task}',
      metric,
      'valid_mismatched' if column == 'mnli_mm' else 'results',
      differs=_DIFFERS,
      statistic=MEDIAN,
    )
    for row, arm in _ARMS.items()
    for column, (task, metric) in _COLUMNS.items()
  ),
  runs=tuple(
    run
    for arm in _ARMS.values()
    for run in (_pretrained(arm), *(_tuned(arm, task) for task in dict.fromkeys(task for task, _ in _COLUMNS.values())))
  ),
  prints=(('Yang et al. 2019 (v2, January 2020)', '6'),),
  note="The paper prints neither the number of its pre-training updates nor its vocabulary; ours are BERT base's.",
)
