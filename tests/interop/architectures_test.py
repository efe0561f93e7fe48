"""Classes of fine-tuned models: which one a folder is of, what it becomes here, and what is written and refused.

tests/interop/transformers_test.py compares the numbers with transformers.
"""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx import objectives
from lmx.cli import main
from lmx.config import resolve as config_lib
from lmx.data.tokenizers import build, library_files, settings
from lmx.data.tokenizers.subword import with_special
from lmx.errors import InputError
from lmx.interop import huggingface
from lmx.interop.huggingface import architectures, folder
from lmx.models import registry
from lmx.runs import convert, transfer
from tests.interop import imports

TEXTS = ['The method returns a list of names.', 'A name is a string, and so is a list of them.'] * 20
KINDS = {'bert': 'wordpiece', 'gpt': 'gpt_bpe', 'gpt2': 'bpe', 'xlnet': 'unigram'}
SIZES = {'D': 8, 'H': 2, 'N': 1}
LABELS = ('up', 'down', 'strange')
WITH_LAYER = [name for name, head in architectures.HEADS.items() if head.layer]


def sized(model, V):
  """Config of a small model."""
  changes = {'F': 24, 'M': 0, 'fidelity': 'paper', 'gelu': 'erf'} if model == 'xlnet' else {'T': 64}
  return registry.get(model).Config(V=V, **SIZES, **changes)


def outputs(name):
  return architectures.HEADS[name].outputs or len(LABELS)


def random_like(name, cfg):
  """Parameters of a class, all of them random."""
  head, model = architectures.HEADS[name], registry.get(architectures.HEADS[name].model)
  rng = np.random.default_rng(0)
  draw = lambda tree: jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), tree)
  params = draw(jax.eval_shape(lambda: model.init(cfg, jax.random.key(0))))
  if head.inner:  # several layers: as the objective makes them
    objective = objectives.get(head.objectives[0])
    chosen = objective.Config(
      **head.fixed_objective, **({} if head.outputs else {'classes': len(LABELS)}), **head.read_defaults
    )
    made = jax.eval_shape(lambda: objective.init(chosen, model, cfg, jax.random.key(0)))
    return {'model': params, 'objective': draw(made)}
  layer = {'kernel': rng.normal(size=(cfg.D, outputs(name))).astype(np.float32)}
  layer |= {'bias': rng.normal(size=outputs(name)).astype(np.float32)} if head.bias else {}
  return {'model': params, 'objective': {'block_0': layer} if head.path.endswith('block_0') else layer}


@pytest.fixture(scope='module')
def vocabularies():
  size = {'unigram': {'vocab_size': 400, 'marks': 'xlnet'}}
  return {name: build.train(kind, TEXTS, **size.get(kind, {'vocab_size': 300})) for name, kind in KINDS.items()}


@pytest.fixture
def make(vocabularies, tmp_path):
  """Writes a folder of a class as others leave it: (folder, Config, parameters)."""

  def write(name, marks=(), **changes):
    head = architectures.HEADS[name]
    tokenizer = with_special(vocabularies[head.model], marks) if marks else vocabularies[head.model]
    of, cfg = huggingface.family(head.model), sized(head.model, tokenizer.vocab_size)
    params, to = random_like(name, cfg), tmp_path / 'folder'
    to.mkdir()
    settings = {'architectures': [name], 'model_type': of.TYPE, **of.config(cfg)}
    settings |= {'id2label': {str(i): label for i, label in enumerate(LABELS)}} | changes
    (to / 'config.json').write_text(json.dumps({k: v for k, v in settings.items() if v != 'left out'}))
    tensors = huggingface.to_hf(head.model, cfg, params, name, outputs(name))
    safetensors.numpy.save_file(tensors, to / 'model.safetensors')
    imports.save_tokenizer(tokenizer, to)
    return to, cfg, params

  return write


def change(to, **tensors):
  """Other tensors in a folder; None takes one away."""
  found = safetensors.numpy.load_file(to / 'model.safetensors') | tensors
  safetensors.numpy.save_file({n: x for n, x in found.items() if x is not None}, to / 'model.safetensors')


@pytest.mark.parametrize('name', WITH_LAYER)
def test_export_and_import_restore_the_run(name):
  model = architectures.HEADS[name].model
  cfg = sized(model, 11)
  params = random_like(name, cfg)
  tensors = huggingface.to_hf(model, cfg, params, name, outputs(name))
  assert any('lm_head' in n for n in tensors) == ('DoubleHeads' in name) and not any('cls.' in n for n in tensors)
  back = huggingface.from_hf(model, cfg, tensors, name, outputs(name))
  jax.tree.map(np.testing.assert_array_equal, back['objective'], params['objective'])
  for part, x in back['model'].items():  # what the class has no use for is left out
    jax.tree.map(np.testing.assert_array_equal, x, params['model'][part])
  assert ('pooler' in back['model']) == ('pooler' in architectures.HEADS[name].groups)


@pytest.mark.parametrize(
  ('name', 'layer', 'other'),
  [
    ('BertForSequenceClassification', 'cls.seq_relationship', 'BertForPreTraining'),
    ('BertForTokenClassification', 'qa_outputs', 'BertForQuestionAnswering'),
    ('GPT2ForSequenceClassification', 'multiple_choice_head.summary', 'GPT2DoubleHeadsModel'),
  ],
)
def test_left_over_head_of_another_class_is_unused(name, layer, other, make, tmp_path):
  made, *_ = make(name)
  change(made, **{f'{layer}.weight': np.ones((2, 8), np.float32), f'{layer}.bias': np.ones(2, np.float32)})
  rows = convert.read(str(made), tmp_path / 'run').rows
  assert {row.name: row.note for row in rows if row.name.startswith(layer)} == dict.fromkeys(
    (f'{layer}.bias', f'{layer}.weight'), f'of {other}, not {name}'
  )


def test_several_classes_and_shards_beside_the_weights_are_reported(make, tmp_path):
  made, *_ = make(
    'BertForTokenClassification', architectures=['X', 'BertForQuestionAnswering', 'BertForTokenClassification']
  )
  (made / 'model.safetensors.index.json').write_text('{}')
  (made / 'model-00001-of-00002.safetensors').write_bytes(b'')
  imported = convert.read(str(made), tmp_path / 'run')
  assert imported.run.objective_name == 'tag'
  notes = '; '.join(imported.notes)
  assert 'not model.safetensors.index.json, model-00001-of-00002.safetensors beside it' in notes
  assert 'read as BertForTokenClassification' in notes


@pytest.mark.parametrize(
  'name,marks,objective',
  [
    ('BertForSequenceClassification', (), 'classify'),
    ('BertForTokenClassification', (), 'tag'),
    pytest.param('BertForQuestionAnswering', (), 'span', marks=pytest.mark.slow),
    ('OpenAIGPTDoubleHeadsModel', ('_start_', '_delimiter_', '_classify_'), 'multiple_choice'),
    pytest.param('XLNetForSequenceClassification', (), 'classify', marks=pytest.mark.slow),
    ('XLNetForMultipleChoice', (), 'multiple_choice'),
    pytest.param('XLNetForTokenClassification', (), 'tag', marks=pytest.mark.slow),
    ('XLNetForQuestionAnswering', (), 'span'),
  ],
)
def test_import_and_export_round_trip_the_folder(name, marks, objective, make, tmp_path, capsys):
  made, cfg, params = make(name, marks)
  assert main.main(['import', f'--from={made}', f'--workdir={tmp_path}/run']) == 0
  out = capsys.readouterr().out
  assert f'read as {name}, objective "{objective}"' in out
  run = lmx.load(tmp_path / 'run')
  assert run.cfg == cfg and run.run.objective_name == objective
  jax.tree.map(np.testing.assert_array_equal, run.params['objective'], params['objective'])
  assert ('newly initialised: model/mlm' in out) == (run.run.model_name == 'bert')
  assert run.run.data.special_tokens == marks
  if run.run.model_name == 'xlnet':
    assert run.run.data.batching.form == ('template' if objective == 'tag' else 'xlnet')
  assert run.labels == (list(LABELS) if objective in ('classify', 'tag') else [])
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  before, after = (safetensors.numpy.load_file(f / 'model.safetensors') for f in (made, tmp_path / 'out'))
  assert before.keys() == after.keys()
  for key in before:
    np.testing.assert_array_equal(before[key], after[key])
  written = json.loads((tmp_path / 'out/config.json').read_text())
  assert written['architectures'] == [name]
  if objective in ('classify', 'tag'):
    assert written['id2label'] == {'0': 'up', '1': 'down', '2': 'strange'} and written['label2id']['strange'] == 2
  again = folder.read(tmp_path / 'out')
  assert again.architecture == name and again.objective['name'] == objective
  if marks:
    assert settings.read(tmp_path / 'out', again.tokenizer).extra == marks
    assert written['pad_token_id'] == run.tokenizer.token_id('_start_')


def test_folder_selects_its_transformers_class():
  ones = lambda *shape: np.ones(shape, np.float32)
  pooler = {'bert.pooler.dense.weight': ones(8, 8)}
  for named, tensors, found in (
    (['BertForTokenClassification'], {}, 'BertForTokenClassification'),
    (['BertForMaskedLM'], {}, 'BertForPreTraining'),
    (['BertModel'], {}, 'BertForPreTraining'),
    (None, {'cls.predictions.bias': ones(9)}, 'BertForPreTraining'),
    (None, {'qa_outputs.weight': ones(2, 8)}, 'BertForQuestionAnswering'),
    (None, {'classifier.weight': ones(3, 8)}, 'BertForTokenClassification'),
    (None, {'classifier.weight': ones(3, 8), **pooler}, 'could be'),
  ):
    theirs = {'architectures': named} if named else {}
    if found == 'could be':
      with pytest.raises(InputError, match='BertForSequenceClassification or BertForTokenClassification'):
        architectures.recognise('bert', theirs, tensors)
    else:
      assert architectures.recognise('bert', theirs, tensors) == found
  with pytest.raises(InputError, match='unknown BertForTokenClassifier; did you mean "BertForTokenClassification"'):
    architectures.recognise('bert', {'architectures': ['BertForTokenClassifier']}, {})
  with pytest.raises(InputError, match='unknown OpenAIGPTLMHeadModel'):
    architectures.recognise('gpt2', {'architectures': ['OpenAIGPTLMHeadModel']}, {})


def test_labels_and_objectives_of_a_config():
  labels = lambda **theirs: architectures.labels('BertForSequenceClassification', theirs)
  assert labels() == ('LABEL_0', 'LABEL_1') and labels(num_labels=1) == ('LABEL_0',)
  assert labels(id2label={'10': 'k', **{str(i): f'x{i}' for i in range(10)}})[10] == 'k'
  for wrong in ({'0': 'a', '2': 'b'}, {'0': 'a', '1': 'a'}):
    with pytest.raises(InputError, match='different names for labels 0 to 1'):
      labels(id2label=wrong)
  for value in (None, True, ['a'], {}):
    with pytest.raises(InputError, match='id2label: got .* for label 1'):
      labels(id2label={'0': 'a', '1': value})
  section = lambda **theirs: architectures.objective('BertForSequenceClassification', theirs)
  assert section(num_labels=1)['name'] == 'regress' and section()['name'] == 'classify'
  assert section(hidden_dropout_prob=0.3)['dropout_pooled'] == 0.3
  assert section(hidden_dropout_prob=0.3, classifier_dropout=0.0)['dropout_pooled'] == 0.0
  for theirs in (dict(problem_type='multi_label_classification'), dict(problem_type='regression', num_labels=2)):
    with pytest.raises(InputError, match='config.json: problem_type'):
      section(**theirs)
  with pytest.raises(InputError, match="summary_activation: got 'tanh'"):
    architectures.objective('GPT2DoubleHeadsModel', {'summary_activation': 'tanh'})


@pytest.mark.parametrize(
  'changes,tensors,words',
  [
    ({}, {'classifier.bias': None}, ['1 tensors missing: classifier.bias']),
    ({}, {'cls.other.bias': np.zeros(2, np.float32)}, ['1 tensors unknown: cls.other.bias']),
    ({'is_decoder': True}, {}, ['is_decoder: got True']),
    ({'id2label': {'0': 'a', '1': 'b'}}, {}, [r'classifier.weight is \(3, 8\), not \(2, 8\)', r'classifier.bias is']),
    ({'architectures': ['BertForQuestionAnswering']}, {}, ['missing: qa_outputs.weight, qa_', 'unknown: classifier']),
    ({'architectures': ['BertForX']}, {}, ['folder: config.json: architectures: unknown BertForX']),
    (
      {'architectures': 'left out'},
      {},
      ['architectures: missing; expected BertForSequenceClassification or BertForTokenClassification'],
    ),
  ],
)
def test_bad_folders_are_rejected_before_writing(changes, tensors, words, make, tmp_path):
  made, *_ = make('BertForSequenceClassification', **changes)
  change(made, **tensors)
  for word in words:
    with pytest.raises(InputError, match=word):
      convert.import_run(str(made), tmp_path / 'run')
  assert [path.name for path in tmp_path.iterdir()] == ['folder']


def said(tmp_path, name, content, capsys, *options):
  (tmp_path / name).write_text(content)
  capsys.readouterr()
  assert main.main(['predict', f'--workdir={tmp_path}/run', f'--input={tmp_path / name}', *options]) == 0
  return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_imported_classifier_labels_texts_and_pairs(make, tmp_path, capsys):
  made, *_ = make('BertForSequenceClassification')
  convert.import_run(str(made), tmp_path / 'run')
  found = said(tmp_path, 'in.txt', 'a name\nthe method\n', capsys)
  assert [tuple(row['probabilities']) for row in found] == [LABELS] * 2
  names, pairs = '--config.data.texts=("one","two")', '{"one": "a name", "two": "the method"}\n'
  assert said(tmp_path, 'in.jsonl', pairs, capsys, names)[0]['probabilities'] != found[0]['probabilities']


def test_labels_are_matched_by_name_in_training_and_evaluation(make, tmp_path, capsys):
  """The data numbers labels by the alphabet: down, strange, up."""
  made, *_ = make('BertForSequenceClassification')
  convert.import_run(str(made), tmp_path / 'run')
  texts = [' '.join(TEXTS[i % 2].split()[i % 5 :]) for i in range(10)]
  right = [row['label'] for row in said(tmp_path, 'in.txt', '\n'.join(texts) + '\n', capsys)]
  lines = [json.dumps({'text': text, 'label': label}) for text, label in zip(texts, right, strict=True)]
  others = [json.dumps({'text': 'a', 'label': label}) for label in LABELS for _ in range(3)]
  data = tmp_path / 'data'
  data.mkdir()
  for split, rows in (('train', others), ('valid', lines), ('test', lines)):
    (data / f'{split}.jsonl').write_text('\n'.join(rows) + '\n')
  command = ['evaluate', f'--workdir={tmp_path}/run', '--split=test', f'--output={tmp_path}/found.json']
  assert main.main([*command, f'--config.data.manual_dir={data}']) == 0
  assert json.loads((tmp_path / 'found.json').read_text())['accuracy'] == 1
  run = lmx.load(tmp_path / 'run')
  shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), run.params)
  taken, _ = transfer.copy(tmp_path / 'run', shapes, (), run.tokenizer, ('down', 'strange', 'up'))
  ours, theirs = taken['objective']['block_0'], run.params['objective']['block_0']
  for name in ('kernel', 'bias'):
    np.testing.assert_array_equal(ours[name], np.asarray(theirs[name])[..., [1, 2, 0]])
  jax.tree.map(np.testing.assert_array_equal, taken['model'], dict(run.params['model']))
  with pytest.raises(InputError, match='this run a, b, c'):
    transfer.copy(tmp_path / 'run', shapes, (), run.tokenizer, ('a', 'b', 'c'))
  (data / 'test.jsonl').write_text('{"text": "a", "label": "other"}\n' * 3)
  capsys.readouterr()
  assert main.main([*command, f'--config.data.manual_dir={data}']) == 2
  assert 'got labels other; expected those of the run, up, down, strange' in capsys.readouterr().err


def test_imported_multiple_choice_model_predicts(make, tmp_path, capsys):
  made, *_ = make('GPT2DoubleHeadsModel')
  convert.import_run(str(made), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run').run
  assert run.objective.lm_weight == 0.5 and run.data.batching.form == 'plain' and run.objective.choices == 4
  lines = 'sent1,sent2,ending0,ending1,ending2,ending3\na name,is,a string,a list,a method,them\n'
  assert set(said(tmp_path, 'in.csv', lines, capsys)[0]['probabilities']) == set('0123')
  settings = ['data.dataset=story_cloze', 'data.batching.form=gpt', 'data.special_tokens=("a","b","c")']
  convert.import_run(str(made), tmp_path / 'two', settings)
  assert lmx.load(tmp_path / 'two').run.objective.choices == 2
  with pytest.raises(InputError, match='data set table_files has no choices'):
    convert.import_run(str(made), tmp_path / 'three', ['data.dataset=table_files'])


def task(name, **fields):
  cls = objectives.get(name).Config
  return architectures.Task(name, cls(**fields), LABELS)


LINEAR = dict(head=(), normalize=False, pooling='pooled')


@pytest.mark.parametrize(
  'model,given,words',
  [
    ('bert', task('classify', **LINEAR | {'pooling': 'mean'}), "objective.pooling: got 'mean'"),
    ('bert', task('regress', **LINEAR | {'head': (50,)}), r'objective.head: got \(50,\)'),
    ('bert', task('multiple_choice', **LINEAR | {'normalize': True}), 'objective.normalize: got True'),
    ('bert', task('tag', labels=LABELS), 'objective.crf: got True'),
    ('bert', task('causal_lm'), 'objective: got "causal_lm"'),
    (
      'gpt',
      task('classify', **LINEAR | {'pooling': 'last'}),
      'OpenAIGPTForSequenceClassification .*head_bias: got True',
    ),
    ('gpt2', task('span'), 'got "span"'),
    ('bert', task('span', head='xlnet'), "objective.head: got 'xlnet'"),
  ],
)
def test_unsupported_models_are_not_exported(model, given, words):
  with pytest.raises(InputError, match=words):
    architectures.choose(model, given)


def test_rows_read_both_ways_around_are_not_written(make, tmp_path):
  made, *_ = make('GPT2DoubleHeadsModel')
  convert.import_run(str(made), tmp_path / 'run', ['data.batching.both_orders=True'])
  with pytest.raises(InputError, match='both_orders.*no class of transformers does'):
    convert.export_run(tmp_path / 'run', tmp_path / 'out')
  assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize(
  'experiment,name',
  [
    ('bert/pretrain.py:base', 'BertForPreTraining'),
    ('bert/tasks.py:mnli', 'BertForSequenceClassification'),
    ('bert/tasks.py:stsb', 'BertForSequenceClassification'),
    ('bert/tasks.py:swag', 'BertForMultipleChoice'),
    ('bert/tagging.py:wnut17', 'BertForTokenClassification'),
    ('bert/squad.py:squad', 'BertForQuestionAnswering'),
    ('gpt/books.py:base', 'OpenAIGPTLMHeadModel'),
    ('gpt/tasks.py:race', 'OpenAIGPTDoubleHeadsModel'),
    ('gpt2/webtext.py:124m', 'GPT2LMHeadModel'),
    ('xlnet/pretrain.py:base', 'XLNetLMHeadModel'),
    ('xlnet/tasks.py:mnli', 'XLNetForSequenceClassification'),
    ('xlnet/tasks.py:stsb', 'XLNetForSequenceClassification'),
    ('xlnet/tasks.py:race', 'XLNetForMultipleChoice'),
    ('xlnet/squad.py:squad2', 'XLNetForQuestionAnswering'),
  ],
)
def test_every_fine_tuned_objective_has_a_class(experiment, name):
  run = config_lib.to_run(config_lib.load(f'experiments/{experiment}'))
  assert architectures.choose(run.model_name, architectures.Task(run.objective_name, run.objective)) == name


def test_without_a_next_sentence_head_it_is_a_masked_language_model():
  cfg = objectives.get('masked_lm').Config()
  chosen = [
    architectures.choose('bert', architectures.Task('masked_lm', c))
    for c in (cfg, dataclasses.replace(cfg, next_sentence=False))
  ]
  assert chosen == ['BertForPreTraining', 'BertForMaskedLM']


@pytest.mark.parametrize(
  'kind,options,name',
  [
    ('bpe', {}, 'GPT2TokenizerFast'),
    ('bpe', {'lower_case': True}, 'PreTrainedTokenizerFast'),
    ('bpe', {'prefix_space': True}, 'PreTrainedTokenizerFast'),
    ('wordpiece', {'lower_case': True}, 'BertTokenizerFast'),
    ('gpt_bpe', {}, 'OpenAIGPTTokenizerFast'),
  ],
)
def test_custom_tokenizer_exports_as_generic_class(kind, options, name, tmp_path):
  """Version 5 of transformers builds the parts of GPT-2's class anew, whatever is in tokenizer.json."""
  made = build.train(kind, TEXTS, vocab_size=300, **options)
  folder._write_tokenizer(tmp_path, made.content(), 64, options.get('lower_case', False), ())
  assert json.loads((tmp_path / 'tokenizer_config.json').read_text())['tokenizer_class'] == name
  again = library_files.read(kind, str(tmp_path), lower_case=options.get('lower_case', False))
  for text in ('The  Name, a list', 'ÄÖÜ 中文'):
    np.testing.assert_array_equal(again.encode(text), made.encode(text))


def test_custom_splitting_exports_as_generic_class():
  state = build.train('bpe', TEXTS, vocab_size=300).content()['model']
  assert folder._tokenizer_class('bpe', state) == 'GPT2TokenizerFast'
  whole = state | {'pre_tokenizer': state['pre_tokenizer'] | {'use_regex': False}}
  assert (
    folder._tokenizer_class('bpe', whole)
    == folder._tokenizer_class('bpe', state | {'pre_tokenizer': None})
    == 'PreTrainedTokenizerFast'
  )


def normalized(kind):
  return lambda state: state | {'normalizer': {'type': kind}}


def steps(*names, **metaspace):
  inner = [{'type': name, **(metaspace if name == 'Metaspace' else {})} for name in names]
  return lambda state: state | {'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': inner}}


def limited(state):
  return state | {'model': state['model'] | {'max_input_chars_per_word': 5}}


@pytest.mark.parametrize(
  'kind,change,options,lines',
  [
    ('bpe', normalized('NFC'), {}, ['normalizer: NFC']),
    ('bpe', steps('Digits', 'ByteLevel'), {}, ['pre_tokenizer: Digits, ByteLevel']),
    ('bpe', normalized('NFC'), {'tokenizer_class': 'PreTrainedTokenizerFast'}, []),
    ('wordpiece', limited, {}, ['model: WordPiece']),
    ('wordpiece', lambda state: state | {'pre_tokenizer': {'type': 'Whitespace'}}, {}, ['pre_tokenizer: Whitespace']),
    ('unigram', steps('WhitespaceSplit', 'Metaspace', prepend_scheme='always'), {}, []),
    ('unigram', steps('WhitespaceSplit', 'Metaspace', prepend_scheme='never'), {}, ['pre_tokenizer: WhitespaceSplit']),
    ('unigram', lambda state: state, {'do_lower_case': True}, ['normalizer:']),
    *[(kind, lambda state: state, {}, []) for kind in ('bpe', 'gpt_bpe', 'wordpiece', 'unigram')],
  ],
)
def test_parts_that_transformers_5_replaces_are_named(kind, change, options, lines, tmp_path):
  normalizer = [{'type': 'Replace'}, {'type': 'Replace'}, {'type': 'NFKD'}, {'type': 'StripAccents'}]
  words = steps('WhitespaceSplit', 'Metaspace', prepend_scheme='always')({})
  xlnet = {'normalizer': {'type': 'Sequence', 'normalizers': normalizer}, **words}
  state = xlnet if kind == 'unigram' else build.train(kind, TEXTS, vocab_size=300).content()['model']
  (tmp_path / 'tokenizer.json').write_text(json.dumps(changed := change(state)))
  (tmp_path / 'tokenizer_config.json').write_text(json.dumps(options))
  found = folder._rebuilt(tmp_path, kind)
  assert len(found) == len(lines)
  assert all(line.startswith(f'tokenizer.json: {words}') for line, words in zip(found, lines, strict=True))
  if kind != 'unigram' and not options:
    assert (folder._tokenizer_class(kind, changed) == 'PreTrainedTokenizerFast') == bool(lines)
