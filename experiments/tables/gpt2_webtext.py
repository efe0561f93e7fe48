"""GPT-2 from scratch on web text, against nanoGPT's reproduction."""

from experiments.tables import POD, Row, Run, Table, manual_dir

_WEIGHTS = "OpenAI's weights score this; the training is nanoGPT's"
_ROWS = {'124m': 'repro_124m', '355m': 'gpt2_medium', '774m': 'gpt2_large', '1558m': 'gpt2_xl'}

TABLE = Table(
  'GPT-2, web text',
  'the README of karpathy/nanoGPT',
  rows=tuple(
    Row(f'gpt2/nanogpt_owt/{row}/valid', f'gpt2/webtext_{size}', 'loss', differs='' if size == '124m' else _WEIGHTS)
    for size, row in _ROWS.items()
  ),
  runs=tuple(
    Run(f'gpt2/webtext_{size}', f'experiments/gpt2/webtext.py:{size}', (manual_dir('webtext'),), needs=POD)
    for size in _ROWS
  ),
  note='OpenWebText stands in for WebText, and only its losses compare.',
)
