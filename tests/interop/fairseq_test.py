"""fairseq's checkpoints: layouts of all versions, numbers of FSMT, dictionaries, and what is refused.

tests/fixtures/fairseq.json has what FSMT of transformers 4.57.6 computes (fairseq_files.py).
"""

from __future__ import annotations

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest

from lmx.cli import main
from lmx.decoding import translate
from lmx.errors import InputError
from lmx.evaluation import translation
from lmx.interop import fairseq
from lmx.models import transformer
from lmx.runs import convert, restore
from tests.interop import fairseq_files, imports
from tests.interop.fairseq_files import CASES, SOURCE, TARGET, WORDS, save

SEARCHED = 'stacked, of 2018'


@functools.cache
def expected():
  return json.loads(fairseq_files.FIXTURE.read_text())


@functools.partial(jax.jit, static_argnums=0)
def logits(cfg, params, batch):
  return transformer.logits(cfg, params, transformer.apply(cfg, params, batch)[0])


def imported(source, workdir, **more):
  convert.import_run(str(source), workdir, **more)
  return restore.load(workdir)


def check(loaded, found):
  batch = {'source_BS': np.asarray([SOURCE]), 'tokens_BT': np.asarray([[2, *TARGET[:-1]]])}
  np.testing.assert_allclose(logits(loaded.cfg, loaded.params['model'], batch)[0], found['logits'], atol=1e-4)


@pytest.mark.parametrize(
  'case', [case if case != 'untied' else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_logits_match_fsmt(case, tmp_path):
  save(tmp_path / 'release', **CASES[case])
  one = CASES[case].get('more', 0) == 0
  loaded = imported(tmp_path / 'release', tmp_path / 'run', with_tokenizer=one)
  check(loaded, expected()[case])
  if one:
    assert loaded.tokenizer.encode('w3 w26 w8 w1').tolist() == SOURCE[:-1]
    assert loaded.tokenizer.decode([4, 40]) == 'w0 w36'


@pytest.mark.slow
def test_command_translates_as_fsmt_searches(tmp_path):
  save(tmp_path / 'release', **CASES[SEARCHED])
  assert main.main(['import', f'--from={tmp_path / "release" / "model.pt"}', f'--workdir={tmp_path / "run"}']) == 0
  loaded = restore.load(tmp_path / 'run')
  translator = translate.build_translator(loaded.run, loaded.params['model'], loaded.tokenizer)
  options = dataclasses.replace(translation.decoding_options(loaded.run), max_length=11)
  assert (options.beam, options.stop, options.penalty) == (5, 'full', 'power')
  (found,) = translate.translate(translator, ['w3 w26 w8 w1'], options)
  assert [list(one.tokens) for one in found] == expected()[SEARCHED]['sequences']
  np.testing.assert_allclose([one.score for one in found], expected()[SEARCHED]['scores'], atol=1e-4)


def test_every_tensor_is_read(tmp_path, capsys):
  model = save(tmp_path / 'release', before=True)
  assert main.main(['import', f'--from={tmp_path / "release"}', f'--workdir={tmp_path / "run"}']) == 0
  printed, loaded = capsys.readouterr().out, restore.load(tmp_path / 'run')
  assert 'white space alone' in printed and 'unused' in printed
  assert loaded.cfg.norm == 'pre'
  np.testing.assert_array_equal(loaded.params['model']['norm_decoder']['scale'], model['decoder.layer_norm.weight'])
  unused = sum(x.size for name, x in model.items() if name.endswith(('version', '_float_tensor', 'projection.weight')))
  assert sum(x.size for x in jax.tree.leaves(loaded.params)) == sum(x.size for x in model.values()) - unused
  assert loaded.cfg.dropout_relu == 0.05


def test_stacked_and_separate_projections_are_equal(tmp_path):
  stacked = fairseq_files.tensors(stacked=True)
  apart = {}
  for name, x in stacked.items():
    for i, part in enumerate('qkv' if 'in_proj' in name else ' '):
      size = len(x) // 3
      value = x[i * size : (i + 1) * size] if part.strip() else x
      apart[name.replace('in_proj_', f'{part}_proj.')] = np.ascontiguousarray(value)
  params = []
  for name, content in (('one', stacked), ('two', apart)):
    save(tmp_path / name, content=content)
    params.append(imported(tmp_path / name, tmp_path / f'run_{name}').params)
  jax.tree.map(np.testing.assert_array_equal, *params)


REFUSED = {
  'learned positions': (dict(changes={'encoder_learned_pos': True}), 'encoder_learned_pos'),
  'adaptive softmax': (dict(changes={'adaptive_softmax_cutoff': '10,20'}), 'adaptive_softmax_cutoff'),
  'two norms': (dict(changes={'decoder_normalize_before': True}), 'decoder_normalize_before'),
  'activation': (dict(changes={'activation_fn': 'glu'}), 'activation_fn'),
  'another width': (dict(changes={'decoder_embed_dim': 16}), 'decoder_embed_dim'),
  'no size': (dict(changes={'encoder_layers': None}), 'args: encoder_layers: missing'),
  'other words': (dict(dictionaries={'de': WORDS[::-1]}), 'bpecodes: missing; .* dict.de.txt has other words'),
  'codes of version 0.1': (dict(codes='a b\nb c\n'), 'bpecodes, line 1'),
  'too few words': (dict(dictionaries={'de': WORDS[:-1], 'en': WORDS[:-1]}), 'got 40 words; expected 41'),
  'a word twice': (dict(dictionaries={'en': ['a', 'a']}), '"a" twice'),
  'no count': (dict(dictionaries={'en': ['a\nb']}), 'dict.en.txt, line 1'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_unsupported_options_are_rejected(name, tmp_path, capsys):
  changes, message = REFUSED[name]
  save(tmp_path / 'release', **changes)
  imports.check_refused(tmp_path / 'release', message, capsys)


@pytest.mark.parametrize('name', ['decoder.layers.0.encoder_attn.in_proj_weight', 'encoder.embed_tokens.weight'])
def test_renamed_tensor_is_reported(name, tmp_path):
  content = fairseq_files.tensors(stacked=True)
  content['decoder.other'] = content.pop(name)
  save(tmp_path / 'release', content=content)
  missing = name.replace('in_proj_', 'q_proj.')
  with pytest.raises(InputError, match=rf'{missing}|V: got 0|unknown: model\.decoder\.other'):
    convert.import_run(str(tmp_path / 'release'), tmp_path / 'run')


def test_two_tensors_of_one_parameter_are_rejected_unless_they_are_equal(tmp_path):
  content = fairseq_files.tensors(stacked=False)
  name, other = 'encoder.layers.0.self_attn_layer_norm.weight', 'encoder.layers.0.layer_norms.0.weight'
  save(tmp_path / 'one', content=content | {other: content[name] + 1})
  with pytest.raises(InputError, match=f'tensors "{name}" and "{other}": got'):
    fairseq.read(tmp_path / 'one')
  save(tmp_path / 'two', content=content | {other: content[name]})
  assert [row.note for row in fairseq.read(tmp_path / 'two').unused if row.name == other] == [f'repeats {name}']


def test_truncated_checkpoint_is_rejected(tmp_path):
  save(tmp_path / 'release', stacked=True)
  path = tmp_path / 'release' / 'model.pt'
  whole = path.read_bytes()
  for size in (len(whole) // 2, len(whole) - 30):
    path.write_bytes(whole[:size])
    assert main.main(['import', f'--from={tmp_path / "release"}', f'--workdir={tmp_path / "run"}']) == 2


def test_ensemble_requires_one_checkpoint(tmp_path):
  save(tmp_path / 'release')
  (tmp_path / 'release' / 'model2.pt').write_bytes((tmp_path / 'release' / 'model.pt').read_bytes())
  with pytest.raises(InputError, match=r'got model\.pt, model2\.pt'):
    convert.import_run(str(tmp_path / 'release'), tmp_path / 'run')
  assert imported(tmp_path / 'release' / 'model2.pt', tmp_path / 'run').cfg.D == fairseq_files.D


CODES = ['t h', 'th e</w>', 'a n', 'an d</w>', 'e r</w>', 'l o', 'lo w', 'low er</w>']
# As subword-nmt 0.3.8 applies these codes to what sacremoses 0.2 makes of the texts.
SUBWORDS = {
  'the lower, and': 'the lower , and',
  "it's well-known & slow": 'i@@ t &@@ a@@ p@@ o@@ s@@ ;@@ s w@@ e@@ l@@ l @@@ -@@ @ k@@ n@@ o@@ w@@ n &@@ a@@ m@@ '
  'p@@ ; s@@ lo@@ w',
  'theand lowlow er a': 'th@@ e@@ and low@@ lo@@ w er a',
}


@pytest.mark.parametrize('counted', [False, True])
def test_text_is_split_by_moses_and_codes(counted, tmp_path):
  lines = [f'{code} {99 - i}' for i, code in enumerate(CODES)] if counted else ['#version: 0.2', *CODES]
  words = list(dict.fromkeys(word for text in SUBWORDS.values() for word in text.split()))
  words = (words + [f'w{i}' for i in range(len(WORDS))])[: len(WORDS)]
  more = [f's{i}' for i in range(11)]
  own = {'en': words + more, 'de': words[::-1]}
  save(tmp_path / 'release', more=11, dictionaries=own, codes='\n'.join(lines) + '\n')
  loaded = imported(tmp_path / 'release', tmp_path / 'run')
  for text, subwords in SUBWORDS.items():
    ids = loaded.tokenizer.encode(text)
    assert ids.tolist() == [4 + own['en'].index(word) for word in subwords.split()]
    assert loaded.tokenizer.decode(ids) == text
    if "'" in text:  # which Moses splits by the rules of the language
      assert loaded.tokenizer.target.split(text) != loaded.tokenizer.split(text)
      continue
    ids = loaded.tokenizer.target.encode(text)
    assert ids.tolist() == [4 + own['de'].index(word) for word in subwords.split()]
    assert loaded.tokenizer.target.decode([0, *ids, 2]) == text
  assert loaded.tokenizer.encode('zzz').tolist() == [3, 3, 3]
  assert (loaded.tokenizer.vocab_size, loaded.tokenizer.target.vocab_size) == (loaded.cfg.source_V, loaded.cfg.V)
  assert loaded.tokenizer.starts_word(loaded.tokenizer.encode('lowlow and')).tolist() == [True, False, False, True]


@pytest.mark.peer
@pytest.mark.parametrize('case', CASES)
def test_fsmt_agrees(case, tmp_path):
  """LMX_TRANSFORMERS names a Python that has transformers and torch."""
  python = imports.transformers_python()
  save(tmp_path / 'release', **CASES[case])
  check(imported(tmp_path / 'release', tmp_path / 'run', with_tokenizer=False), fairseq_files.peer(python, case))
