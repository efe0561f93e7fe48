"""word2vec: percent of the analogies answered."""

from experiments.tables import CORES, Row, Run, Table, manual_dir

_NAMES = {  # variant of the experiment -> rows of the papers
  'cbow_300': ('public_vectors/cbow_300', ('total', 'semantic', 'syntactic')),
  'skipgram_300': ('public_vectors/skipgram_300', ('total', 'semantic', 'syntactic')),
  **{name: (f'objectives/{name}', ('total', 'semantic', 'syntactic')) for name in ('neg5', 'neg15', 'hs')},
  **{f'{name},sample=1e-5': (f'objectives/{name}_sub', ('total',)) for name in ('neg5', 'neg15', 'hs')},
}
_ANALOGIES = 'vectors --workdir={dir} --analogies={data.questions} --restrict=1000000 --output={dir}/analogies.json'


def _run(variant: str) -> str:
  return 'word2vec/news_' + variant.replace(',sample=1e-5', '_sub')


TABLE = Table(
  'word2vec, analogies',
  'Mikolov et al. 2013 (arXiv 1301.3781), table 4, and Mikolov et al. 2013 (arXiv 1310.4546), table 1',
  rows=tuple(
    Row(
      f'word2vec/{row}/{kind}',
      _run(variant),
      'analogies' if kind == 'total' else kind,
      'analogies',
      differs="the papers' text was never released",
    )
    for variant, (row, kinds) in _NAMES.items()
    for kind in kinds
  ),
  runs=tuple(
    Run(_run(variant), f'experiments/word2vec/news.py:{variant}', (manual_dir('news'),), (_ANALOGIES,), needs=CORES)
    for variant in _NAMES
  ),
  note='Over the whole vocabulary. Figures depend on the text above all.',
)
