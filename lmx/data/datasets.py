"""Known data sets and their tokenization rules."""

from __future__ import annotations

import dataclasses

from lmx.data.builders import files, tables

# Data sets prepared by TFDS's own builders -> name and version in TFDS.
TFDS = {
  'lm1b': ('lm1b', '1.1.0'),
  'wmt14_en_de': ('wmt14_translate/de-en', '1.0.0'),
  'wmt14_en_fr': ('wmt14_translate/fr-en', '1.0.0'),
}


@dataclasses.dataclass(frozen=True)
class Rules:
  """Tokenization rules of a data set.

  Attributes:
    words: rule of the `words` tokenizer, see `lmx.data.tokenizers.words.Words`.
    stream: a split is one document, in several examples.
    sentences: mode of `lmx.data.sentences.split`, 'auto' (inferred from the text) or '' (no sentences).
    version: version of the builder.
    reading: version of the file reader. It is part of cache names but not of the content hash, so a run whose rows are
      unchanged resumes.
    token_labels: a document's label is the labels of its words, separated by spaces.
    predicates: before them is the index of the word whose arguments they are.
    table: an example is a table row, with one document per text, of which the first has the label.
    texts: number of texts of a row of a generated table; 0 is that of `tables.TABLES`, or of the user's columns.
    scores: labels are numbers on a scale.
    choices: number of last texts of a row that are choices, one of them correct; 0 for none.
    spans: document 2i is a passage and document 2i + 1 a question on it, whose answer is a span of the passage.
    pair: document 2i is the source of a translation and document 2i + 1 its target.
    detokenizer: rules that convert its tokens to written text, a name of `lmx.data.detokenize.RULES`; '': unknown.
    continues: the other texts of a row continue where its first one ends.
    images: an example is an image with its mask, not a text.
    sides: available languages; by default the first is the source and the second the target. () accepts any.
  """

  words: str
  stream: bool
  sentences: str
  version: str = files.VERSION
  reading: int = 0
  token_labels: bool = False
  predicates: bool = False
  table: bool = False
  texts: int = 0
  scores: bool = False
  choices: int = 0
  spans: bool = False
  pair: bool = False
  sides: tuple[str, ...] = ()
  detokenizer: str = ''
  continues: bool = False
  images: bool = False

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


_CELLS = 2  # `reading` of lmx/data/builders/cells.py

RULES = {
  'embedded': Rules('prose', False, 'prose'),
  'embedded_topics': Rules('prose', False, ''),
  'embedded_pairs': Rules('prose', False, '', table=True, texts=2),
  'text_files': Rules('prose', False, 'auto', reading=_CELLS),
  'ptb': Rules('lines', True, 'lines', detokenizer='ptb'),
  'ptb_characters': Rules('lines', True, 'lines'),
  'wikitext2': Rules('lines', False, 'prose', detokenizer='wikitext'),
  'wikitext103': Rules('lines', False, 'prose', detokenizer='wikitext'),
  'text8': Rules('space', True, ''),
  'enwik8': Rules('prose', True, ''),
  'brown': Rules('lines', False, 'lines'),
  'brown_stream': Rules('space', True, ''),
  'lm1b': Rules('lines', False, 'lines', version=TFDS['lm1b'][1], detokenizer='lm1b'),
  'lm1b_files': Rules('lines', True, 'lines', detokenizer='lm1b'),
  'trec': Rules('prose', False, '', reading=_CELLS),
  'imdb': Rules('prose', False, '', reading=_CELLS),
  'embedded_tags': Rules('space', False, '', token_labels=True),
  'sst2': Rules('space', False, '', reading=_CELLS),
  'sst2_phrases': Rules('space', False, '', reading=_CELLS),
  **{name: Rules('space', False, '') for name in ('sst5', 'sst5_phrases', 'sst5_long_phrases')},
  'wnut17': Rules('space', False, '', token_labels=True),
  'conll2003': Rules('space', False, '', token_labels=True),
  'ud_ewt': Rules('space', False, '', token_labels=True),
  **{
    name: Rules('space', False, '', token_labels=True, predicates=True)
    for name in ('conll2005', 'conll2012', 'embedded_roles')
  },
  'embedded_numbers': Rules('prose', False, '', pair=True, sides=('words', 'digits')),
  'multi30k': Rules('prose', False, '', pair=True, sides=('en', 'de', 'fr', 'cs')),
  'parallel_files': Rules('prose', False, '', pair=True),
  'wmt14_en_de': Rules('prose', False, '', pair=True, sides=('en', 'de')),
  'wmt14_en_fr': Rules('prose', False, '', pair=True, sides=('en', 'fr')),
  **{name: Rules('prose', False, '', spans=True) for name in ('squad', 'squad2', 'squad_files', 'embedded_questions')},
  'segmentation_files': Rules('', False, '', images=True),
  'table_files': Rules('prose', False, '', table=True, reading=_CELLS),
  **{
    name: Rules(
      'prose',
      False,
      '',
      table=True,
      scores=table.scores,
      choices=table.choices,
      continues=table.continues,
      detokenizer='penn' if table.continues else '',
      reading=0 if table.continues else _CELLS,
    )
    for name, table in tables.TABLES.items()
  },
}
