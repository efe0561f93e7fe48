"""GPT-2 as nanoGPT reports it: OpenAI's weights and the smallest model from scratch on web text, and Shakespeare."""

from experiments.tables import CORES, GPU, POD, Row, Run, Table, Unmeasured, imported, manual_dir

_ROWS = {'124m': 'gpt2', '355m': 'gpt2_medium', '774m': 'gpt2_large', '1558m': 'gpt2_xl'}
_WHOLE = 'of the whole split; printed: an estimate of {} batches drawn at random'  # eval_iters
_SHAKESPEARE = {'cpu': ('cpu_4l', '20 batches of 12 windows'), 'baby': ('gpu_6l', '200 batches of 64 windows')}


def _evaluated(size: str) -> Run:
  """Return the evaluation of OpenAI's weights on held-out web text."""
  command = (
    f'evaluate --workdir={{imported/gpt2_{size}}} --config=experiments/gpt2/webtext.py:124m --split=valid '
    f'--config.{manual_dir("webtext")} --output={{dir}}/valid.json'
  )
  return Run(f'gpt2/webtext_of_weights_{size}', then=(command,), seeds=0)


TABLE = Table(
  'GPT-2, web text and Shakespeare',
  'the README of karpathy/nanoGPT',
  prints=(('nanoGPT (code)', 'text'),),
  unmeasured=(
    Unmeasured(
      'gpt2/nanogpt_owt/*/train', 'estimated there from a sample of the 9 billion tokens of the training split'
    ),
  ),
  rows=(
    *(
      Row(f'gpt2/nanogpt_owt/{row}/valid', f'gpt2/webtext_of_weights_{size}', 'loss', 'valid', note=_WHOLE.format(500))
      for size, row in _ROWS.items()
    ),
    Row('gpt2/nanogpt_owt/repro_124m/valid', 'gpt2/webtext_124m', 'loss', note=_WHOLE.format(200)),
    *(
      Row(
        f'gpt2/nanogpt_shakespeare/{row}/valid',
        f'gpt2/shakespeare_{variant}',
        'loss',
        note=f'of the whole split; printed: an estimate of {estimate} drawn at random',
      )
      for variant, (row, estimate) in _SHAKESPEARE.items()
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
        needs=CORES if variant == 'cpu' else GPU,
      )
      for variant in _SHAKESPEARE
    ),
  ),
  note='On the held-out part of OpenWebText; losses of other text do not compare.',
)
