"""Names of systems and labels of rows on the pages, as in the papers."""

from __future__ import annotations

SYSTEMS = {
  'awd_lstm': 'AWD-LSTM',
  'bahdanau': 'RNNsearch',
  'bcn': 'BCN',
  'bert': 'BERT',
  'bidaf': 'BiDAF',
  'bilstm': 'BiLSTM',
  'cfnet': 'CFNet',
  'character_transformer': 'Character Transformer',
  'elmo': 'ELMo',
  'esim': 'ESIM',
  'glue': 'GLUE baselines',
  'glue_bilstm': 'BiLSTM of GLUE',
  'gpt': 'GPT',
  'gpt2': 'GPT-2',
  'lineage': 'The lineage on one text',
  'luong': 'Global and local attention (Luong et al.)',
  'memory_compressed': 'Memory-compressed attention',
  'ngrams': 'n-gram models',
  'nplm': 'NPLM',
  'ntm': 'NTM',
  'quaternion_text': 'Quaternion Transformer, text',
  'quaternion_transformer': 'Quaternion Transformer',
  'quickstart': 'Every model, quickly',
  'rnn_encdec': 'RNN Encoder-Decoder',
  'rnn_lm': 'Regularised LSTM (Zaremba et al.)',
  'self_attention': 'Self-attention with any score',
  'sparse_transformer': 'Sparse Transformer',
  'srl_lstm': 'LSTM for semantic roles',
  'transformer': 'Transformer',
  'transformer_xl': 'Transformer-XL',
  'ulmfit': 'ULMFiT',
  'word2vec': 'word2vec',
  'xlnet': 'XLNet',
}


def label(text: str, system: str) -> str:
  """Return the label of a row; an id without the page's system and with the names of papers."""
  if '/' not in text or ' ' in text:
    return SYSTEMS.get(text, text)
  parts = [part for i, part in enumerate(text.split('/')) if i or part != system]
  return ', '.join(SYSTEMS.get(part, part.replace('_', ' ')) for part in parts)
