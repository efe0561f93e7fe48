"""Shared parts of the bidirectional attention flow experiments: word data, recipe, answers."""

from __future__ import annotations

from typing import Any

# allenai/document-qa, docqa/elmo/ablate_elmo_model.py, lines 38 to 42, 58, 86 and 94: Adadelta at 1 with TensorFlow's
# other defaults, averaged weights in evaluation, 24 epochs without early stopping, validations 1,200 updates apart,
# characters with dropout 0.2, batches of 45 questions, answers of at most 17 words. docqa/nn/span_prediction.py, line
# 128: the sum of the losses of start and end.
ADADELTA = {'optimizer': 'adadelta', 'lr': 1.0, 'rms_decay': 0.95, 'eps': 1e-8, 'ema': 0.999}
ANSWERS = {'split': 'test,valid', 'answer_length': 17, 'baselines': False}
LENGTH = 400
# allenai/bi-att-flow, basic/cli.py, lines 34 to 62: rate 0.5, 60 questions, 12 epochs (section 4 of the paper; the flag
# num_steps=20000 overrides them), evaluations 1,000 updates apart, words of 16 characters, here between their start and
# end. README.md, line 71: the last parameters are evaluated. squad/utils.py, line 82: no limit of the answer's length.
SEO = {
  'model': {'variant': 'seo'},
  'objective': {'head': 'bidaf', 'dropout': 0.2},
  'data': {'batch_size': 60, 'characters': 18},
  'optim': {'lr': 0.5},
  'train': {'epochs': 12, 'eval_every': 1000},
  'evaluation': {'which': 'last', 'answer_length': LENGTH},
}


def data(dataset: str, characters: int) -> dict[str, Any]:
  """Return the `data` section: words of their characters, passages of at most 399 words in a window."""
  return {
    'dataset': dataset,
    'tokenizer': 'words',
    'characters': characters,
    'batching': {'name': 'questions', 'form': 'separate', 'buckets': (80, 112, 144, 176, 208, 256)},
    'batch_size': 45,
    'length': LENGTH,
  }


def tiny() -> dict[str, Any]:
  """Return changes to `config.tiny` for synthetic questions from the embedded corpus, which are shorter."""
  return {
    'data': {
      'dataset': 'embedded_questions',
      'vocab_size': 400,
      'length': 96,
      'batching': {'buckets': (), 'question_length': 32},
    },
    'train': {'epochs': 0.0},
  }
