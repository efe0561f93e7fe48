"""BERT pre-training (Devlin et al. 2019, arXiv 1810.04805, appendix A.2) and the small sizes of Turc et al. 2019.

  lmx train --config=experiments/bert/pretrain.py:base --workdir=runs/bert --config.data.manual_dir=DIR

DIR holds English text with one sentence per line and an empty line between documents. BooksCorpus (800M words) is no
longer distributed; Wikipedia (2,500M words) with other books is the usual substitute. For comparable metrics use the
released vocab.txt as --config.data.tokenizer_path.

Batch 256, 1,000,000 steps, Adam without bias correction, rate 1e-4 with 10,000 steps of warm-up and linear decay,
weight decay 0.01 except on LayerNorm and biases, clipping at 1, dropout 0.1, ten copies of the text each masked once.
The paper takes 90% of the steps at length 128, the rest at 512. Here a run has one length: `length=128` (the default)
is the first 900,000 steps, and `length=512` the last 100,000, initialised from the first:

  lmx train --config=experiments/bert/pretrain.py:base,length=512 --workdir=runs/bert512 --config.data.manual_dir=DIR
    --config.train.init_from=runs/bert --config.data.tokenizer_path=runs/bert/tokenizer

Together their learning rates decay linearly to 0 at update 1,000,000; Adam's moments restart at 0 in the second.

  variant    layers / width  held-out masked-LM perplexity                            hardware and time
  turc_tiny  2 / 128         none printed (GLUE score 64.2, Turc et al. 1908.08962)   one GPU, hours
  mini       4 / 256         none printed (65.8)                                      one GPU, a day
  small      4 / 512         none printed (71.2)                                      one GPU, a day
  medium     8 / 512         none printed (73.5)                                      one GPU, days
  base       12 / 768        3.99 (table 6)                                           16 TPU chips, 4 days
  large      24 / 1024       3.23 (table 6)                                           64 TPU chips, 4 days
  tiny       2 / 128 on the embedded corpus: seconds on a CPU

Option `fidelity`: 'released' (default) counts the linear decay from step 0, as google-research/bert does, so the rate
jumps down by 1% when the warm-up ends; 'paper' counts it from the end of the warm-up. Option `whole_word`: masks all
subwords of a word together, as in google-research/bert's large models of May 2019.

Options of the ablations; sentence pairs stay as in BERT, with random second segments, because the paper names no
others:

  no_nsp         no next-sentence prediction (section 5.1)
  left_to_right  LTR & No NSP of section 5.1: a causal model that predicts every token; fine-tuned with the same mask,
                 which `train.like_init` copies, and with `left_to_right` of experiments/bert/tasks.py
  masks          80_10_10 (default), 100_0_0, 80_0_20, 80_20_0, 0_20_80 or 0_0_100: percent of the predicted tokens that
                 are masked, stay, or become a random one (appendix C.2, table 8)

Sizes of table 6: --config.model.N=6 --config.model.H=3 on top of `base`.

Option `pod` (`config.pod`) is for a TPU slice; large at length 512 then has 1,024 rows per batch, not the
paper's 256: `lmx compile --config=experiments/bert/pretrain.py:large,length=512,pod --topology=v5e-64`. At length 128
the gradient reduction takes a third of the step: 256 rows are 2,048 tokens per chip.

  option `pod` of   slice   GiB a chip  s an update  MFU (compiled, not run)
  base              v5e-16  1.53        0.0208       0.272
  large             v5e-16  3.76        0.0590       0.331
  large,length=512  v5e-64  8.83        0.1926       0.430
"""

from __future__ import annotations

from typing import Any

from experiments import config

VARIANTS = ('base', 'large', 'medium', 'small', 'mini', 'turc_tiny', 'tiny')
ORIGIN = {'released': 'from_zero', 'paper': 'after_warmup'}
WARMUP, RATE = 10_000, 1e-4
MAX_PREDICTIONS = {128: 20, 512: 77}  # README of the released code: about 0.15 of the length
MASKS = ('80_10_10', '100_0_0', '80_0_20', '80_20_0', '0_20_80', '0_0_100')
PHASES = {128: 900_000, 512: 100_000}  # updates of each length, appendix A.2


def _line(length: int, fidelity: str) -> dict[str, float]:
  """Return this length's part of the schedule over both phases."""
  warm = WARMUP if fidelity == 'paper' else 0
  left = PHASES[512] / (sum(PHASES.values()) - warm)
  if length == 128:
    return {'lr': RATE, 'warmup_steps': WARMUP, 'end_fraction': left}
  return {'lr': RATE * left, 'warmup_steps': 0, 'end_fraction': 0.0}


def _ablation(options: Any) -> dict[str, Any]:
  """Return the settings of an ablation option (sections 5.1 and C.2)."""
  changes: dict[str, Any] = {}
  if options.no_nsp or options.left_to_right:
    changes['objective'] = {'name': 'masked_lm', 'next_sentence': False}
  if options.left_to_right:
    changes['model'] = {'causal': True}
    changes['data'] = {'batching': {'masking': 'left_to_right', 'max_predictions': 20}}
  if options.masks != MASKS[0]:
    masked, _, random = (int(share) / 100 for share in options.masks.split('_'))
    changes = config.merge(changes, {'data': {'batching': {'mask_share': masked, 'random_share': random}}}).to_dict()
  return changes


@config.arguments(
  VARIANTS,
  fidelity=tuple(ORIGIN),
  length=('128', '512'),
  whole_word=False,
  no_nsp=False,
  left_to_right=False,
  masks=MASKS,
  pod=False,
)
def get_config(variant, options):
  length = int(options.length)
  large = variant == 'large'
  base = {
    'name': f'bert_{variant}_{length}',
    'model': {
      'name': 'bert',
      'variant': 'tiny' if variant == 'turc_tiny' else variant,
      'dtype': 'bfloat16',
      'remat': 'full' if large else 'none',
    },
    'data': {
      'dataset': 'text_files',
      'tokenizer': 'wordpiece',
      'lower_case': True,
      'vocab_size': 30522,
      'batching': {
        'name': 'pairs',
        'max_predictions': MAX_PREDICTIONS[length],
        'whole_word': options.whole_word,
      },
      'batch_size': 256,
      'length': length,
    },
    'optim': {
      'optimizer': 'bert_adam',
      'weight_decay': 0.01,
      'clip_norm': 1.0,
      'schedule': 'linear',
      'schedule_origin': ORIGIN[options.fidelity],
      **_line(length, options.fidelity),
      'groups': config.DECAY_MATRICES_ONLY,
      'accumulate': 4 if large else 1,
    },
    'train': {
      'steps': PHASES[length],
      'eval_every': 10_000,
      'log_every': 100,
    },
    'checkpoint': {'every_steps': 5000},
    'evaluation': {'split': 'valid', 'baselines': False},
  }
  layers, rows = {'scan': False, 'remat': 'none'}, 1024 if large and length == 512 else 256
  pod = config.pod(model=layers, batch_size=rows) if options.pod else {}
  return config.merge(base, _ablation(options), pod, config.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[5e-5, 1e-4, 2e-4])
