"""GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners") from scratch on web text.

  lmx train --config=experiments/gpt2/webtext.py:124m --workdir=runs/gpt2 --config.data.manual_dir=DIR

WebText was never released, so DIR holds other text (.txt, .txt.gz or .jsonl; usually OpenWebText). For comparable
metrics use GPT-2's vocab.json and merges.txt as tokenizer_path.

The paper gives the batch (512 windows of 1,024 tokens) and says that the learning rate was tuned by hand for each size;
training code was never released. The rest follows nanoGPT's reproduction (github.com/karpathy/nanoGPT,
config/train_gpt2.py): AdamW with b2 = 0.95, decay 0.1 on matrices, rate 6e-4 falling to 6e-5 over 600,000 steps of
491,520 tokens, 2,000 of them warm-up, clipping at 1, no dropout. nanoGPT also omits biases (--config.model.bias=False);
here the model has them, as in the paper. Larger sizes have the peak learning rates of GPT-3 models of similar size
(Brown et al. 2020, arXiv 2005.14165, table 2.1).

  variant  validation loss to expect on OpenWebText                           hardware and time
  124m     about 2.85 after 300B tokens (OpenAI's weights score 3.12 there)   8 A100 40GB, about 4 days (nanoGPT)
  355m     below 2.84, which OpenAI's weights score                           64 A100, about a day *
  774m     below 2.67                                                         64 A100, about 3 days *
  1558m    below 2.54                                                         128 A100, about 3 days *

  * computed from 6 operations per parameter and token at 30% of the device's peak, not measured.

Options: `:124m,recipe=paper` takes the paper's batch of 512 and its initialisation, and GPT's dropout of 0.1.
Microbatches follow the memory at hand: --config.optim.accumulate=40 on one device. `pod` (`config.pod`) is for a slice
of TPU chips, with 512 rows: `lmx compile --config=experiments/gpt2/webtext.py:1558m,pod --topology=v5e-64`.
124m and 355m fit without rematerialisation; larger sizes scan and rematerialise.

  option `pod` of  slice    GiB a chip  s an update  MFU (compiled, not run)
  124m             v5e-64   4.82        0.0791       0.450
  124m             v5e-256  1.73        0.0289       0.307
  355m             v5e-64   10.39       0.2089       0.482
  774m             v5e-64   3.70        0.4786       0.452
  1558m            v5e-64   4.76        0.9744       0.438
  1558m            v5p-64   5.59        0.4063       0.451
"""

from __future__ import annotations

from experiments import config
from experiments.gpt import recipe as gpt

VARIANTS = ('124m', '355m', '774m', '1558m', 'tiny')
PEAK = {'124m': 6e-4, '355m': 3e-4, '774m': 2.5e-4, '1558m': 2e-4}


@config.arguments(VARIANTS, recipe=('nanogpt', 'paper'), pod=False)
def get_config(variant, options):
  size = '124m' if variant == 'tiny' else variant
  base = {
    'name': f'gpt2_webtext_{variant}',
    'model': {'name': 'gpt2', 'variant': size, 'dtype': 'bfloat16', 'remat': 'none' if size == '124m' else 'full'},
    'data': {
      'dataset': 'text_files',
      'tokenizer': 'bpe',
      'vocab_size': 50257,
      'batching': 'windows',
      'length': 1024,
    },
    'optim': {
      'optimizer': 'adamw',
      'lr': PEAK[size],
      'b2': 0.95,
      'weight_decay': 0.1,
      'clip_norm': 1.0,
      'schedule': 'cosine',
      'warmup_steps': 2000,
      'end_fraction': 0.1,
      'groups': config.DECAY_MATRICES_ONLY,
      'accumulate': 5,
    },
    'train': {'steps': 600_000, 'eval_every': 2000, 'log_every': 100},
    'checkpoint': {'every_steps': 1000},
    'evaluation': {'split': 'valid', 'baselines': False},
  }
  recipe = {
    'nanogpt': {
      'model': {'init': 'nanogpt', **gpt.dropout(0.0)},
      'data': {'batch_size': 480},  # 491,520 tokens
    },
    'paper': {
      'model': {'init': 'paper', **gpt.dropout(0.1)},
      'data': {'batch_size': 512},  # section 2.3
      'optim': {'accumulate': 4},
    },
  }[options.recipe]
  fits, fsdp = size in ('124m', '355m'), -1 if size in ('774m', '1558m') else 1  # activations of 8 rows a chip fit
  layers = {'scan': not fits, 'remat': 'none' if fits else 'full'}
  pod = config.pod(fsdp=fsdp, model=layers, batch_size=512) if options.pod else {}
  return config.merge(base, recipe, pod, config.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[3e-4, 6e-4, 1.2e-3])
