"""ELMo's bidirectional language model (Peters et al. 2018, arXiv 1802.05365) on any text, one sentence per line.

  lmx train --config=experiments/elmo/text.py:mini --workdir=runs/elmo --config.data.manual_dir=DIR

DIR holds train*.txt, valid.txt and test.txt (also .gz), an empty line between documents. `mini` is for two cores: 2.7
million parameters without the output layer (D = 512 cells, P = 128), vocabulary 30,000; `small`, `medium` and
`original` are the sizes of the release, for a GPU. No metric is published for your own text. Option:
`:mini,epochs=2`.

In `mini` each row starts from an empty state every 10 updates, like every sentence of a task. The release carries
states over the whole training and recommends warm-up batches, because a small biLM can be far worse from an empty state
(docs/notes/elmo.md). --config.data.batching.reset_every=0 does as the release.

Subwords instead of words: --config.data.tokenizer=bpe --config.data.vocab_size=8192 --config.data.characters=24
--config.objective.samples=0. Each subword is read by its bytes, and the full softmax predicts it. The sampled softmax
expects ids by decreasing frequency, which only words have.

To adapt a trained model to a task's text (the paper's appendix A.1, table 7: one epoch): --config.train.init_from=RUN
--config.data.tokenizer_path=RUN/tokenizer, which keeps the vocabulary; new words are read by their characters. To
evaluate it beforehand:
`lmx evaluate --workdir=RUN --config=experiments/elmo/text.py:original --config.data.manual_dir=DIR --split=valid`.
"""

from __future__ import annotations

from experiments import config
from experiments.elmo import recipe

VARIANTS = ('mini', 'small', 'medium', 'original', 'tiny')
ADAM = {
  'optimizer': 'adam',
  'lr': 1e-3,
  'schedule': 'cosine',
  'warmup_steps': 200,
  'end_fraction': 0.05,
  'clip_norm': 1.0,
}


@config.arguments(VARIANTS, epochs=1, optimizer=('adagrad', 'adam'))
def get_config(variant, options):
  base = {
    'name': f'elmo_text_{variant}',
    'model': {'name': 'elmo', 'variant': variant},
    'data': {
      'dataset': 'text_files',
      'tokenizer': 'words',
      'vocab_size': 30_000,
      'characters': 50,
      'batching': {'name': 'both_ways'},
      'batch_size': 128,
      'length': 20,
    },
    'optim': recipe.ADAGRAD if options.optimizer == 'adagrad' else ADAM,
    'train': {'epochs': options.epochs, 'log_every': 50},
    'evaluation': {'which': 'last'},
  }
  mini = {
    'objective': {'samples': 2048},
    'data': {'characters': 24, 'batch_size': 64, 'batching': {'name': 'both_ways', 'reset_every': 10}},
    'train': {'eval_every': 2000},
  }
  tiny = {'objective': {'samples': 50}, 'data': {'vocab_size': 400, 'characters': 20}}
  changes = {'mini': mini, 'tiny': config.merge(config.tiny(), tiny).to_dict()}
  return config.merge(base, changes[variant] if variant in changes else {})


def sweep():
  yield from config.grid(optim__lr=[0.1, 0.2, 0.4])
