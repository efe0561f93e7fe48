"""Parts of ULMFiT's experiments (Howard and Ruder 2018, arXiv 1801.06146): sizes, dropout, windows, text."""

from __future__ import annotations

from typing import Any

OWN = ('own', 'own_scores')  # your table, of one text per row
BY_CLASS = ('ag_news', 'dbpedia', 'yelp_polarity', 'yelp_full')  # of Zhang et al. 2015, for table 3
LARGE = BY_CLASS[1:]  # 560,000 and 650,000 documents
DATA = {  # variant -> data set
  'embedded': 'embedded_topics',
  **dict.fromkeys(OWN, 'table_files'),
  'tiny': 'embedded',
  **{name: f'zhang2015/{name}' for name in BY_CLASS},
}


def sizes(size: str) -> dict[str, Any]:
  """Return the sizes of the AWD-LSTM: 'paper' (arXiv 1801.06146, section 4.1), or 'small' for two cores."""
  return {'variant': 'ptb', **({'E': 400, 'D': 1150, 'N': 3} if size == 'paper' else {'E': 128, 'D': 256, 'N': 3})}


def regularization(fidelity: str, *, classifier: bool = False, times: float = 1.0) -> dict[str, float]:
  """Return the dropout rates and the weights of the activation penalties.

  Args:
    fidelity: 'paper' (section 4.1, all stages; the classifier has no penalties) or 'fastai' (finetune_lm.py and
      train_clas.py, both with alpha 2 and beta 1).
    classifier: whether it is the classifier's encoder.
    times: factor of every rate, the scripts' `dropmult`.
  """
  if fidelity == 'paper' or classifier:
    rates = (0.4, 0.3, 0.4, 0.05, 0.5)
  else:
    rates = (0.25, 0.15, 0.1, 0.02, 0.2)
  names = ('input', 'hidden', 'output', 'embedding', 'weight')
  penalties = (0.0, 0.0) if fidelity == 'paper' and classifier else (2.0, 1.0)
  scaled = {f'dropout_{name}': rate * times for name, rate in zip(names, rates, strict=True)}
  return scaled | dict(zip(('alpha', 'beta'), penalties, strict=True))


def windows(size: str, *, scale_rate: bool) -> dict[str, Any]:
  """Return the batching of AWD-LSTM and both language models: windows of variable length.

  Args:
    size: 'paper' pads to a multiple of 8; 'small' to a multiple of 40, so that two shapes are compiled.
    scale_rate: scale the rate of an update by the length of its window.
  """
  multiple = 8 if size == 'paper' else 40
  return {'name': 'streams', 'random_length': True, 'length_multiple': multiple, 'scale_rate': scale_rate}


def text(dataset: str, direction: str, fidelity: str = 'paper') -> dict[str, Any]:
  """Return the `data` section that the language model and the classifier share.

  With fidelity 'fastai' the vocabulary is that of tok2id.py, line 5: max_vocab 30,000 and min_freq 1, which words must
  exceed. The paper gives no size.
  """
  released = fidelity == 'fastai'
  return {
    'dataset': dataset,
    'tokenizer': 'words',
    'lower_case': True,
    'vocab_size': 30000 if released else 60000,
    'min_count': 2 if released or dataset == 'imdb' or dataset.startswith('zhang2015') else 1,
    'reverse': direction == 'backward',
  }


def tiny() -> dict[str, Any]:
  """Return the changes of the tiny variant, on top of `config.tiny`."""
  return {
    'model': {'E': 12, 'D': 16, 'N': 2},
    'data': {'vocab_size': 500},
    'optim': {'warmup_steps': 0},
    'train': {'epochs': 0},
  }
