"""Self-attention as a classifier of questions, with each score of the decks' table."""

from experiments.tables import CORES, Row, Run, Table, manual_dir

_SCORES = ('additive', 'general', 'cosine', 'location', 'dot')
_RUNS = {score: f'score={score}' for score in _SCORES} | {'dot_projected': 'score=dot,projected'}

TABLE = Table(
  'Self-attention with any score, TREC-6',
  'Measured here; no paper compares the scores so',
  rows=tuple(Row(f'self_attention/trec6/{name}', f'self_attention/trec_{name}', 'error') for name in _RUNS),
  runs=tuple(
    Run(
      f'self_attention/trec_{name}',
      f'experiments/self_attention/trec.py:{options}',
      (manual_dir('trec'),),
      seeds=2,
      needs=CORES,
    )
    for name, options in _RUNS.items()
  ),
  note='Two layers of width 128, newly initialised, five epochs; 500 test questions, so that 0.2 is one question. '
  '`dot_projected` maps queries and keys by a matrix each before the product.',
)
