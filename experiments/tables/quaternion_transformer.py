"""Quaternion Transformer: sentiment and translation."""

from experiments.tables import Row, Run, Table, Unmeasured, manual_dir

_TEXTS = {'imdb': 'imdb', 'sst2': 'sst'}
_PAIRS = {'en_vi': 'iwslt15_en_vi', 'en_ro': 'wmt16_en_ro', 'en_et': 'wmt18_en_et', 'en_de': 'wmt14_en_de'}
_KINDS = {'none': 'base', 'full': 'full', 'partial': 'partial'}
_SPLIT = {
  'sst2': 'split, and whether phrases are trained on, are not known; ours: whole sentences, the test split',
  'imdb': '',
}


def _kinds(pair: str) -> tuple[str, ...]:
  return tuple(_KINDS.values())[pair == 'en_de' :]


TABLE = Table(
  'Quaternion Transformer',
  'Tay et al. 2019 (arXiv 1906.04393)',
  prints=(('Tay et al. 2019', ''), ('Tay et al. 2019', 'text')),
  unmeasured=(
    Unmeasured('quaternion_transformer/math/*', 'lmx has no data set of mathematical language understanding'),
    Unmeasured('quaternion_transformer/sva/*', 'lmx has no data set of subject-verb agreement'),
  ),
  rows=(
    *(
      Row(
        f'quaternion_transformer/{printed}/{row}',
        f'quaternion_transformer/{data}_{kind}',
        'accuracy',
        note=_SPLIT[data],
      )
      for data, printed in _TEXTS.items()
      for kind, row in _KINDS.items()
    ),
    *(
      Row(f'quaternion_transformer/{pair.replace("_", "")}/{kind}', f'quaternion_transformer/{pair}_{kind}', 'bleu')
      for pair in _PAIRS
      for kind in _kinds(pair)
    ),
  ),
  runs=(
    *(
      Run(
        f'quaternion_transformer/{data}_{kind}',
        f'experiments/quaternion_transformer/tasks.py:{data},quaternion={kind}',
        (manual_dir(data),),
        seeds=3,
      )
      for data in _TEXTS
      for kind in _KINDS
    ),
    *(
      Run(
        f'quaternion_transformer/{pair}_{kind}',
        f'experiments/quaternion_transformer/translation.py:{kind},pair={pair}',
        (manual_dir(data),),
        gpu_hours=0.1,
      )
      for pair, data in _PAIRS.items()
      for kind in _kinds(pair)
    ),
  ),
  note='Figures are from notes on the paper: how long it trained, its subwords, its beam, its length penalty and the '
  'tokens of its BLEU are not known.',
)
