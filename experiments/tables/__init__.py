"""Papers' tables, one per file: the runs of each row. `python -m launch.tables --list` shows them.

A table lists rows and the runs that give their metrics. Published metrics are only in published.csv, under the row's
id, and lmx's in measured.csv. `prints` names the papers' tables that it renders: each of their metrics comes from a run
(`rows`), belongs to another system (`context`), or is not measured for a stated reason (`unmeasured`).

A run is trained once for all rows and tables that read it. It may be initialised from another run (a pre-training,
imported weights), which it names in braces. Braces in settings and commands:

  {dir}        the run's own work directory
  {seed}       the run's seed: with data.fold={seed}, seeds 0 to 9 are a tenfold cross-validation
  {NAME}       the work directory of the run NAME: of the same seed, if that run has seeds
  {NAME:0-9}   the work directories of seeds 0 to 9 of the run NAME, with commas between; {NAME:0} of one seed
  {data.NAME}  the directory or file that the user gives for NAME of DATA; if none is needed and none given, the word or
               setting is omitted

Nothing here imports jax or lmx.
"""

from __future__ import annotations

from typing import NamedTuple

CORES, GPU, GPUS, POD = 'two cores', 'one GPU', 'several GPUs', 'a pod'
MEAN, BEST, MEDIAN = 'mean', 'best', 'median'


class Data(NamedTuple):
  """Data set or weights that a run reads.

  Attributes:
    files: files to give.
    terms: licence or availability.
    required: the user must give it; otherwise lmx generates or downloads it by default.
    size: size of its text, where a training on a pod reads it.
  """

  files: str
  terms: str
  required: bool = True
  size: str = ''


class Run(NamedTuple):
  """Training with its evaluations, or only evaluations.

  Attributes:
    name: its directory below the runs' folder, the same in every table.
    config: experiment file with its argument, such as 'experiments/rnn_lm/ptb.py:small'; '' trains nothing.
    settings: 'section.key=value' on top of the config.
    then: lmx commands after the training, each with the file that it writes by --output.
    kind: 'train' or 'pipeline', the command for the config.
    seeds: number of seeds; 0 is a single run with the config's seed.
    needs: CORES, GPU, GPUS or POD.
    gpu_hours: estimated H100 hours per seed; 0 is minutes, or no estimate.
    evaluated: tokens that its evaluations read, for the estimate of the hours.
    rate: operations per second measured on two cores; 0 estimates them.
  """

  name: str
  config: str = ''
  settings: tuple[str, ...] = ()
  then: tuple[str, ...] = ()
  kind: str = 'train'
  seeds: int = 1
  needs: str = GPU
  gpu_hours: float = 0.0
  evaluated: float = 0.0
  rate: float = 0.0


class Row(NamedTuple):
  """Row of a table: one metric.

  Attributes:
    id: id in published.csv; without a published metric, its own name.
    run: name of the run with the metric.
    metric: name in METRICS.
    file: name of the JSON file in that run's directory, without its suffix; of several files, with commas between, the
      metric is the mean.
    pick: record in a list, or in a file with `records`: 'key=value,key=value'.
    differs: reason why the published metric measures something else; it is then shown next to ours but not compared.
    band: maximum difference from the published metric that counts as reproduced; 0 is twice the published spread, or
      else the metric's band.
    note: further conditions of the metric.
    statistic: MEAN, BEST or MEDIAN over the run's seeds, as the paper reports it. BEST is by the metric itself.
    tries: runs with other settings. Of `run` and these, the one with the lowest mean validation loss over seeds counts.
    chosen: name of the file, as in `file`, by whose metric the try is chosen instead: the best by the statistic over
      seeds.
    outside: why our metric is not in the interval of the published one, where the reason is known.
    like: id of the published metric that is shown beside ours, of the row that this one follows at another size or on
      other data, as `differs` says.
    options: in a study, the --options with which only this row and its run are left, without a choice.
  """

  id: str
  run: str
  metric: str
  file: str = 'results'
  pick: str = ''
  differs: str = ''
  band: float = 0.0
  note: str = ''
  statistic: str = MEAN
  tries: tuple[str, ...] = ()
  chosen: str = ''
  outside: str = ''
  like: str = ''
  options: str = ''

  @property
  def runs(self) -> tuple[str, ...]:
    """Names of all runs that the metric may be read from."""
    return (self.run, *self.tries)


class Computed(NamedTuple):
  """A paper's figure that follows from others of its table, as long as these are measured.

  Attributes:
    id: id in published.csv.
    metric: name in METRICS, the rule: 'average' is the mean over the groups, each the mean of its figures; 'increase'
      and 'error_reduction' compare the second group with the first.
    of: groups of ids of rows.
  """

  id: str
  metric: str
  of: tuple[tuple[str, ...], ...]


class Unmeasured(NamedTuple):
  """A paper's metrics that no run gives: pattern of their ids, and the reason."""

  ids: str
  reason: str


class Curve(NamedTuple):
  """Point in a table's plot: its panel, its line, and the row ids of x and y; '' puts x at the left end."""

  panel: str
  line: str
  x: str
  y: str


class Mark(NamedTuple):
  """Published metric in a table's plot: its panel, its label and y."""

  panel: str
  label: str
  y: float


class Choice(NamedTuple):
  """Choice of one run of several by the validation loss of seed 0.

  Attributes:
    name: its name.
    tries: names of the runs, in the order of the setting that differs.
    first, stop: the slice of `tries` that is always run; while the best one is at an edge, the next run is tried too.
  """

  name: str
  tries: tuple[str, ...]
  first: int
  stop: int


class MatrixRow(NamedTuple):
  """Row of a matrix: a cell of each column, the id of a row or a text; and the heading above the first of its group."""

  cells: tuple[str, ...]
  group: str = ''


class Matrix(NamedTuple):
  """Layout of a table of our own: (title, whether it has numbers) of the columns, and the rows."""

  columns: tuple[tuple[str, bool], ...]
  rows: tuple[MatrixRow, ...]


class Table(NamedTuple):
  """Rows and the runs that give them.

  Attributes:
    title: title.
    source: the paper with its tables.
    rows: rows that lmx can measure.
    runs: their runs.
    note: remark on all rows.
    curves: points of its plot, which otherwise shows differences from published metrics.
    prints: (paper, table) of published.csv for each table that is rendered in the paper's layout.
    context: id patterns of metrics that the paper quotes from other systems.
    unmeasured: metrics of the paper's systems that no run gives.
    computed: figures that follow from the rows.
    choices: choices on which its runs depend. Such a table is made by `build(options, chosen, seeds)` of its file, and
      --options changes it, not the experiments.
    matrix: layout of a table of our own, which otherwise has a line per row.
    marks: published metrics in its plot.
  """

  title: str
  source: str
  rows: tuple[Row, ...]
  runs: tuple[Run, ...]
  note: str = ''
  curves: tuple[Curve, ...] = ()
  prints: tuple[tuple[str, str], ...] = ()
  context: tuple[str, ...] = ()
  unmeasured: tuple[Unmeasured, ...] = ()
  computed: tuple[Computed, ...] = ()
  choices: tuple[Choice, ...] = ()
  matrix: Matrix | None = None
  marks: tuple[Mark, ...] = ()


class Metric(NamedTuple):
  """Key, unit and tolerance of a metric.

  Attributes:
    key: key in a record, such as 'cache.perplexity_per_token'.
    title: title in the rendered table.
    printed: its names in published.csv.
    scale: factor from a record's value to the papers' unit.
    band: largest difference from a published metric without a known spread that counts as reproduced; chosen by us.
    relative: the band is a share of the published metric.
    whole: the metric is a count, which must equal the published one.
    lower: lower values are better.
  """

  key: str
  title: str
  printed: tuple[str, ...]
  scale: float = 1.0
  band: float = 1.0
  relative: bool = False
  whole: bool = False
  lower: bool = False

  @property
  def digits(self) -> int:
    """Decimals of a metric that no paper prints."""
    return 3 if self.band < 0.1 and not self.relative else 2


METRICS = {
  'ppl': Metric(
    'perplexity_per_token', 'perplexity', ('ppl', 'ppl (init)', 'ppl (best)'), band=0.02, relative=True, lower=True
  ),
  'ppl_word': Metric('perplexity_per_word', 'perplexity per word', ('ppl',), band=0.02, relative=True, lower=True),
  'cache_ppl': Metric(
    'cache.perplexity_per_token', 'perplexity with a cache', ('ppl',), band=0.02, relative=True, lower=True
  ),
  'mixed_ppl': Metric(
    'mixture.perplexity_per_token', 'perplexity, mixed', ('ppl',), band=0.02, relative=True, lower=True
  ),
  'average_ppl': Metric(
    'perplexity_average',
    'perplexity, both ways',
    (
      'ppl',
      'ppl before tuning',
      'ppl after tuning',
    ),
    band=0.02,
    relative=True,
    lower=True,
  ),
  'forward_ppl': Metric('perplexity_forward', 'perplexity, forward', (), band=0.02, relative=True, lower=True),
  'backward_ppl': Metric('perplexity_backward', 'perplexity, backward', (), band=0.02, relative=True, lower=True),
  'masked_ppl': Metric(
    'masked_perplexity', 'masked perplexity', ('masked LM ppl',), band=0.02, relative=True, lower=True
  ),
  'predicted_ppl': Metric(
    'predicted_perplexity', 'perplexity of predicted tokens', (), band=0.02, relative=True, lower=True
  ),
  'last_word_ppl': Metric(
    'perplexity_of_last_word', 'perplexity, last word', ('ppl',), band=0.02, relative=True, lower=True
  ),
  'loss': Metric('loss', 'loss, nats', ('loss (nats)', 'log-perplexity'), band=0.02, lower=True),
  'bpc': Metric('bits_per_character', 'bits per character', ('bpc',), band=0.01, lower=True),
  'bpb': Metric('bits_per_byte', 'bits per byte', ('bpb', 'bits per byte'), band=0.01, lower=True),
  'bpb_spelled': Metric(
    'bits_per_byte_with_spelling', 'bits per byte, unknown words spelled', (), band=0.01, lower=True
  ),
  'unknown_words': Metric('unknown_words', 'unknown words', (), band=0.5, whole=True, lower=True),
  'error': Metric('error_percent', 'error, %', ('error %',), band=0.5, lower=True),
  'accuracy': Metric('accuracy', 'accuracy, %', ('accuracy',), 100.0),
  'accuracy_share': Metric('accuracy', 'accuracy', ('accuracy',), band=0.01),
  'filtered_accuracy': Metric('filtered_accuracy', 'accuracy with stop words left out, %', ('accuracy',), 100.0),
  'f1': Metric('f1', 'F1', ('F1',), 100.0),
  'matthews': Metric('matthews', "Matthews' correlation", ('MCC',), 100.0, band=2.0),
  'pearson': Metric('pearson', "Pearson's correlation", ('Pearson', 'correlation'), 100.0),
  'pearson_share': Metric('pearson', "Pearson's correlation", ('Pearson',), band=0.01),
  'spearman': Metric('spearman', "Spearman's correlation", ('Spearman',), 100.0),
  'answer_f1': Metric('f1', 'F1', ('F1',), band=0.5),
  'exact_match': Metric('exact_match', 'exact match, %', ('EM',), band=0.5),
  'best_f1': Metric('best_f1', 'F1 at the best threshold', ('F1',), band=0.5),
  'best_exact_match': Metric('best_exact_match', 'exact match at the best threshold, %', ('EM',), band=0.5),
  'span_f1': Metric('span_f1', 'F1 of spans', ('F1', 'F1 (fine-tune)', 'F1 (feature-based)'), band=0.5),
  'bleu': Metric('bleu_tokenised', 'BLEU of Moses tokens', ('BLEU', 'BLEU after unk replace'), band=0.5),
  'sacrebleu': Metric('bleu', 'BLEU (sacreBLEU)', ('BLEU',), band=0.5),
  'bleu_international': Metric('bleu_international', 'BLEU of mteval-v14 tokens', ('BLEU',), band=0.5),
  'aer': Metric('alignment_error_rate', 'alignment error rate', ('AER',), band=0.02, lower=True),
  'bleu_lower': Metric('bleu_tokenised_lower', 'BLEU of lower-cased tokens', ('BLEU',), band=0.5),
  'analogies': Metric(
    'analogies.total', 'analogies, %', ('accuracy', 'accuracy with 1e-5 subsampling'), 100.0, band=3.0
  ),
  'semantic': Metric('analogies.semantic', 'semantic analogies, %', ('accuracy',), 100.0, band=3.0),
  'syntactic': Metric('analogies.syntactic', 'syntactic analogies, %', ('accuracy',), 100.0, band=3.0),
  'recl': Metric('recl', 'effective context length', ('RECL r=0.1', 'RECL r=0.5', 'RECL r=1.0'), band=50.0, whole=True),
  'attention_length': Metric(
    'attention_length', 'best attention length', ('attention length',), band=0.2, relative=True, whole=True
  ),
  'slowdown': Metric('ratio', 'times slower', ('slowdown factor',), band=0.5, relative=True, lower=True),
  'miou': Metric('miou', 'mIoU, %', ('mIoU',), 100.0, band=0.5),
  'miou_with_background': Metric('miou_with_background', 'mIoU with background, %', ('mIoU',), 100.0, band=0.5),
  'pixel_accuracy': Metric('pixel_accuracy', 'pixel accuracy, %', ('pixAcc',), 100.0, band=0.5),
  'bits': Metric('bits_per_sequence', 'bits per sequence', (), lower=True),
  **{
    f'{name}_{length}': Metric(
      f'{key}_at_{length}', f'{title} at length {length}', (), band=0.1, relative=True, lower=True
    )
    for name, key, title in (
      ('bits', 'bits_per_sequence', 'bits per sequence'),
      ('bit_errors', 'bit_error_percent', 'wrong bits, %'),
    )
    for length in (10, 20, 30, 50, 100, 120)
  },
  'token_accuracy': Metric('token_accuracy', 'token accuracy, %', (), 100.0),
  'exact_translations': Metric('exact_match', 'exactly right, %', (), 100.0),
  'far_accuracy': Metric('accuracy_beyond_24', 'accuracy over 24 px from objects, %', (), 100.0),
  'all_parameters': Metric('parameters_with_heads', 'parameters with heads', (), band=0.5, whole=True),
  'body': Metric('parameters_without_embeddings', 'parameters without embeddings', (), band=0.5, whole=True),
  'hours': Metric('training_seconds', 'hours of training', (), 1 / 3600),
  'epochs': Metric('epochs', 'epochs', ()),
  'tokens_read': Metric('tokens', 'tokens read, millions', (), 1e-6),
  'text_tokens': Metric('train_tokens', 'tokens of the training text, millions', (), 1e-6),
  'text_words': Metric('train_words', 'words of the training text, millions', (), 1e-6),
  'training_flops': Metric('training_flops', 'operations of the training', (), band=0.1, relative=True),
  'majority_accuracy': Metric('majority_accuracy', 'accuracy of the majority class, %', (), 100.0),
  'naive_bayes_accuracy': Metric('bag_of_words.naive_bayes', 'accuracy of naive Bayes, %', (), 100.0),
  'tfidf_accuracy': Metric('bag_of_words.tfidf', 'accuracy of TF-IDF with logistic regression, %', (), 100.0),
  'average': Metric('average', 'mean of the columns', ('average', 'score')),
  'increase': Metric('increase', 'increase', ('F1 increase', 'accuracy increase')),
  'error_reduction': Metric(
    'error_reduction', 'relative error reduction, %', ('relative error reduction %',), band=5.0
  ),
  'flops': Metric('training_flops', 'operations of training', ('training FLOPs',), band=0.1, relative=True),
  'millions': Metric('parameters', 'parameters, millions', ('parameters (millions)',), 1e-6, band=0.5),
  'parameters': Metric('parameters', 'parameters', ('parameters',), band=0.5, whole=True),
}


DATA = {
  'ptb': Data(
    'ptb.train.txt, ptb.valid.txt, ptb.test.txt', "LDC's licence; Mikolov's version is public", required=False
  ),
  'wikitext2': Data('wiki.train.tokens and the others', 'CC BY-SA', required=False),
  'wikitext103': Data('wiki.train.tokens and the others', 'CC BY-SA', required=False, size='103 million words, 0.5 GB'),
  'enwik8': Data('the file', 'CC BY-SA', required=False),
  'text8': Data('the file', 'CC BY-SA', required=False),
  'corpus': Data('text: train*.txt, valid*.txt, test*.txt, also as .gz; a sentence per line', 'yours'),
  'blimp': Data("BLiMP's 67 .jsonl files, also as .gz", 'CC BY'),
  'text': Data('text of yours: train.txt, valid.txt, test.txt, or a part is held out', 'yours', required=False),
  'lm1b': Data('as TFDS prepares it', 'free for research', required=False),
  'lm1b_files': Data('1-billion-word-language-modeling-benchmark-r13output', 'free for research', required=False),
  'brown': Data('the tagged files as NLTK keeps them, or train.txt ...', 'free for non-commercial use', required=False),
  'multi30k': Data('the files of task 1', 'CC BY-NC-SA, non-commercial', required=False),
  'wmt14_en_de': Data(
    'train.en, train.de, valid.*, test.*',
    'free for research; through TFDS without',
    required=False,
    size='4.5 million pairs, 1.4 GB',
  ),
  'newstest2015_en_de': Data(
    'train.* and valid.* as of wmt14_en_de, newstest2015 as test.en, test.de', 'free for research'
  ),
  'rwth_en_de': Data(
    'test.en, test.de, test.align: the gold links of RWTH as i-j, possible ones ipj, from 0', 'free for research'
  ),
  **{
    f'dictionary_{pair}': Data(
      'a source word and its translation per line, such as the most frequent alignment in the training sentences',
      'yours',
    )
    for pair in ('en_de', 'de_en')
  },
  'wmt14_en_fr': Data('train.en, train.fr, valid.*, test.*', 'free for research; through TFDS without', required=False),
  'iwslt15_en_vi': Data('train.en, train.vi, valid.*, test.*', 'CC BY-NC-ND'),
  'wmt16_en_ro': Data('train.en, train.ro, valid.*, test.*', 'free for research'),
  'wmt18_en_et': Data('train.en, train.et, valid.*, test.*', 'free for research'),
  'imdb': Data('the archive unpacked', 'free for research', required=False),
  'trec': Data('train_5500.label, TREC_10.label', 'free for research', required=False),
  **{
    name: Data('train.csv, test.csv of its archive (Zhang et al. 2015)', terms)
    for name, terms in (
      ('ag_news', 'non-commercial use'),
      ('dbpedia', 'CC BY-SA'),
      ('yelp_polarity', "Yelp's terms"),
      ('yelp_full', "Yelp's terms"),
      ('amazon_polarity', "Amazon's reviews, for research"),
      ('amazon_full', "Amazon's reviews, for research"),
    )
  },
  'sst2': Data('train_sentences.tsv, or train.tsv for phrases, dev.tsv, test.tsv', 'free for research'),
  'sst5': Data('trees/train.txt, dev.txt, test.txt of trainDevTestTrees_PTB.zip', 'free for research'),
  'snli': Data('snli_1.0_*.jsonl', 'CC BY-SA'),
  'scitail': Data('scitail_1.0_train.tsv and the others', 'Apache 2.0'),
  'glue': Data("the benchmark's archives unpacked: CoLA/train.tsv ...", 'of each task its own; MRPC from Microsoft'),
  'squad': Data('train-v1.1.json, dev-v1.1.json', 'CC BY-SA'),
  'squad2': Data('train-v2.0.json, dev-v2.0.json', 'CC BY-SA'),
  'swag': Data('train.csv, val.csv', 'MIT'),
  'race': Data('the archive unpacked', 'research only, asked for at CMU'),
  'stsb': Data('train.tsv, valid.tsv, test.tsv of the STS benchmark, with a header', 'scores CC BY-SA'),
  'mrpc': Data('train.tsv, test.tsv with a header: 4,076 and 1,725 pairs', "Microsoft's terms"),
  'cola': Data('train.tsv and dev.tsv as valid.tsv, with a header', "the authors' terms"),
  'rte': Data('train.tsv and dev.tsv as valid.tsv, with a header', 'free for research'),
  'squadshifts': Data(
    'train.jsonl, dev.jsonl: questions on 40 and 8 articles of SQuADShifts, new Wikipedia; test.jsonl: as xquad',
    'CC BY',
  ),
  'xquad': Data("XQuAD's 838 English questions on 32 articles, as .jsonl", 'CC BY-SA'),
  'wnut17': Data('train.conll, dev.conll, test.conll', 'CC BY'),
  'ud_ewt': Data('train.conllu, dev.conllu, test.conllu of UD English EWT 2.15', 'CC BY-SA'),
  'story_cloze': Data('the two spring 2016 files', 'asked for at the University of Rochester'),
  'conll2003': Data('eng.train, eng.testa, eng.testb', "Reuters' licence, through NIST"),
  'conll2012': Data('the folders train, development, conll-2012-test', "OntoNotes 5, the LDC's licence"),
  **{
    name: Data(f'train.txt and valid.txt: {text}, one sentence per line', terms)
    for name, text, terms in (
      ('snli_text', 'premises and hypotheses of SNLI', 'CC BY-SA'),
      ('conll2003_text', 'sentences of eng.train and eng.testa', "Reuters' licence, through NIST"),
      ('squad_contexts', 'sentences of the passages of SQuAD 1.1', 'CC BY-SA'),
      ('squad_questions', 'questions of SQuAD 1.1', 'CC BY-SA'),
      ('sst_text', "sentences of SST's training and validation split", 'free for research'),
    )
  },
  'glove_840b': Data('glove.840B.300d.txt', 'public domain (PDDL)'),
  'glove_6b': Data('glove.6B.100d.txt', 'public domain (PDDL)'),
  'senna': Data('the directory senna: embeddings/embeddings.txt, hash/words.lst', 'non-commercial use'),
  'lambada': Data('lambada_test.jsonl', 'CC BY'),
  'cbt': Data('cbtest_CN_valid_2000ex.txt and the others', 'GFDL'),
  'news': Data('a plain text, one sentence per line', "the papers' Google News text was never released"),
  'news_1600m': Data('the same with 1.6 billion words, of which `news` may be the first half', 'yours'),
  'questions': Data('questions-words.txt: Google analogies', 'Apache 2.0, with word2vec.c'),
  'msr_questions': Data(
    "MSR's 8,000 syntactic questions (Mikolov, Yih and Zweig 2013), four words per line: those of "
    'word_relationship.questions, then the last of word_relationship.answers',
    "Microsoft's terms",
  ),
  'similarity': Data(
    'ws353_all.tsv (WordSim-353), men3k.tsv, simlex999.tsv, mturk771.tsv: two words and a score per line',
    'free for research',
  ),
  'phrase_questions': Data('questions-phrases.txt', 'Apache 2.0, with word2vec.c'),
  'books': Data(
    'text, one sentence per line, an empty line between documents',
    'BooksCorpus is no longer distributed: Wikipedia with books of yours',
    size="3,300 million words in BERT's paper, 13 GB in XLNet's",
  ),
  **{
    f'wikisum_{extractor}': Data(
      'train.extract, train.article, valid.*, test.*: extracts of 500 subwords, and leads of articles, a line each',
      'the pages must be crawled again, of ' + text,
    )
    for extractor, text in (
      ('tfidf_combined', 'citations and search, ranked by tf-idf'),
      ('cheating_combined', 'citations and search, ranked by the bigrams of the article'),
      ('tfidf_citations', 'only citations, ranked by tf-idf'),
      ('tfidf_search', 'only search, ranked by tf-idf'),
      ('identity_combined', 'citations and search, in their order'),
    )
  },
  'wikisum_documents': Data(
    '.txt, .txt.gz or .jsonl: ranked extracts of an article, then its lead', 'the pages must be crawled again'
  ),
  'wikipedia': Data(
    'train-00 to train-05.txt.gz, valid.txt.gz, test.txt.gz: 7,781, 111 and 119 articles of the English Wikipedia, '
    'a sentence per line, 8,469,084 words of training text',
    'CC BY-SA',
  ),
  'shakespeare': Data(
    'train.txt, valid.txt: the first 1,003,854 characters of tiny-shakespeare, the rest', 'public domain'
  ),
  'webtext': Data(
    '.txt, .txt.gz, .jsonl or .parquet',
    'WebText was never released; OpenWebText is public',
    size='OpenWebText: 8 million documents, 38 GB, 9 billion tokens',
  ),
  'pascal_context': Data('JPEGImages, and masks of the 59 classes as PNG', 'free for research'),
  'ade20k': Data('ADEChallengeData2016', 'free for research; its images as their owners allow'),
  'resnet50s': Data('resnet50s of PyTorch-Encoding, as .pth or .safetensors', 'MIT'),
  'resnet101s': Data('resnet101s of PyTorch-Encoding, as .pth or .safetensors', 'MIT'),
  'bert_base': Data('weights of BERT base: google-research/bert, or hub:bert-base-uncased', 'Apache 2.0'),
  'bert_large': Data('weights of BERT large: google-research/bert, or hub:bert-large-uncased', 'Apache 2.0'),
  'bert_base_cased': Data('weights of BERT base, cased: hub:bert-base-cased', 'Apache 2.0'),
  'bert_large_cased': Data('weights of BERT large, cased: hub:bert-large-cased', 'Apache 2.0'),
  'bert_large_wwm': Data('weights of May 2019: hub:bert-large-uncased-whole-word-masking', 'Apache 2.0'),
  'bert_large_cased_wwm': Data('weights of May 2019: hub:bert-large-cased-whole-word-masking', 'Apache 2.0'),
  'bert_tiny': Data('weights of BERT-Tiny: hub:google/bert_uncased_L-2_H-128_A-2', 'Apache 2.0'),
  'bert_mini': Data('weights of BERT-Mini: hub:google/bert_uncased_L-4_H-256_A-4', 'Apache 2.0'),
  'bert_small': Data('weights of BERT-Small: hub:google/bert_uncased_L-4_H-512_A-8', 'Apache 2.0'),
  'bert_medium': Data('weights of BERT-Medium: hub:google/bert_uncased_L-8_H-512_A-8', 'Apache 2.0'),
  'minilm': Data('weights of MiniLM: hub:sentence-transformers/all-MiniLM-L6-v2', 'Apache 2.0'),
  'gpt': Data('weights of GPT: openai/finetune-transformer-lm, or hub:openai-community/openai-gpt', 'MIT'),
  'gpt2_124m': Data('weights of GPT-2: openai/gpt-2, or hub:gpt2', 'modified MIT'),
  'gpt2_355m': Data('weights of GPT-2 medium: hub:gpt2-medium', 'modified MIT'),
  'gpt2_774m': Data('weights of GPT-2 large: hub:gpt2-large', 'modified MIT'),
  'gpt2_1558m': Data('weights of GPT-2 XL: hub:gpt2-xl', 'modified MIT'),
  'xlnet_base': Data('weights of XLNet base: zihangdai/xlnet, or hub:xlnet-base-cased', 'Apache 2.0'),
  'xlnet_large': Data('weights of XLNet large: zihangdai/xlnet, or hub:xlnet-large-cased', 'Apache 2.0'),
}


def manual_dir(name: str) -> str:
  """Return the directory setting for the data set `name` in DATA."""
  return f'data.manual_dir={{data.{name}}}'


def measured(split: str, *flags: str, file: str = '') -> str:
  """Return the command that evaluates a run on a split and writes the metrics to FILE.json or SPLIT.json in its
  directory."""
  output = f'--output={{dir}}/{file or split}.json'
  return ' '.join(['evaluate --workdir={dir}', f'--split={split}', *flags, '--no-baselines', output])


def imported(name: str) -> Run:
  """Return the run that imports the weights `name` of DATA."""
  return Run(f'imported/{name}', then=(f'import --from={{data.{name}}} --workdir={{dir}}',), seeds=0, needs=CORES)


def from_run(name: str) -> str:
  """Return the setting that starts from the run `name`."""
  return f'train.init_from={{{name}}}'
