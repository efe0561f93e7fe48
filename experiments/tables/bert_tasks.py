"""BERT: SWAG, named entities, and the pre-training by size."""

from experiments.tables import POD, Row, Run, Table, from_run, imported, manual_dir

TABLE = Table(
  'BERT, SWAG, CoNLL 2003 and pre-training',
  'Devlin et al. 2019 (arXiv 1810.04805), tables 4, 6 and 7',
  rows=(
    Row('bert/swag/base/dev', 'bert/base_swag', 'accuracy'),
    Row('bert/swag/large/dev', 'bert/large_swag', 'accuracy'),
    Row('bert/conll2003_ner/base_ft/test', 'bert/base_conll2003', 'span_f1'),
    Row('bert/ablation_size/l12_h768_a12/mlm_ppl', 'bert/pretrain_base', 'masked_ppl'),
    Row('bert/ablation_size/l24_h1024_a16/mlm_ppl', 'bert/pretrain_large', 'masked_ppl'),
  ),
  runs=(
    *(imported(name) for name in ('bert_base', 'bert_large', 'bert_base_cased')),
    *(
      Run(
        f'bert/{size}_swag', 'experiments/bert/tasks.py:swag', (manual_dir('swag'), from_run(f'imported/bert_{size}'))
      )
      for size in ('base', 'large')
    ),
    Run(
      'bert/base_conll2003',
      'experiments/bert/tagging.py:conll2003',
      (manual_dir('conll2003'), from_run('imported/bert_base_cased')),
      seeds=5,
    ),
    *(
      Run(f'bert/pretrain_{size}', f'experiments/bert/pretrain.py:{size}', (manual_dir('books'),), needs=POD)
      for size in ('base', 'large')
    ),
  ),
  note='Fine-tuned from the released weights. The paper does not say which text was held out of pre-training; rows of '
  '128 tokens, the first nine tenths of its updates.',
)
