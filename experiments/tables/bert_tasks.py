"""BERT: SWAG and named entities."""

from experiments.tables import Row, Run, Table, Unmeasured, from_run, imported, manual_dir, measured

RATES = ('5e-5', '4e-5', '3e-5', '2e-5')
# Row of table 7 -> option `features` of experiments/bert/tagging.py.
FEATURES = {
  'embeddings': 'embeddings',
  'second_to_last': 'second_to_last',
  'last': 'last',
  'wsum_last4': 'sum_last_4',
  'concat_last4': 'concat_last_4',
  'wsum_all': 'sum_all',
}
_SERVER = "only scored by SWAG's server, which has the test labels"


def ner(name: str, start: str, options: str = '', rate: str = RATES[0]) -> Run:
  """Return the tagger of CoNLL 2003 from the run `start`, NAME_conll2003 or NAME_conll2003_RATE, which is evaluated on
  both splits."""
  lr, suffix = ((), '') if rate == RATES[0] else ((f'optim.lr={rate}',), f'_{rate}')
  config = ','.join(['experiments/bert/tagging.py:conll2003', *filter(None, [options])])
  settings = (manual_dir('conll2003'), from_run(start), *lr)
  return Run(f'{name}_conll2003{suffix}', config, settings, (measured('valid', '--which=last'),), seeds=5)


def ner_at_all_rates(name: str, start: str) -> tuple[Run, ...]:
  """Return the fine-tunings at four rates."""
  return tuple(ner(name, start, rate=rate) for rate in RATES)


def ner_row(id: str, name: str, split: str, differs: str = '') -> Row:
  """Return the row of the fine-tuned tagger with the rate of the best F1 on the validation split."""
  run = f'{name}_conll2003'
  tries = tuple(f'{run}_{rate}' for rate in RATES[1:])
  file = 'valid' if split == 'dev' else 'results'
  return Row(id, run, 'span_f1', file, differs=differs, tries=tries, chosen='valid')


TABLE = Table(
  'BERT, SWAG and CoNLL 2003',
  'Devlin et al. 2019 (arXiv 1810.04805), tables 4 and 7',
  rows=(
    Row('bert/swag/base/dev', 'bert/base_swag', 'accuracy'),
    Row('bert/swag/large/dev', 'bert/large_swag', 'accuracy'),
    *(
      ner_row(f'bert/conll2003_ner/{size}_ft/{split}', f'bert/{size}', split)
      for size in ('large', 'base')
      for split in ('dev', 'test')
    ),
    *(
      Row(
        f'bert/conll2003_ner/feat_{row}/dev',
        f'bert/features_{row}_conll2003',
        'span_f1',
        'valid',
        note='the paper prints neither the rate nor the epochs of the tagger; they are ours',
      )
      for row in FEATURES
    ),
  ),
  runs=(
    *(imported(name) for name in ('bert_base', 'bert_large', 'bert_base_cased', 'bert_large_cased')),
    *(
      Run(
        f'bert/{size}_swag',
        'experiments/bert/tasks.py:swag',
        (manual_dir('swag'), from_run(f'imported/bert_{size}')),
        gpu_hours={'base': 0.45, 'large': 1.4}[size],
      )
      for size in ('base', 'large')
    ),
    *(run for size in ('base', 'large') for run in ner_at_all_rates(f'bert/{size}', f'imported/bert_{size}_cased')),
    *(ner(f'bert/features_{row}', 'imported/bert_base_cased', f'features={name}') for row, name in FEATURES.items()),
  ),
  note='Fine-tuned from the released weights, those with capitals for the entities. Entities are labelled with the '
  'words around a sentence in its document, up to 512 subwords; the paper does not state how rows are filled.',
  prints=(('Devlin et al. 2019', '4'), ('Devlin et al. 2019', '7')),
  context=(
    *(f'bert/swag/{name}/*' for name in ('esim_glove', 'esim_elmo', 'gpt', 'human_expert', 'human_5')),
    *(f'bert/conll2003_ner/{name}/*' for name in ('elmo', 'cvt', 'cse')),
  ),
  unmeasured=(Unmeasured('bert/swag/large/test', _SERVER),),
)
