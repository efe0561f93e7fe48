"""GPT-2 as nanoGPT reports it: OpenAI's weights and the smallest model from scratch on web text, and Shakespeare."""

from experiments.tables import CORES, GPU, POD, Row, Run, Table, imported, manual_dir

_ROWS = {'124m': 'gpt2', '355m': 'gpt2_medium', '774m': 'gpt2_large', '1558m': 'gpt2_xl'}
# Windows of nanoGPT's estimates, eval_iters * batch_size: of the weights (config/eval_gpt2.py), of Shakespeare by row.
_WEIGHTS = 500 * 8
_SHAKESPEARE = {'cpu': ('cpu_4l', 20 * 12), 'baby': ('gpu_6l', 200 * 64)}
_ONE = 'the README prints one estimate of one run; of 240 windows it has a standard error of 0.014'
_WHOLE = 'of the whole split; printed: an estimate of 200 batches drawn at random'
_DRAWN = 'an estimate from {:,} windows drawn at random, as printed; each seed has its own'


def _drawn(windows: int, split: str = 'valid', start: str = '{dir}', *flags: str) -> str:
  """Return the command that estimates the loss of a split from windows at random places."""
  words = [f'evaluate --workdir={start}', *flags, f'--split={split}', f'--config.data.batching.drawn={windows}']
  return ' '.join([*words, '--no-baselines', f'--output={{dir}}/drawn_{split}.json'])


def _evaluated(size: str) -> Run:
  """Return the evaluation of OpenAI's weights on web text."""
  config = ('--config=experiments/gpt2/webtext.py:124m', f'--config.{manual_dir("webtext")}')
  commands = [_drawn(_WEIGHTS, split, f'{{imported/gpt2_{size}}}', *config) for split in ('train', 'valid')]
  return Run(f'gpt2/webtext_of_weights_{size}', then=tuple(commands), seeds=0)


TABLE = Table(
  'GPT-2, web text and Shakespeare',
  'the README of karpathy/nanoGPT',
  prints=(('nanoGPT (code)', 'text'),),
  rows=(
    *(
      Row(
        f'gpt2/nanogpt_owt/{row}/{split}',
        f'gpt2/webtext_of_weights_{size}',
        'loss',
        f'drawn_{split}',
        note=_DRAWN.format(_WEIGHTS),
      )
      for size, row in _ROWS.items()
      for split in ('train', 'valid')
    ),
    Row('gpt2/nanogpt_owt/repro_124m/valid', 'gpt2/webtext_124m', 'loss', note=_WHOLE),
    *(
      Row(
        f'gpt2/nanogpt_shakespeare/{row}/valid',
        f'gpt2/shakespeare_{variant}',
        'loss',
        'drawn_valid',
        note=_DRAWN.format(windows),
        outside=_ONE if variant == 'cpu' else '',
      )
      for variant, (row, windows) in _SHAKESPEARE.items()
    ),
    *(
      Row(f'gpt2/shakespeare_whole/{row}', f'gpt2/shakespeare_{variant}', 'loss')
      for variant, (row, _) in _SHAKESPEARE.items()
    ),
  ),
  runs=(
    *(run for size in _ROWS for run in (imported(f'gpt2_{size}'), _evaluated(size))),
    Run(
      'gpt2/webtext_124m',
      'experiments/gpt2/webtext.py:124m',
      (manual_dir('webtext'), 'model.bias=false'),
      needs=POD,
      gpu_hours=180.0,
    ),
    *(
      Run(
        f'gpt2/shakespeare_{variant}',
        f'experiments/gpt2/shakespeare.py:{variant}',
        (manual_dir('shakespeare'), 'model.bias=false'),
        (_drawn(windows),),
        needs=CORES if variant == 'cpu' else GPU,
      )
      for variant, (_, windows) in _SHAKESPEARE.items()
    ),
  ),
  note='On the held-out part of OpenWebText; losses of other text do not compare.',
)
