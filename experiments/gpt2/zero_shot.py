"""Zero-shot evaluation of a language model (Radford et al. 2019, section 3, table 3).

  lmx evaluate --workdir=runs/gpt2 --config=experiments/gpt2/zero_shot.py:ptb --config.data.manual_dir=DIR
  lmx evaluate --workdir=runs/gpt2 --config=experiments/gpt2/zero_shot.py:lambada,size=355m --config.data.manual_dir=DIR
  lmx train --config=experiments/gpt2/zero_shot.py:tiny --workdir=runs/tiny        seconds: a smoke test

runs/gpt2 is any run of a causal model: one trained here, or `lmx import --from=FOLDER --workdir=runs/gpt2`. This file
gives data and protocol; model and tokenizer are the run's, and nothing is trained. A model with fewer than 1,024
positions needs --config.data.length=N and a stride of at most N.

  variant                      files in DIR                          metric
  wikitext2, wikitext103       wiki.test.tokens and the others       perplexity per word of the original, <eos> included
  ptb                          ptb.test.txt and the others           the same
  lm1b                         as TFDS prepares it                   the same
  enwik8, text8                the file                              bits per byte; bits per character
  lambada                      lambada_test.jsonl                    accuracy and perplexity of the last word
  cbt_cn, cbt_ne, cbt_v, cbt_p cbtest_CN_valid_2000ex.txt and others accuracy, --split=valid as in the paper

Tokenised texts are detokenised by invertible rules (lmx/data/detokenize.py); the paper reports that its own rules,
which were not published, gain 2.5 to 5 points of perplexity. Its stride is not printed either: here a window of 1,024
tokens starts every 512; `stride=32` takes sixteen times as long and gives tokens more context. LAMBADA's published
accuracy uses a stop-word filter: 63.24 for the largest model, and 52.66 without. We report both, with our own stop
words. Its plain lines, which are tokenised, need --config.data.detokenize=True.

The whole table against the paper's: `python -m launch.tables gpt2_zero_shot --data=gpt2_124m=DIR --data=ptb=DIR ...`.
Hardware: one GPU for the 124M model. We have not measured the paper's rows yet.
"""

from __future__ import annotations

from experiments import config

VARIANTS = (
  'wikitext2',
  'wikitext103',
  'ptb',
  'lm1b',
  'enwik8',
  'text8',
  'lambada',
  'cbt_cn',
  'cbt_ne',
  'cbt_v',
  'cbt_p',
  'tiny',
)
SIZES = ('124m', '355m', '774m', '1558m')  # as released; the paper calls them 117M, 345M, 762M and 1542M
_WORDS = ('wikitext2', 'wikitext103', 'ptb', 'lm1b')


@config.arguments(VARIANTS, size=SIZES, stride=512)
def get_config(variant, options):
  name = 'ptb' if variant == 'tiny' else variant
  base = {
    'name': f'gpt2_zero_shot_{name}',
    'model': {'name': 'gpt2', 'variant': options.size},
    'data': {
      'dataset': name.replace('_', '/'),
      'tokenizer': 'bpe',
      'vocab_size': 50257,
      'detokenize': name in _WORDS,
      'length': 1024,
      'batch_size': 8,
    },
    'train': {'steps': 1},
    'evaluation': {'baselines': False, 'split': 'valid' if name.startswith('cbt') else 'test'},
  }
  rows = {'name': 'continuations', 'buckets': (128, 256, 512, 768)}
  changes = {
    'lambada': {'objective': {'name': 'last_word'}, 'data': {'batching': rows}},
    'cbt': {'objective': {'name': 'cloze'}, 'data': {'batching': rows, 'batch_size': 2, 'detokenize': True}},
  }.get(name.partition('_')[0], {'data': {'batching': {'name': 'windows', 'stride': options.stride, 'ends': False}}})
  tiny = (config.tiny(), {'data': {'detokenize': False, 'vocab_size': 0, 'batching': {'stride': 16}}})
  return config.merge(base, changes, *(tiny if variant == 'tiny' else ()))


def sweep():
  yield from config.grid(data__batching__stride=[16, 32])
