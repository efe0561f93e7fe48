"""Files of fastai's and salesforce's AWD-LSTM as runs.

The numbers were compared with fastai 2.8 itself, which has no JAX beside it: here files of the same layout are compared
with a NumPy restatement of PyTorch's LSTM.
"""

from __future__ import annotations

import sys
import types

import jax
import numpy as np
import pytest

from lmx.cli import main
from lmx.data.tokenizers import fastai, library_files
from lmx.errors import InputError
from lmx.interop import awd_lstm, torch_file
from lmx.models import registry
from lmx.runs import convert, restore
from tests import drawn
from tests.interop import torch_files

V, E, D, N = 20, 6, 9, 3
SPECIAL = list(fastai.SPECIAL)
ITOS = [*SPECIAL, *'the cat sat on . , a mat do'.split(), 'xxfake', 'xxfake']


def lstm_tensors(seed=0, last=E):
  """{name: array} of the layers and the embedding, under salesforce's names without DropConnect."""
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32) * 0.4
  widths = [E, *[D] * (N - 1), last]
  tensors = {'encoder.weight': draw(V, E)}
  for i, (width_in, width) in enumerate(zip(widths, widths[1:], strict=False)):
    tensors |= {
      f'rnns.{i}.weight_ih_l0': draw(4 * width, width_in),
      f'rnns.{i}.weight_hh_l0': draw(4 * width, width),
      f'rnns.{i}.bias_ih_l0': draw(4 * width),
      f'rnns.{i}.bias_hh_l0': draw(4 * width),
    }
  return tensors | {'decoder.weight': tensors['encoder.weight'], 'decoder.bias': draw(V)}


def fastai_names(tensors):
  """The tensors as fastai 2.8 names them, with a stale matrix as fastai 1 has beside the raw one."""
  found = {'0.encoder_dp.emb.weight': tensors['encoder.weight']}
  for name, x in tensors.items():
    if name.endswith('weight_hh_l0'):
      found |= {f'0.{name}_raw': x, f'0.{name[:6]}.module.weight_hh_l0': np.zeros_like(x)}
    elif name.startswith('rnns.'):
      found[f'0.{name[:6]}.module.{name[7:]}'] = x
    else:
      found[f'{"1" if name.startswith("decoder") else "0"}.{name}'] = x
  return found


def write_fastai(folder, tensors, itos=ITOS, name='lstm_fwd'):
  folder.mkdir(exist_ok=True)
  torch_files.save(folder / f'{name}.pth', tensors)
  torch_files.save_plain(folder / f'{name}_itos.pkl', itos)
  return str(folder)


def torch_module(name, parameters=(), children=(), **attributes):
  """A module of a class that only the file has."""
  own = {'_parameters': dict(parameters), '_buffers': {}, '_modules': dict(children)}
  return torch_files.foreign(name, **attributes, **own)


def salesforce_modules(tensors, splits=(), drop=0.3):
  """[RNNModel, SplitCrossEntropyLoss] with each LSTM in a WeightDrop, which keeps a bound method in it."""
  rnns = {}
  for i in range(N):
    mine = {name[7:]: x for name, x in tensors.items() if name.startswith(f'rnns.{i}.')}
    raw = mine.pop('weight_hh_l0')
    mine |= {'weight_hh_l0_raw': raw, 'weight_hh_l0': np.zeros_like(raw)}
    module = torch_module('torch.nn.modules.rnn.LSTM', mine, batch_first=False)
    rnns[str(i)] = torch_module('weight_drop.WeightDrop', {}, {'module': module}, dropout=drop, variational=False)
    module.flatten_parameters = types.MethodType(torch_files.Module.__init__, rnns[str(i)])
  children = {
    'encoder': torch_module('torch.nn.Embedding', {'weight': tensors['encoder.weight']}, max_norm=None),
    'rnns': torch_module('torch.nn.ModuleList', {}, rnns),
    'decoder': torch_module('torch.nn.Linear', {n: tensors[f'decoder.{n}'] for n in ('weight', 'bias')}),
  }
  model = torch_files.Module({}, children, dropout=0.4, dropoute=0.1, dropouth=0.2, dropouti=0.65)
  tails = {name.split('.')[1]: x for name, x in tensors.items() if name.startswith('criterion.')}
  ends = [0, *splits, 100_000_000]
  return [model, torch_module('splitcross.SplitCrossEntropyLoss', tails, splits=ends, nsplits=len(ends) - 1)]


def qrnn_modules(**attributes):
  """RNNModel of one layer, a QRNNLayer of window 2."""
  draw = np.random.default_rng(0).normal
  table, own = draw(size=(V, E)), {'weight_raw': draw(size=(3 * E, 2 * E)), 'bias': draw(size=3 * E)}
  linear = torch_module('weight_drop.WeightDrop', {}, {'module': torch_module('torch.nn.Linear', own)}, dropout=0.1)
  layer = torch_module('torchqrnn.qrnn.QRNNLayer', {}, {'linear': linear}, window=2, **attributes)
  children = {
    'encoder': torch_module('torch.nn.Embedding', {'weight': table}),
    'rnns': torch_module('torch.nn.ModuleList', {}, {'0': layer}),
    'decoder': torch_module('torch.nn.Linear', {'weight': table, 'bias': draw(size=V)}),
  }
  return torch_files.Module({}, children, rnn_type='QRNN')


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'zoneout': 0.1}, '"rnns.0.zoneout": got 0.1; expected 0'),
    ({'save_prev_x': False}, '"rnns.0.save_prev_x": got False'),
    ({'output_gate': False}, '"rnns.0.output_gate": got False'),
    ({}, ''),
  ],
)
def test_layers_that_compute_something_else_are_rejected(tmp_path, changes, message):
  torch_files.save(
    tmp_path / 'x.pt', qrnn_modules(**{'zoneout': 0, 'save_prev_x': True, 'output_gate': True, **changes})
  )
  if not message:
    assert awd_lstm.read(tmp_path).fields['cell'] == 'qrnn'
    return
  with pytest.raises(InputError, match=f'x.pt: attribute {message}'):
    awd_lstm.read(tmp_path)


def test_other_modules_of_salesforce_are_rejected(tmp_path):
  model, criterion = salesforce_modules(lstm_tensors())
  encoder, drop = model._modules['encoder'], model._modules['rnns']._modules['1']
  for part, name, value in ((encoder, 'max_norm', 0.5), (drop, 'variational', True), (criterion, 'nsplits', 3)):
    old = getattr(part, name)
    setattr(part, name, value)
    torch_files.save(tmp_path / 'x.pt', [model, criterion])
    with pytest.raises(InputError, match=f'{name}": got {value}; expected {old}'):
      awd_lstm.read(tmp_path)
    setattr(part, name, old)
  torch_files.save(tmp_path / 'x.pt', [model, criterion])
  assert awd_lstm.read(tmp_path).fields['cutoffs'] == ()


def restated(tensors, tokens_BT, carry):
  """(output of the last layer, carry) of PyTorch's LSTMs in float64: gates i f g o, two biases."""
  x_TBE = tensors['encoder.weight'].astype(np.float64)[tokens_BT.T]
  sigmoid = lambda z: 1 / (1 + np.exp(-z))
  after = []
  for i in range(N):
    w, u, b, c = (tensors[f'rnns.{i}.{name}'] for name in ('weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0'))
    h, cell = carry[i] if carry else (np.zeros((tokens_BT.shape[0], u.shape[1])),) * 2
    outputs = []
    for x in x_TBE:
      gi, gf, gg, go = np.split(x @ w.T + h @ u.T + b + c, 4, axis=-1)
      cell = sigmoid(gf) * cell + sigmoid(gi) * np.tanh(gg)
      h = sigmoid(go) * np.tanh(cell)
      outputs.append(h)
    x_TBE = np.stack(outputs)
    after.append((h, cell))
  return x_TBE.swapaxes(0, 1), after


def assert_computes(workdir, tensors, output):
  """The run gives `output(last_BTD)` over two batches with the state carried."""
  run = restore.load(str(workdir))
  tokens = np.random.default_rng(5).integers(0, V, (2, 3, 7)).astype(np.int32)
  state, carry = run.model.init_state(run.cfg, 3), None
  for tokens_BT in tokens:
    features, state = run.model.apply(run.cfg, run.params['model'], {'tokens_BT': tokens_BT}, state)
    last_BTD, carry = restated(tensors, tokens_BT, carry)
    found = np.asarray(run.model.logits(run.cfg, run.params['model'], features))
    np.testing.assert_allclose(found, output(last_BTD), atol=1e-5)
  return run


def whole(tensors):
  return lambda x: x @ tensors['decoder.weight'].T + tensors['decoder.bias']


@pytest.mark.parametrize('kind', ['fwd', 'bwd'])
def test_imported_run_exports_unchanged(tmp_path, kind):
  """fastai 2.8 saves these names, without the stale matrices of fastai 1."""
  content = {name: x for name, x in fastai_names(lstm_tensors()).items() if not name.endswith('module.weight_hh_l0')}
  folder = write_fastai(tmp_path / 'theirs', content, name=f'lstm_{kind}')
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path / "run"}']) == 0
  assert main.main(['export', f'--workdir={tmp_path / "run"}', f'--to={tmp_path / "back"}']) == 0
  found = torch_file.read(tmp_path / 'back' / f'lmx_{kind}.pth')
  assert found.keys() == content.keys()
  for name, x in content.items():
    np.testing.assert_array_equal(found[name], x)
  assert torch_file.read(tmp_path / 'back' / f'lmx_{kind}_itos.pkl') == ITOS


@pytest.mark.parametrize(
  ('changes', 'options', 'message'),
  [
    ({'cell': 'qrnn'}, {'classifier': ((), ())}, 'cell=qrnn'),
    ({'cutoffs': (5, 10)}, {'classifier': ((), ())}, r'cutoffs=\(5, 10\)'),
    ({'tied': False}, {'backward': True}, 'data.reverse: got True'),
    ({}, {'backward': True, 'classifier': ((), ())}, 'data.reverse: got True'),
  ],
)
def test_unsupported_models_are_not_exported(tmp_path, changes, options, message):
  cfg = registry.config('awd_lstm', 'tiny', **{'E': 6, 'D': 9, **changes})
  params = {'model': drawn.params(registry.get('awd_lstm').init, cfg)}
  with pytest.raises(InputError, match=message):
    awd_lstm.write(tmp_path / 'to', cfg, params, [], **{'backward': False, **options})
  assert not (tmp_path / 'to').exists()


def assert_exports_unchanged(tmp_path, workdir, words):
  """The run's export is read again as the same parameters, settings and words; return the modules in it."""
  convert.export_run(workdir, str(tmp_path / 'back'))
  convert.import_run(str(tmp_path / 'back'), tmp_path / 'again', with_tokenizer=words)
  ours, again = (restore.load(str(path)) for path in (workdir, tmp_path / 'again'))
  assert ours.cfg == again.cfg and ours.tokenizer.hash == again.tokenizer.hash
  jax.tree.map(np.testing.assert_array_equal, ours.params, again.params)
  return torch_file.read(tmp_path / 'back' / 'lmx.pt')


@pytest.mark.parametrize('backward', [False, True])
def test_outputs_match_fastai(tmp_path, backward, capsys):
  tensors, kind = lstm_tensors(), 'bwd' if backward else 'fwd'
  content = fastai_names(tensors)
  content = {'model': content, 'opt': {'state': []}} if backward else content
  folder = write_fastai(tmp_path / 'wt103', content, name=f'lstm_{kind}')
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path / "run"}']) == 0
  assert 'newly initialised' not in capsys.readouterr().out
  run = assert_computes(tmp_path / 'run', tensors, whole(tensors))
  assert (run.cfg.E, run.cfg.D, run.cfg.N, run.cfg.tied, run.cfg.dropout_weight) == (E, D, N, True, 0.2)
  assert run.run.data.reverse == backward and run.run.data.batching.name == 'streams'
  assert run.tokenizer.tokens[:3] == ['<unk>', 'xxpad', '<eos>'] and run.tokenizer.vocab_size == V
  assert run.tokenizer.id_to_token(V - 1) == f'xxfake {V - 1}'


@pytest.mark.slow
def test_imported_run_initialises_ulmfit(tmp_path, capfd):
  folder = write_fastai(tmp_path / 'wt103', fastai_names(lstm_tensors()))
  convert.import_run(folder, tmp_path / 'run')
  sizes = [f'--config.model.{name}={size}' for name, size in (('E', E), ('D', D), ('N', N))]
  lm = ['--config=experiments/ulmfit/lm.py:tiny', f'--workdir={tmp_path / "lm"}', *sizes, '--config.train.steps=2']
  assert main.main(['train', *lm, f'--config.train.init_from={tmp_path / "run"}']) == 0
  assert 'vocabulary rows matched' in ''.join(capfd.readouterr())


def test_fastai_1_parameter_names(tmp_path):
  """0.7: the embedding's copy has another name, and the output no bias."""
  tensors = lstm_tensors()
  content = fastai_names(tensors | {'decoder.bias': np.zeros(V, np.float32)})
  del content['1.decoder.bias']
  content['0.encoder_with_dropout.embed.weight'] = content.pop('0.encoder_dp.emb.weight')
  content = {name.replace('.weight_hh_l0_raw', '.module.weight_hh_l0_raw'): x for name, x in content.items()}
  folder = write_fastai(tmp_path / 'old', content, itos=['_unk_', '_pad_', *map(str, range(V - 2))])
  with pytest.raises(InputError, match='got words without xxunk'):
    convert.import_run(folder, tmp_path / 'run')
  imported = convert.read(folder, tmp_path / 'run', with_tokenizer=False)
  rows = {row.name: row for row in imported.rows}
  assert {name for name, row in rows.items() if row.status == 'read'} == set()
  assert rows['0.rnns.1.module.weight_hh_l0_raw'].note == 'rnns.1.weight_hh_l0'
  assert rows['0.encoder_with_dropout.embed.weight'].note == 'repeats encoder.weight'
  assert {name for name, row in rows.items() if row.status == 'newly initialised'} == {'model/output/bias'}
  assert set(content) == set(rows) - {'model/output/bias'}  # every tensor of the file has a row
  convert.write(imported, tmp_path / 'run')
  assert_computes(tmp_path / 'run', tensors, lambda x: x @ tensors['decoder.weight'].T)


@pytest.mark.parametrize('splits', [(), (4, 9, 15)])
def test_outputs_match_salesforce(tmp_path, splits):
  tensors, rng = lstm_tensors(), np.random.default_rng(2)
  if splits:
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    tensors |= {'criterion.tail_vectors': draw(len(splits), E), 'criterion.tail_bias': draw(len(splits))}
  torch_files.save(tmp_path / 'WT.pt', salesforce_modules(tensors, splits), legacy=not splits)
  words = ['<eos>', '<unk>', *map(str, range(V - 2))]
  corpus = torch_files.Module({}, dictionary=torch_files.Module({}, idx2word=words))
  torch_files.save(tmp_path / 'corpus.abc.data', corpus)
  convert.import_run(str(tmp_path), tmp_path / 'run')
  run = assert_computes(tmp_path / 'run', tensors, _clusters(tensors, splits) if splits else whole(tensors))
  assert run.cfg.cutoffs == splits
  rates = [getattr(run.cfg, f'dropout_{name}') for name in ('output', 'embedding', 'hidden', 'input', 'weight')]
  assert rates == [0.4, 0.1, 0.2, 0.65, 0.3]
  assert run.tokenizer.encode('3 new\n').tolist() == [5, 1, 0]
  if splits:
    model, criterion, optimizer = assert_exports_unchanged(tmp_path, tmp_path / 'run', words=True)
    assert (model.name, criterion.name) == ('model.RNNModel', 'splitcross.SplitCrossEntropyLoss')
    assert criterion.state['splits'] == [0, *splits, 100_000_000] and criterion.state['nsplits'] == 4
    assert optimizer.state['param_groups'][0]['lr'] == 30.0


def _clusters(tensors, splits):
  """splitcross.py: the head has the tail vectors at its end, and cluster k is the k-th from there."""
  table, bias, ends = tensors['decoder.weight'], tensors['decoder.bias'], [*splits, V]
  normal = lambda z: z - np.log(np.exp(z).sum(-1, keepdims=True))

  def output(x):
    first = ends[0]
    rows = np.concatenate([table[:first], tensors['criterion.tail_vectors']])
    head = normal(x @ rows.T + np.concatenate([bias[:first], tensors['criterion.tail_bias']]))
    parts = [head[..., :first]]
    for k in range(1, len(ends)):
      cluster = slice(ends[k - 1], ends[k])
      parts.append(head[..., -k, None] + normal(x @ table[cluster].T + bias[cluster]))
    return np.concatenate(parts, -1)

  return output


def test_model_of_finetune_is_read_without_its_criterion(tmp_path):
  tensors = lstm_tensors()
  torch_files.save(tmp_path / 'WT.pt', salesforce_modules(tensors)[0])
  convert.import_run(str(tmp_path), tmp_path / 'run', with_tokenizer=False)
  run = assert_computes(tmp_path / 'run', tensors, whole(tensors))
  assert (run.cfg.dropout_output, run.cfg.dropout_weight) == (0.4, 0.3)


def test_state_dict_with_untied_output(tmp_path):
  tensors = lstm_tensors(last=D)
  tensors['decoder.weight'] = np.random.default_rng(4).normal(size=(V, D)).astype(np.float32)
  torch_files.save(tmp_path / 'model.pt', {'model': tensors})
  with pytest.raises(InputError, match=r'got none'):
    convert.import_run(str(tmp_path), tmp_path / 'run')
  convert.import_run(str(tmp_path), tmp_path / 'run', with_tokenizer=False)
  assert not assert_computes(tmp_path / 'run', tensors, whole(tensors)).cfg.tied


def test_qrnn_of_salesforce(tmp_path):
  rng = np.random.default_rng(0)
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  tensors = {'encoder.weight': draw(V, E), 'decoder.bias': draw(V)}
  for i, (window_in, width) in enumerate([(2 * E, D), (D, E)]):
    linear = f'rnns.{i}.linear.module'
    tensors |= {f'{linear}.weight_raw': draw(3 * width, window_in), f'{linear}.bias': draw(3 * width)}
  tensors['decoder.weight'] = tensors['encoder.weight']
  torch_files.save(tmp_path / 'model.pt', tensors)
  convert.import_run(str(tmp_path), tmp_path / 'run', with_tokenizer=False)
  run = restore.load(str(tmp_path / 'run'))
  assert (run.cfg.cell, run.cfg.N, run.cfg.D) == ('qrnn', 2, D)
  np.testing.assert_array_equal(run.params['model']['layer_00']['input'], tensors['rnns.0.linear.module.weight_raw'].T)
  model, *_ = assert_exports_unchanged(tmp_path, tmp_path / 'run', words=False)
  layers = model.state['_modules']['rnns'].state['_modules']
  assert [layers[i].state['window'] for i in '01'] == [2, 1] and layers['0'].state['input_size'] == E


@pytest.mark.peer
def test_exported_modules_compute_in_torch(tmp_path, monkeypatch):
  """With classes of the program's names; the weights are those of the LSTM once DropConnect has set them."""
  torch = pytest.importorskip('torch')
  cfg = registry.config('awd_lstm', 'tiny', V=V, E=E, D=D, N=2, cutoffs=(4, 9))
  params = {'model': drawn.params(registry.get('awd_lstm').init, cfg)}
  awd_lstm.write(tmp_path / 'to', cfg, params, ['<eos>', '<unk>'], False)
  kept = {'widget_demagnetizer_y2k_edition': lambda *_: None}
  for name in (
    'model.RNNModel',
    'splitcross.SplitCrossEntropyLoss',
    'weight_drop.WeightDrop',
    'locked_dropout.LockedDropout',
  ):
    module, _, short = name.partition('.')
    made = types.ModuleType(module)
    setattr(made, short, type(short, (torch.nn.Module,), {**kept, '__module__': module}))
    monkeypatch.setitem(sys.modules, module, made)
  data = types.ModuleType('data')
  data.Corpus, data.Dictionary = (type(name, (), {'__module__': 'data'}) for name in ('Corpus', 'Dictionary'))
  monkeypatch.setitem(sys.modules, 'data', data)
  model, criterion, optimizer = torch.load(tmp_path / 'to' / 'lmx.pt', weights_only=False)
  assert model.decoder.weight is model.encoder.weight and len(optimizer.param_groups[0]['params']) == 12
  assert torch.load(tmp_path / 'to' / 'corpus.lmx.data', weights_only=False).dictionary.word2idx['<unk>'] == 1
  tokens_BT = np.random.default_rng(5).integers(0, V, (3, 7)).astype(np.int32)
  x_TBE = model.encoder(torch.from_numpy(tokens_BT.T.astype(np.int64)))
  for drop in model.rnns:
    drop.module.weight_hh_l0 = drop.module.weight_hh_l0_raw.clone()
    x_TBE, _ = drop.module(x_TBE)
  lm = registry.get('awd_lstm')
  features, _ = lm.apply(cfg, params['model'], {'tokens_BT': tokens_BT}, lm.init_state(cfg, 3))
  np.testing.assert_allclose(x_TBE.detach().numpy().swapaxes(0, 1), features.last_BTD, atol=1e-5)
  clusters = params['model']['output']['clusters']['kernel']
  np.testing.assert_array_equal(criterion.tail_vectors.detach().numpy(), clusters[::-1])


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (lambda x: x | {'0.rnns.1.renamed': x.pop('0.rnns.1.module.bias_ih_l0')}, 'missing: rnns.1.bias_ih_l0'),
    (lambda x: {k: v for k, v in x.items() if k != '0.encoder.weight'}, '"encoder.weight": missing'),
    (lambda x: x | {'0.encoder_dp.emb.weight': x['0.encoder.weight'] + 1}, 'encoder_dp.emb.weight: got'),
    (lambda x: x | {'1.decoder.weight': x['0.encoder.weight'] + 1}, '"decoder.weight": got'),
    (lambda x: x | {'1.decoder.bias': np.ones(3, np.float32)}, r'decoder.bias is \(3,\), not \(20,\)'),
    (lambda x: x | {'0.rnns.0.weight_hh_l0_raw': np.ones((27, 9), np.float32)}, r'expected \(36, 9\), an LSTM'),
    (lambda x: x | {'0.rnns.0.module.weight_hh_l0_reverse': TWO}, 'a bidirectional layer'),
    (lambda x: ['text', x], 'expected a module of PyTorch'),
    (
      lambda x: x | {'encoder.weight': x['0.encoder.weight'] + 1},
      '"0.encoder.weight" and "encoder.weight": got',
    ),
    (
      lambda x: x | {'0.rnns.0.bias_ih_l0': x['0.rnns.0.module.bias_ih_l0'] + 1},
      'tensors "0.rnns.0.module.bias_ih_l0" and "0.rnns.0.bias_ih_l0": got',
    ),
  ],
)
def test_other_models_are_rejected(tmp_path, change, message):
  folder = write_fastai(tmp_path / 'wt103', change(fastai_names(lstm_tensors())))
  with pytest.raises(InputError, match=message):
    convert.import_run(folder, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


TWO = np.ones((36, 9), np.float32)


def test_words_that_do_not_fit_are_rejected(tmp_path):
  tensors = fastai_names(lstm_tensors())
  for itos, message in ((ITOS[:-1], 'got 19 words'), ({'a': 1}, 'got no word list')):
    folder = write_fastai(tmp_path / 'wt103', tensors, itos)
    with pytest.raises(InputError, match=message):
      convert.import_run(folder, tmp_path / 'run')
  with pytest.raises(InputError, match='the word "the" twice'):
    library_files.of_words([*ITOS, 'the'], 'fastai')


def test_large_salesforce_model_needs_its_criterion(tmp_path, monkeypatch):
  monkeypatch.setattr(awd_lstm, '_WHOLE', V - 1)
  torch_files.save(tmp_path / 'model.pt', lstm_tensors())
  with pytest.raises(InputError, match='got only the model, with 20 words'):
    convert.import_run(str(tmp_path), tmp_path / 'run', with_tokenizer=False)


def test_truncated_file_names_the_tensor(tmp_path):
  folder = write_fastai(tmp_path / 'wt103', {})
  torch_files.save(tmp_path / 'wt103' / 'lstm_fwd.pth', fastai_names(lstm_tensors()), legacy=True)
  path = tmp_path / 'wt103' / 'lstm_fwd.pth'
  path.write_bytes(path.read_bytes()[:-8])
  with pytest.raises(InputError, match='tensor "1.decoder.bias": '):
    convert.import_run(folder, tmp_path / 'run')


def test_bound_methods_only_of_foreign_objects(tmp_path):
  (tmp_path / 'x.pkl').write_bytes(b'cbuiltins\ngetattr\n(cbuiltins\nlist\nS"append"\ntR.')
  with pytest.raises(InputError, match='nothing of it was run: an attribute of something else'):
    torch_file.read(tmp_path / 'x.pkl')


def test_rules_of_fastai():
  """As fastai 2.8 prints them (TokenizeWithRules), without its first xxbos."""
  assert fastai.prepare('The GOOD movie, I said: sooooo so so so a/b &lt; it#39;s') == (
    "xxmaj the xxup good movie, i said: s xxrep 5 o xxwrep 3 so a / b < it's"
  )
  words = 'xxmaj the xxup good xxrep 3 ! xxwrep 2 so'.split()
  assert fastai.spelled(words) == ['The', 'GOOD', '!!!', 'so', 'so']


def test_words_of_fastai_are_split_by_spacy():
  pytest.importorskip('spacy')
  tokenizer = library_files.of_words(ITOS, 'fastai')
  ids = tokenizer.encode("The cat don't")
  assert [tokenizer.tokens[i] for i in ids] == ['xxmaj', 'the', 'cat', 'do', '<unk>']
  assert tokenizer.decode(ids[:3]) == 'The cat'
