"""Tasks of GLUE (Wang et al. 2019, arXiv 1804.07461) and those fine-tuned like them: pairs, choices, a user's table."""

from __future__ import annotations

from typing import Any

from experiments import config, fine_tuning

# `objective` of each GLUE task, with the benchmark's metric.
TASKS: dict[str, dict[str, Any]] = {
  'cola': {'metric': 'matthews', 'positive': 'acceptable'},
  'sst2': {'metric': 'accuracy'},
  'mrpc': {'metric': 'f1', 'positive': 'equivalent'},
  'qqp': {'metric': 'f1', 'positive': 'duplicate'},
  'stsb': {'name': 'regress', 'metric': 'pearson'},
  'mnli': {'metric': 'accuracy'},
  'qnli': {'metric': 'accuracy'},
  'rte': {'metric': 'accuracy'},
  'wnli': {'metric': 'accuracy'},
}
CHOICES = ('swag', 'race', 'story_cloze')  # questions with choices
PAIR = ('sentence1', 'sentence2')  # columns of two texts, unless `data.texts` names others
OWN = ('own', 'own_pairs', 'own_scores')  # the user's tables
OWN_TAGS = {  # the user's sentences, with a label for each word
  'data': {'dataset': 'tagged_files', 'hold_out_test': False, 'batching': fine_tuning.FEW_SHAPES},
  'evaluation': {'which': 'best'},
}
# News, articles and reviews by class (Zhang et al. 2015, arXiv 1509.01626); the metric is the error of the test split.
BY_CLASS = ('ag_news', 'dbpedia', 'yelp_polarity', 'yelp_full', 'amazon_polarity', 'amazon_full')


def task(name: str) -> dict[str, Any]:
  """Return the `objective` and `data` sections of a task.

  Args:
    name: one of TASKS, CHOICES, BY_CLASS or OWN, 'snli' or 'scitail'.
  """
  if name in BY_CLASS:
    return {'objective': {'name': 'classify'}, 'data': {'dataset': f'zhang2015/{name}'}}
  if name in CHOICES:
    return {'objective': {'name': 'multiple_choice'}, 'data': {'dataset': name}}
  if name in OWN:
    return own(name)
  return {
    'objective': {'name': 'classify', **TASKS.get(name, {'metric': 'accuracy'})},
    'data': {'dataset': f'glue/{name}' if name in TASKS else name},
  }


def own(variant: str, texts: int = 1) -> dict[str, Any]:
  """Return the `objective`, `data` and `evaluation` sections of a user's table, whose columns `data` may rename.

  Args:
    variant: 'own' for labels, 'own_pairs' for labels of two texts, or 'own_scores' for numeric scores.
    texts: number of texts per row; 2 with 'own_pairs'.
  """
  scored = variant == 'own_scores'
  columns = {'texts': PAIR} if variant == 'own_pairs' or texts == 2 else {}
  return {
    'objective': {'name': 'regress'} if scored else {'name': 'classify', 'metric': 'accuracy'},
    'data': {
      'dataset': 'table_files',
      'scores': scored,
      'hold_out_test': False,
      'batching': fine_tuning.FEW_SHAPES,
      **columns,
    },
    'evaluation': {'baselines': True},
  }


def tiny() -> dict[str, Any]:
  """Return the tiny variant of classification: topics of the embedded corpus, one text per row."""
  rows = fine_tuning.tiny(dataset='embedded_topics', batching={'buckets': (), 'both_orders': False})
  changes = {
    'objective': {'name': 'classify', 'metric': 'accuracy', 'positive': ''},
    'data': {'hold_out_test': True},
    'evaluation': {'split': 'test', 'baselines': False},
  }
  return config.merge(rows, changes).to_dict()
