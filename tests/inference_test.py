"""`lmx.load` of a folder of published weights, and the methods of what it returns."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import pathlib
import re
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx import inference
from lmx.cli import main
from lmx.data.tokenizers import build
from lmx.errors import InputError, InputNote, InputWarning
from lmx.interop import huggingface
from lmx.interop.huggingface import architectures
from lmx.models import registry
from lmx.prediction import tasks
from lmx.runs import convert, restore
from tests import drawn
from tests.interop import fairseq_files, imports

TEXTS = ['The method returns a list of names.', 'A name is a string, and so is a list of them.'] * 20
KINDS = {'bert': 'wordpiece', 'gpt2': 'bpe'}
LABELS = ('good', 'bad', 'neither')
TAGGED = {'tokens': TEXTS[0].split()}
ASKED = {'context': TEXTS[1], 'qas': [{'id': '1', 'question': 'What is a name?'}]}
QUESTION = {'question': 'What is a name?', 'context': TEXTS[1]}
PAGE = pathlib.Path(__file__).parents[1] / 'docs/python.md'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Writes a folder of a class of transformers, once: folder(class)."""
  made: dict[str, pathlib.Path] = {}

  def write(name: str) -> pathlib.Path:
    if name in made:
      return made[name]
    head, to = architectures.HEADS[name], tmp_path_factory.mktemp(name)
    model, tokenizer = registry.get(head.model), build.train(KINDS[head.model], TEXTS, vocab_size=300)
    cfg = model.Config(V=tokenizer.vocab_size, T=128, D=8, H=2, N=2)
    params = {'model': drawn.params(model.init, cfg), 'objective': {}}
    rows = head.outputs or len(LABELS)
    layer = {'kernel': np.random.default_rng(0).normal(size=(8, rows)), 'bias': np.zeros(rows)}
    params['objective'] = {'block_0': layer, **layer}
    of = huggingface.family(head.model)
    config = {'model_type': of.TYPE, 'architectures': [name], **of.config(cfg)}
    config |= {'id2label': dict(enumerate(LABELS))} if head.layer and not head.outputs else {}
    (to / 'config.json').write_text(json.dumps(config))
    safetensors.numpy.save_file(huggingface.to_hf(head.model, cfg, params, name, rows), to / 'model.safetensors')
    imports.save_tokenizer(tokenizer, to)
    return made.setdefault(name, to)

  return write


@pytest.fixture(scope='module')
def loaded(folder):
  """Loads the folder of a class, once: loaded(class)."""
  return functools.cache(lambda name: lmx.load(folder(name)))


def test_load_equals_lmx_import(folder, loaded, tmp_path):
  source = folder('GPT2LMHeadModel')
  convert.import_run(str(source), tmp_path / 'run')
  run, imported = loaded('GPT2LMHeadModel'), lmx.load(tmp_path / 'run')
  jax.tree.map(np.testing.assert_array_equal, run.params, imported.params)
  assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(run.params))
  assert (run.cfg, run.step, run.tokenizer.hash) == (imported.cfg, 0, imported.tokenizer.hash)
  texts = run.generate('The method', tokens=8, samples=2, seed=3)
  assert texts == imported.generate('The method', tokens=8, samples=2, seed=3) and len(texts) == 2
  assert all(text.startswith('The method') for text in texts)
  (tokens, layers), _ = run.embed(TEXTS[:2])
  assert len(layers) == 3 and layers[0].shape == (len(tokens), 8)
  other = inference.load(source, 'last', ['model.dtype=bfloat16'])
  assert other.cfg.dtype == 'bfloat16' and run.cfg.dtype == 'float32'


def test_temporary_work_directory_is_removed(folder):
  run = lmx.load(folder('GPT2LMHeadModel'))
  workdir = pathlib.Path(run.workdir)
  assert {path.name for path in workdir.iterdir()} == {
    *('config.json', 'data.json', 'checksums.json', 'paths.json'),
    'tokenizer',
  }
  del run
  gc.collect()
  assert not workdir.exists()


def test_release_is_loaded_by_its_folder_or_file(tmp_path):
  fairseq_files.save(tmp_path / 'release')
  for source in (tmp_path / 'release', tmp_path / 'release' / 'model.pt'):
    with pytest.warns(InputWarning, match='no bpecodes'):
      assert lmx.load(source).abilities() == ['translate']
  with pytest.raises(InputError, match='a file'):
    lmx.load(tmp_path / 'release' / 'dict.de.txt')


def test_parameters_missing_from_a_folder_are_reported(folder, tmp_path):
  source = tmp_path / 'bare'
  source.mkdir()
  for path in folder('BertForMaskedLM').iterdir():
    (source / path.name).write_bytes(path.read_bytes())
  tensors = safetensors.numpy.load_file(source / 'model.safetensors')
  safetensors.numpy.save_file(
    {n: x for n, x in tensors.items() if 'cls.' not in n and 'pooler' not in n}, source / 'model.safetensors'
  )
  with pytest.warns(InputWarning, match='bare: not in the files, so newly initialised: model/mlm, model/pooler'):
    lmx.load(source)
  with pytest.raises(InputError, match='which: got 3'):
    lmx.load(source, 3)
  (source / 'model.safetensors').write_bytes(b'')
  with pytest.raises(InputError, match='damaged or truncated'):
    lmx.load(source)
  (tmp_path / 'ngrams').mkdir()
  (tmp_path / 'ngrams' / 'ngrams.json').write_text('{}')
  with pytest.raises(InputError, match='got a saved n-gram model; .* lmx score reads n-gram models'):
    lmx.load(tmp_path / 'ngrams')
  with pytest.raises(InputError, match='got no config.json'):
    lmx.load(tmp_path)
  with pytest.raises(InputError, match='a model of transformers'):
    restore.load(source)


@pytest.mark.parametrize(
  ('name', 'file', 'inputs'),
  [
    ('BertForSequenceClassification', {'text': TEXTS[0]}, TEXTS[0]),
    ('BertForTokenClassification', TAGGED, TEXTS[0]),
    pytest.param('BertForTokenClassification', TAGGED, tuple(TEXTS[0].split()), marks=pytest.mark.slow),
    ('BertForQuestionAnswering', ASKED, ('What is a name?', TEXTS[1])),
    pytest.param('BertForQuestionAnswering', ASKED, QUESTION, marks=pytest.mark.slow),
    pytest.param('BertForQuestionAnswering', ASKED, ASKED, marks=pytest.mark.slow),
  ],
)
def test_python_predictions_match_the_command(name, file, inputs, loaded, folder, tmp_path, capsys):
  (tmp_path / 'in.jsonl').write_text(json.dumps(file) + '\n')
  (predicted,) = loaded(name).predict([inputs])
  assert main.main(['predict', f'--workdir={folder(name)}', f'--input={tmp_path}/in.jsonl']) == 0
  assert json.loads(capsys.readouterr().out) == predicted


def test_python_text_keeps_surrounding_white_space(loaded, tmp_path):
  run, text = loaded('GPT2ForSequenceClassification'), 'The method\treturns'
  spaced = [f'  {text} ', f'\n{text}', text]
  (tmp_path / 'in.jsonl').write_text(''.join(json.dumps({'text': one}) + '\n' for one in spaced))
  for inputs, expected in ((spaced, spaced), (tmp_path / 'in.jsonl', [text] * 3)):
    read = tasks.get(run).read_inputs(run, inputs)
    split = read.corpus.splits[read.split]
    rows = [split.tokens[a:b].tolist() for a, b in itertools.pairwise(split.offsets)]
    assert [run.tokenizer.decode(row).removesuffix('<|endoftext|>') for row in rows] == expected
  first, second, third = (row['probabilities'] for row in run.predict(spaced))
  assert first != third != second
  with pytest.raises(InputError, match='line 1: text: got an empty cell'):
    run.predict([' \t'])


def test_malformed_inputs_are_reported(loaded, tmp_path):
  run = loaded('BertForSequenceClassification')
  with pytest.raises(InputError, match='inputs, line 2: got 2 texts'):
    run.predict(['one', ('one', 'two')])
  with pytest.raises(
    InputError, match='inputs, line 1: got no column "text"; expected text, as in training; .*rename them'
  ):
    run.predict([{'txt': 'one'}])
  with pytest.raises(InputError, match='inputs and a split, or neither'):
    run.predict()
  with pytest.raises(InputError, match='--n_best'):
    run.predict(['one'], n_best=2)
  (tmp_path / 'in.txt').write_text(f'{TEXTS[0]}\n')
  label = run.predict(tmp_path / 'in.txt')[0]['label']
  assert run.predict([{'text': TEXTS[0], 'label': label}]).score == '1 of 1 documents with a label are right (100.0%)'


CALLS = [  # class, method, arguments, options, message
  ('BertForSequenceClassification', 'predict', [[b'x']], {}, "inputs, line 1: got b'x' of type bytes; expected a text"),
  ('BertForSequenceClassification', 'predict', [['a', None]], {}, 'inputs, line 2: got None of type NoneType'),
  ('BertForSequenceClassification', 'predict', [[1]], {}, 'inputs, line 1: got 1 of type int; expected a text'),
  ('BertForSequenceClassification', 'predict', [[('a', 1)]], {}, 'inputs, line 1: got 1 of type int; expected a tuple'),
  ('BertForSequenceClassification', 'predict', [5], {}, 'inputs: got 5 of type int; expected a path, or a list'),
  ('BertForSequenceClassification', 'predict', [['a']], {'n_best': 'x'}, "n_best: got 'x' of type str"),
  ('GPT2LMHeadModel', 'embed', [5], {}, 'lines: got 5 of type int; expected lines of text'),
  ('GPT2LMHeadModel', 'embed', [b'text'], {}, 'lines, line 1: got 116 of type int; expected a text'),
  ('GPT2LMHeadModel', 'embed', [['a', None]], {}, 'lines, line 2: got None of type NoneType; expected a text'),
  ('GPT2LMHeadModel', 'embed', [['a']], {'batch': 0}, 'batch: got 0; expected at least 1'),
  ('GPT2LMHeadModel', 'embed', [['a']], {'batch': '2'}, "batch: got '2' of type str; expected a whole number"),
  ('GPT2LMHeadModel', 'embed', [['a']], {'carry': 1}, 'carry: got 1 of type int; expected True or False'),
  ('GPT2LMHeadModel', 'generate', [5], {}, 'prompt: got 5 of type int; expected a text'),
  ('GPT2LMHeadModel', 'generate', [['a']], {}, 'prompt: got .* of type list; expected a text'),
  ('GPT2LMHeadModel', 'generate', ['x'], {'tokens': 'a'}, "tokens: got 'a' of type str; expected a whole number"),
  ('GPT2LMHeadModel', 'generate', ['x'], {'tokens': 2.5}, 'tokens: got 2.5 of type float; expected a whole number'),
  ('GPT2LMHeadModel', 'generate', ['x'], {'tokens': True}, 'tokens: got True of type bool; expected a whole number'),
  ('GPT2LMHeadModel', 'generate', ['x'], {'tokens': -1}, 'tokens: got -1; expected at least 1'),
  ('GPT2LMHeadModel', 'generate', ['x'], {'samples': 0}, 'samples: got 0; expected at least 1'),
  ('GPT2LMHeadModel', 'generate', ['x'], {'seed': 2**70}, 'seed: got 1180591620717411303424; expected at least 0 and'),
  ('GPT2LMHeadModel', 'generate', ['x'], {'greedy': 'yes'}, "greedy: got 'yes' of type str; expected True or False"),
  ('GPT2LMHeadModel', 'generate', ['x'], {'top_p': None}, 'top_p: got None of type NoneType; expected a number'),
  ('translator', 'translate', [5], {}, 'lines: got 5 of type int; expected lines of text'),
  ('translator', 'translate', [[None]], {}, 'lines, line 1: got None of type NoneType; expected a text'),
  ('translator', 'translate', ['the'], {'beam': '4'}, "beam: got '4' of type str; expected a whole number"),
  ('translator', 'translate', ['the'], {'seed': -1}, 'seed: got -1; expected at least 0'),
  ('translator', 'translate', ['the'], {'forbidden': ('a',)}, "forbidden: got 'a' of type str; expected a tuple of"),
  ('translator', 'translate', ['the'], {'truncate': 3}, 'truncate: got 3 of type int; expected True or False'),
]


@pytest.fixture(scope='module')
def translator(tmp_path_factory):
  path = tmp_path_factory.mktemp('fairseq') / 'release'
  fairseq_files.save(path)
  return inference.load(path, overrides=[])


@pytest.mark.filterwarnings('ignore:.*bpecodes')
@pytest.mark.parametrize(('name', 'method', 'arguments', 'options', 'message'), CALLS)
def test_wrong_arguments_are_reported(name, method, arguments, options, message, loaded, request):
  run = request.getfixturevalue('translator') if name == 'translator' else loaded(name)
  with pytest.raises(InputError, match=f'^{message}'):
    list(getattr(run, method)(*arguments, **options))


def test_numpy_scalars_are_accepted(loaded):
  options = {'tokens': np.int64(2), 'temperature': np.float32(1), 'seed': np.int32(3)}
  assert len(loaded('GPT2LMHeadModel').generate('The method', **options)) == 1


def test_settings_of_the_folder_are_defaults_of_generate(folder, tmp_path, capsys):
  own, given = tmp_path / 'own', {'eos_token_id': [3, 5], 'max_new_tokens': 2, 'suppress_tokens': [7]}
  shutil.copytree(folder('GPT2LMHeadModel'), own)
  (own / 'generation_config.json').write_text(json.dumps(given))
  assert main.main(['import', f'--from={own}', f'--workdir={tmp_path / "run"}']) == 0
  line = 'generation_config.json: generate: eos_ids=(3, 5), '
  assert line in capsys.readouterr().out
  with pytest.warns(InputNote, match=f'^{re.escape(line)}forbidden=\\(7,\\), greedy=True, tokens=2$'):
    assert main.main(['generate', f'--workdir={tmp_path / "run"}', '--prompt=The', '--no-stream']) == 0
  run = lmx.load(own)
  chosen = run.writing()
  assert (chosen.eos_ids, chosen.tokens, chosen.forbidden, chosen.greedy) == ((3, 5), 2, (7,), True)
  sampled = run.writing(top_p=0.5, tokens=9)
  assert (sampled.greedy, sampled.tokens, sampled.top_k, sampled.forbidden) == (False, 9, 50, (7,))
  assert main.main(['export', f'--workdir={tmp_path / "run"}', f'--to={tmp_path / "to"}']) == 0
  written = json.loads((tmp_path / 'to/generation_config.json').read_text())
  assert {name: written[name] for name in given} == given


@pytest.mark.parametrize('source', [None, 5, b'x', ['x']])
def test_source_that_is_no_path_is_reported(source):
  with pytest.raises(InputError, match='^source: got'):
    lmx.load(source)


def test_unsupported_task_lists_the_supported_ones(loaded):
  bert, gpt2 = loaded('BertForSequenceClassification'), loaded('GPT2LMHeadModel')
  assert bert.abilities() == ['predict', 'embed'] and gpt2.abilities() == ['generate', 'score', 'embed']
  for method, reason in (
    ('generate', 'reads in both directions'),
    ('score', 'with objective "classify" assigns no probability'),
    ('translate', 'reads no source text'),
  ):
    with pytest.raises(InputError, match=f'Classification0: cannot {method}: model "bert" .*{reason}'):
      getattr(bert, method)('text')
  with pytest.raises(InputError, match='objective: got "causal_lm"'):
    gpt2.predict(['text'])
  with pytest.raises(InputError, match='generate: unknown option "token"'):
    gpt2.generate('text', token=3)
  with pytest.raises(InputError, match='top_p'):
    gpt2.generate('text', top_p=2.0)


def test_embed_needs_a_text_model():
  def able(name):
    module = registry.get(name)
    return [m for m in inference.METHODS if not inference.obstacle(module, name, module.OBJECTIVE, m)]

  assert able('transformer') == ['translate'] and able('word2vec') == able('ntm') == []
  assert able('esim') == able('bidaf') == ['predict'] and able('self_attention') == ['predict', 'embed']
  assert able('rnn_lm') == ['generate', 'score', 'embed'] and able('xlnet') == able('bert') == ['score', 'embed']


def test_examples_of_the_page_run(folder):
  examples = re.findall(
    r"(?:^run = lmx.load\('(?:GPT2|BERT|CLASSIFIER)'\).*\n)(?:^[^`\n].*\n)+", PAGE.read_text(), re.M
  )
  assert len(examples) == 4
  folders = {'GPT2': 'GPT2LMHeadModel', 'BERT': 'BertForPreTraining', 'CLASSIFIER': 'BertForSequenceClassification'}
  scope = {'lmx': lmx}
  for example in examples:
    name = re.search(r"load\('(\w+)'", example)[1]
    exec(example.replace(f"'{name}'", repr(str(folder(folders[name])))), scope)
  assert scope['texts'][0].startswith('The method returns') and len(scope['layers']) == 3
  assert scope['labels'][0]['label'] in LABELS and scope['logits_BTV'].shape[0] == 1
