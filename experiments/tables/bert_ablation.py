"""BERT: ablations of its pre-training tasks, its size and its masks."""

from typing import NamedTuple

from experiments.tables import POD, Row, Run, Table, from_run, imported, manual_dir
from experiments.tables.bert_glue import best, tuned_at_all_rates
from experiments.tables.bert_squad import tuned
from experiments.tables.bert_tasks import ner, ner_at_all_rates, ner_row

_BOOKS = 'pre-trained on a stand-in for BooksCorpus, which is no longer distributed'
_GLUE = {'mnli_m': 'mnli', 'qnli': 'qnli', 'mrpc': 'mrpc', 'sst2': 'sst2'}
_MASKS = ('80_10_10', '100_0_0', '80_0_20', '80_20_0', '0_20_80', '0_0_100')


class _Size(NamedTuple):
  """Model of table 6: settings on top of BERT base, and hours of one H100 for each length of its pre-training."""

  settings: tuple[str, ...]
  hours: tuple[float, float]


_BASE_HOURS = (16.0, 6.9)
_SIZES = {
  'l3_h768_a12': _Size(('model.N=3',), (6.4, 2.8)),
  'l6_h768_a3': _Size(('model.N=6', 'model.H=3'), (9.4, 4.2)),
  'l6_h768_a12': _Size(('model.N=6',), (9.4, 4.2)),
  'l12_h1024_a16': _Size(('model.D=1024', 'model.H=16'), (26.0, 12.0)),
}
_RELEASED = {'l12_h768_a12': 'base', 'l24_h1024_a16': 'large'}


def _pretrained(
  name: str, option: str = '', settings: tuple[str, ...] = (), *, hours: tuple[float, float] = _BASE_HOURS
) -> tuple[Run, Run]:
  """Return the two phases of a pre-training, bert/pretrain_NAME at length 128 and bert/pretrain_NAME_512."""
  first = f'bert/pretrain_{name}'
  variant = 'large' if name == 'large' else 'base'
  config = ','.join([f'experiments/bert/pretrain.py:{variant}', *filter(None, [option])])
  own = (manual_dir('books'), *settings)
  start = (from_run(first), f'data.tokenizer_path={{{first}}}/tokenizer')
  return (
    Run(first, config, own, seeds=0, needs=POD, gpu_hours=hours[0]),
    Run(f'{first}_512', f'{config},length=512', (*own, *start), seeds=0, needs=POD, gpu_hours=hours[1]),
  )


def _start(name: str) -> tuple[str, str]:
  """Return the name prefix of a model's fine-tunings, and their initial run."""
  return f'bert/{name}', f'bert/pretrain_{name}_512'


def _tasks_rows() -> list[Row]:
  rows = []
  for system, name, note in (
    ('base', 'base', ''),
    ('no_nsp', 'no_nsp', ''),
    ('ltr_no_nsp', 'left_to_right', 'the last token is classified; the paper does not say which'),
    ('ltr_no_nsp_bilstm', 'left_to_right_bilstm', 'two layers of 768 cells, the last token; the paper does not say'),
  ):
    differs = '' if name == 'base' else _BOOKS
    rows += [
      best(f'bert/ablation_tasks/{system}/{column}', f'bert/{name}_{task}', 'accuracy', differs=differs, note=note)
      for column, task in _GLUE.items()
    ]
    rows.append(Row(f'bert/ablation_tasks/{system}/squad1.1', f'bert/{name}_squad', 'answer_f1', differs=differs))
  return rows


def _size_rows() -> list[Row]:
  rows = []
  for size in (*_SIZES, *_RELEASED):
    name = _RELEASED.get(size, size)
    text = 'the held-out text is not named'
    run = f'bert/pretrain_{name}_512'
    rows.append(Row(f'bert/ablation_size/{size}/mlm_ppl', run, 'masked_ppl', differs=f'{text}; {_BOOKS}'))
    rows += [
      best(f'bert/ablation_size/{size}/{column}', f'bert/{name}_{task}', 'accuracy', differs=_BOOKS * (size in _SIZES))
      for column, task in _GLUE.items()
      if column != 'qnli'
    ]
  return rows


def _mask_rows() -> list[Row]:
  rows = []
  for masks in _MASKS:
    name, id = f'masks_{masks}', f'bert/ablation_masking/{masks}'
    rows.append(best(f'{id}/mnli', f'bert/{name}_mnli', 'accuracy', differs=_BOOKS))
    rows.append(ner_row(f'{id}/ner_ft', f'bert/{name}', 'dev', _BOOKS))
    rows.append(Row(f'{id}/ner_feat', f'bert/{name}_features_conll2003', 'span_f1', 'valid', differs=_BOOKS))
  return rows


def _runs() -> tuple[Run, ...]:
  runs = [imported('bert_base'), imported('bert_large'), tuned('bert/base', 'imported/bert_base')]
  for name in _RELEASED.values():
    for task in _GLUE.values():
      if (name, task) != ('large', 'qnli'):
        runs += tuned_at_all_rates(f'bert/{name}', f'imported/bert_{name}', task)
  runs += [*_pretrained('base'), *_pretrained('large', hours=(48.0, 21.0))]
  runs += [*_pretrained('no_nsp', 'no_nsp'), *_pretrained('left_to_right', 'left_to_right')]
  for name, start, squad_option, option in (
    ('no_nsp', 'no_nsp', '', ''),
    ('left_to_right', 'left_to_right', '', 'left_to_right'),
    ('left_to_right_bilstm', 'left_to_right', 'bilstm', 'bilstm'),
  ):
    start = _start(start)[1]
    runs.append(tuned(f'bert/{name}', start, options=squad_option))
    for task in _GLUE.values():
      runs += tuned_at_all_rates(f'bert/{name}', start, task, option)
  for name, size in _SIZES.items():
    runs += _pretrained(name, settings=size.settings, hours=size.hours)
    for task in ('mnli', 'mrpc', 'sst2'):
      runs += tuned_at_all_rates(*_start(name), task)
  for masks in _MASKS:
    name, start = _start(f'masks_{masks}')
    if masks == _MASKS[0]:
      start = _start('base')[1]
    else:
      runs += _pretrained(f'masks_{masks}', f'masks={masks}')
    runs += [*tuned_at_all_rates(name, start, 'mnli'), *ner_at_all_rates(name, start)]
    runs.append(ner(f'{name}_features', start, 'features=concat_last_4'))
  return tuple(runs)


TABLE = Table(
  'BERT, ablations',
  'Devlin et al. 2019 (arXiv 1810.04805), tables 5, 6 and 8',
  rows=(*_tasks_rows(), *_size_rows(), *_mask_rows()),
  runs=_runs(),
  note='BERT base and large are fine-tuned from the released weights, except in table 8; the other models are '
  'pre-trained: 900,000 updates of 128 tokens and 100,000 of 512. Of the four rates the best on the validation split '
  'counts.',
  prints=tuple(('Devlin et al. 2019', table) for table in ('5', '6', '8')),
)
