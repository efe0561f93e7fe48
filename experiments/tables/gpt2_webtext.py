"""GPT-2 on web text: OpenAI's weights, and nanoGPT's reproduction of the smallest."""

from experiments.tables import POD, Row, Run, Table, Unmeasured, imported, manual_dir

_ROWS = {'124m': 'gpt2', '355m': 'gpt2_medium', '774m': 'gpt2_large', '1558m': 'gpt2_xl'}


def _evaluated(size: str) -> Run:
  """Return the evaluation of OpenAI's weights on held-out web text."""
  command = (
    f'evaluate --workdir={{imported/gpt2_{size}}} --config=experiments/gpt2/webtext.py:124m --split=valid '
    f'--config.{manual_dir("webtext")} --output={{dir}}/valid.json'
  )
  return Run(f'gpt2/webtext_of_weights_{size}', then=(command,), seeds=0)


TABLE = Table(
  'GPT-2, web text',
  'the README of karpathy/nanoGPT',
  prints=(('nanoGPT (code)', 'text'),),
  unmeasured=(
    Unmeasured(
      'gpt2/nanogpt_owt/*/train', 'estimated there from a sample of the 9 billion tokens of the training split'
    ),
    Unmeasured('gpt2/nanogpt_shakespeare/*', "lmx has no data set of Shakespeare's characters"),
  ),
  rows=(
    *(
      Row(f'gpt2/nanogpt_owt/{row}/valid', f'gpt2/webtext_of_weights_{size}', 'loss', 'valid')
      for size, row in _ROWS.items()
    ),
    Row('gpt2/nanogpt_owt/repro_124m/valid', 'gpt2/webtext_124m', 'loss'),
  ),
  runs=(
    *(run for size in _ROWS for run in (imported(f'gpt2_{size}'), _evaluated(size))),
    Run(
      'gpt2/webtext_124m',
      'experiments/gpt2/webtext.py:124m',
      (manual_dir('webtext'),),
      needs=POD,
      gpu_hours=180.0,
    ),
  ),
  note='On OpenWebText, the part that is held out; losses of other text do not compare.',
)
