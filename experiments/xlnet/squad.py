"""XLNet (Yang et al. 2019, arXiv 1906.08237, sections 3.3 and 3.4) answering questions with spans of a passage.

  lmx train --config=experiments/xlnet/squad.py:squad2 --workdir=runs/squad --config.train.init_from=runs/xlnet
    --config.data.manual_dir=DIR

runs/xlnet is a run of XLNet, pre-trained here or imported, which gives the sizes and tokenizer. DIR holds
train-v1.1.json and dev-v1.1.json, or version 2.0's files, or your own in the same format.

  variant  metrics of the validation split     published, large, all data (version 1; version 2)
  squad2   exact match and F1, '' an answer    86.12, 88.79; 87.9, 90.6; base on Wikipedia and books 78.18, 80.98
  squad    exact match and F1                  88.95, 94.52; 89.7, 95.1
  own      your questions: train*.json(l), dev*.json(l)
  tiny     made-up questions on the embedded corpus: seconds on a CPU

Rows are `passage <sep> question <sep> <cls>`. The end of an answer is scored given its start, and a separate layer
predicts whether there is an answer (`objective.head=xlnet`, lmx/objectives/span.py). As released, the threshold above
which '' is predicted is chosen on the validation split: pass `best_f1_threshold` of results.json as
--config.evaluation.null_threshold.

512 tokens, 48 rows, rate 3e-5, 8,000 updates, linear decay, rates that fall by 0.75 from layer to layer (appendix A.5).
As released, 1,000 updates of warm-up, epsilon 1e-6 and clipping at 1. No weight decay, as released and in version 1 of
the paper; 0.01 with `recipe=v2`. Windows 128 tokens apart, questions of at most 64 tokens and answers of at most 64, as
released.

The paper's SQuAD 1.1 metrics use the 2.0 model without its answerability prediction:
`lmx evaluate --workdir=runs/squad2 --which=last --config=experiments/xlnet/squad.py:squad --split=valid
--config.evaluation.null_threshold=1e9 --config.data.manual_dir=DIR`. Variant `squad` trains only on 1.1.

Option `layer_decay`: 'as_paper' multiplies the rate of layer m of N by 0.75^(N - m); 'as_released' multiplies the
gradient before Adam, whose normalisation cancels nearly all of it; 'none'. Options `adam` (of `recipe=v2`), `epochs`
(0 keeps the updates above) and `lr`.
"""

from __future__ import annotations

from experiments import config, fine_tuning
from experiments.xlnet import recipe

VARIANTS = ('squad2', 'squad', 'own', 'tiny')


@config.arguments(
  VARIANTS,
  recipe=('v1', 'v2'),
  adam=('released', 'corrected'),
  epochs=0.0,
  lr=3e-5,
  layer_decay=('as_paper', 'as_released', 'none'),
)
def get_config(variant, options):
  steps = 0 if options.epochs else 8000
  base = {
    'name': f'xlnet_{variant}',
    'model': {'name': 'xlnet', 'variant': 'base', 'M': 0},
    'objective': {'name': 'span', 'head': 'xlnet'},
    'data': {
      'dataset': 'squad_files' if variant == 'own' else variant,
      **recipe.SUBWORDS,
      'batching': {'name': 'questions', 'form': 'xlnet', 'buckets': (128, 192, 256, 384), **fine_tuning.ANY_LENGTH},
      'batch_size': 48,
      'length': 512,
    },
    **recipe.fine_tuning(
      options.lr,
      steps,
      1000 if steps else 0,
      options.epochs,
      decay=options.recipe == 'v2',
      adam=options.adam,
    ),
    'evaluation': {
      'split': fine_tuning.measured_split(variant),
      'which': 'last',
      'baselines': False,
      'answer_length': 64,
    },
  }
  falling = {'layer_decay': 0.75, 'layer_decay_form': options.layer_decay}
  made_up = {'dataset': 'embedded_questions', 'length': 192, 'batching': {'buckets': (96,)}}
  return config.merge(
    base,
    {'optim': falling} if options.layer_decay != 'none' else {},
    fine_tuning.tiny(**made_up) if variant == 'tiny' else {},
  )


def sweep():
  yield from config.grid(optim__lr=[2e-5, 3e-5, 5e-5], seed=[0, 1])
