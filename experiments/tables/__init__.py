"""Tables of the papers, one to a file: what is run for each row. `python -m launch.tables --list` shows them.

A table is a list of rows and of the runs that their figures come from. What a paper printed stands in published.csv,
under the row's id, and nowhere else. A run is trained once however many rows and tables read it; it may begin from
another (a pre-training, imported weights), which it names in braces. Braces in settings and commands:

  {dir}        the run's own work directory
  {NAME}       the work directory of the run NAME: of the same seed, if that run has seeds
  {data.NAME}  the directory or file that the user gives for NAME of DATA; if none is needed and none given, the word or
               setting is left out

Nothing here imports jax or lmx.
"""

from __future__ import annotations

from typing import NamedTuple

CORES, GPU, GPUS, POD = 'two cores', 'one GPU', 'several GPUs', 'a pod'


class Data(NamedTuple):
  """Data set or weights that a run reads.

  Attributes:
    what: what is to be given: which files.
    terms: licence, or whether it can be had at all.
    needed: the user must give it; otherwise lmx makes or downloads it where nothing is given.
  """

  what: str
  terms: str
  needed: bool = True


class Run(NamedTuple):
  """A training with the measurements after it, or measurements alone.

  Attributes:
    name: its directory below that of all runs, the same in every table.
    config: experiment file with its argument, such as 'experiments/rnn_lm/ptb.py:small'; '' trains nothing.
    settings: 'section.key=value' on top of the config.
    then: commands of lmx after it, each with the file that it writes in --output.
    kind: 'train' or 'pipeline', the command that the config is for.
    seeds: how many the row asks for; 0 is a run that is not repeated, whose seed is the config's.
    needs: CORES, GPU, GPUS or POD.
  """

  name: str
  config: str = ''
  settings: tuple[str, ...] = ()
  then: tuple[str, ...] = ()
  kind: str = 'train'
  seeds: int = 1
  needs: str = GPU


class Row(NamedTuple):
  """A figure of a table.

  Attributes:
    id: of published.csv; where nothing is published, a name of its own.
    run: name of the run that it is read from.
    metric: of METRICS.
    file: name of the JSON file in that run's directory, without its ending.
    pick: in a file that holds a list, which record: 'key=value,key=value'.
    differs: why the published figure measures something else; it is then shown beside ours and not compared.
    band: how far from the published figure still counts as reached; 0 for twice the published spread, or where none is
      known for the metric's.
    note: what else fixes the figure.
    tries: runs of other settings. Of `run` and these, the one whose validation loss is lowest in the mean over seeds
      counts.
  """

  id: str
  run: str
  metric: str
  file: str = 'results'
  pick: str = ''
  differs: str = ''
  band: float = 0.0
  note: str = ''
  tries: tuple[str, ...] = ()

  @property
  def runs(self) -> tuple[str, ...]:
    """The names of all runs that the figure may be read from."""
    return (self.run, *self.tries)


class Curve(NamedTuple):
  """A point of the picture of a table that draws curves: in which panel, on which line, and the ids of the rows whose
  figures it lies at; '' for x is at the left end."""

  panel: str
  line: str
  x: str
  y: str


class Table(NamedTuple):
  """A table: its title, where it stands, its rows, the runs of it, what holds for all of it, and the points of its
  picture, if that is not of differences from published figures."""

  title: str
  source: str
  rows: tuple[Row, ...]
  runs: tuple[Run, ...]
  note: str = ''
  curves: tuple[Curve, ...] = ()


class Metric(NamedTuple):
  """Key, unit and tolerance of a metric.

  Attributes:
    key: where it stands in a record, such as 'cache.perplexity_per_token'.
    title: what it is called.
    printed: names it has in published.csv.
    scale: what a record's figure is multiplied by to be in the unit of the papers.
    band: how far from a published figure without a known spread still counts as reached; ours, for want of a better.
    relative: the band is a share of the published figure.
    whole: the figure is a count; one that is not the published one is another.
  """

  key: str
  title: str
  printed: tuple[str, ...]
  scale: float = 1.0
  band: float = 1.0
  relative: bool = False
  whole: bool = False


METRICS = {
  'ppl': Metric('perplexity_per_token', 'perplexity', ('ppl', 'ppl (best)'), band=0.02, relative=True),
  'ppl_word': Metric('perplexity_per_word', 'perplexity per word', ('ppl',), band=0.02, relative=True),
  'cache_ppl': Metric('cache.perplexity_per_token', 'perplexity with a cache', ('ppl',), band=0.02, relative=True),
  'mixed_ppl': Metric('mixture.perplexity_per_token', 'perplexity, mixed', ('ppl',), band=0.02, relative=True),
  'average_ppl': Metric('perplexity_average', 'perplexity, both ways', ('ppl',), band=0.02, relative=True),
  'masked_ppl': Metric('masked_perplexity', 'masked perplexity', ('masked LM ppl',), band=0.02, relative=True),
  'predicted_ppl': Metric('predicted_perplexity', 'perplexity of predicted tokens', (), band=0.02, relative=True),
  'last_word_ppl': Metric('perplexity_of_last_word', 'perplexity, last word', ('ppl',), band=0.02, relative=True),
  'loss': Metric('loss', 'loss, nats', ('loss (nats)',), band=0.02),
  'bpc': Metric('bits_per_character', 'bits per character', ('bpc',), band=0.01),
  'bpb': Metric('bits_per_byte', 'bits per byte', ('bpb', 'bits per byte'), band=0.01),
  'error': Metric('error_percent', 'error, %', ('error %',), band=0.5),
  'accuracy': Metric('accuracy', 'accuracy, %', ('accuracy',), 100.0),
  'filtered_accuracy': Metric('filtered_accuracy', 'accuracy with stop words left out, %', ('accuracy',), 100.0),
  'f1': Metric('f1', 'F1', ('F1',), 100.0),
  'matthews': Metric('matthews', "Matthews' correlation", ('MCC',), 100.0, band=2.0),
  'pearson': Metric('pearson', "Pearson's correlation", ('Pearson', 'correlation'), 100.0),
  'spearman': Metric('spearman', "Spearman's correlation", ('Spearman',), 100.0),
  'answer_f1': Metric('f1', 'F1', ('F1',), band=0.5),
  'exact_match': Metric('exact_match', 'exact match, %', ('EM',), band=0.5),
  'best_f1': Metric('best_f1', 'F1 at the best threshold', ('F1',), band=0.5),
  'best_exact_match': Metric('best_exact_match', 'exact match at the best threshold, %', ('EM',), band=0.5),
  'span_f1': Metric('span_f1', 'F1 of spans', ('F1',), band=0.5),
  'bleu': Metric('bleu_tokenised', 'BLEU of Moses tokens', ('BLEU',), band=0.5),
  'sacrebleu': Metric('bleu', 'BLEU (sacreBLEU)', ()),
  'bleu_lower': Metric('bleu_tokenised_lower', 'BLEU of lower-cased tokens', ('BLEU',), band=0.5),
  'analogies': Metric('analogies.total', 'analogies, %', ('accuracy',), 100.0, band=3.0),
  'semantic': Metric('analogies.semantic', 'semantic analogies, %', ('accuracy',), 100.0, band=3.0),
  'syntactic': Metric('analogies.syntactic', 'syntactic analogies, %', ('accuracy',), 100.0, band=3.0),
  'bits': Metric('bits_per_sequence', 'bits per sequence', ()),
  'all_parameters': Metric('parameters_with_heads', 'parameters with heads', (), band=0.5, whole=True),
  'teraflops': Metric('training_flops', 'TFLOP of training', (), 1e-12),
  'parameters': Metric('parameters', 'parameters', ('parameters',), band=0.5, whole=True),
}


DATA = {
  'ptb': Data('ptb.train.txt, ptb.valid.txt, ptb.test.txt', "LDC's licence; Mikolov's version is public", needed=False),
  'wikitext2': Data('wiki.train.tokens and the others', 'CC BY-SA', needed=False),
  'wikitext103': Data('wiki.train.tokens and the others', 'CC BY-SA', needed=False),
  'enwik8': Data('the file', 'CC BY-SA', needed=False),
  'text8': Data('the file', 'CC BY-SA', needed=False),
  'text': Data('text of yours: train.txt, valid.txt, test.txt, or a part is held out', 'yours', needed=False),
  'lm1b': Data('as TFDS prepares it', 'free for research', needed=False),
  'brown': Data('the tagged files as NLTK keeps them, or train.txt ...', 'free for non-commercial use', needed=False),
  'multi30k': Data('the files of task 1', 'CC BY-NC-SA, non-commercial', needed=False),
  'wmt14_en_de': Data('train.en, train.de, valid.*, test.*', 'free for research; through TFDS without', needed=False),
  'wmt14_en_fr': Data('train.en, train.fr, valid.*, test.*', 'free for research; through TFDS without', needed=False),
  'iwslt15_en_vi': Data('train.en, train.vi, valid.*, test.*', 'CC BY-NC-ND'),
  'wmt16_en_ro': Data('train.en, train.ro, valid.*, test.*', 'free for research'),
  'wmt18_en_et': Data('train.en, train.et, valid.*, test.*', 'free for research'),
  'imdb': Data('the archive unpacked', 'free for research', needed=False),
  'trec': Data('train_5500.label, TREC_10.label', 'free for research', needed=False),
  'sst2': Data('train_sentences.tsv, dev.tsv, test.tsv', 'free for research'),
  'snli': Data('snli_1.0_*.jsonl', 'CC BY-SA'),
  'scitail': Data('scitail_1.0_train.tsv and the others', 'Apache 2.0'),
  'glue': Data("the benchmark's archives unpacked: CoLA/train.tsv ...", 'of each task its own; MRPC from Microsoft'),
  'squad': Data('train-v1.1.json, dev-v1.1.json', 'CC BY-SA'),
  'squad2': Data('train-v2.0.json, dev-v2.0.json', 'CC BY-SA'),
  'swag': Data('train.csv, val.csv', 'MIT'),
  'race': Data('the archive unpacked', 'research only, asked for at CMU'),
  'story_cloze': Data('the two spring 2016 files', 'asked for at the University of Rochester'),
  'conll2003': Data('eng.train, eng.testa, eng.testb', "Reuters' licence, through NIST"),
  'lambada': Data('lambada_test.jsonl', 'CC BY'),
  'cbt': Data('cbtest_CN_valid_2000ex.txt and the others', 'GFDL'),
  'news': Data('a plain text, a sentence a line', "the papers' Google News text was never released"),
  'questions': Data('questions-words.txt', 'Apache 2.0, with word2vec.c'),
  'books': Data(
    'text, a sentence a line, an empty line between documents',
    'BooksCorpus is no longer distributed: Wikipedia with books of yours',
  ),
  'webtext': Data('.txt, .txt.gz or .jsonl', 'WebText was never released; OpenWebText is public'),
  'bert_base': Data('weights of BERT base: google-research/bert, or hub:bert-base-uncased', 'Apache 2.0'),
  'bert_large': Data('weights of BERT large: google-research/bert, or hub:bert-large-uncased', 'Apache 2.0'),
  'bert_base_cased': Data('weights of BERT base, cased: hub:bert-base-cased', 'Apache 2.0'),
  'gpt': Data('weights of GPT: openai/finetune-transformer-lm, or hub:openai-community/openai-gpt', 'MIT'),
  'gpt2_124m': Data('weights of GPT-2: openai/gpt-2, or hub:gpt2', 'modified MIT'),
  'gpt2_355m': Data('weights of GPT-2 medium: hub:gpt2-medium', 'modified MIT'),
  'gpt2_774m': Data('weights of GPT-2 large: hub:gpt2-large', 'modified MIT'),
  'gpt2_1558m': Data('weights of GPT-2 XL: hub:gpt2-xl', 'modified MIT'),
  'xlnet_large': Data('weights of XLNet large: zihangdai/xlnet, or hub:xlnet-large-cased', 'Apache 2.0'),
}


def at(name: str) -> str:
  """The setting that says where the data set `name` of DATA is read."""
  return f'data.manual_dir={{data.{name}}}'


def measured(split: str, *flags: str, file: str = '') -> str:
  """The command that measures a run on a split and writes the figures into its directory, to `file` or the split."""
  output = f'--output={{dir}}/{file or split}.json'
  return ' '.join(['evaluate --workdir={dir}', f'--split={split}', *flags, '--no-baselines', output])


def imported(name: str) -> Run:
  """The run of the weights `name` of DATA."""
  return Run(f'imported/{name}', then=(f'import --from={{data.{name}}} --workdir={{dir}}',), seeds=0, needs=CORES)


def from_run(name: str) -> str:
  """The setting that begins from the run `name`."""
  return f'train.init_from={{{name}}}'
