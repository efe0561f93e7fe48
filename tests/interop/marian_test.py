"""Folders of Marian: tensors, tokenizer, options of the search, and what is refused.

tests/fixtures/marian/expected.json has what transformers 4.57.6 makes of these folders (marian_folders.py).
"""

from __future__ import annotations

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx.cli import main
from lmx.data import pipeline
from lmx.data.tokenizers import build, library_files, marian
from lmx.decoding import translate
from lmx.errors import InputError
from lmx.evaluation import translation
from lmx.interop import huggingface
from lmx.interop.huggingface import folder as folders
from lmx.models import transformer
from lmx.runs import convert, restore
from tests.interop import imports, marian_folders
from tests.interop.marian_folders import CASES, LINES, SEARCHES, STRINGS, made, save

STOPS = {None: 'current', True: 'full', 'never': 'bound'}


@functools.cache
def expected():
  return json.loads((marian_folders.FIXTURES / 'expected.json').read_text())


@pytest.fixture(scope='module')
def imported(tmp_path_factory):
  """Work directory and loaded run of a folder."""
  root = tmp_path_factory.mktemp('marian')
  save(root / 'folder')
  assert main.main(['import', f'--from={root / "folder"}', f'--workdir={root / "run"}']) == 0
  return root / 'run', restore.load(root / 'run')


def translator(loaded):
  return translate.build_translator(loaded.run, loaded.params['model'], loaded.tokenizer)


@functools.partial(jax.jit, static_argnums=0)
def logits(cfg, params, batch):
  return transformer.logits(cfg, params, transformer.apply(cfg, params, batch)[0])


@pytest.mark.parametrize('case', CASES)
def test_every_parameter_is_written_and_read(case):
  cfg, tensors, _ = made(**CASES[case])
  params = huggingface.from_hf('transformer', cfg, tensors)
  shapes = jax.eval_shape(lambda: transformer.init(cfg, jax.random.key(0)))
  assert jax.tree.map(lambda x: x.shape, params['model']) == jax.tree.map(lambda x: x.shape, shapes)
  back = huggingface.to_hf('transformer', cfg, params)
  for name, tensor in tensors.items():
    np.testing.assert_array_equal(back[name], tensor, err_msg=name)
  repeated = {*back} - {*tensors}
  assert repeated == {tied.name for tied in huggingface.family('transformer').tied(cfg)}
  jax.tree.map(np.testing.assert_array_equal, huggingface.from_hf('transformer', cfg, back), params)


@pytest.mark.parametrize('case', CASES)
def test_logits_and_ids_match_transformers(case, tmp_path):
  cfg, tensors = save(tmp_path / 'folder', **CASES[case])
  tokenizer = library_files.read('marian', str(tmp_path / 'folder'), special_in_text=True)
  columns = (expected()[case][name] for name in ('ids', 'target', 'texts'))
  for text, source, target, decoded in zip(STRINGS, *columns, strict=True):
    assert [*tokenizer.encode(text), 0] == source, text
    assert [*tokenizer.target.encode(text), 0] == target, text
    assert tokenizer.target.decode(target) == decoded
  params = huggingface.from_hf('transformer', cfg, tensors)['model']
  target = expected()[case]['target'][1]
  batch = {
    'source_BS': np.asarray([[*tokenizer.encode(LINES[0]), 0]]),
    'tokens_BT': np.asarray([[tokenizer.target.start_id, *target[:-1]]]),
  }
  np.testing.assert_allclose(logits(cfg, params, batch)[0, :, ::11], expected()[case]['logits'], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize('name', SEARCHES)  # of which each compiles a program
def test_hypotheses_match_generate(imported, name):
  options = translation.decoding_options(imported[1].run)
  check_search(translator(imported[1]), options, SEARCHES[name], expected()['shared']['searches'][name])


def check_search(translator, options, given, found, lines=LINES):
  names = {'num_beams': 'beam', 'length_penalty': 'alpha', 'renormalize_logits': 'renormalise'}
  changes = {names[name]: value for name, value in given.items() if name in names}
  changes |= {'stop': STOPS[given['early_stopping']]} if 'early_stopping' in given else {}
  changes |= {'max_length': given['max_length'] - 1} if 'max_length' in given else {}
  changes |= {'forced_first': given['forced_bos_token_id']} if 'forced_bos_token_id' in given else {}
  changes |= {'forced_end': False} if 'forced_eos_token_id' in given else {}
  changes |= {'forbidden': tuple(i for (i,) in given['bad_words_ids'])} if 'bad_words_ids' in given else {}
  changes |= {'stop': 'full'} if changes.get('beam') == 1 else {}
  rows = translate.translate(translator, lines, dataclasses.replace(options, **changes))
  hypotheses = [one for row in rows for one in row]
  assert [[list(one.tokens), one.text] for one in hypotheses] == found[0]
  if found[1]:
    np.testing.assert_allclose([one.score for one in hypotheses], found[1], atol=1e-4)


def test_searches_differ():
  found = [json.dumps(sequences) for sequences, _ in expected()['shared']['searches'].values()]
  assert len(set(found)) == len(found) - 1  # 'limit' and its probabilities without renormalisation


def test_command_translates_text_to_text(imported, tmp_path, capsys):
  (tmp_path / 'in.txt').write_text('\n'.join(LINES) + '\n')
  assert main.main(['translate', f'--workdir={imported[0]}', f'--input={tmp_path / "in.txt"}', '--n_best=4']) == 0
  lines = [line.split('\t') for line in capsys.readouterr().out.splitlines()]
  sequences, scores = expected()['shared']['searches']['beam 4']
  assert [line[3] for line in lines] == [text for _, text in sequences]
  np.testing.assert_allclose([float(line[1]) for line in lines], scores, atol=1e-4)


def test_exported_folder_has_the_same_files(imported, tmp_path):
  assert main.main(['export', f'--workdir={imported[0]}', f'--to={tmp_path / "to"}']) == 0
  own = imported[0].parent / 'folder'
  for name in ('source.spm', 'target.spm'):
    assert (tmp_path / 'to' / name).read_bytes() == (own / name).read_bytes()
  contents = [[json.loads((path / name).read_text()) for path in (own, tmp_path / 'to')] for name in JSON]
  assert contents[0][0] == contents[0][1]
  for before, after in contents[1:]:
    assert {key: after.get(key) for key in before if key not in UNKEPT} == {
      key: value for key, value in before.items() if key not in UNKEPT
    }
  before, after = (safetensors.numpy.load_file(path / 'model.safetensors') for path in (own, tmp_path / 'to'))
  for name, tensor in before.items():
    np.testing.assert_array_equal(after[name], tensor)


JSON = ('vocab.json', 'config.json', 'generation_config.json', 'tokenizer_config.json')
UNKEPT = ('source_lang', 'target_lang', 'model_max_length')


def test_two_vocabularies_are_read_and_measured(tmp_path):
  save(tmp_path / 'folder', separate=True)
  convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')
  loaded = restore.load(tmp_path / 'run')
  sizes = [len(ids) for ids in marian_folders.vocabularies(separate=True)]
  assert (loaded.tokenizer.vocab_size, loaded.cfg.source_V) == (sizes[0], sizes[0])
  assert (loaded.tokenizer.target.vocab_size, loaded.cfg.V) == (sizes[1], sizes[1])
  pairs = loaded.tokenizer.encode_pairs(['A dog runs.', 'Ein Hund.', 'a'])
  assert [tuple(ids) for ids in pairs] == [
    tuple(one.encode(text))
    for one, text in (
      (loaded.tokenizer, 'A dog runs.'),
      (loaded.tokenizer.target, 'Ein Hund.'),
      (loaded.tokenizer, 'a'),
    )
  ]
  assert tuple(pairs[1]) != tuple(loaded.tokenizer.encode('Ein Hund.'))


def test_data_set_is_read_by_both_tokenizers(imported, tmp_path):
  lines = {'source': 'A dog runs.\nTwo men\n', 'target': 'Ein Hund.\nZwei\n'}
  for split in ('train', 'valid', 'test'):
    for side, text in lines.items():
      (tmp_path / f'{split}.{side}').write_text(text)
  arguments = [
    'data.dataset=parallel_files',
    'data.hold_out_test=False',
    f'data.manual_dir={tmp_path}',
    'data.source=source',
    'data.target=target',
  ]
  corpus = restore.load(imported[0], overrides=arguments).corpus()
  tokenizer, test = corpus.tokenizer, corpus.splits['test']
  documents = np.split(np.asarray(test.tokens), test.offsets[1:-1])
  expected_ids = [
    [*one.encode(text), 0]
    for pair in zip(*(text.splitlines() for text in lines.values()), strict=True)
    for one, text in zip((tokenizer, tokenizer.target), pair, strict=True)
  ]
  assert [ids.tolist() for ids in documents] == expected_ids
  run = restore.load(imported[0], overrides=arguments).run
  batch = pipeline.batches(run.data, corpus, 'test', seed=0, train=False)(0)
  assert batch['tokens_BT'][0, 0] == tokenizer.start_id != tokenizer.eos_id


REFUSED = {
  'activation': (dict(config={'activation_function': 'tanh'}), 'activation_function'),
  'normalize_before': (dict(config={'normalize_before': True}), 'normalize_before'),
  'unknown option': (dict(generation={'num_beam': 3}), 'unknown key "num_beam".*num_beams'),
  'sampling': (dict(generation={'do_sample': True}), 'do_sample'),
  'one of two ends forced': (
    dict(generation={'eos_token_id': [0, 2]}),
    'forced_eos_token_id: got 0; expected one eos_token_id',
  ),
  'an end beyond': (dict(generation={'eos_token_id': [0, 10**6], 'forced_eos_token_id': None}), 'eos_token_id: got 10'),
  'all ends suppressed': (dict(generation={'suppress_tokens': [0]}), 'suppress_tokens: got 0'),
  'empty word': (dict(generation={'bad_words_ids': [[]]}), 'bad_words_ids'),
  'forced other': (dict(generation={'forced_eos_token_id': 4}), 'forced_eos_token_id'),
  'a start beyond': (dict(generation={'decoder_start_token_id': 10**6}), 'decoder_start_token_id: got 1000000'),
  'a word beyond': (dict(generation={'bad_words_ids': [[10**6]]}), 'bad_words_ids.*got 1000000'),
  'no target.spm': (dict(files={'target.spm': None}), 'target.spm: missing'),
  'no vocab.json': (dict(files={'vocab.json': None}), 'vocab.json: missing'),
  'no target_vocab.json': (dict(separate=True, files={'target_vocab.json': None}), 'target_vocab.json'),
  'damaged source.spm': (dict(files={'source.spm': b'\x0a\xff\xff'}), 'source.spm'),
  'vocab.json twice': (dict(files={'vocab.json': '{"</s>": 0, "<unk>": 1, "<pad>": 1}'}), 'vocab.json'),
  'vocab.json without <pad>': (dict(files={'vocab.json': '{"</s>": 0, "<unk>": 1}'}), 'vocab.json: got no <pad>'),
  'added token': (dict(settings={'additional_special_tokens': ['<x>']}), '<x>'),
  'unknown key': (dict(settings={'sp_model_kwarg': {}}), 'sp_model_kwarg'),
  'sampled subwords': (dict(settings={'sp_model_kwargs': {'nbest_size': -1}}), 'sp_model_kwargs'),
  'other tokenizer': (dict(settings={'tokenizer_class': 'T5Tokenizer'}), 'tokenizer_class'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_unsupported_options_are_rejected(name, tmp_path, capsys):
  changes, message = REFUSED[name]
  save(tmp_path / 'folder', **changes)
  imports.check_refused(tmp_path / 'folder', message, capsys)


def test_option_that_generate_lacks_is_not_exported(imported, tmp_path):
  loaded = imported[1]
  evaluation = dataclasses.replace(loaded.run.evaluation, min_ratio=0.5)
  with pytest.raises(InputError, match='evaluation.min_ratio: got 0.5'):
    folders.write(
      tmp_path / 'to',
      'transformer',
      loaded.cfg,
      loaded.params,
      folders.architectures.Task('translation', loaded.run.objective),
      loaded.tokenizer.content(),
      evaluation=evaluation,
    )
  assert not (tmp_path / 'to').exists()


@pytest.mark.peer
@pytest.mark.parametrize('case', CASES)
def test_transformers_agrees(case, tmp_path):
  """LMX_TRANSFORMERS names a Python that has transformers, torch and sentencepiece."""
  python = imports.transformers_python()
  save(tmp_path / 'folder', **CASES[case])
  convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')
  convert.export_run(tmp_path / 'run', str(tmp_path / 'back'))
  searches = {name: SEARCHES[name] for name in ('beam 4', 'greedy', 'beam 6, never, forced first')}
  found = marian_folders.peer(python, tmp_path / 'folder', searches=searches)
  assert marian_folders.peer(python, tmp_path / 'back', searches=searches) == found
  loaded = restore.load(tmp_path / 'run')
  for text, source, target in zip(STRINGS, found['ids'], found['target'], strict=True):
    assert ([*loaded.tokenizer.encode(text), 0], [*loaded.tokenizer.target.encode(text), 0]) == (source, target)
  options = translation.decoding_options(loaded.run)
  for name, given in searches.items():
    check_search(translator(loaded), options, given, found['searches'][name])


def test_untied_table_with_the_rows_of_the_source_is_read(tmp_path):
  """So saves transformers 4.57.6 a target that has fewer tokens than the source."""
  codes = len(marian_folders.vocabularies(separate=True)[0]) + 9
  cfg, tensors = save(tmp_path / 'folder', separate=True, tied=False, source_V=codes)
  name = 'model.decoder.embed_tokens.weight'
  further = np.full((codes - cfg.V, cfg.D), 7.0, np.float32)
  assert len(further) > 0
  changed = tensors | {name: np.concatenate([tensors[name], further])}
  safetensors.numpy.save_file(changed, tmp_path / 'folder/model.safetensors')
  convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')
  params = restore.load(tmp_path / 'run').params['model']
  np.testing.assert_array_equal(params['embed']['tokens'], tensors[name])
  changed[name] = changed[name][:-1]
  safetensors.numpy.save_file(changed, tmp_path / 'folder/model.safetensors')
  with pytest.raises(InputError, match='model.decoder.embed_tokens.weight'):
    convert.import_run(str(tmp_path / 'folder'), tmp_path / 'other')


PADDED = [-1.5, 4.0]  # the second is emitted


@functools.cache
def padded_size():
  return len(marian_folders.vocabularies()[0]) + 13


@pytest.mark.parametrize('shift', PADDED)
def test_rows_beyond_the_tokenizer_take_part_in_the_search(shift, tmp_path):
  cfg, tensors = save(tmp_path / 'folder', V=padded_size(), padded=shift)
  convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  size, pad = run.tokenizer.vocab_size, run.tokenizer.pad_id
  assert cfg.V == size + 13
  (found,) = run.translations(LINES[:1], max_length=8)
  source = np.asarray([[*run.tokenizer.encode(LINES[0]), 0]])
  for one in found:
    ids = list(one.tokens)
    batch = {'source_BS': source, 'tokens_BT': np.asarray([[run.tokenizer.target.start_id, *ids, *[0] * 8][:8]])}
    scores = np.array(logits(cfg, huggingface.from_hf('transformer', cfg, tensors)['model'], batch)[0], np.float64)
    scores[:, pad] = -np.inf
    log_p_TV = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    free = ids[:-1] if len(ids) == 8 else ids  # the last is forced
    assert one.log_p == pytest.approx(log_p_TV[np.arange(len(free)), free].sum(), abs=1e-4)
    known = [i for i in ids if i < size]
    assert one.text == run.tokenizer.target.decode([i for i in known if i])
  assert any(i >= size for one in found for i in one.tokens) == (shift > 0)


@pytest.mark.peer
@pytest.mark.parametrize('shift', PADDED)
def test_padded_table_is_searched_as_transformers_does(shift, tmp_path):
  python = imports.transformers_python()
  save(tmp_path / 'folder', V=padded_size(), padded=shift)
  convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')
  loaded, searches = restore.load(tmp_path / 'run'), {name: SEARCHES[name] for name in ('beam 4', 'greedy', 'limit')}
  found = marian_folders.peer(python, tmp_path / 'folder', strings=[], searches=searches)['searches']
  for name, given in searches.items():
    check_search(translator(loaded), translation.decoding_options(loaded.run), given, found[name])


def test_option_that_is_given_replaces_those_of_the_folder(imported):
  run = lmx.load(imported[0])
  pad = run.tokenizer.pad_id
  assert (run.search().max_length, run.search().forbidden) == (23, (pad,))
  assert run.search(max_extra=3).max_length == run.search(max_ratio=2.0).max_length == 0
  forbidden = lambda **given: run.search(**given).forbidden_ids(run.tokenizer.target, run.cfg.V)
  assert (forbidden(), forbidden(allow_unk=False)) == ((pad,), (run.tokenizer.unk_id, pad))


def test_text_is_cleaned_if_the_folder_requires_it(tmp_path):
  for clean in (False, True):
    save(tmp_path / str(clean), settings={'clean_up_tokenization_spaces': clean})
    target = library_files.read('marian', str(tmp_path / str(clean))).target
    text = target.decode(target.encode('Ein Hund . Ja , da .'))
    assert text == ('Ein Hund. Ja, da.' if clean else 'Ein Hund . Ja , da .')


@pytest.mark.parametrize('name', ['lstrip', 'rstrip', 'single_word'])
def test_white_space_of_a_special_token_is_rejected(name, tmp_path):
  decoder = {'0': {'content': '</s>', 'special': True, name: True}}
  save(tmp_path / 'folder', settings={'added_tokens_decoder': decoder})
  with pytest.raises(InputError, match=f'added token "</s>": {name}: got true'):
    convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')


def test_special_tokens_in_a_text_match_the_folder(imported, tmp_path):
  tokenizer = imported[1].tokenizer
  first, second = (tokenizer.encode(text).tolist() for text in ('a dog', '>>fra<< runs'))
  ids = tokenizer.encode('a dog</s>>>fra<< runs<unk> <pad>').tolist()
  assert ids == [*first, tokenizer.eos_id, *second, tokenizer.unk_id, tokenizer.pad_id]
  assert tokenizer.target.encode('</s>').tolist() == [0]
  content = tokenizer.content()
  assert content.pop('special_in_text')
  earlier = build.of_content(content)  # of a work directory that an earlier version imported
  assert 0 not in earlier.encode('</s>') and len(earlier.encode('</s>')) > 1
  save(tmp_path / 'folder', settings={'split_special_tokens': True})
  convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')
  assert restore.load(tmp_path / 'run').tokenizer.encode('a</s>').tolist() == earlier.encode('a</s>').tolist()
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  assert json.loads((tmp_path / 'out/tokenizer_config.json').read_text())['split_special_tokens']


def test_special_tokens_and_words(imported):
  tokenizer = imported[1].tokenizer
  assert marian.SPECIAL == ('</s>', '<unk>', '<pad>')
  assert tokenizer.decode([tokenizer.eos_id, tokenizer.pad_id, tokenizer.unk_id]) == ''
  ids = tokenizer.encode('>>fra<< a dog')
  assert tokenizer.ids_to_tokens(ids)[0] == '>>fra<<'
  assert tokenizer.starts_word(ids)[:2].tolist() == [True, True]
