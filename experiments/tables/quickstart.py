"""Every model of `lmx list`, trained for a minute or less on the embedded corpus or on generated data."""

from experiments.tables import CORES, Row, Run, Table

_PLAIN = 'evaluation.baselines=false'  # this table has no n-gram baselines
# Model -> experiment and argument, metric, settings: as the quickstarts, for fewer updates.
_MODELS: dict[str, tuple[str, str, tuple[str, ...]]] = {
  'awd_lstm': ('awd_lstm/quickstart.py', 'bpc', ('train.steps=300', 'train.eval_every=100', _PLAIN)),
  'bahdanau': ('bahdanau/quickstart.py:rnnsearch', 'sacrebleu', ('train.steps=500', 'train.eval_every=250')),
  'bcn': (
    'bcn/sst.py:tiny',
    'accuracy',
    ('model.E=64', 'model.D=64', 'optim.lr=5e-3', 'train.steps=300', 'train.eval_every=100'),
  ),
  'bert': ('bert/quickstart.py:fast', 'masked_ppl', ('train.steps=300', 'train.eval_every=150')),
  'bidaf': ('bidaf/quickstart.py:fast', 'f1', ('train.epochs=4',)),
  'bilstm': (
    'elmo/sst.py:tiny',
    'accuracy',
    ('model.E=64', 'model.D=64', 'optim.lr=5e-3', 'train.steps=600', 'train.eval_every=200'),
  ),
  'cfnet': ('cfnet/quickstart.py:cfnet', 'miou', ('train.steps=150', 'train.eval_every=75')),
  'character_transformer': (
    'character_transformer/quickstart.py:fast',
    'bpc',
    ('train.steps=150', 'train.eval_every=75', 'evaluation.stride=64', _PLAIN),
  ),
  'elmo': ('elmo/quickstart.py:fast', 'average_ppl', ('train.steps=150', 'train.eval_every=75')),
  'esim': (
    'esim/pairs.py:tiny',
    'accuracy',
    ('model.E=32', 'model.D=32', 'model.F=32', 'train.steps=600', 'train.eval_every=200'),
  ),
  'glue_bilstm': (
    'glue_bilstm/tasks.py:tiny',
    'accuracy',
    ('model.E=64', 'model.D=64', 'optim.lr=5e-3', 'train.steps=300', 'train.eval_every=100'),
  ),
  'gpt': ('gpt/quickstart.py:fast', 'bpc', ('train.steps=200', 'train.eval_every=100', _PLAIN)),
  'gpt2': ('gpt2/quickstart.py:fast', 'bpc', ('train.steps=200', 'train.eval_every=100', _PLAIN)),
  'luong': ('luong/quickstart.py:luong', 'sacrebleu', ('train.steps=500', 'train.eval_every=250')),
  'memory_compressed': (
    'memory_compressed/quickstart.py:fast',
    'bpc',
    ('train.steps=120', 'train.eval_every=60', _PLAIN),
  ),
  'nplm': ('nplm/quickstart.py:fast', 'bpc', ('train.epochs=1', _PLAIN)),
  'ntm': ('ntm/quickstart.py:ff', 'bits', ('train.steps=3000', 'train.eval_every=1000')),
  'quaternion_text': (
    'quaternion_transformer/quickstart.py:full',
    'bpc',
    ('train.steps=300', 'train.eval_every=150', _PLAIN),
  ),
  'quaternion_transformer': (
    'quaternion_transformer/translation.py:tiny',
    'sacrebleu',
    ('train.steps=1500', 'train.eval_every=500'),
  ),
  'rnn_encdec': ('rnn_encdec/quickstart.py:rnnencdec', 'sacrebleu', ('train.steps=500', 'train.eval_every=250')),
  'rnn_lm': ('rnn_lm/quickstart.py:fast', 'bpc', ('train.steps=200', 'train.eval_every=100', _PLAIN)),
  'self_attention': (
    'self_attention/quickstart.py:fast',
    'accuracy',
    ('train.epochs=3',),
  ),
  'sparse_transformer': (
    'sparse_transformer/quickstart.py:fast',
    'bpc',
    ('train.steps=120', 'train.eval_every=60', _PLAIN),
  ),
  'srl_lstm': (
    'srl_lstm/conll2012.py:tiny',
    'span_f1',
    ('model.E=32', 'model.D=32', 'train.steps=600', 'train.eval_every=200'),
  ),
  'transformer': ('transformer/quickstart.py:words', 'sacrebleu', ()),
  'transformer_xl': ('transformer_xl/quickstart.py:fast', 'bpc', ('train.steps=150', 'train.eval_every=75', _PLAIN)),
  'word2vec': ('word2vec/quickstart.py:skipgram', 'loss', ('train.epochs=3',)),
  'xlnet': ('xlnet/quickstart.py:fast', 'predicted_ppl', ('train.steps=200', 'train.eval_every=100', _PLAIN)),
}

TABLE = Table(
  'Every model, quickly',
  'Measured here; no paper measures these data',
  rows=tuple(Row(f'quickstart/{name}', f'quickstart/{name}', metric) for name, (_, metric, _) in _MODELS.items()),
  runs=tuple(
    Run(f'quickstart/{name}', f'experiments/{config}', settings, needs=CORES)
    for name, (config, _, settings) in _MODELS.items()
  ),
  note='Far fewer updates than a quickstart: it shows that every model trains, is measured and comes into a table. '
  'Figures of different units do not compare.',
)
