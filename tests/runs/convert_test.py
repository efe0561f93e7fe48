"""Folders of Hugging Face's become runs and runs folders; tests/interop/transformers_test.py compares numbers."""

from __future__ import annotations

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.flax
import safetensors.numpy

import lmx
from lmx.cli import main
from lmx.config import resolve, semantics
from lmx.data.tokenizers import build, library_files
from lmx.errors import InputError, InputWarning
from lmx.interop import huggingface, tensor_table
from lmx.interop.huggingface import folder as folders
from lmx.models import registry
from lmx.runs import convert, restore, transfer
from tests import drawn, small_text
from tests.interop import imports, torch_files

TEXTS = ['The method returns a list of names.', 'A name is a string, and so is a list of them.'] * 20
KINDS = {'bert': 'wordpiece', 'gpt': 'gpt_bpe', 'gpt2': 'bpe'}
SIZES = {'T': 16, 'D': 8, 'H': 2, 'N': 2}


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  """name -> (folder as others leave it, Config, parameters, tokenizer)."""
  found = {}
  for name, kind in KINDS.items():
    model, tokenizer = registry.get(name), build.train(kind, TEXTS, vocab_size=300)
    cfg = model.Config(V=tokenizer.vocab_size, **SIZES)
    params = {'model': drawn.params(model.init, cfg), 'objective': {}}
    if name == 'bert':
      params['objective'] = {'nsp': {'kernel': np.ones((8, 2), np.float32), 'bias': np.zeros(2, np.float32)}}
    folder = tmp_path_factory.mktemp(name)
    of = huggingface.family(name)
    (folder / 'config.json').write_text(json.dumps({'model_type': of.TYPE, **of.config(cfg)}))
    safetensors.numpy.save_file(huggingface.to_hf(name, cfg, params), folder / 'model.safetensors')
    imports.save_tokenizer(tokenizer, folder)
    if name == 'bert':
      (folder / 'tokenizer_config.json').write_text('{"do_lower_case": false}')
    found[name] = folder, cfg, params, tokenizer
  return found


def copy(folder, to):
  to.mkdir()
  for path in folder.iterdir():
    (to / path.name).write_bytes(path.read_bytes())
  return to


def test_non_finite_tensors_are_reported(made, tmp_path):
  folder = copy(made['gpt2'][0], tmp_path / 'folder')
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  name = next(name for name in tensors if name.endswith('ln_f.weight'))
  tensors[name] = np.where(np.arange(8) == 3, np.inf, tensors[name]).astype(np.float32)
  safetensors.numpy.save_file(tensors, folder / 'model.safetensors')
  with pytest.warns(InputWarning, match=f'tensors with NaN or infinity: {name}$'):
    assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path}/run']) == 0


@pytest.mark.parametrize('name', KINDS)
def test_imported_it_is_a_run_and_exported_the_same_tensors(name, made, tmp_path, capsys):
  folder, cfg, params, tokenizer = made[name]
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path}/run']) == 0
  run = lmx.load(tmp_path / 'run')
  assert run.cfg == cfg and run.step == 0
  read = library_files.read(KINDS[name], str(folder), special_in_text=True)
  assert run.tokenizer.hash == read.from_folder().hash != read.hash
  np.testing.assert_array_equal(run.tokenizer.encode(TEXTS[0]), tokenizer.encode(TEXTS[0]))
  jax.tree.map(np.testing.assert_array_equal, dict(run.params), params)
  assert main.main(['export', f'--workdir={tmp_path}/run', f'--to={tmp_path}/out']) == 0
  before, after = (safetensors.numpy.load_file(f / 'model.safetensors') for f in (folder, tmp_path / 'out'))
  assert before.keys() == after.keys()
  for key in before:
    np.testing.assert_array_equal(before[key], after[key])
  assert main.main(['import', f'--from={tmp_path}/out', f'--workdir={tmp_path}/again']) == 0
  again = lmx.load(tmp_path / 'again')
  assert again.cfg == cfg
  np.testing.assert_array_equal(again.tokenizer.encode(TEXTS[0]), tokenizer.encode(TEXTS[0]))
  assert 'newly initialised' not in capsys.readouterr().out


@pytest.mark.parametrize('name,other', [('gpt', 'gpt2'), ('gpt2', 'gpt'), ('gpt2', 'bert'), ('bert', 'gpt2')])
def test_model_with_another_tokenizer_round_trips(name, other, made, tmp_path):
  """As where a GPT was trained on bytes: its export names the class that reads its tokenizer."""
  _, cfg, params, _ = made[name]
  tokenizer = made[other][3]
  model, sized = registry.get(name), dataclasses.replace(cfg, V=tokenizer.vocab_size)
  params = {'model': drawn.params(model.init, sized), 'objective': {}}
  folder, layout = tmp_path / 'folder', huggingface.family(name)
  folder.mkdir()
  (folder / 'config.json').write_text(json.dumps({'model_type': layout.TYPE, **layout.config(sized)}))
  safetensors.numpy.save_file(huggingface.to_hf(name, sized, params), folder / 'model.safetensors')
  imports.save_tokenizer(tokenizer, folder)
  classes = {'bert': 'BertTokenizer', 'gpt': 'OpenAIGPTTokenizer', 'gpt2': 'GPT2TokenizerFast'}
  settings = {'tokenizer_class': classes[other], **({'do_lower_case': False} if other == 'bert' else {})}
  (folder / 'tokenizer_config.json').write_text(json.dumps(settings))
  convert.import_run(str(folder), tmp_path / 'run')
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  convert.import_run(str(tmp_path / 'out'), tmp_path / 'again')
  for run in (lmx.load(tmp_path / 'run'), lmx.load(tmp_path / 'again')):
    assert run.tokenizer.kind == KINDS[other] == run.run.data.tokenizer
    np.testing.assert_array_equal(run.tokenizer.encode(TEXTS[0]), tokenizer.encode(TEXTS[0]))


@pytest.mark.parametrize('name,special', [('bert', '[SEP]'), ('gpt', '<unk>'), ('gpt2', '<|endoftext|>')])
def test_special_tokens_in_a_text_match_the_folder(name, special, made, tmp_path):
  folder = copy(made[name][0], tmp_path / 'folder')
  text = f'a {special} b'
  run = lmx.load(folder)
  assert run.tokenizer.token_id(special) in run.tokenizer.encode(text)
  (folder / 'tokenizer_config.json').write_text('{"split_special_tokens": true}')
  split = lmx.load(folder).tokenizer
  assert len(split.encode(text)) > len(run.tokenizer.encode(text))
  # In a work directory that an earlier version imported they are text.
  content = run.tokenizer.content()
  assert content.pop('special_in_text')
  (tmp_path / 'earlier').mkdir()
  (tmp_path / 'earlier/vocabulary.json').write_text(json.dumps(content))
  np.testing.assert_array_equal(build.load(str(tmp_path / 'earlier')).encode(text), split.encode(text))
  assert 'special_in_text' not in library_files.read(KINDS[name], str(folder)).content()


# What is done to a vocabulary -> model, its files, message.
BROKEN = {
  'empty': ('bert', {'vocab.txt': ''}, 'vocab.txt: got a vocabulary without tokens'),
  'special tokens alone': (
    'gpt2',
    {'vocab.json': '{"<|endoftext|>": 0}', 'merges.txt': ''},
    'vocab.json: got a vocabul',
  ),
  'nothing': ('gpt2', {'vocab.json': '{}', 'merges.txt': ''}, 'vocab.json: got a vocabulary without tokens'),
  'nothing of GPT': ('gpt', {'vocab.json': '{}', 'merges.txt': ''}, 'vocab.json: got a vocabulary without tokens'),
  'no unknown': ('bert', {'vocab.txt': '[PAD]\nthe\n[CLS]\n[SEP]\n'}, r'vocab.txt: got 4 tokens without \[UNK\]'),
  'no unknown of GPT': ('gpt', {'vocab.json': '{"a": 0}', 'merges.txt': ''}, 'vocab.json: got 1 tokens without <unk>'),
}


@pytest.mark.parametrize('name', BROKEN)
def test_vocabulary_without_its_tokens_is_rejected(name, made, tmp_path, capsys):
  model, files, message = BROKEN[name]
  folder = copy(made[model][0], tmp_path / 'folder')
  (folder / 'tokenizer.json').unlink()
  special = {'bert': ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'], 'gpt': ['<unk>'], 'gpt2': ['<|endoftext|>']}[model]
  decoder = {str(i): {'content': token, 'special': True} for i, token in enumerate(special)}
  files |= {'tokenizer_config.json': json.dumps({'added_tokens_decoder': decoder})}
  for file, content in files.items():
    (folder / file).write_text(content)
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path}/run']) == 2
  assert re.search(message, capsys.readouterr().err)


def test_short_vocabulary_and_a_repeated_token_are_reported(made, tmp_path, capsys):
  folder, V = copy(made['bert'][0], tmp_path / 'folder'), made['bert'][1].V
  (folder / 'tokenizer.json').unlink()
  tokens = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a', 'b', 'a', 'the']
  (folder / 'vocab.txt').write_text('\n'.join(tokens) + '\n')
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path}/run']) == 0
  printed = capsys.readouterr().out
  assert f'vocab.txt has 9 of the {V} ids of the model\n' in printed
  assert 'vocab.txt, line 8: "a" is repeated in line 6; its id is the later line\n' in printed
  tokenizer = lmx.load(tmp_path / 'run').tokenizer
  ids = tokenizer.encode('a b the').tolist()
  assert ids == [7, 6, 8] and tokenizer.vocab_size == 9  # as in transformers 4.57 and 5.23
  assert tokenizer.decode(ids) == 'a b the' and tokenizer.id_to_token(5) == ''


def test_import_lists_every_tensor_and_dry_run_writes_nothing(made, tmp_path, capsys):
  folder = copy(made['bert'][0], tmp_path / 'folder')
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  tensors = {n.removeprefix('bert.'): x for n, x in tensors.items() if 'predictions' not in n and 'pooler' not in n}
  tensors |= {'embeddings.position_ids': np.arange(16)[None]}
  tensors['cls.predictions.decoder.weight'] = tensors['embeddings.word_embeddings.weight']
  safetensors.numpy.save_file(tensors, folder / 'model.safetensors')
  arguments = ['import', f'--from={folder}', f'--workdir={tmp_path}/run']
  assert main.main([*arguments, '--dry_run']) == 0
  dry = capsys.readouterr().out.splitlines()
  lines = [line.split() for line in dry]
  V = made['bert'][1].V
  words = 'embeddings.word_embeddings.weight'
  assert f'renamed {words} {V}x8 float32 {8 * V:,} as bert.{words}'.split() in lines
  query = 'encoder.layer.{0,1}.attention.self.query.weight'
  assert ['renamed', query, *'2 of 8x8 float32 128 as'.split(), f'bert.{query}'] in lines
  assert ['read', 'cls.seq_relationship.weight', '2x8', 'float32', '16'] in lines
  assert ['unused', 'embeddings.position_ids', '1x16', 'int64', '16', 'a', 'constant'] in lines
  assert any(line[:2] == ['unused', 'cls.predictions.decoder.weight'] and 'repeats' in line for line in lines)
  assert 'newly initialised model/pooler/kernel 8x8 float32 64'.split() in lines
  total = next(line for line in dry if line.startswith('total: '))
  assert total.startswith('total: 2 read (18 numbers), ') and '2 unused' in total and '7 newly initialised' in total
  assert dry[-1].startswith(f'would write {tmp_path}/run: config.json, data.json')
  assert [path.name for path in tmp_path.iterdir()] == ['folder']
  assert main.main(arguments) == 0
  assert capsys.readouterr().out.splitlines()[:-1] == dry[:-1]
  assert main.main([*arguments, '--dry_run']) == 2  # the directory exists
  (folder / 'model.safetensors').write_bytes(b'')
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path}/other', '--dry_run']) == 2
  assert 'damaged or truncated' in capsys.readouterr().err


def test_imported_model_is_described_by_its_sizes(made, tmp_path, capsys):
  convert.import_run(str(made['bert'][0]), tmp_path / 'run')
  assert main.main(['describe', f'--workdir={tmp_path}/run']) == 0
  assert capsys.readouterr().out.splitlines()[0].startswith('bert 2x8, ')


def test_imported_model_is_measured(made, tmp_path):
  folder, *_ = made['gpt2']
  convert.import_run(str(folder), tmp_path / 'run')
  settings = [f'--config.{text}' for text in ('data.length=16', *small_text.settings(tmp_path))]
  arguments = ['evaluate', f'--workdir={tmp_path}/run', '--split=valid', '--no-baselines', *settings]
  assert main.main([*arguments, f'--output={tmp_path}/found.json']) == 0
  found = json.loads((tmp_path / 'found.json').read_text())
  assert found['model'].startswith('gpt2 2x8, ')  # the sizes of no variant
  assert abs(found['loss'] - np.log(registry.get('gpt2').Config(V=300).V)) < 0.3  # it knows nothing yet


def test_missing_heads_are_initialised_and_reported(made, tmp_path):
  folder, _, params, _ = made['bert']
  bare = copy(folder, tmp_path / 'bare')
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  kept = {n.removeprefix('bert.'): x for n, x in tensors.items() if 'cls.' not in n and 'pooler' not in n}
  safetensors.numpy.save_file(kept, bare / 'model.safetensors')
  lines = convert.import_run(str(bare), tmp_path / 'run')
  assert lines[1] == 'not in the files, so newly initialised: model/mlm, model/pooler'
  run = lmx.load(tmp_path / 'run')
  assert not run.run.objective.next_sentence and not run.params['objective']
  np.testing.assert_array_equal(run.params['model']['embed']['tokens'], params['model']['embed']['tokens'])
  assert np.std(run.params['model']['pooler']['kernel']) > 0.01


def test_bare_model_is_exported_as_one(made, tmp_path, capsys):
  folder, cfg, params, _ = made['bert']
  for pooled in (True, False):
    bare = copy(folder, tmp_path / f'bare{pooled}')
    tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
    kept = {n: x for n, x in tensors.items() if 'cls.' not in n and (pooled or 'pooler' not in n)}
    safetensors.numpy.save_file(kept, bare / 'model.safetensors')
    convert.import_run(str(bare), tmp_path / f'run{pooled}')
    assert main.main(['export', f'--workdir={tmp_path}/run{pooled}', f'--to={tmp_path}/out{pooled}']) == 0
    line = capsys.readouterr().out.splitlines()[1]
    parts = 'model/mlm' if pooled else 'model/mlm, model/pooler'
    assert line.startswith(f'not written: {parts}: ') and line.endswith('the class is BertModel')
    written = safetensors.numpy.load_file(tmp_path / f'out{pooled}/model.safetensors')
    assert written.keys() == kept.keys()
    assert json.loads((tmp_path / f'out{pooled}/config.json').read_text())['architectures'] == ['BertModel']
    again = convert.read(str(tmp_path / f'out{pooled}'), tmp_path / 'again')
    np.testing.assert_array_equal(again.params['model']['embed']['tokens'], params['model']['embed']['tokens'])


@pytest.mark.parametrize(
  ('lacking', 'name'),
  [('seq_relationship|pooler', 'BertForMaskedLM'), ('predictions', 'BertForNextSentencePrediction')],
)
def test_class_without_a_part_is_exported_without_it(lacking, name, made, tmp_path):
  folder = copy(made['bert'][0], tmp_path / 'folder')
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  kept = {n: x for n, x in tensors.items() if not re.search(lacking, n)}
  safetensors.numpy.save_file(kept, folder / 'model.safetensors')
  convert.import_run(str(folder), tmp_path / 'run')
  convert.export_run(tmp_path / 'run', str(tmp_path / 'out'))
  assert json.loads((tmp_path / 'out/config.json').read_text())['architectures'] == [name]
  written = safetensors.numpy.load_file(tmp_path / 'out/model.safetensors')
  assert written.keys() == kept.keys()
  for tensor, x in kept.items():
    np.testing.assert_array_equal(written[tensor], x, err_msg=tensor)


def test_export_reports_untrained_parameters(made, tmp_path, capsys):
  folder = copy(made['bert'][0], tmp_path / 'folder')
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  del tensors['bert.pooler.dense.weight'], tensors['bert.pooler.dense.bias']
  safetensors.numpy.save_file(tensors, folder / 'model.safetensors')
  convert.import_run(str(folder), tmp_path / 'run')
  assert json.loads((tmp_path / 'run/data.json').read_text())['newly_initialised'] == [
    'model/pooler/bias', 'model/pooler/kernel'
  ]  # fmt: skip
  assert main.main(['export', f'--workdir={tmp_path}/run', f'--to={tmp_path}/out']) == 0
  assert 'newly initialised and never trained: model/pooler; ' in capsys.readouterr().out


def test_imported_run_has_the_current_rules_for_every_data_set(made, tmp_path):
  convert.import_run(str(made['gpt2'][0]), tmp_path / 'run')
  saved = json.loads((tmp_path / 'run/config.json').read_text())
  config = resolve.resolve(saved, ['data.dataset=text_files'], saved=True)
  assert config.data.hold_out_test and semantics.evaluation_notes(config, 'cpu') == []


def test_shards_and_half_precision_are_read(made, tmp_path):
  folder, _, params, _ = made['gpt2']
  parts = copy(folder, tmp_path / 'parts')
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  (parts / 'model.safetensors').unlink()
  shards: dict = {'a.safetensors': {}, 'b.safetensors': {}}
  for i, (name, x) in enumerate(tensors.items()):
    shards['ab'[i % 2] + '.safetensors'][name] = jnp.asarray(x, jnp.bfloat16)
  for shard, some in shards.items():
    safetensors.flax.save_file(some, parts / shard)
  index = {'weight_map': {name: shard for shard, some in shards.items() for name in some}}
  (parts / 'model.safetensors.index.json').write_text(json.dumps(index))
  convert.import_run(str(parts), tmp_path / 'run')
  found = lmx.load(tmp_path / 'run').params['model']
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2**-8), dict(found), params['model'])
  (parts / 'b.safetensors').unlink()
  with pytest.raises(InputError, match='b.safetensors does not exist'):
    convert.import_run(str(parts), tmp_path / 'again')


@pytest.mark.parametrize('name', KINDS)
def test_untied_output_and_other_width_round_trip(name, made, tmp_path):
  folder, cfg, params, _ = made[name]
  changed = dataclasses.replace(cfg, tied=False, **({} if name == 'gpt' else {'F': 12}))
  model = registry.get(name)
  params = {**params, 'model': drawn.params(model.init, changed, seed=1)}
  own = copy(folder, tmp_path / 'own')
  settings = {'model_type': huggingface.family(name).TYPE, **huggingface.family(name).config(changed)}
  (own / 'config.json').write_text(json.dumps(settings))
  tensors = huggingface.to_hf(name, changed, params)
  safetensors.numpy.save_file(tensors, own / 'model.safetensors')
  assert not any('newly' in line for line in convert.import_run(str(own), tmp_path / 'run'))
  run = lmx.load(tmp_path / 'run')
  assert run.cfg == changed
  jax.tree.map(np.testing.assert_array_equal, dict(run.params), params)
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  written = json.loads((tmp_path / 'out/config.json').read_text())
  assert not written['tie_word_embeddings'] and (name == 'gpt' or 12 in written.values())
  back = safetensors.numpy.load_file(tmp_path / 'out/model.safetensors')
  assert back.keys() == tensors.keys()
  for key in back:
    np.testing.assert_array_equal(back[key], tensors[key])


def test_tokenizer_settings_round_trip(made, tmp_path):
  folder, _, _, tokenizer = made['bert']
  own = copy(folder, tmp_path / 'own')
  (own / 'tokenizer.json').unlink()
  names = [tokenizer.id_to_token(i) for i in range(tokenizer.vocab_size)]
  names[0], names[-2:] = '<pad>', ['é', 'è']
  (own / 'vocab.txt').write_text('\n'.join(names[:-1]) + '\n')
  (own / 'added_tokens.json').write_text(json.dumps({'<è>': len(names) - 1}))
  given = {'do_lower_case': True, 'strip_accents': False, 'tokenize_chinese_chars': False, 'pad_token': '<pad>'}
  (own / 'tokenizer_config.json').write_text(json.dumps(given))
  convert.import_run(str(own), tmp_path / 'run')
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  assert given.items() <= json.loads((tmp_path / 'out/tokenizer_config.json').read_text()).items()
  convert.import_run(str(tmp_path / 'out'), tmp_path / 'again')
  for run in (lmx.load(tmp_path / 'run'), lmx.load(tmp_path / 'again')):
    assert run.tokenizer.ids_to_tokens(run.tokenizer.encode('É <è>')) == ['é', '<è>'] and run.run.data.lower_case
    assert run.tokenizer.pad_id == 0


def test_model_can_be_imported_without_a_tokenizer(made, tmp_path, capsys):
  folder, cfg, params, tokenizer = made['bert']
  own = copy(folder, tmp_path / 'own')
  (own / 'tokenizer.json').unlink()
  command = ['import', f'--from={own}', f'--workdir={tmp_path}/run']
  assert main.main(command) == 2
  assert 'no tokenizer of kind wordpiece; --tokenizer=none imports only the model' in capsys.readouterr().err
  assert main.main([*command, '--tokenizer=none']) == 0
  assert 'arrays, without a tokenizer' in capsys.readouterr().out
  run = lmx.load(tmp_path / 'run')
  assert run.cfg == cfg
  jax.tree.map(np.testing.assert_array_equal, dict(run.params), params)
  with pytest.raises(InputError, match='imported with --tokenizer=none'):
    run.tokenizer.encode('a')
  shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), run.params)
  taken, _ = transfer.copy(tmp_path / 'run', shapes, (), tokenizer)  # rows by id
  jax.tree.map(np.testing.assert_array_equal, taken, dict(run.params))
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == ['README.md', 'config.json', 'model.safetensors']
  assert main.main(['predict', f'--workdir={tmp_path}/run', f'--input={own}/config.json']) == 2
  assert main.main(['evaluate', f'--workdir={tmp_path}/run']) == 2
  assert 'got a tokenizer of kind none' in capsys.readouterr().err


def _exported_learner(folder):
  for path in folder.iterdir():
    path.unlink()
  (folder / 'model.pkl').write_bytes(b'')


def _without(name):
  return lambda folder: (folder / name).unlink()


def _config(**changes):
  def change(folder):
    config = json.loads((folder / 'config.json').read_text())
    (folder / 'config.json').write_text(json.dumps(config | changes))

  return change


def _raw(content):
  content = content.encode() if isinstance(content, str) else content
  return lambda folder: (folder / 'config.json').write_bytes(content)


def _index(weights):
  def change(folder):
    (folder / 'model.safetensors').unlink()
    (folder / 'link.safetensors').symlink_to('/etc/passwd')
    (folder / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': weights}))

  return change


def _cut(folder):
  path = folder / 'model.safetensors'
  path.write_bytes(path.read_bytes()[:-7])


def _pickle(folder):
  (folder / 'model.safetensors').rename(folder / 'pytorch_model.bin')


@pytest.mark.parametrize(
  'break_it,words',
  [
    (_without('config.json'), ['config.json does not exist; got model.safetensors, tokenizer.json; expected a folder']),
    (_exported_learner, ['got model.pkl; expected a folder .*learn.save']),
    (lambda folder: (folder / 'config.json').write_text('{'), ['config.json: not JSON']),
    (_config(model_type='gpt2x'), ['model_type: got "gpt2x"', 'did you mean "gpt2"', 'openai-gpt']),
    (_config(activation_function='relu'), ["activation_function: got 'relu'", 'gelu_new']),
    (_config(n_embd='8'), ["n_embd: got '8'; expected a whole number"]),
    (_config(n_embd=True), ['n_embd: got True']),
    (_config(n_layer=2**70), ['n_layer: got 1180591620717411303424; expected a whole number from 1 to 1,000']),
    (_config(n_layer=1000), ['11,976 tensors missing: .* and 11,876 more']),
    (_config(resid_pdrop=None), ['resid_pdrop: got None; expected a number from 0 to below 1']),
    (_config(embd_pdrop=float('nan')), ['embd_pdrop: got nan']),
    (_config(architectures=5), ['architectures: got 5; expected a list of names']),
    (_config(architectures='GPT2Model'), ["architectures: got 'GPT2Model'"]),
    (_config(architectures=[{}]), ['architectures: got']),
    (_config(architectures=['GPT2ForSequenceClassification'], num_labels='x'), ["num_labels: got 'x'"]),
    (_config(architectures=['GPT2ForSequenceClassification'], num_labels=10**9), ['num_labels: got 1000000000']),
    (_config(architectures=['GPT2ForSequenceClassification'], id2label=['a']), [r"id2label: got \['a'\]"]),
    (_raw('[]'), ['expected a JSON object']),
    (_index([]), [r'index.json: weight_map: got \[\]; expected an object']),
    (_index({'a': 5}), ['weight_map: got']),
    (_index({'a': '../other/model.safetensors'}), ['weight_map: got "../other/model.safetensors"; expected a file of']),
    (_index({'a': '/etc/passwd'}), ['weight_map: got "/etc/passwd"; expected a file of this folder']),
    (_index({'a': 'link.safetensors'}), ['weight_map: got "link.safetensors"; expected a file of this folder']),
    (_cut, ['damaged or truncated: tensor "transformer.wte.weight" ends at byte .* and the file at .*; 1 of 29 ten']),
    (_pickle, ['pytorch_model.bin: not read, and nothing of it was run']),
    (_without('model.safetensors'), ['has no model.safetensors']),
    (_without('tokenizer.json'), ['no tokenizer of kind bpe']),
    (_config(vocab_size=200), ['expected at least .* the ids of its tokenizer|of another shape']),
  ],
)
def test_bad_folders_are_rejected_before_writing(break_it, words, made, tmp_path):
  folder = copy(made['gpt2'][0], tmp_path / 'folder')
  break_it(folder)
  for word in words:
    with pytest.raises(InputError, match=word):
      convert.import_run(str(folder), tmp_path / 'run')
  assert [path.name for path in tmp_path.iterdir()] == ['folder']


def test_file_of_a_folder_asks_for_the_folder(made, tmp_path):
  path = made['gpt2'][0] / 'model.safetensors'
  with pytest.raises(InputError, match='model.safetensors is a file'):
    convert.import_run(str(path), tmp_path / 'run')


@pytest.mark.parametrize('form', ['zip', 'legacy', 'shards'])
def test_folder_with_a_pickle_is_imported_as_one_with_safetensors(form, made, tmp_path):
  folder = copy(made['gpt2'][0], tmp_path / 'folder')
  convert.import_run(str(folder), tmp_path / 'one')
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  (folder / 'model.safetensors').unlink()
  if form == 'shards':
    names = sorted(tensors)
    weights = {name: f'pytorch_model-0000{1 + i % 2}-of-00002.bin' for i, name in enumerate(names)}
    for file in set(weights.values()):
      torch_files.save(folder / file, {name: tensors[name] for name in names if weights[name] == file})
    (folder / 'pytorch_model.bin.index.json').write_text(json.dumps({'weight_map': weights}))
  else:
    torch_files.save(folder / 'pytorch_model.bin', tensors, legacy=form == 'legacy')
  convert.import_run(str(folder), tmp_path / 'two')
  one, two = (restore.load(tmp_path / name, 'last').params for name in ('one', 'two'))
  jax.tree.map(np.testing.assert_array_equal, one, two)
  assert jax.tree.leaves(one)
  if form == 'shards':
    (folder / 'pytorch_model-00002-of-00002.bin').unlink()
    with pytest.raises(InputError, match='pytorch_model-00002-of-00002.bin does not exist'):
      convert.import_run(str(folder), tmp_path / 'three')
  else:
    torch_files.save(folder / 'pytorch_model.bin', [tensors])
    with pytest.raises(InputError, match='got a list'):
      convert.import_run(str(folder), tmp_path / 'three')


def test_tensor_of_two_shards_is_rejected_unless_it_is_equal_in_both(made, tmp_path):
  folder = copy(made['gpt2'][0], tmp_path / 'folder')
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  (folder / 'model.safetensors').rename(folder / 'a.safetensors')
  name = 'transformer.ln_f.weight'
  weights = dict.fromkeys(tensors, 'a.safetensors') | {name: 'b.safetensors'}
  (folder / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': weights}))
  safetensors.numpy.save_file({name: tensors[name] + 1}, folder / 'b.safetensors')
  with pytest.raises(InputError, match=f'tensors "{name} of a.safetensors" and "{name} of b.safetensors": got other'):
    convert.read(str(folder), tmp_path / 'run')
  safetensors.numpy.save_file({name: tensors[name]}, folder / 'b.safetensors')
  rows = convert.read(str(folder), tmp_path / 'run').rows
  assert [row.note for row in rows if row.name == f'{name} of b.safetensors'] == [f'repeats {name} of a.safetensors']


def test_shards_of_the_hubs_cache_are_links_to_its_blobs(made, tmp_path):
  snapshot, blobs = tmp_path / 'models--a/snapshots/1', tmp_path / 'models--a/blobs'
  snapshot.parent.mkdir(parents=True), blobs.mkdir()
  copy(made['gpt2'][0], snapshot)
  (snapshot / 'model.safetensors').rename(blobs / 'abc')
  (snapshot / 'one.safetensors').symlink_to('../../blobs/abc')
  names = safetensors.numpy.load_file(blobs / 'abc')
  (snapshot / 'model.safetensors.index.json').write_text(
    json.dumps({'weight_map': dict.fromkeys(names, 'one.safetensors')})
  )
  assert folders.read(snapshot).tensors.keys() == names.keys()


def test_exported_files_have_the_modes_that_the_umask_gives(made, tmp_path):
  convert.import_run(str(made['gpt2'][0]), tmp_path / 'run')
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  assert len({path.stat().st_mode for path in (tmp_path / 'out').iterdir()}) == 1


def test_nothing_is_overwritten(made, tmp_path):
  (tmp_path / 'note').write_text('mine')
  with pytest.raises(InputError, match='exists already'):
    convert.import_run(str(made['gpt'][0]), tmp_path)
  convert.import_run(str(made['gpt'][0]), tmp_path / 'run')
  with pytest.raises(InputError, match='exists already|is there already'):
    convert.export_run(tmp_path / 'run', tmp_path)
  assert (tmp_path / 'note').read_text() == 'mine'


def test_models_without_such_a_form(tmp_path):
  with pytest.raises(InputError, match='is not written as a folder'):
    huggingface.folder.write(tmp_path / 'out', 'awd_lstm', None, {}, None, {})


def release(made, folder):
  """GPT's parameters as the release has them: all in one row, cut into files anywhere."""
  _, cfg, params, tokenizer = made['gpt']
  tensors = {n.removeprefix('transformer.'): x for n, x in huggingface.to_hf('gpt', cfg, params).items()}
  names = ['positions_embed.weight', 'tokens_embed.weight']
  for i in range(cfg.N):
    parts = ('attn.c_attn', 'attn.c_proj', 'ln_1', 'mlp.c_fc', 'mlp.c_proj', 'ln_2')
    names += [f'h.{i}.{part}.{kind}' for part in parts for kind in ('weight', 'bias')]
  arrays = [tensors[name] if 'c_' not in name or 'bias' in name else tensors[name][None] for name in names]
  folder.mkdir()
  (folder / 'params_shapes.json').write_text(json.dumps([x.shape for x in arrays]))
  for i, part in enumerate(np.array_split(np.concatenate([x.ravel() for x in arrays]), 11)):
    np.save(folder / f'params_{i}.npy', part)
  tokenizer._model.model.save(str(folder))
  (folder / 'vocab.json').rename(folder / 'encoder_bpe_40000.json')
  (folder / 'merges.txt').rename(folder / 'vocab_40000.bpe')
  return folder


def test_gpt_as_released(made, tmp_path):
  _, cfg, params, tokenizer = made['gpt']
  folder = release(made, tmp_path / 'model')
  settings = ['model.H=2']  # the files do not have it, and heads of 64 are wider
  rows = convert.read(str(folder), tmp_path / 'run', settings).rows
  renamed = {row.name: row.note for row in rows if row.status == tensor_table.RENAMED}
  assert (
    len(renamed) == len(rows) == 26
    and renamed['array 14 of params_shapes.json'] == 'transformer.h.1.attn.c_attn.weight'
  )
  convert.import_run(str(folder), tmp_path / 'run', settings)
  run = lmx.load(tmp_path / 'run')
  assert run.cfg == cfg
  jax.tree.map(np.testing.assert_array_equal, dict(run.params), params)
  np.testing.assert_array_equal(run.tokenizer.encode(TEXTS[0]), tokenizer.encode(TEXTS[0]))
  whole = (folder / 'params_3.npy').read_bytes()
  for size in (0, 20, len(whole) - 4):
    (folder / 'params_3.npy').write_bytes(whole[:size])
    with pytest.raises(InputError, match=r'params_3.npy cannot be read \(.*\)'):
      convert.import_run(str(folder), tmp_path / 'again')
  (folder / 'params_3.npy').write_bytes(whole)
  for other in ('params_13.npy', 'params_03.npy'):  # one after the last; one of another number
    (folder / 'params_3.npy').rename(folder / other)
    with pytest.raises(InputError, match='params_3.npy: missing; expected all files up to'):
      convert.import_run(str(folder), tmp_path / 'again')
    (folder / other).rename(folder / 'params_3.npy')
  (folder / 'params_10.npy').unlink()
  with pytest.raises(InputError, match='got .* numbers in 10 files params_'):
    convert.import_run(str(folder), tmp_path / 'again')
  np.save(folder / 'params_x.npy', np.zeros(2))  # no part of the release
  bad = (('[[-1, 8]]', 'size below 1'), ('[' * 100_000, 'nested too deep'), ('[[Infinity]]', 'got size inf'))
  bad += (
    ('[[20.5, 8]]', 'json: got size 20.5; expected'),
    ('{"model": [1]}', "json: got size 'm'"),
    ('[1]', 'cannot be'),
  )
  for text, words in bad:
    (folder / 'params_shapes.json').write_text(text)
    with pytest.raises(InputError, match=words):
      convert.import_run(str(folder), tmp_path / 'again')
  (folder / 'params_shapes.json').write_text('[[16, 8], [300, 9]]')
  with pytest.raises(InputError, match='expected a GPT'):
    convert.import_run(str(folder), tmp_path / 'again')
  release(made, tmp_path / 'other')
  np.save(tmp_path / 'other/params_0.npy', np.array([{}]), allow_pickle=True)
  with pytest.raises(InputError, match='cannot be read'):
    convert.import_run(str(tmp_path / 'other'), tmp_path / 'again')
  assert not (tmp_path / 'again').exists()


@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_exported_positions_limit_the_text_but_are_no_setting_of_a_run(name, made, tmp_path):
  """The pipeline of transformers generates 256 tokens, more than the model has positions."""
  convert.import_run(str(made[name][0]), tmp_path / 'run')
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  path = tmp_path / 'out/generation_config.json'
  assert 'max_length' not in (content := json.loads(path.read_text()))  # as in the folder
  path.write_text(json.dumps({**content, 'max_length': SIZES['T']}))  # as of a run that was trained
  convert.import_run(str(tmp_path / 'out'), tmp_path / 'again')
  first, again = (json.loads((tmp_path / run / 'data.json').read_text()).get('generation') for run in ('run', 'again'))
  assert first == again
