"""word2vec: percent of the analogies answered."""

from experiments.tables import CORES, Row, Run, Table, Unmeasured, manual_dir

_TEXT = "printed: the authors' news, which were never released; ours: news of yours"
_KINDS = {'total': 'analogies', 'semantic': 'semantic', 'syntactic': 'syntactic'}
_NOISE = ('neg5', 'neg15', 'hs')
_WIDTHS = (50, 100, 300, 600)
_MILLIONS = (24, 49, 98, 196, 391, 783)  # words of the text's parts, in table 2 of 2013a


def _command(questions: str, restrict: int, file: str = 'analogies') -> str:
  return (
    f'vectors --workdir={{dir}} --analogies={{data.{questions}}} --restrict={restrict} --output={{dir}}/{file}.json'
  )


def _run(
  name: str, variant: str, *settings: str, data: str = 'news', restrict: int = 1_000_000, more: tuple[str, ...] = ()
) -> Run:
  return Run(
    f'word2vec/news_{name}',
    f'experiments/word2vec/news.py:{variant}',
    (manual_dir(data), *settings),
    (_command('questions', restrict), *more),
    needs=CORES,
  )


def _phrases(name: str, sample: str) -> Run:
  option = f',sample={sample}' if sample else ''
  return Run(
    f'word2vec/phrases_{name}{"_sub" if sample else ""}',
    f'experiments/word2vec/news.py:{name}{option}',
    ('data.manual_dir={word2vec/phrases}/phrases.txt',),
    (_command('phrase_questions', 1_000_000),),
    needs=CORES,
  )


def _part(D: int, millions: int) -> Run:
  """Return the run for a cell of 2013a's table 2, which uses a share of the sentences."""
  settings = [f'model.D={D}', 'data.vocab_size=30000', 'data.documents=line']
  if millions < _MILLIONS[-1]:
    settings.append(f'data.fraction={millions / _MILLIONS[-1]:.4f}')
  return _run(f'cbow_{D}_30k_{millions}m', 'cbow_300', *settings, restrict=30_000)


_PARTS = {f'cbow_size/d{D}/{millions}m': _part(D, millions) for D in _WIDTHS for millions in _MILLIONS}
_RUNS = {  # metrics by id prefix: (their kinds, the run)
  **{
    f'architectures/{name}': (
      ('semantic', 'syntactic'),
      _run(
        f'{name}_640',
        f'{name}_300',
        'model.D=640',
        'data.vocab_size=82000',
        'train.epochs=1',
        more=(_command('msr_questions', 1_000_000, 'msr'),),
      ),
    )
    for name in ('cbow', 'skipgram')
  },
  **{
    f'public_vectors/{name}_300': (tuple(_KINDS), _run(f'{name}_300', f'{name}_300')) for name in ('cbow', 'skipgram')
  },
  **{
    f'epochs/{name}_3ep_300_783m': (tuple(_KINDS), _run(f'{name}_300', f'{name}_300')) for name in ('cbow', 'skipgram')
  },
  **{
    f'epochs/{name}_1ep_{D}_783m': (
      tuple(_KINDS),
      _run(f'{name}_{D}_once', f'{name}_300', 'train.epochs=1', f'model.D={D}'),
    )
    for name in ('cbow', 'skipgram')
    for D in (300, 600)
  },
  **{
    f'epochs/{name}_1ep_300_1.6b': (
      tuple(_KINDS),
      _run(f'{name}_300_once_1.6b', f'{name}_300', 'train.epochs=1', data='news_1600m'),
    )
    for name in ('cbow', 'skipgram')
  },
  **{f'objectives/{name}': (tuple(_KINDS), _run(name, name)) for name in _NOISE},
  **{f'objectives/{name}_sub': (tuple(_KINDS), _run(f'{name}_sub', f'{name},sample=1e-5')) for name in _NOISE},
}

TABLE = Table(
  'word2vec, analogies',
  'Mikolov et al. 2013 (arXiv 1301.3781), tables 2 to 7, and Mikolov et al. 2013 (arXiv 1310.4546), tables 1 and 3',
  prints=(
    *(('Mikolov et al. 2013a', str(number)) for number in range(2, 8)),
    *(('Mikolov et al. 2013b', name) for name in ('1', '3', 'text')),
  ),
  context=(
    *(f'word2vec/architectures/{name}/*' for name in ('rnnlm', 'nnlm')),
    *(f'word2vec/public_vectors/{name}_*' for name in ('collobert', 'turian', 'mnih', 'mikolov_rnn', 'our_nnlm')),
    'word2vec/public_vectors/huang/*',
    'word2vec/distbelief/nnlm_100/*',
    *(f'word2vec/sentence_completion/{name}' for name in ('4gram', 'lsa', 'lbl', 'rnnlms')),
  ),
  unmeasured=(
    Unmeasured('word2vec/distbelief/*_1000/*', '6 billion words of Google News, on some 140 cores of DistBelief'),
    Unmeasured('word2vec/sentence_completion/skipgram*', "lmx does not have Microsoft's sentence completion task"),
    Unmeasured('word2vec/objectives/*/minutes', "minutes on the authors' machine"),
    Unmeasured('word2vec/objectives/nce5/[st]*', 'lmx has no noise-contrastive estimation for word2vec'),
    Unmeasured('word2vec/phrases/hs_1000_*', 'phrases of 33 and 6 billion words of Google News'),
  ),
  rows=(
    *(Row(f'word2vec/{row}', run.name, 'analogies', 'analogies', differs=_TEXT) for row, run in _PARTS.items()),
    *(
      Row(f'word2vec/{row}/{kind}', run.name, _KINDS[kind], 'analogies', differs=_TEXT)
      for row, (kinds, run) in _RUNS.items()
      for kind in kinds
    ),
    *(
      Row(f'word2vec/architectures/{name}/msr', f'word2vec/news_{name}_640', 'analogies', 'msr', differs=_TEXT)
      for name in ('cbow', 'skipgram')
    ),
    *(
      Row(
        f'word2vec/phrases/{name}/{column}', f'word2vec/phrases_{name}{suffix}', 'analogies', 'analogies', differs=_TEXT
      )
      for name in _NOISE
      for column, suffix in (('nosub', ''), ('sub1e-5', '_sub'))
    ),
  ),
  runs=(
    *_PARTS.values(),
    *dict.fromkeys(run for _, run in _RUNS.values()),
    Run(
      'word2vec/phrases',
      then=('phrases --input={data.news} --output={dir}/phrases.txt',),
      seeds=0,
      needs=CORES,
    ),
    *(_phrases(name, sample) for name in _NOISE for sample in ('', '1e-5')),
  ),
  note='Over the whole vocabulary, but over the 30,000 most frequent words in table 2 of 2013a, whose columns are '
  'shares of the text. Table 3 of 2013a has 320 million words of LDC, and its number of epochs is not printed. Metrics '
  'depend on the text above all.',
)
