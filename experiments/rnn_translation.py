"""Settings of the experiments with recurrent encoder-decoders: experiments/bahdanau, luong and rnn_encdec.

Their losses are sums, with the papers' rates, epsilons and gradient norms (docs/reductions.md): in Cho et al. 2014 and
Bahdanau et al. 2015 over the batch; in Sutskever et al. 2014 and Luong et al. 2015 over a sentence, and the mean over
sentences. The modern recipes of Multi30k and of the numbers are ours, with the mean over tokens.
"""

from __future__ import annotations

from typing import Any

from experiments import config, translation


def numbers(model: dict[str, Any], reads: str) -> dict[str, Any]:
  """Return a config that translates generated numbers between words and digits."""
  return {
    'name': f'{model["name"]}_numbers',
    'model': model,
    'objective': {'name': 'translation'},
    'data': {
      'dataset': 'embedded_numbers',
      'source': reads,
      'tokenizer': 'words',
      'batching': {'name': 'translation', 'buckets': (8,)},
      'batch_size': 64,
      'length': 16,
    },
    'optim': {'optimizer': 'adam', 'lr': 4e-3, 'schedule': 'cosine', 'warmup_steps': 100, 'clip_norm': 1.0},
    'train': {'steps': 1500, 'eval_every': 500},
    'evaluation': {'beam': 4, 'baselines': False},
  }


def hard() -> dict[str, Any]:
  """Return the settings of hard attention (Xu et al. 2015, arXiv 1502.03044)."""
  return {'model': {'reading': 'hard'}, 'objective': {'reinforce': 1.0, 'entropy': 0.01}}


def dropout(embedding: float, hidden: float, output: float) -> dict[str, float]:
  """Return the three dropout rates of a model."""
  return {'dropout_embedding': embedding, 'dropout_hidden': hidden, 'dropout_output': output}


def multi30k(name: str, variant: str, recipe: dict[str, Any] | None) -> dict[str, Any]:
  """Return the Multi30k config with a paper's recipe, or with a modern one at a size for two cores (None).

  The modern recipe has Adam with cosine decay, dropout, label smoothing and tied target embedding and output. No paper
  reports these models on this data, so there is no published metric. The baseline is the text-only Transformer of Wu et
  al. 2021 (experiments/transformer/multi30k.py) with the same text, vocabulary and search (experiments/translation.py):
  lower-cased, one BPE of 10,000 for both languages, beam 5 with scores divided by the length.
  """
  modern = {
    'model': {'tied': True, **dropout(0.3, 0.3, 0.4)},
    'objective': {'smoothing': 0.1},
    'data': {'batch_size': 64},
    'optim': {
      'optimizer': 'adamw',
      'lr': 2e-3,
      'weight_decay': 0.01,
      'groups': config.DECAY_MATRICES_ONLY,
      'schedule': 'cosine',
      'end_fraction': 0.02,
      'warmup_steps': 400,
      'clip_norm': 1.0,
    },
    'train': {'epochs': 20},
  }
  base = {
    'name': f'{name}_multi30k',
    'model': {'name': name, 'variant': variant},
    'objective': {'name': 'translation'},
    'data': {'batching': {'name': 'translation', 'buckets': (12, 16, 20, 28)}, 'length': 48},
    'train': {'eval_every': 500, 'log_every': 50},
  }
  return config.merge(translation.MULTI30K, base, recipe or modern).to_dict()


def adadelta() -> dict[str, Any]:
  """Return loss and optimizer of Cho et al. 2014 and Bahdanau et al. 2015 (section 4.2 and appendix B of 1409.0473).

  The released code adds the costs of all words of a batch (lisa-groundhog/GroundHog, groundhog/layers/cost_layers.py,
  lines 1144 to 1152: the output layer's input has two axes, utils.py, line 182). Its clipping at 1 and epsilon 1e-6
  apply to the gradient of this sum (trainer/SGD_adadelta.py, lines 101 to 125; experiments/nmt/state.py, lines 140 to
  154).
  """
  return {
    'objective': {'reduction': 'sum'},
    'optim': {'optimizer': 'adadelta', 'lr': 1.0, 'rms_decay': 0.95, 'eps': 1e-6, 'clip_norm': 1.0},
  }


def cho(*, epochs: int) -> dict[str, Any]:
  """Return the recipe of Cho et al. 2014 and Bahdanau et al. 2015 on Multi30k: batches of 80, no dropout."""
  return adadelta() | {
    'model': {'init': 'paper', 'cell': 'gru_paper'},
    'data': {'batch_size': 80},
    'train': {'epochs': epochs},
  }


def step_decay(after: int) -> dict[str, Any]:
  """Return loss and optimizer of Luong et al. 2015, section 4.1: SGD at rate 1, halved every epoch after `after`.

  The released code adds the costs of a sentence's words, and divides the gradient by the number of sentences before it
  clips at 5 (lmthang/nmt.matlab, code/trainLSTM.m, lines 289 to 294). Deviation: its norm excludes the embeddings,
  which it scales too (line 289).
  """
  return {
    'objective': {'reduction': 'rows'},
    'optim': {
      'optimizer': 'sgd',
      'lr': 1.0,
      'clip_norm': 5.0,
      'schedule': 'step_decay',
      'decay_after_epochs': after,
      'decay_rate': 2.0,
    },
  }


def wmt14(name: str, variant: str) -> dict[str, Any]:
  """Return the settings shared by the papers' runs on WMT 2014: data, batches by length, and search.

  A vocabulary for each language, of its most frequent words; its size counts <unk> and <eos>, as in GroundHog's
  preprocess.py, line 160. Search as in the papers: beam 12, log-probability without
  a length penalty, `<unk>` allowed. Deviations: unknown words are one symbol without replacement; the beam keeps its
  width when hypotheses end.
  """
  return {
    'name': f'{name}_wmt14',
    'model': {'name': name, 'variant': variant, 'V': 0},
    'objective': {'name': 'translation'},
    'data': {
      'tokenizer': 'words',
      'vocabularies': 'separate',
      'batching': {'name': 'translation', 'buckets': (16, 24, 32, 40)},
      'length': 51,  # with the end-of-text
    },
    'train': {'eval_every': 5000, 'log_every': 100},
    'evaluation': {'beam': 12, 'alpha': 0.0, 'min_ratio': 0.5, 'allow_unk': True},
  }


def french(length: int) -> dict[str, Any]:
  """Return the data and the recipe of Bahdanau et al. 2015: English to French.

  30,000 words per side, sentences of at most `length` words, hypotheses at least half and at most three times as long
  as the source (GroundHog's sample.py). DIR may hold the 12M pairs, a selection of WMT 14 that the authors published.
  The last parameters are evaluated: the release has no validation data (experiments/nmt/train.py, line 89).
  """
  return adadelta() | {
    'data': {'dataset': 'wmt14_en_fr', 'vocab_size': 30_000, 'batch_size': 80, 'length': length + 1},
    'train': {'epochs': 5},
    'evaluation': {'max_ratio': 3.0, 'which': 'last'},
  }


def german(*, dropped: bool, source: str = 'en') -> dict[str, Any]:
  """Return the data and the recipe of Luong et al. 2015: English to German, or from the language `source`.

  50,000 words per side, hypotheses between 0.5 and 1.5 times as long as the source (the released MATLAB code; its
  bounds apply per batch, ours per sentence). `dropped`: dropout 0.2 and 12 epochs instead of 10.
  """
  rate = 0.2 if dropped else 0.0
  directions = {'en': {}, 'de': {'source': 'de', 'target': 'en'}}
  return step_decay(8 if dropped else 5) | {
    'model': dropout(rate, rate, rate),
    'data': {'dataset': 'wmt14_en_de', 'vocab_size': 50_000, 'batch_size': 128} | directions[source],
    'train': {'epochs': 12 if dropped else 10},
    'evaluation': {'max_ratio': 1.5},
  }


def sutskever() -> dict[str, Any]:
  """Return the data and the recipe of Sutskever et al. 2014 (arXiv 1409.3215), sections 3.1 to 3.4: English to French.

  160,000 English and 80,000 French words, 128 sentences, no dropout, all parameters within 0.08, SGD at rate 0.7,
  halved every half epoch after the fifth, 7.5 epochs; the gradient is divided by the number of sentences, and its norm
  is at most 5 (section 3.4). The beam has no minimum length.
  """
  return {
    'model': {'init_scale': 0.08, **dropout(0.0, 0.0, 0.0)},
    'objective': {'reduction': 'rows'},
    'data': {'dataset': 'wmt14_en_fr', 'vocab_size': 160_000, 'target_vocab_size': 80_000, 'batch_size': 128},
    'optim': {
      'optimizer': 'sgd',
      'lr': 0.7,
      'clip_norm': 5.0,
      'schedule': 'milestones',
      'milestones': (5.0, 5.5, 6.0, 6.5, 7.0),
      'decay_rate': 2.0,
    },
    'train': {'epochs': 7.5},
    'evaluation': {'min_ratio': 0.0},
  }


def tiny(**model: Any) -> dict[str, Any]:
  """Return `tiny` for recipes that count epochs."""
  return config.merge(translation.tiny(**model), {'train': {'epochs': 0}}).to_dict()
