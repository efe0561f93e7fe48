"""Memory-compressed attention: log-perplexity on WikiSum, which its user makes."""

from experiments.tables import Row, Run, Table, Unmeasured, manual_dir

_PAIRS = "printed: the authors' crawl in their vocabulary; ours: the user's, per subword of another vocabulary"
_TEXTS = _PAIRS + ', of extracts and articles in windows of running text'
_ROUGE = 'lmx computes no ROUGE'
_EXPERTS = 'lmx has no mixture-of-experts layers'
_JUDGED = 'judged by people'
_EXTRACTORS = ('tfidf_combined', 'cheating_combined', 'tfidf_citations', 'tfidf_search', 'identity_combined')
# Extracts of 500 subwords; transformer_base_v1 of tensor2tensor, for the paper's number of updates.
_ENCODER_DECODER = (
  'data.length=1024',
  'data.batching.buckets=(256,512,768)',
  'data.batching.tokens=8192',
  'optim.lr=1.0',
  'optim.width=512',
  'train.steps=1000000',
)


def _encoder_decoder(extractor: str) -> Run:
  """Return the Transformer with an encoder (T-ED, L = 500) on the extracts of an extractor."""
  settings = (manual_dir(f'wikisum_{extractor}'), 'data.source=extract', 'data.target=article', *_ENCODER_DECODER)
  return Run(
    f'memory_compressed/t_ed_{extractor}', 'experiments/transformer/parallel.py:base', settings, seeds=0, gpu_hours=5.1
  )


def _decoder(variant: str, hours: float) -> Run:
  config = f'experiments/memory_compressed/documents.py:{variant}'
  return Run(f'memory_compressed/{variant}', config, (manual_dir('wikisum_documents'),), seeds=0, gpu_hours=hours)


TABLE = Table(
  'Memory-compressed attention, WikiSum',
  'Liu et al. 2018 (arXiv 1801.10198), tables 3 to 7',
  rows=(
    *(
      Row(
        f'memory_compressed/extractor/{extractor}/logppl',
        f'memory_compressed/t_ed_{extractor}',
        'loss',
        differs=_PAIRS,
      )
      for extractor in _EXTRACTORS
    ),
    Row(
      'memory_compressed/models/transformer_ed/logppl',
      'memory_compressed/t_ed_tfidf_combined',
      'loss',
      differs=_PAIRS,
    ),
    Row('memory_compressed/models/transformer_d/logppl', 'memory_compressed/t_d', 'loss', differs=_TEXTS),
    Row('memory_compressed/models/dmca_nomoe/logppl', 'memory_compressed/t_dmca', 'loss', differs=_TEXTS),
  ),
  runs=(*map(_encoder_decoder, _EXTRACTORS), _decoder('t_d', 1.3), _decoder('t_dmca', 3.7)),
  note='The columns that the paper heads "test perplexity" have log-perplexities.',
  prints=tuple(('Liu et al. 2018', table) for table in '34567'),
  context=('memory_compressed/sauper/*_sauper/*',),
  unmeasured=(
    Unmeasured('memory_compressed/extractor/*/rougel', _ROUGE),
    Unmeasured('memory_compressed/models/[td]*/rougel', _ROUGE),
    Unmeasured('memory_compressed/models/dmca_moe*/logppl', _EXPERTS),
    Unmeasured('memory_compressed/models/seq2seq_attention/*', 'lmx has no recipe for the LSTM with attention'),
    Unmeasured('memory_compressed/human/*', _JUDGED),
    Unmeasured('memory_compressed/side_by_side/*/ratio', _JUDGED),
    Unmeasured('memory_compressed/side_by_side/*/rougel_*', _ROUGE),
    Unmeasured('memory_compressed/sauper/*_tdmca/*', _ROUGE + ', and has no mixture-of-experts layers'),
  ),
)
