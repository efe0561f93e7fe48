"""AWD-LSTM and its QRNN over bytes, characters and the words of WikiText-103, and the LSTM of the continuous cache."""

from experiments.tables import Row, Run, Table, manual_dir

# Lambda and theta of the cache, chosen on the validation split as in the paper, which prints neither them nor what was
# tried.
_CACHES = ('0.1,0.3', '0.05,0.3', '0.2,0.3', '0.1,0.1', '0.05,0.1', '0.2,0.1', '0.1,1.0', '0.05,1.0', '0.2,1.0')
_SIZE = 'the paper prints 151M parameters; its released command has 154M'


def _cached(cache: str) -> Run:
  """Return the evaluations of the LSTM with a cache of 2,000 words."""
  then = (
    f'evaluate --workdir={{awd_lstm/wikitext103_lstm}} --split={split} --cache=2000,{cache} --no-baselines '
    f'--output={{dir}}/{split}.json'
    for split in ('valid', 'test')
  )
  return Run(_cache_run(cache), then=tuple(then))


def _cache_run(cache: str) -> str:
  return f'awd_lstm/wikitext103_lstm_cache_{cache.replace(",", "_")}'


TABLE = Table(
  'AWD-LSTM, characters and WikiText-103',
  'Merity, Keskar and Socher 2018 (arXiv 1803.08240); Grave, Joulin and Usunier 2017 (arXiv 1612.04426), as Dai et al. '
  '2019 (arXiv 1901.02860), table 1, quote it',
  rows=(
    Row('awd_lstm/scales/enwik8_lstm3', 'awd_lstm/enwik8', 'bpc'),
    Row('awd_lstm/scales/ptbc_lstm3', 'awd_lstm/ptb_characters', 'bpc'),
    Row(
      'awd_lstm/scales/ptbc_qrnn6',
      'awd_lstm/ptb_characters_qrnn',
      'bpc',
      note="rates of dropout are the LSTM's, as the release has none for it",
    ),
    Row('awd_lstm/scales/wt103_qrnn', 'awd_lstm/wikitext103_qrnn', 'ppl', note=_SIZE),
    Row('transformer_xl/wikitext103/merity_qrnn', 'awd_lstm/wikitext103_qrnn', 'ppl', note=_SIZE),
    Row(
      'transformer_xl/wikitext103/grave_lstm',
      'awd_lstm/wikitext103_lstm',
      'ppl',
      note='clusters and epochs, which the paper does not print, are ours',
    ),
    Row(
      'transformer_xl/wikitext103/grave_lstm_cache',
      _cache_run(_CACHES[0]),
      'cache_ppl',
      'test',
      note='lambda and theta are the best on the validation split of three each, which are ours',
      tries=tuple(map(_cache_run, _CACHES[1:])),
      chosen='valid',
    ),
  ),
  runs=(
    Run('awd_lstm/enwik8', 'experiments/awd_lstm/enwik8.py:released', (manual_dir('enwik8'),), gpu_hours=48.0),
    Run(
      'awd_lstm/ptb_characters',
      'experiments/awd_lstm/ptb_characters.py:released',
      (manual_dir('ptb'),),
      gpu_hours=24.0,
    ),
    Run(
      'awd_lstm/ptb_characters_qrnn',
      'experiments/awd_lstm/ptb_characters.py:qrnn',
      (manual_dir('ptb'),),
      gpu_hours=24.0,
    ),
    Run(
      'awd_lstm/wikitext103_qrnn',
      'experiments/awd_lstm/wikitext103.py:qrnn',
      (manual_dir('wikitext103'),),
      gpu_hours=12.0,
    ),
    Run(
      'awd_lstm/wikitext103_lstm',
      'experiments/awd_lstm/wikitext103.py:lstm',
      (manual_dir('wikitext103'),),
      gpu_hours=4.0,
    ),
    *map(_cached, _CACHES),
  ),
  note="Hours are the authors' where they print them: 12 on one GPU for WikiText-103, two days for enwik8.",
  prints=(('Merity et al. 2018', ''),),
)
