"""Text classifiers of fastai as runs, and back; those marked `peer` run fastai itself."""

from __future__ import annotations

import numpy as np
import pytest

import lmx
from lmx.cli import main
from lmx.errors import InputError
from lmx.interop import fastai_classifier, torch_file
from lmx.objectives import classify
from lmx.runs import convert, restore
from tests.interop import torch_files
from tests.interop.awd_lstm_test import ITOS, D, E, N, V, fastai_names, lstm_tensors, restated

WINDOW, POOLED, HIDDEN, CLASSES = 4, 8, 5, ['a tie', 'neg', 'pos']
RULES = fastai_classifier._RULES
NORM = ('weight', 'bias', 'running_mean', 'running_var')
GELU = 'torch.nn.modules.activation.GELU'
MODEL = 'fastai.text.models.core.SequentialRNN'


def tensors_of(linear=2):
  """{name: array} of a classifier, as learn.save has them."""
  rng = np.random.default_rng(3)
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  encoder = {name: x for name, x in fastai_names(lstm_tensors()).items() if not name.startswith('1.')}
  found = {f'0.module{name[1:]}': x for name, x in encoder.items() if not name.endswith('module.weight_hh_l0')}
  for i, (width_in, width) in enumerate([(3 * E, HIDDEN), (HIDDEN, len(CLASSES))]):
    for name in ('weight', 'bias', 'running_mean'):
      found[f'1.layers.{i}.0.{name}'] = draw(width_in)
    found[f'1.layers.{i}.0.running_var'] = np.abs(draw(width_in)) + 0.5
    found[f'1.layers.{i}.0.num_batches_tracked'] = np.array(7, np.int64)
    found[f'1.layers.{i}.{linear}.weight'] = draw(width, width_in)
  return found


def named(name):
  """A function or class that only the file has."""
  return type(torch_files.foreign(name))


def vocabulary(classes=CLASSES, itos=ITOS):
  """dls.vocab: fastcore's list of the words and of a CategoryMap."""
  own = torch_files.foreign('fastcore.foundation.L')
  items = torch_files.foreign('fastcore.foundation.L')
  kept = torch_files.foreign('fastai.data.transforms.CategoryMap')
  items.items, kept.items, own.items = list(classes), items, [list(itos), kept]
  return own


def learner(tensors, loss='fastai.losses.CrossEntropyLossFlat', rules=RULES, further=(), attributes=None, kinds=()):
  """A Learner as learn.export saves it."""
  tokenizer = torch_files.foreign('fastai.text.core.Tokenizer')
  tokenizer.rules, tokenizer.tok = [named(f'fastai.text.core.{rule}') for rule in rules], None
  tokenizer.tok = named('fastai.text.core.SpacyTokenizer')()
  words, classes = (named(f'fastai.{name}')() for name in ('text.data.Numericalize', 'data.transforms.Categorize'))
  words.vocab, classes.vocab = vocabulary().items
  dls = named('fastai.data.core.DataLoaders')()
  dls.tfms = [tokenizer, words, classes, *map(named, further)]
  rates = {'0.module.encoder_dp': {'embed_p': 0.02}, '0.module.input_dp': {'p': 0.3}}
  rates |= {'0.module.hidden_dps.0': {'p': 0.1}, '0.module.rnns.0': {'weight_p': 0.4}, '1.layers.0.1': {'p': 0.25}}
  own = {'0': {'bptt': WINDOW, 'max_len': POOLED}, **rates, '1.layers.1.1': {'p': 0.05}, **(attributes or {})}
  made = named('fastai.text.learner.TextLearner')()
  made.model, made.dls, made.loss_func = torch_files.module_of(MODEL, tensors, own, '', dict(kinds)), dls, named(loss)()
  return made


def write(folder, weights=None, words=None):
  """A folder with a .pth, a .pkl, or both."""
  folder.mkdir(exist_ok=True)
  if weights is not None:
    torch_files.save(folder / 'clas.pth', weights)
  if words is not None:
    torch_files.save(folder / 'words.pkl', words)
  return str(folder)


def expected(tensors, tokens_T):
  """Logits of a document in float64: windows, pooling of the last ones, and the head."""
  plain = {
    name.removeprefix('0.module.').replace('.module.', '.').removesuffix('_raw'): x for name, x in tensors.items()
  }
  output_BTD, _ = restated(plain, tokens_T[None], None)
  begins = range(0, len(tokens_T), WINDOW)
  first = next(i for i in begins if len(tokens_T) - i <= POOLED)
  x_TD = output_BTD[0, first:]
  x = np.concatenate([x_TD[-1], x_TD.max(0), x_TD.mean(0)])
  for i in range(2):
    norm = {name: tensors[f'1.layers.{i}.0.{name}'] for name in NORM}
    x = np.maximum(x, 0) if i else x
    x = (x - norm['running_mean']) / np.sqrt(norm['running_var'] + 1e-5) * norm['weight'] + norm['bias']
    x = tensors[f'1.layers.{i}.2.weight'] @ x
  return x


def logits(run, document):
  batch = {'tokens_BT': document[None], 'valid_BT': np.ones((1, len(document)), bool), 'row_weights_B': np.ones(1)}
  found, _ = classify.predict(run.run.objective, run.model, run.cfg, run.params, batch, ())
  return np.asarray(found['logits_BC'])[0]


def test_probabilities_match_fastai_and_export_unchanged(tmp_path, capsys):
  tensors = tensors_of()
  folder = write(tmp_path / 'theirs', {'model': tensors, 'opt': {'state': []}}, learner(tensors))
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path / "run"}']) == 0
  run = restore.load(str(tmp_path / 'run'))
  document = np.random.default_rng(5).integers(0, V, 14).astype(np.int32)
  np.testing.assert_allclose(logits(run, document), expected(tensors, document), atol=1e-5)
  assert (
    list(run.labels) == CLASSES and run.tokenizer.tokens[2] == '<eos>' and run.run.data.batching.name == 'documents'
  )
  assert main.main(['export', f'--workdir={tmp_path / "run"}', f'--to={tmp_path / "back"}']) == 0
  assert 'the classes in order: a tie, neg, pos' in capsys.readouterr().out
  found = torch_file.read(tmp_path / 'back' / 'lmx_fwd.pth')
  assert found.keys() == {name for name in tensors if not name.endswith('tracked')}
  for name, x in found.items():
    np.testing.assert_array_equal(x, tensors[name])
  assert torch_file.read(tmp_path / 'back' / 'lmx_fwd_vocab.pkl') == [ITOS, CLASSES]


def test_settings_of_a_learner_and_of_a_file_without_them(tmp_path):
  tensors = tensors_of()
  rates = ('embedding', 'input', 'hidden', 'weight')
  for parts, wanted in (
    ((None, learner(tensors)), (WINDOW, POOLED, 0.25, 0.05, 0.02, 0.3, 0.1, 0.4)),
    ((tensors_of(linear=1), vocabulary()), (72, 1440, 0.2, 0.1, 0.025, 0.2, 0.15, 0.25)),
  ):
    folder = write(tmp_path / str(wanted[0]), *parts)
    assert convert.is_importable(folder)
    imported = convert.read(folder, tmp_path / 'run')
    run = imported.run
    assert any('nor has a .pth a y_range' in note for note in imported.notes) == (parts[0] is not None)
    options = run.objective
    found = (options.bptt, options.pooled_length, options.dropout_pooled, options.dropout_head)
    assert (*found, *(getattr(run.model, f'dropout_{name}') for name in rates)) == wanted
    assert options.head == (HIDDEN,) and not options.head_bias


@pytest.mark.parametrize(
  ('parts', 'message'),
  [
    (lambda x: (x, None), 'got none; expected one .pkl'),
    (lambda x: (x, ITOS), 'expected the lists of words and of classes'),
    (lambda x: (x, vocabulary(CLASSES[:2])), 'got 2 classes; expected 3'),
    (lambda x: (x, vocabulary(['a', 'a', 'b'])), 'expected different texts'),
    (lambda x: (x, vocabulary(itos=ITOS[:-1])), 'got 19 words; expected 20'),
    (lambda x: (None, learner(x, loss='fastai.losses.BCEWithLogitsLossFlat')), 'loss_func: got fastai.losses.BCE'),
    (lambda x: (None, learner(x, rules=RULES[1:])), 'tokenizer: got rules'),
    (lambda x: (None, learner(x, further=['fastai.text.data.reverse_text'])), 'reads backwards'),
    (lambda x: (None, learner(x, further=['fastai.data.transforms.MultiCategorize'])), 'expected a TextBlock and'),
    (lambda x: (None, learner(x, attributes={'1.layers.2': {'low': 0}})), 'without a y_range'),
    (lambda x: (None, learner(x, attributes={'1.layers.0.0': {'eps': 0.1}})), '"1.layers.0.0.eps": got 0.1'),
    (lambda x: (None, learner(x, attributes={'0.module.encoder': {'max_norm': 1.0}})), 'encoder.max_norm": got 1.0'),
    (lambda x: (None, learner(x, attributes={'1.layers.0.3': {}}, kinds={r'.*\.3': GELU})), 'got class .*GELU'),
    (lambda x: (None, learner(x, attributes={'0': {'bptt': -1, 'max_len': 1}})), 'expected numbers from 0'),
    (lambda x: ({n.replace('s.0.2.w', 's.0.lin.w'): y for n, y in x.items()}, vocabulary()), 'of fastai 2'),
    (lambda x: (x | {'1.layers.1.2.weight': np.ones((3, 4), np.float32)}, vocabulary()), r'is \(3, 4\), not \(3, 5\)'),
  ],
)
def test_other_classifiers_are_rejected(tmp_path, parts, message):
  folder = write(tmp_path / 'theirs', *parts(tensors_of()))
  with pytest.raises(InputError, match=message):
    convert.import_run(folder, tmp_path / 'run')
  (tmp_path / 'theirs').rename(tmp_path / 'bwd')
  with pytest.raises(InputError):
    convert.import_run(str(tmp_path / 'bwd'), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_biases_are_moved_into_the_norm():
  """fastai's linear layers have none; ours do by default."""
  rng = np.random.default_rng(1)
  for classes in (3, 3 * HIDDEN):  # the second is more than the inputs of its layer
    params = {}
    for i, (D_in, D_out) in enumerate([(3 * E, HIDDEN), (HIDDEN, classes)]):
      norm = {name: rng.normal(size=D_in).astype(np.float32) for name in ('scale', 'bias', 'mean')}
      norm['variance'] = rng.uniform(0.5, 1.5, D_in).astype(np.float32)
      kernel, bias = rng.normal(size=(D_in, D_out)).astype(np.float32), rng.normal(size=D_out).astype(np.float32)
      params[f'block_{i}'] = {'norm': norm, 'kernel': kernel, 'bias': bias}
    found = fastai_classifier.content(classify.Config(classes=classes, head=(HIDDEN,)), params)
    ours = theirs = rng.normal(size=3 * E)
    for i in range(2):
      block, (scale, bias, mean, variance) = params[f'block_{i}'], (found[f'1.layers.{i}.0.{x}'] for x in NORM)
      theirs = found[f'1.layers.{i}.2.weight'] @ ((theirs - mean) / np.sqrt(variance + 1e-5) * scale + bias)
      n = block['norm']
      ours = (ours - n['mean']) / np.sqrt(n['variance'] + 1e-5) * n['scale'] + n['bias']
      ours = ours @ block['kernel'] + block['bias']
      if not i:
        ours, theirs = np.maximum(ours, 0), np.maximum(theirs, 0)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
  wide = {'block_0': {**params['block_0'], 'kernel': np.ones((3 * E, 40), np.float32), 'bias': rng.normal(size=40)}}
  with pytest.raises(InputError, match='objective.head_bias: got True'):
    fastai_classifier.content(classify.Config(classes=3, head=()), wide)
  for changes in ({'pooling': 'mean'}, {'normalize': False}, {'activation': 'tanh'}, {'bptt': 0, 'pooled_length': 9}):
    with pytest.raises(InputError, match=f'objective.{next(iter(changes))}: got'):
      fastai_classifier.content(classify.Config(classes=3, **changes), params)


@pytest.mark.peer
def test_fastai_predicts_the_same_and_loads_the_export(tmp_path):
  text = pytest.importorskip('fastai.text.all')
  torch, pd = pytest.importorskip('torch'), pytest.importorskip('pandas')
  rng = np.random.default_rng(0)
  texts = [' '.join(rng.choice('the film was good bad John who runs Home and DIES !'.split(), 20)) for _ in range(40)]
  table = pd.DataFrame(
    {'text': texts, 'label': [CLASSES[i % 3] for i in range(40)], 'is_valid': [i > 30 for i in range(40)]}
  )
  dls = text.TextDataLoaders.from_df(table, text_col='text', label_col='label', valid_col='is_valid', bs=8, min_freq=1)
  config = text.awd_lstm_clas_config | dict(emb_sz=E, n_hid=D, n_layers=N)
  own = dict(config=config, pretrained=False, seq_len=WINDOW, max_len=POOLED, model_dir='.')
  learn = text.text_classifier_learner(dls, text.AWD_LSTM, path=tmp_path / 'theirs', **own)
  for parameter in learn.model.parameters():
    torch.nn.init.normal_(parameter, 0, 0.4)
  (tmp_path / 'theirs').mkdir()
  learn.export('export.pkl')
  inputs = [*texts[:3], 'A LONG film ' * 30]
  with learn.no_bar():
    theirs = np.array([learn.predict(one)[2].tolist() for one in inputs])
  run = lmx.load(tmp_path / 'theirs')
  ours = [[row['probabilities'][name] for name in CLASSES] for row in run.predict(inputs)]
  np.testing.assert_allclose(ours, theirs, atol=1e-5)
  convert.import_run(str(tmp_path / 'theirs'), tmp_path / 'run')
  convert.export_run(tmp_path / 'run', str(tmp_path / 'back'))
  again = text.text_classifier_learner(dls, text.AWD_LSTM, path=tmp_path / 'back', **own)
  again.load('lmx_fwd')
  with again.no_bar():
    np.testing.assert_array_equal([again.predict(one)[2].tolist() for one in inputs], theirs)
