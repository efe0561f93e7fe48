"""GPT fine-tuned: language inference, questions, GLUE."""

from experiments.tables import Row, Run, Table, from_run, imported, manual_dir, measured

_GLUE = {'cola': 'matthews', 'sst2': 'accuracy', 'mrpc': 'f1', 'stsb': 'pearson', 'qqp': 'f1'}
_SERVER = "printed: GLUE's test server; ours: the validation split"
_INFERENCE = {'mnli_m': 'mnli', 'mnli_mm': 'mnli', 'snli': 'snli', 'scitail': 'scitail', 'qnli': 'qnli', 'rte': 'rte'}
_OWN_DATA = ('snli', 'scitail', 'race', 'story_cloze')  # with public test labels


def _run(task: str) -> Run:
  more = (measured('valid_mismatched', '--which=last'),) if task == 'mnli' else ()
  settings = (manual_dir(task if task in _OWN_DATA else 'glue'), from_run('imported/gpt'))
  return Run(f'gpt/{task}', f'experiments/gpt/tasks.py:{task}', settings, more, seeds=3)


TABLE = Table(
  'GPT, fine-tuned',
  'Radford et al. 2018, tables 2 to 4; the README of openai/finetune-transformer-lm',
  rows=(
    *(
      Row(
        f'gpt/nli/gpt/{row}',
        f'gpt/{task}',
        'accuracy',
        'valid_mismatched' if row == 'mnli_mm' else 'results',
        differs='' if task in _OWN_DATA else _SERVER,
      )
      for row, task in _INFERENCE.items()
    ),
    Row('gpt/qa/gpt/story_cloze', 'gpt/story_cloze', 'accuracy'),
    Row('gpt/rocstories/code_median10', 'gpt/story_cloze', 'accuracy', note='median of ten runs'),
    Row('gpt/qa/gpt/race', 'gpt/race', 'accuracy'),
    *(Row(f'gpt/glue/gpt/{task}', f'gpt/{task}', metric, differs=_SERVER) for task, metric in _GLUE.items()),
  ),
  runs=(
    imported('gpt'),
    *(_run(task) for task in dict.fromkeys((*_INFERENCE.values(), 'story_cloze', 'race', *_GLUE))),
  ),
  note='From the released weights. Single models.',
)
