"""XLNet as version 2 of its paper pre-trains and fine-tunes it, and its fair comparison with BERT."""

from experiments.tables import MEDIAN, POD, Row, Run, Table, Unmeasured, manual_dir
from experiments.tables import xlnet_tasks as v1

_PAPER = 'Yang et al. 2019 (v2, January 2020)'
_TEXT = (
  'pre-trained on text of yours: the 32.89 billion subwords with Giga5, ClueWeb and Common Crawl were not released'
)
_BOOKS = 'pre-trained on books of yours with Wikipedia: BooksCorpus is no longer distributed'
_FAIR = {  # column of table 1 -> task, metric, file
  'squad1.1_em': ('squad2', 'exact_match', 'squad1'),
  'squad1.1_f1': ('squad2', 'answer_f1', 'squad1'),
  'squad2.0_em': ('squad2', 'best_exact_match', 'results'),
  'squad2.0_f1': ('squad2', 'best_f1', 'results'),
  'race': ('race', 'accuracy', 'results'),
  **{name.removesuffix('_m'): (task, metric, 'results') for name, (task, metric) in v1.GLUE.items()},
}


def _pretrained(name: str, recipe: str) -> Run:
  config = f'experiments/xlnet/pretrain.py:large,recipe={recipe},pod'
  return Run(f'xlnet/{name}', config, (manual_dir('books'),), seeds=0, needs=POD)


TABLE = Table(
  'XLNet, version 2: fair comparison with BERT, RACE, SQuAD, text classification and GLUE',
  'Yang et al. 2019 (arXiv 1906.08237, version 2), tables 1 to 5',
  rows=(
    *(
      Row(f'xlnet/v2/fair/xlnet_large_wikibooks/{column}', f'xlnet/wikibooks_{task}', metric, file, differs=_BOOKS)
      for column, (task, metric, file) in _FAIR.items()
    ),
    *v1.rows('v2', 'xlnet/v2', _TEXT, MEDIAN),
    Row(
      'xlnet/v2/glue/dev/xlnet_large/mnli_mm',
      'xlnet/v2_mnli',
      'accuracy',
      'valid_mismatched',
      differs=_TEXT,
      statistic=MEDIAN,
    ),
  ),
  runs=(
    _pretrained('wikibooks', 'bert'),
    v1.tuned('xlnet/wikibooks_squad2', 'squad2', 'xlnet/wikibooks', options='recipe=v2'),
    v1.tuned('xlnet/wikibooks_race', 'race', 'xlnet/wikibooks', options='recipe=v2'),
    *(
      v1.tuned(f'xlnet/wikibooks_{task}', task, 'xlnet/wikibooks', options='recipe=v2', seeds=5)
      for task, _ in v1.GLUE.values()
    ),
    _pretrained('v2', 'v2'),
    *v1.all_tuned('xlnet/v2', 'xlnet/v2', 'recipe=v2', glue=10),
  ),
  note='The weights of version 2 were not released. GLUE: validation split, single models. In the '
  'paper it is BERT that has the best of three variants in table 1.',
  prints=tuple((_PAPER, str(number)) for number in range(1, 6)),
  context=(
    'xlnet/v2/fair/bert_large_best3/*',
    *(f'xlnet/v2/race/{system}/*' for system in ('gpt', 'bert*', 'roberta')),
    *(f'xlnet/v2/squad*/{system}/*' for system in ('dev/bert', 'dev/roberta', 'test/bert*', 'test/roberta')),
    *(f'xlnet/v2/text_classification/{system}/*' for system in ('cnn', 'dpcnn', 'mixed_vat', 'ulmfit', 'bert')),
    *(f'xlnet/v2/glue/dev/{system}/*' for system in ('bert', 'roberta')),
    *(f'xlnet/v2/glue/test_ensemble/{system}/*' for system in ('mtdnn', 'roberta')),
    *(f'xlnet/v2/clueweb09b/{system}/*' for system in ('drmm', 'knrm', 'conv', 'bert')),
  ),
  unmeasured=(
    Unmeasured('xlnet/v2/squad*/test/xlnet_large/*', 'only scored by the evaluation server'),
    v1.SERVER,
    Unmeasured('xlnet/v2/clueweb09b/xlnet/*', v1.RANKING),
  ),
)
