"""Shared parts of the bidirectional attention flow experiments: word data, recipe, answers."""

from __future__ import annotations

from typing import Any

# allenai/document-qa, docqa/elmo/ablate_elmo_model.py: Adadelta at 1 with TensorFlow's other defaults, averaged weights
# in evaluation, 24 epochs, batches of 45 questions, answers of at most 17 words.
ADADELTA = {'optimizer': 'adadelta', 'lr': 1.0, 'rms_decay': 0.95, 'eps': 1e-8, 'ema': 0.999}
ANSWERS = {'split': 'test,valid', 'answer_length': 17, 'baselines': False}


def data(dataset: str, characters: int) -> dict[str, Any]:
  """Return the `data` section: words of their characters, passages of at most 399 words in a window."""
  return {
    'dataset': dataset,
    'tokenizer': 'words',
    'characters': characters,
    'batching': {'name': 'questions', 'form': 'separate', 'buckets': (80, 112, 144, 176, 208, 256)},
    'batch_size': 45,
    'length': 400,
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
