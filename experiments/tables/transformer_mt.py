"""Transformer: translation of WMT 2014, and of captions."""

from experiments.tables import CORES, GPUS, Row, Run, Table, Unmeasured, manual_dir, measured

_PAIRS = ('en_de', 'en_fr')
_SIZES = ('base', 'big')
_FLOPS = (
  'printed: hours of training on 8 P100 times an assumed 9.5 TFLOP/s of each; ours: the operations of the products'
)
_DESCRIBED = 'describe --workdir={dir} --output={dir}/described.json'


def hours(millions: float, steps: int = 100_000) -> float:
  """Return the estimated hours of one H100 for updates of 25,000 tokens of each side."""
  return float(f'{6 * millions * 1e6 * 50_000 * steps / (0.35 * 989e12) / 3600:.2g}')


def trained(size: str, pair: str = 'en_de') -> Run:
  """Return the training of table 2; English to German is also evaluated as in table 3 and described."""
  more = (measured('valid', '--which=last', file='dev'), _DESCRIBED) if pair == 'en_de' else ()
  return Run(
    f'transformer/wmt14_{size}_{pair}',
    f'experiments/transformer/wmt14.py:{size},pair={pair}',
    (manual_dir(f'wmt14_{pair}'),),
    more,
    needs=GPUS,
    gpu_hours=hours(65) if size == 'base' else hours(213, 300_000),
  )


TABLE = Table(
  'Transformer, translation',
  'Vaswani et al. 2017 (arXiv 1706.03762), table 2; the README of tensor2tensor; Wu et al. 2021 (ACL), table 2',
  prints=(
    ('Vaswani et al. 2017', '2'),
    ('Vaswani et al. 2017', '2 (NeurIPS version)'),
    ('tensor2tensor (code)', 'text'),
    ('Flax examples (code)', 'text'),
    ('Wu et al. 2021', ''),
  ),
  context=tuple(
    f'transformer/mt/{name}/*'
    for name in ('bytenet', 'deepatt', 'gnmt_rl', 'convs2s', 'moe', 'deepatt_ens', 'gnmt_rl_ens', 'convs2s_ens')
  ),
  unmeasured=(
    Unmeasured(
      'transformer/flax_wmt/*',
      "Flax's own recipe, trained on WMT 2017 for hours of particular hardware; its BLEU is not of Moses' tokens",
    ),
  ),
  rows=(
    *(
      Row(f'transformer/mt/{size}/bleu_{pair.replace("_", "")}', f'transformer/wmt14_{size}_{pair}', 'bleu')
      for pair in _PAIRS
      for size in _SIZES
    ),
    *(
      Row(f'transformer/mt/{size}/flops_ende', f'transformer/wmt14_{size}_en_de', 'flops', 'described', differs=_FLOPS)
      for size in _SIZES
    ),
    Row('transformer/mt/big_neurips/bleu_enfr', 'transformer/wmt14_big_en_fr', 'bleu', note='41.8 on arXiv'),
    Row(
      'transformer/t2t_readme/big_expected',
      'transformer/wmt14_released',
      'bleu_international',
      'last',
      note='approximate; base by its later defaults, 300,000 updates, the last checkpoint',
    ),
    Row('transformer/multi30k/tiny/test2016', 'transformer/multi30k', 'bleu_lower'),
    *(
      Row(f'transformer/multi30k/tiny/{name}', 'transformer/multi30k', 'bleu_lower', split)
      for name, split in (('test2017', 'test_2017'), ('coco', 'test_coco'))
    ),
  ),
  runs=(
    *(trained(size, pair) for pair in _PAIRS for size in _SIZES),
    Run(
      'transformer/wmt14_released',
      'experiments/transformer/wmt14.py:base,fidelity=released',
      (manual_dir('wmt14_en_de'), 'train.steps=300000'),
      (measured('test', '--which=last', file='last'),),
      needs=GPUS,
      gpu_hours=hours(65, 300_000),
    ),
    Run(
      'transformer/multi30k',
      'experiments/transformer/multi30k.py:en_de',
      (manual_dir('multi30k'),),
      (measured('test_2017'), measured('test_coco')),
      seeds=3,
      needs=CORES,
    ),
  ),
  note="WMT: newstest2014, beam 4, length penalty 0.6, mean of the last checkpoints, BLEU of Moses' tokens, "
  "compounds split only for English-German; sacreBLEU's tokens give half a point to one point less. Multi30k: "
  'Flickr 2016, beam 5.',
)
