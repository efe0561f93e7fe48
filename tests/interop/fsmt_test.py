"""Folders of FSMT: tensors, tokenizer, options of the search, what is written, and what is refused.

tests/fixtures/fsmt.json has what transformers 5.23 makes of these folders (fsmt_folders.py).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re

import jax
import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx.cli import main
from lmx.data.tokenizers import build, library_files
from lmx.decoding import translate
from lmx.errors import InputError
from lmx.evaluation import translation
from lmx.interop import huggingface
from lmx.interop.huggingface import architectures
from lmx.interop.huggingface import folder as folders
from lmx.models import transformer
from lmx.runs import convert, restore
from tests.data.tokenizers import strings
from tests.interop import fairseq_files, fsmt_folders, imports
from tests.interop.fairseq_test import CODES, imported
from tests.interop.fsmt_folders import CASES, LINES, SEARCHES, STRINGS, made, save
from tests.interop.marian_test import check_search, logits, translator

SLOW = [case if case == 'separate' else pytest.param(case, marks=pytest.mark.slow) for case in CASES]


@functools.cache
def expected():
  return json.loads(fsmt_folders.FIXTURE.read_text())


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """Work directory and loaded run of a folder."""
  root = tmp_path_factory.mktemp('fsmt')
  save(root / 'folder')
  assert main.main(['import', f'--from={root / "folder"}', f'--workdir={root / "run"}']) == 0
  return root / 'run', restore.load(root / 'run')


def check_tokenizer(tokenizer, texts, found):
  for text, source, target, decoded in zip(texts, found['ids'], found['target'], found['texts'], strict=True):
    assert [*tokenizer.encode(text), tokenizer.eos_id] == source, text
    assert [*tokenizer.target.encode(text), tokenizer.eos_id] == target, text
    assert tokenizer.target.decode(target) == decoded


def check_logits(loaded, found, source, target, atol=1e-5):
  source, target = (one.encode(text) for one, text in
                    ((loaded.tokenizer, source), (loaded.tokenizer.target, target)))  # fmt: skip
  end = loaded.tokenizer.eos_id
  batch = {'source_BS': np.asarray([[*source, end]]), 'tokens_BT': np.asarray([[end, *target]])}
  np.testing.assert_allclose(logits(loaded.cfg, loaded.params['model'], batch)[0, :, ::11], found['logits'], atol=atol)


@pytest.mark.parametrize('case', CASES)
def test_every_parameter_is_written_and_read(case):
  cfg, tensors, _ = made(**CASES[case])
  params = huggingface.from_hf('fsmt', cfg, tensors)
  shapes = jax.eval_shape(lambda: transformer.init(cfg, jax.random.key(0)))
  assert jax.tree.map(lambda x: x.shape, params['model']) == jax.tree.map(lambda x: x.shape, shapes)
  back = huggingface.to_hf('fsmt', cfg, params)
  for name, tensor in tensors.items():
    np.testing.assert_array_equal(back[name], tensor, err_msg=name)
  jax.tree.map(np.testing.assert_array_equal, huggingface.from_hf('fsmt', cfg, back), params)


@pytest.mark.parametrize('case', CASES)
def test_ids_match_transformers(case, tmp_path):
  save(tmp_path / 'folder', **CASES[case])
  tokenizer = library_files.read('moses', str(tmp_path / 'folder'), special_in_text=True)
  check_tokenizer(tokenizer, STRINGS, expected()[case])
  content = tokenizer.content()
  assert content.pop('special_in_text') and library_files.read('moses', str(tmp_path / 'folder')).content() == content
  earlier = build.of_content(content)  # of a work directory that an earlier version imported
  assert tokenizer.encode('</s>').tolist() == [tokenizer.eos_id] and earlier.eos_id not in earlier.encode('</s>')


@pytest.mark.parametrize('case', SLOW)
def test_logits_match_transformers(case, tmp_path):
  save(tmp_path / 'folder', **CASES[case])
  check_logits(lmx.load(tmp_path / 'folder'), expected()[case], *LINES[:2])


@pytest.mark.slow
@pytest.mark.parametrize('name', SEARCHES)  # of which each compiles a program
def test_hypotheses_match_generate(run, name):
  options = translation.decoding_options(run[1].run)
  check_search(translator(run[1]), options, SEARCHES[name], expected()['separate']['searches'][name], LINES)


def test_options_of_the_folder_match_the_search(tmp_path, run):
  options = translation.decoding_options(run[1].run)
  assert (options.beam, options.alpha, options.penalty, options.stop) == (4, 1.1, 'power', 'current')
  assert (options.max_length, options.forced_end, options.forbidden) == (11, True, (1,))
  save(tmp_path / 'folder', files={'generation_config.json': None}, config=dict(num_beams=None, max_length=None))
  folder = folders.read(tmp_path / 'folder')
  evaluation, note = folder.evaluation, next(line for line in folder.remarks if 'generation_config.json' in line)
  assert 'missing; read as num_beams 5, max_length 200, as by version 4' in note and '1 beam, 20 tokens' in note
  assert (evaluation['beam'], evaluation['max_length'], evaluation['forced_end']) == (5, 199, True)  # of the class


@pytest.mark.parametrize('case', ['separate', 'shared', 'other ids'])
def test_exported_folder_is_the_same(case, tmp_path):
  save(tmp_path / 'own', **CASES[case])
  for source, run, to in (('own', 'run', 'to'), ('to', 'again', 'third')):
    assert main.main(['import', f'--from={tmp_path / source}', f'--workdir={tmp_path / run}']) == 0
    assert main.main(['export', f'--workdir={tmp_path / run}', f'--to={tmp_path / to}']) == 0
  for name in sorted(path.name for path in (tmp_path / 'to').iterdir() if path.name != 'README.md'):
    assert (tmp_path / 'to' / name).read_bytes() == (tmp_path / 'third' / name).read_bytes(), name
  for name in ('config.json', 'generation_config.json', 'vocab-src.json', 'vocab-tgt.json', 'tokenizer_config.json'):
    before, after = (json.loads((tmp_path / folder / name).read_text()) for folder in ('own', 'to'))
    kept = {key: value for key, value in before.items() if key not in UNKEPT}
    assert {key: after.get(key) for key in kept} == kept
  merges = [line.split()[:2] for line in (tmp_path / 'own' / 'merges.txt').read_text().splitlines()]
  assert [line.split() for line in (tmp_path / 'to' / 'merges.txt').read_text().splitlines()] == merges
  before, after = (safetensors.numpy.load_file(tmp_path / folder / 'model.safetensors') for folder in ('own', 'to'))
  assert {*before} == {*after}
  for name, tensor in before.items():
    np.testing.assert_array_equal(after[name], tensor)


UNKEPT = ('decoder', 'max_length', 'num_beams', 'num_hidden_layers', 'model_max_length', 'special_tokens_map_file')


def fairseq_release(folder, **case):
  """A release of fairseq with codes and, if `more`, two dictionaries."""
  words = ['the', 'th@@', 'e@@', '@@@', 'and', 'lower', ',', 'it', '&apos;s'] + fairseq_files.WORDS
  words = words[: len(fairseq_files.WORDS)]
  more = [f's{i}' for i in range(case.get('more', 0))]
  save_release = functools.partial(fairseq_files.save, codes='\n'.join(['#version: 0.2', *CODES, CODES[0]]) + '\n')
  save_release(folder, dictionaries={'en': words + more, 'de': words[::-1] if more else words}, **case)


@pytest.mark.parametrize('case', [dict(stacked=True, shared=True), dict(more=11, activation='gelu')])
def test_checkpoint_of_fairseq_is_exported(case, tmp_path, capsys):
  fairseq_release(tmp_path / 'release', **case)
  loaded = imported(tmp_path / 'release', tmp_path / 'run')
  assert main.main(['export', f'--workdir={tmp_path / "run"}', f'--to={tmp_path / "to"}']) == 0
  assert 'this run does not' in capsys.readouterr().out
  again = imported(tmp_path / 'to', tmp_path / 'again')
  jax.tree.map(np.testing.assert_array_equal, again.params, loaded.params)
  assert again.cfg == loaded.cfg
  options = (dataclasses.asdict(translation.decoding_options(one.run)) for one in (again, loaded))
  first, second = ({k: v for k, v in one.items() if k != 'allow_unk'} for one in options)
  assert first == second
  for one, other in ((again.tokenizer, loaded.tokenizer), (again.tokenizer.target, loaded.tokenizer.target)):
    for text in ('the lower, and', 'theand the', 'the'):
      assert one.encode(text).tolist() == other.encode(text).tolist()
      assert one.decode(one.encode(text)) == other.decode(other.encode(text))
  assert again.tokenizer.ids_to_tokens([1, 2, 4, 5]) == ['<pad>', '</s>', 'the</w>', 'th']


def test_words_are_exported_without_a_tokenizer(tmp_path, capsys):
  fairseq_files.save(tmp_path / 'release')
  imported(tmp_path / 'release', tmp_path / 'run')
  assert main.main(['export', f'--workdir={tmp_path / "run"}', f'--to={tmp_path / "to"}']) == 0
  assert 'no format for a words tokenizer' in capsys.readouterr().out
  assert sorted(path.name for path in (tmp_path / 'to').iterdir()) == [
    'README.md', 'config.json', 'generation_config.json', 'model.safetensors'
  ]  # fmt: skip
  back = imported(tmp_path / 'to', tmp_path / 'again', with_tokenizer=False)
  jax.tree.map(np.testing.assert_array_equal, back.params, restore.load(tmp_path / 'run').params)


UNWRITTEN = {
  'pre-norm': (dict(norm='pre'), "model.norm: got 'pre'; expected 'post'; FSMT"),
  'untied': (dict(tied=False), 'model.tied: got False; expected True; FSMT'),
  'biases': (dict(biases='none'), "model.biases: got 'none'; expected 'attention'; FSMT"),
  'epsilon': (dict(eps=1e-6), 'model.eps: got 1e-06'),
  'narrow heads': (dict(K=3), 'model.K: got 3'),
  'first position': (dict(first_position=0), 'model.first_position: got 0'),
  'padding': (dict(first_position=4), 'model.first_position: got 4; expected 2, the id of <pad>'),
  'interleaved': (dict(positions='interleaved'), "model.positions: got 'interleaved'; .*Marian.*FSMT"),
}


@pytest.mark.parametrize('name', UNWRITTEN)
def test_unsupported_models_are_not_exported(name, run, tmp_path):
  changes, message = UNWRITTEN[name]
  loaded = run[1]
  write = functools.partial(folders.write, tmp_path / 'to', 'transformer')
  task = architectures.Task('translation', loaded.run.objective)
  own = (loaded.params, task, loaded.tokenizer.content())
  with pytest.raises(InputError, match=message):
    write(dataclasses.replace(loaded.cfg, **changes), *own, evaluation=loaded.run.evaluation)
  assert not (tmp_path / 'to').exists()


def test_tokenizer_or_search_that_the_class_lacks_is_not_written(run, tmp_path):
  loaded, task = run[1], architectures.Task('translation', run[1].run.objective)
  write = functools.partial(folders.write, tmp_path / 'to', 'transformer', loaded.cfg, loaded.params, task)
  with pytest.raises(InputError, match='data.tokenizer: got "bytes"'):
    write({'kind': 'bytes', 'eos': True}, evaluation=loaded.run.evaluation)
  with pytest.raises(InputError, match='evaluation.min_ratio: got 0.5'):
    write(loaded.tokenizer.content(), evaluation=dataclasses.replace(loaded.run.evaluation, min_ratio=0.5))
  twice = loaded.tokenizer.content() | {
    'rules': 'fairseq',
    'vocabularies': [['<s>', '<pad>', '<eos>', '<unk>', '<s>@@']],
  }
  with pytest.raises(InputError, match='data.tokenizer: got'):
    write(twice, evaluation=loaded.run.evaluation)
  assert not (tmp_path / 'to').exists()


REFUSED = {
  'activation': (dict(config={'activation_function': 'tanh'}), 'activation_function'),
  'pruned heads': (dict(config={'pruned_heads': {'0': [1]}}), 'pruned_heads'),
  'decoder alone': (dict(config={'is_encoder_decoder': False}), 'is_encoder_decoder'),
  'another width': (dict(config={'hidden_size': 32}), 'hidden_size: got 32; expected d_model, 16'),
  'a shared table': (dict(config={'tie_word_embeddings': True}), 'tgt_vocab_size: got'),
  'no padding': (dict(config={'pad_token_id': -1}), 'pad_token_id'),
  'another class': (dict(config={'architectures': ['FSMTForSpeech']}), 'unknown FSMTForSpeech'),
  'another start': (dict(generation={'decoder_start_token_id': 0}), 'decoder_start_token_id: got 0; expected .*2'),
  'another end': (
    dict(generation={'eos_token_id': 5, 'forced_eos_token_id': None, 'decoder_start_token_id': 5}),
    'decoder_start_token_id: got 5',
  ),  # fmt: skip
  'no merges.txt': (dict(files={'merges.txt': None}), 'merges.txt: missing'),
  'no vocab-tgt.json': (dict(files={'vocab-tgt.json': None}), 'vocab-tgt.json: missing'),
  'merges.txt cut': (dict(files={'merges.txt': 't h 9\nth'}), 'merges.txt: got a last line'),
  'merges.txt of one': (dict(files={'merges.txt': 't h 9\nth\n'}), 'merges.txt, line 2'),
  'vocabulary twice': (dict(files={'vocab-src.json': '{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 2}'}), 'vocab-src'),
  'vocabulary with a gap': (
    dict(files={'vocab-src.json': '{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 9}'}),
    'vocab-src.json: got ids with gaps; expected 0 to 4',
  ),
  'vocabulary without <pad>': (dict(files={'vocab-tgt.json': '{"</s>": 2}'}), 'vocab-tgt.json: got no <s>, <pad>'),
  'other special tokens': (
    dict(files={'vocab-src.json': '{"<s>": 0, "<pad>": 1, "</s>": 3, "<unk>": 2}'}),
    'vocab-tgt.json: </s>: got id 2; expected 3',
  ),
  'no languages': (dict(settings={'langs': None}, config={'langs': None}), 'langs: got null'),
  'one language': (dict(settings={'langs': ['en']}), 'langs'),
  'added token': (dict(settings={'additional_special_tokens': ['<x>']}), '<x>'),
  'renamed token': (dict(settings={'unk_token': '[UNK]'}), 'unk_token: got ".UNK.'),
  'unknown key': (dict(settings={'lower': True}), 'unknown key "lower"'),
  'other tokenizer': (dict(settings={'tokenizer_class': 'T5Tokenizer'}), 'tokenizer_class'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_unsupported_options_are_rejected(name, tmp_path, capsys):
  changes, message = REFUSED[name]
  save(tmp_path / 'folder', **changes)
  imports.check_refused(tmp_path / 'folder', message, capsys)


DECODER = 'model.decoder.embed_tokens.weight'
OUTPUT, POSITIONS = 'model.decoder.output_projection.weight', 'model.encoder.embed_positions.weight'
TENSORS = {
  'an output of its own': (
    lambda x: {OUTPUT: x[OUTPUT] + 1},
    f'{OUTPUT}: got other values than {DECODER}.*; lmx computes with one',
  ),
  'other positions': (lambda x: {POSITIONS: x[POSITIONS] + 1}, f'{POSITIONS}: got other values'),
  'no positions': (lambda x: {POSITIONS: 0 * x[POSITIONS]}, f'{POSITIONS}: got other values'),
}


@pytest.mark.parametrize('name', TENSORS)
def test_wrong_tensor_is_reported(name, tmp_path, capsys):
  save(tmp_path / 'folder')
  path = tmp_path / 'folder' / 'model.safetensors'
  tensors = safetensors.numpy.load_file(path)
  tensors |= TENSORS[name][0](tensors)
  safetensors.numpy.save_file({name: x for name, x in tensors.items() if x is not None}, path)
  assert main.main(['import', f'--from={tmp_path / "folder"}', f'--workdir={tmp_path / "run"}']) == 2
  assert re.search(TENSORS[name][1], capsys.readouterr().err)


def test_later_duplicate_merge_wins(tmp_path):
  save(tmp_path / 'folder', files={'merges.txt': '#version: 0.2\nt h\nh e</w>\nt h\n'})
  tokenizer = library_files.read('moses', str(tmp_path / 'folder'))
  assert tokenizer.content()['codes'] == [['h', 'e</w>'], ['t', 'h']]


@pytest.mark.peer
@pytest.mark.parametrize('case', CASES)
def test_transformers_agrees(case, tmp_path):
  """LMX_TRANSFORMERS names a Python that has transformers, torch and sacremoses."""
  save(tmp_path / 'folder', **CASES[case])
  texts = [strings.without_surrogates(text) for text in strings.strings(2000)]
  if CASES[case].get('lower'):  # version 4 lower-cases each character by itself
    texts = [text for text in texts if text.lower() == ''.join(map(str.lower, text))]
  found = peer(tmp_path / 'folder', strings=[LINES[1], *texts], target=0)
  loaded = imported(tmp_path / 'folder', tmp_path / 'run')
  check_tokenizer(loaded.tokenizer, [LINES[1], *texts], found)
  check_logits(loaded, found, *LINES[:2])
  options = translation.decoding_options(loaded.run)
  for name, hypotheses in found['searches'].items():
    check_search(translator(loaded), options, SEARCHES[name], hypotheses, LINES)
  convert.export_run(tmp_path / 'run', str(tmp_path / 'back'))
  again = peer(tmp_path / 'back', strings=[LINES[1], *texts], target=0)
  np.testing.assert_allclose(again.pop('logits'), found.pop('logits'), atol=1e-5)  # the tables of positions are lmx's
  assert [again[name] for name in ('ids', 'target', 'texts')] == [found[name] for name in ('ids', 'target', 'texts')]
  for name, hypotheses in found['searches'].items():
    assert again['searches'][name][0] == hypotheses[0]


@pytest.mark.peer
@pytest.mark.parametrize('case', [dict(stacked=True, shared=True), dict(more=11, activation='gelu')])
def test_transformers_computes_checkpoints_of_fairseq(case, tmp_path):
  fairseq_release(tmp_path / 'release', **case)
  loaded = imported(tmp_path / 'release', tmp_path / 'run')
  convert.export_run(tmp_path / 'run', str(tmp_path / 'to'))
  found = peer(tmp_path / 'to', strings=['the lower'], lines=['the lower, and', 'it'], target=0, searches={'': {}})
  check_logits(loaded, found, 'the lower, and', 'the lower')
  rows = translate.translate(translator(loaded), ['the lower, and', 'it'], translation.decoding_options(loaded.run))
  assert [[list(one.tokens), one.text] for row in rows for one in row] == found['searches'][''][0]


def peer(folder, **given):
  """What transformers makes of a folder whose every tensor it has read."""
  python = imports.transformers_python()
  found = fsmt_folders.peer(python, folder, **given)
  assert found.pop('keys') == {'missing_keys': [], 'unexpected_keys': [], 'mismatched_keys': []}
  return found
