"""BERT (Devlin et al. 2019, arXiv 1810.04805) answering questions with spans of a passage: sections 4.2 and 4.3.

  lmx train --config=experiments/bert/squad.py:squad --workdir=runs/squad --config.train.init_from=runs/bert
    --config.data.manual_dir=DIR

runs/bert is a run of BERT, pre-trained here or imported, which gives the sizes and tokenizer. DIR holds
train-v1.1.json and dev-v1.1.json, or version 2.0's files, or your own in the same format.

  variant  metrics of the validation split                        published, BERT base / large
  squad    exact match and F1                                     80.8, 88.5 / 84.1, 90.9 (table 2, one model)
  squad2   the same, '' being an answer; and the best thresholds  - / 78.7, 81.9 (table 3)
  own      your questions: train*.json(l), dev*.json(l), and test*.json(l), which is then evaluated
  tiny     made-up questions on the embedded corpus: seconds on a CPU

The work directory then holds predictions.json, nbest_predictions.json and, with unanswerable questions, null_odds.json,
in the official evaluation's format. The threshold of version 2.0 is chosen on the validation split: pass
`best_f1_threshold` of results.json as --config.evaluation.null_threshold.

Batch 32, rate 5e-5, 3 epochs (2.0: 48, 5e-5, 2 epochs), windows of 384 tokens 128 apart, questions of at most 64,
answers of at most 30 (run_squad.py), 10% warm-up, linear decay, weight decay 0.01 except on
LayerNorm and biases, clipping at 1. A batch mixes windows of any length, as released; see experiments/bert/tasks.py for
--config.data.batching.groups, option `adam=corrected`, `epochs` and `lr`. Option `bilstm` puts a two-layer BiLSTM of
768 cells per direction between BERT and the head (section 5.1, over a left-to-right model).
"""

from __future__ import annotations

from experiments import config, fine_tuning
from experiments.bert import recipe

VARIANTS = ('squad', 'squad2', 'own', 'tiny')


@config.arguments(VARIANTS, adam=('released', 'corrected'), bilstm=False, epochs=0.0, lr=5e-5)
def get_config(variant, options):
  second = variant == 'squad2'
  base = {
    'name': f'bert_{variant}',
    'model': {'name': 'bert', 'variant': 'base'},
    'objective': {'name': 'span', **(recipe.bilstm(variant) if options.bilstm else {})},
    'data': {
      'dataset': 'squad_files' if variant == 'own' else variant,
      'tokenizer': 'wordpiece',
      'lower_case': True,
      'batching': {'name': 'questions', 'buckets': (128, 192, 256), **fine_tuning.ANY_LENGTH},
      'batch_size': 48 if second else 32,
      'length': 384,
    },
    **recipe.fine_tuning(options.adam, options.lr, options.epochs or (2.0 if second else 3.0)),
    'evaluation': {'split': fine_tuning.measured_split(variant), 'which': 'last', 'baselines': False},
  }
  made_up = {'dataset': 'embedded_questions', 'length': 192, 'batching': {'buckets': (96,)}}
  return config.merge(base, fine_tuning.tiny(**made_up) if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[5e-5, 3e-5], seed=[0, 1])
