"""Tied LSTM language models on WikiText-2, the recipe of PyTorch's word_language_model example.

  lmx train --config=experiments/rnn_lm/wikitext2.py:medium --workdir=runs/wt2

WikiText-2 (Merity et al. 2016, arXiv 1609.07843; 2,088,628 / 217,646 / 245,569 tokens with <eos>, vocabulary 33,278)
is downloaded, or read from --config.data.manual_dir=DIR. The example (github.com/pytorch/examples,
word_language_model): two layers, embedding tied to the output (Press and Wolf 2017), SGD from rate 20 divided by 4
when the validation loss does not fall, gradient norm at most 0.25, T=35, batch 20, 40 epochs, two biases. Deviation:
every parameter starts uniform in +-0.1 or less, in the example the LSTM in +-1/sqrt(D).

  variant  what to expect                                                              hardware and time
  medium   test ppl near 100: no figure printed for this size                          one GPU, under an hour
  large    test ppl 84.1 and 84.2 (two users' runs, pytorch/examples issue 415)        one GPU, hours

For scale: a variational LSTM with an augmented loss, 28M parameters, reaches 91.5 valid and 87.0 test (Inan et al.
2016, as printed in table 2 of Yang et al. 2018, arXiv 1711.03953).
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('medium', 'large', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': f'rnn_lm_wikitext2_{variant}',
    'model': {
      'name': 'rnn_lm',
      'variant': 'medium' if variant == 'tiny' else variant,
      'tied': True,
      'bias': 'double',
    },
    'data': {
      'dataset': 'wikitext2',
      'tokenizer': 'words',
      'vocab_size': 33278,
      'batching': 'streams',
      'batch_size': 20,
      'length': 35,
      'eval_batch_size': 1,
      'eval_length': 350,  # one stream: the carry is kept, so this changes only the speed
    },
    'optim': {
      'optimizer': 'sgd',
      'lr': 20.0,
      'clip_norm': 0.25,
      'schedule': 'plateau',
      'patience': 0,
      'factor': 0.25,
    },
    'train': {'epochs': 40, 'log_every': 100},
  }
  return config.merge(base, config.tiny(E=16) if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__dropout=[0.4, 0.5, 0.65], optim__lr=[10.0, 20.0, 30.0])
