"""Rows of imported models: those that the folder's tokenizer makes, with its post-processor and truncation.

The expected rows are those of the `tokenizers` library, with which transformers makes them. The keys that each class of
transformers reads were found with versions 4.57.6 and 5.24.
"""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
import safetensors.numpy
import tokenizers as hf
from tokenizers import processors

import lmx
from lmx import inference
from lmx.cli import main
from lmx.data import pipeline
from lmx.data.tokenizers import build
from lmx.decoding import generate
from lmx.errors import InputError
from lmx.interop import huggingface
from lmx.interop.huggingface import architectures
from lmx.models import registry
from lmx.prediction import classification, question_answering, tagging
from tests import drawn
from tests.interop import imports

TEXTS = ['The method returns a list of names.', 'A name is a string, and so is a list of them.'] * 20
KINDS = {'bert': 'wordpiece', 'gpt2': 'bpe', 'xlnet': 'unigram'}
CLASSES = {'bert': 'BertTokenizer', 'gpt2': 'GPT2Tokenizer', 'xlnet': 'XLNetTokenizer'}
MARKS = {'bert': ('[CLS]', '[SEP]'), 'gpt2': ('<|endoftext|>', 'A'), 'xlnet': ('<cls>', '<sep>')}
LONG = [(' '.join([TEXTS[0]] * a), ' '.join([TEXTS[1]] * b)) for a, b in ((1, 1), (2, 4), (4, 2), (4, 4), (1, 5))]
WITH_TYPES = ['input_ids', 'token_type_ids', 'attention_mask']
VERSION_4 = {'transformers_version': '4.57.6'}
ANY = {'tokenizer_class': 'PreTrainedTokenizerFast', 'model_input_names': WITH_TYPES}


@pytest.fixture(scope='module')
def vocabularies():
  size = {'unigram': {'vocab_size': 400, 'marks': 'xlnet'}}
  return {name: build.train(kind, TEXTS, **size.get(kind, {'vocab_size': 300})) for name, kind in KINDS.items()}


def templates(family, ids):
  """Post-processors by name; `ids` is of tokens."""
  first, last = MARKS[family]
  one = lambda name: (name, ids(name))

  def template(single, pair):
    names = {'F': first, 'L': last}
    pieces = [' '.join(names.get(part[0], part[0]) + part[1:] for part in text.split()) for text in (single, pair)]
    return processors.TemplateProcessing(single=pieces[0], pair=pieces[1], special_tokens=[one(first), one(last)])

  return {
    'none': None,
    'byte level': processors.ByteLevel(trim_offsets=False),
    'start': template('F $A', 'F $A $B:1'),
    'both': template('F $A L', 'F $A L $B:1 L:1'),
    'no types': template('F $A L', 'F $A L $B L'),
    'twice': template('F F:1 $A:1 L', 'F $A:1 L L $B:0 L:1'),
    'roberta': processors.RobertaProcessing(one(last), one(first)),
    'sequence': processors.Sequence([processors.ByteLevel(), template('$A L', '$A L $B:1')]),
    'swapped': template('F $A', 'F $B $A:1'),
  }


@pytest.fixture
def make(vocabularies, tmp_path):
  """Write a folder of a class with a post-processor and tokenizer_config.json; return (folder, its tokenizer)."""

  def write(name, processor, settings, **config):
    head = architectures.HEADS[name]
    layout, model, tokenizer = huggingface.family(head.model), registry.get(head.model), vocabularies[head.model]
    changes = {'F': 24, 'M': 0, 'fidelity': 'paper', 'gelu': 'erf'} if head.model == 'xlnet' else {'T': 64}
    cfg = model.Config(V=tokenizer.vocab_size, D=8, H=2, N=1, **changes)
    entries = architectures.entries(name, layout.entries(cfg), 8, 3)
    params = {'model': drawn.params(model.init, cfg), 'objective': {}}
    for entry in (one for one in entries if one.path[0] == 'objective' and not one.group):
      node = params['objective']
      for part in entry.path[1:-1]:
        node = node.setdefault(part, {})
      node[entry.path[-1]] = np.asarray(entry.load(np.ones(entry.shape, np.float32)))
    (folder := tmp_path / 'folder').mkdir()
    about = {
      'architectures': [name],
      'model_type': layout.TYPE,
      **layout.config(cfg),
      'id2label': dict(enumerate('abc')),
    }
    (folder / 'config.json').write_text(json.dumps(about | config))
    safetensors.numpy.save_file(dict(huggingface.to_hf(head.model, cfg, params, name, 3)), folder / 'model.safetensors')
    state = json.loads(tokenizer._model.to_str()) | {'post_processor': None}
    library = hf.Tokenizer.from_str(json.dumps(state))
    chosen = templates(head.model, library.token_to_id)[processor] if processor != 'own' else None
    if chosen is not None:
      library.post_processor = chosen
    library.save(str(folder / 'tokenizer.json'))
    if processor == 'own':
      imports.save_tokenizer(tokenizer, folder)
    own = {'tokenizer_class': CLASSES[head.model], **({'do_lower_case': False} if head.model == 'bert' else {})}
    (folder / 'tokenizer_config.json').write_text(json.dumps(own | settings))
    return folder, hf.Tokenizer.from_file(str(folder / 'tokenizer.json'))

  return write


def rows_of(run, rows, folder):
  """(tokens, types) of each row of texts, as `predict` reads them."""
  path = folder.parent / 'rows.jsonl'
  columns = classification.text_columns(run)
  path.write_text(''.join(json.dumps(dict(zip(columns, row, strict=True))) + '\n' for row in rows))
  read = classification.read_file(run, str(path))
  batches = pipeline.batches(run.run.data, read.corpus, read.split, 0, train=False)
  found = {}
  for step in range(batches.steps):
    batch = batches(step)
    for b, i in enumerate(batch['index_B'].tolist()):
      valid_T = batch['valid_BT'][b]
      found[i] = batch['tokens_BT'][b, valid_T].tolist(), batch['types_BT'][b, valid_T].tolist()
  return [found[i] for i in range(len(rows))]


def check_rows(folder, library, length, types=True):
  """Rows of one text and of two are those of the library, long ones truncated."""
  library.enable_truncation(length)
  for texts, rows in (("'a',", [pair[:1] for pair in LONG]), ("'a','b'", LONG)):
    run = inference.load(folder, 'best', [f'data.texts=({texts})'])
    for row, (ids, kinds) in zip(rows, rows_of(run, rows, folder), strict=True):
      expected = library.encode(*row)
      assert ids == expected.ids
      assert kinds == (expected.type_ids if types else [0] * len(ids))


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize(
  'name,processor,settings,form',
  [
    ('BertForSequenceClassification', 'both', {'model_max_length': 21}, 'bert'),
    ('BertForSequenceClassification', 'none', ANY, 'template'),
    pytest.param('BertForSequenceClassification', 'start', ANY, 'template', marks=pytest.mark.slow),
    ('BertForSequenceClassification', 'twice', ANY, 'template'),
    pytest.param('BertForSequenceClassification', 'roberta', ANY, 'template', marks=pytest.mark.slow),
    pytest.param('BertForSequenceClassification', 'sequence', ANY, 'template', marks=pytest.mark.slow),
    pytest.param('GPT2ForSequenceClassification', 'byte level', {}, 'plain', marks=pytest.mark.slow),
    ('GPT2ForSequenceClassification', 'start', {}, 'template'),
    pytest.param('GPT2ForSequenceClassification', 'roberta', {}, 'template', marks=pytest.mark.slow),
    pytest.param('XLNetForSequenceClassification', 'own', {}, 'xlnet', marks=pytest.mark.slow),
    ('XLNetForSequenceClassification', 'both', ANY, 'template'),
  ],
)
def test_rows_are_those_of_the_post_processor(name, processor, settings, form, make, tmp_path):
  folder, library = make(name, processor, settings)
  run = lmx.load(folder)
  assert (run.run.data.batching.form, run.run.data.batching.truncation) == (form, 'tokenizers')
  length = run.run.data.length
  assert length == settings.get('model_max_length', 512 if name.startswith('XLNet') else 64)
  check_rows(folder, library, length, types=not name.startswith('GPT2'))
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path}/run']) == 0
  assert main.main(['export', f'--workdir={tmp_path}/run', f'--to={tmp_path}/out']) == 0
  written = hf.Tokenizer.from_file(str(tmp_path / 'out/tokenizer.json'))
  library.no_truncation()
  for row in (('A name',), ('A name', 'is a list')):
    assert written.encode(*row).ids == library.encode(*row).ids
    assert written.encode(*row).type_ids == library.encode(*row).type_ids or name.startswith('GPT2')
  assert json.loads((tmp_path / 'out/tokenizer_config.json').read_text())['model_max_length'] == length
  again = lmx.load(tmp_path / 'out')
  assert again.run.data.batching == run.run.data.batching and again.tokenizer.templates == run.tokenizer.templates


@pytest.mark.filterwarnings('ignore')
def test_generation_embedding_and_scores_read_the_row(make, vocabularies):
  folder, library = make('GPT2LMHeadModel', 'roberta', {})
  run, text = lmx.load(folder), 'The method'
  ids = library.encode(text).ids
  assert len(ids) == len(vocabularies['gpt2'].encode(text)) + 2
  assert generate.prompt_ids(run.tokenizer, text).tolist() == ids
  ((tokens, layers),) = run.embed(text, special_tokens='return')
  assert run.tokenizer.ids_to_tokens(ids) == tokens and len(layers[0]) == len(ids)
  features, _ = run.model.apply(run.cfg, run.params['model'], {'tokens_BT': np.asarray([ids])}, ())
  logits_TV = run.model.logits(run.cfg, run.params['model'], features)[0]
  best = int(np.argmax(logits_TV[-1]))
  assert run.generate(text, tokens=1, greedy=True) == [text + run.tokenizer.decode([best])]
  log_p_TV = jax.nn.log_softmax(logits_TV)
  expected = [float(log_p_TV[t, token]) for t, token in enumerate(ids[1:-1])]
  np.testing.assert_allclose(run.score(text)[0].log_p_T, expected, atol=1e-5)


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('split', [False, True])
def test_export_reads_special_tokens_in_a_text_as_the_folder(split, make, tmp_path):
  folder, _ = make('GPT2LMHeadModel', 'none', {'split_special_tokens': True} if split else {})
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path}/run']) == 0
  assert main.main(['export', f'--workdir={tmp_path}/run', f'--to={tmp_path}/out']) == 0
  assert json.loads((tmp_path / 'out/tokenizer_config.json').read_text()).get('split_special_tokens', False) == split
  (ids, again) = (lmx.load(path).tokenizer.encode('A<|endoftext|>').tolist() for path in (folder, tmp_path / 'out'))
  assert again == ids and (len(ids) == 2) != split


@pytest.mark.filterwarnings('ignore')
def test_masked_rows_and_tags_read_the_row(make):
  folder, library = make('BertForTokenClassification', 'twice', ANY)
  run, words = lmx.load(folder), ['The', 'method', 'returns']
  ((tokens, _),) = run.embed(' '.join(words), special_tokens='return')
  assert tokens == library.encode(' '.join(words)).tokens
  inputs = _sentences(run, words, folder)
  batch = pipeline.batches(run.run.data, inputs.corpus, inputs.split, 0, train=False)(0)
  size, expected = int(batch['valid_BT'][0].sum()), library.encode(words, is_pretokenized=True)
  assert batch['tokens_BT'][0, :size].tolist() == expected.ids
  assert batch['types_BT'][0, :size].tolist() == expected.type_ids
  assert len(run.predict([words])[0]['tags']) == 3
  starts = [t for t, word in enumerate(expected.word_ids) if word is not None and word not in expected.word_ids[:t]]
  assert np.flatnonzero(batch['weights_BT'][0]).tolist() == starts


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('types', [True, False])
def test_questions_read_the_row_with_or_without_token_types(types, make):
  names = WITH_TYPES if types else ['input_ids', 'attention_mask']
  folder, library = make('XLNetForQuestionAnsweringSimple', 'own', {'model_input_names': names})
  run, question, passage = lmx.load(folder), 'a name', 'The method returns a list'
  path = folder.parent / 'questions.jsonl'
  path.write_text(json.dumps({'context': passage, 'qas': [{'id': '1', 'question': question}]}) + '\n')
  read = question_answering.read_file(run, str(path))
  batch = pipeline.batches(run.run.data, read.corpus, read.split, 0, train=False)(0)
  expected, size = library.encode(passage, question), int(batch['valid_BT'][0].sum())
  assert batch['tokens_BT'][0, :size].tolist() == expected.ids
  assert batch['types_BT'][0, :size].tolist() == (expected.type_ids if types else [0] * size)


def _sentences(run, words, folder):
  path = folder.parent / 'words.jsonl'
  path.write_text(json.dumps({'tokens': words}) + '\n')
  return tagging.read_file(run, str(path))


@pytest.mark.parametrize(
  'name,processor,settings,config,words',
  [
    (
      'BertForSequenceClassification',
      'none',
      {},
      {},
      'post_processor: got A .* "PreTrainedTokenizerFast"',
    ),
    ('BertForSequenceClassification', 'no types', {}, {}, r'post_processor: got .*types 0 0 0 0 0\)'),
    ('BertForSequenceClassification', 'swapped', ANY, {}, 'tokenizer.json: post_processor: got rows of 2 texts'),
    ('XLNetForSequenceClassification', 'both', {}, {}, 'tokenizer.json: post_processor: got <cls> A <sep>'),
    ('GPT2ForSequenceClassification', 'none', {'tokenizer_class': ANY['tokenizer_class']}, VERSION_4, 'got none in a'),
    ('GPT2ForSequenceClassification', 'none', {'model_input_names': WITH_TYPES}, {}, 'model_input_names: got token'),
    ('GPT2ForSequenceClassification', 'none', {}, {'pad_token_id': 'A'}, 'config.json: pad_token_id: got'),
    ('BertForQuestionAnswering', 'start', ANY, {}, 'post_processor: got .*because lmx reads questions'),
    (
      'GPT2LMHeadModel',
      'none',
      {'model_max_length': 'long'},
      {},
      'model_max_length: got "long"',
    ),
    ('GPT2LMHeadModel', 'none', {'model_input_names': 1}, {}, 'tokenizer_config.json: model_input_names'),
  ],
)
def test_rows_that_lmx_does_not_read_are_refused(name, processor, settings, config, words, make, capsys):
  folder, _ = make(name, processor, settings, **config)
  imports.check_refused(folder, words, capsys)


@pytest.mark.filterwarnings('ignore')
def test_start_token_of_gpt2_without_tokenizer_json(make, capsys):
  folder, library = make('GPT2ForSequenceClassification', 'none', {'add_bos_token': True})
  library.model.save(str(folder))
  (folder / 'tokenizer.json').unlink()
  run = inference.load(folder, 'best', ["data.texts=('a',)"])
  ((ids, _),) = rows_of(run, [('A name',)], folder)
  assert ids == [run.tokenizer.bos_id, *library.encode('A name').ids]
  assert main.main(['import', f'--from={folder}', f'--workdir={folder}-run']) == 0
  two = inference.load(folder, 'best', ["data.texts=('a','b')"])
  with pytest.raises(InputError, match='data.texts: got rows of 2 texts; .* add_bos_token'):
    two.predict([('A name', 'is')])


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize(
  'name,processor,settings,version,types',
  [
    ('BertForSequenceClassification', 'both', {'model_input_names': ['input_ids', 'attention_mask']}, '4.57.6', False),
    ('BertForSequenceClassification', 'both', {'tokenizer_class': ANY['tokenizer_class']}, '4.57.6', True),
    ('BertForSequenceClassification', 'both', {'tokenizer_class': ANY['tokenizer_class']}, '5.24.0', False),
    ('XLNetForSequenceClassification', 'own', {}, '4.57.6', True),
    ('XLNetForSequenceClassification', 'own', {}, '5.24.0', False),
  ],
)
def test_token_types_are_those_that_transformers_gives_to_the_model(name, processor, settings, version, types, make):
  """By default version 5 gives them only to BERT, with BERT's class of tokenizer."""
  folder, library = make(name, processor, settings, transformers_version=version)
  run = inference.load(folder, 'best', ["data.texts=('a','b')"])
  row = ('A name', 'is a list')
  ((ids, kinds),) = rows_of(run, [row], folder)
  expected = library.encode(*row)
  assert ids == expected.ids and kinds == (expected.type_ids if types else [0] * len(ids))


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize(
  'name,processor,end,pad',
  [
    ('GPT2ForSequenceClassification', 'none', '<|endoftext|>', None),
    ('GPT2ForSequenceClassification', 'none', '<|endoftext|>', '<|endoftext|>'),
    ('GPT2ForSequenceClassification', 'both', '<|endoftext|>', 'A'),
    pytest.param('XLNetForSequenceClassification', 'own', '<eod>', None, marks=pytest.mark.slow),
  ],
)
def test_end_of_text_at_the_end_of_a_text_is_read(name, processor, end, pad, make, vocabularies, tmp_path):
  """Of classifiers on GPT-2, transformers reads a row at its last token that is not padding."""
  pad = None if pad is None else vocabularies['gpt2'].token_id(pad)
  folder, library = make(name, processor, {}, pad_token_id=pad)
  rows = [(f'{text}{end}',) for text in ('A name', f'A name{end}', '', 'is a name A')] + [('A name',)]
  expected = [np.asarray(library.encode(text).ids) for (text,) in rows]
  expected = [ids[: 1 + np.flatnonzero(ids != pad).max(initial=0)].tolist() for ids in expected]
  columns = ["data.texts=('a',)"]
  run = inference.load(folder, 'best', columns)
  assert [ids for ids, _ in rows_of(run, rows, folder)] == expected
  for split in ('train', 'valid', 'test'):  # a data set of such rows
    lines = (json.dumps({'a': text, 'label': 'a'}) + '\n' for (text,) in rows)
    (tmp_path / f'{split}.jsonl').write_text(''.join(lines))
  files = ['data.dataset=table_files', f'data.manual_dir={tmp_path}', f'data.cache_dir={tmp_path}/cache']
  data = inference.load(folder, 'best', [*columns, *files, f'data.tokenizer_path={tmp_path}/run/tokenizer'])
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path}/run']) == 0
  batch = pipeline.batches(data.run.data, pipeline.load(data.run.data), 'valid', 0, train=False)(0)
  tokens = {i: batch['tokens_BT'][b, batch['valid_BT'][b]].tolist() for b, i in enumerate(batch['index_B'].tolist())}
  assert [tokens[i] for i in range(len(rows))] == expected
  assert main.main(['export', f'--workdir={tmp_path}/run', f'--to={tmp_path}/out']) == 0
  if name.startswith('GPT2'):
    assert json.loads((tmp_path / 'out/config.json').read_text())['pad_token_id'] == pad


@pytest.mark.filterwarnings('ignore')
def test_earlier_work_directories_keep_their_rows(make, tmp_path):
  """One that was imported before rows were read has no `templates` in its vocabulary."""
  folder, _ = make('GPT2LMHeadModel', 'both', {})
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path}/run']) == 0
  path = tmp_path / 'run/tokenizer/vocabulary.json'
  content = json.loads(path.read_text())
  assert len(content.pop('templates')) == 2
  path.write_text(json.dumps(content))
  (tmp_path / 'run/checksums.json').unlink(missing_ok=True)
  run = lmx.load(tmp_path / 'run')
  assert generate.prompt_ids(run.tokenizer, 'A name').tolist() == run.tokenizer.encode('A name').tolist()
