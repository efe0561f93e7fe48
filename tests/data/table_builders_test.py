"""GLUE in the layout of its archives, SNLI, SciTail, and the user's own tables; errors name file, line and column."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from lmx.data import corpus as corpora
from lmx.data import labels, pipeline, sources, text_files
from lmx.data.builders import files, tables
from lmx.data.datasets import DATA_SETS
from lmx.errors import InputError, InputWarning

GLUE = {  # task -> (first line of train.tsv or '', a row, what is read, first line of test.tsv, a row)
  'cola': ('', 'gj04\t1\t\tThey "left".', (('They "left".',), 'acceptable'), 'index\tsentence', '0\tIt is.'),
  'sst2': ('sentence\tlabel', 'so good \t1', (('so good',), 'positive'), 'index\tsentence', '0\tbad'),
  'mrpc': (
    'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String',
    '1\t7\t8\tOne.\tTwo.',
    (('One.', 'Two.'), 'equivalent'),
    'index\t#1 ID\t#2 ID\t#1 String\t#2 String',
    '0\t1\t2\tA.\tB.',
  ),
  'qqp': (
    'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate',
    '1\t2\t3\tWho?\tWhom?\t0',
    (('Who?', 'Whom?'), 'not_duplicate'),
    'id\tquestion1\tquestion2',
    '0\tA?\tB?',
  ),
  'stsb': (
    'index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore',
    '0\tg\tf\t2012\t1\tnone\tnone\tA plane.\tA train.\t3.800',
    (('A plane.', 'A train.'), '3.8'),
    'index\tgenre\tsentence1\tsentence2',
    '0\tg\tA.\tB.',
  ),
  'mnli': (
    'index\tpairID\tsentence1\tsentence2\tlabel1\tgold_label',
    '0\tx\tIt is.\tIt is not.\tneutral\tcontradiction',
    (('It is.', 'It is not.'), 'contradiction'),
    'index\tsentence1\tsentence2',
    '0\tA.\tB.',
  ),
  'qnli': (
    'index\tquestion\tsentence\tlabel',
    '0\tWho?\tShe.\tentailment',
    (('Who?', 'She.'), 'entailment'),
    'index\tquestion\tsentence',
    '0\tA?\tB.',
  ),
  'rte': (
    'index\tsentence1\tsentence2\tlabel',
    '0\tAll.\tSome.\tnot_entailment',
    (('All.', 'Some.'), 'not_entailment'),
    'index\tsentence1\tsentence2',
    '0\tA.\tB.',
  ),
  'wnli': (
    'index\tsentence1\tsentence2\tlabel',
    '0\tIt fell.\tHe fell.\t0',
    (('It fell.', 'He fell.'), 'not_entailment'),
    'index\tsentence1\tsentence2',
    '0\tA.\tB.',
  ),
}
FOLDERS = {'cola': 'CoLA', 'sst2': 'SST-2', 'stsb': 'STS-B'}


def write(path, *lines):
  path.parent.mkdir(parents=True, exist_ok=True)
  text = ''.join(line + '\n' for line in lines if line)
  path.write_bytes(gzip.compress(text.encode()) if path.suffix == '.gz' else text.encode())


def put(name, folder):
  head, row, _, test_head, test_row = GLUE[name]
  below = folder / FOLDERS.get(name, name.upper())
  kinds = ('_matched', '_mismatched') if name == 'mnli' else ('',)
  write(below / 'train.tsv', head, row, row)
  for kind in kinds:
    write(below / f'dev{kind}.tsv', head, row)
    write(below / f'test{kind}.tsv', test_head, test_row)


def read(name, folder, **changes):
  source = sources.Config(dataset=name, manual_dir=str(folder), **{'check_sizes': False} | changes)
  found = sources.open_splits(dataclasses.replace(source, cache_dir=str(folder / 'cache')))
  return {split: [(text, label) for _, text, label in examples] for split, examples in found.items()}


@pytest.mark.parametrize('name', GLUE)
def test_glue_from_its_archives(name, tmp_path):
  put(name, tmp_path)
  found = read(f'glue/{name}', tmp_path)
  texts, label = GLUE[name][2]
  rows = [(text, '' if i else label) for i, text in enumerate(texts)]
  splits = ['train', 'valid', 'test'] + ['valid_mismatched', 'test_mismatched'] * (name == 'mnli')
  assert {*found} == {*splits}
  assert found['train'] == rows * 2 and found['valid'] == rows
  assert [text for text, _ in found['test']] == GLUE[name][4].split('\t')[-len(texts) :]
  assert {label for _, label in found['test']} == {''}
  with pytest.raises(InputError, match=rf'glue/{name}, split train: got 2 rows in'):
    read(f'glue/{name}', tmp_path, check_sizes=True)


def test_prepared_table_is_a_tfds_data_set_without_tensorflow(tmp_path):
  put('rte', tmp_path)
  source = sources.Config(
    dataset='glue/rte', manual_dir=str(tmp_path), check_sizes=False, cache_dir=str(tmp_path / 'c')
  )
  sources.open_splits(source)
  made = pathlib.Path(sources.prepared_directory(source), 'glue/rows/1.0.0')
  rows = tfds.builder_from_directory(made).as_data_source('train')
  assert rows[0]['text'] == b'All.' and rows[0]['label'] == b'not_entailment' and rows[1]['text'] == b'Some.'
  assert 'tensorflow' not in sys.modules


def test_without_a_file_every_tenth_training_row_is_for_validation(tmp_path):
  head, row, *_ = GLUE['mrpc']
  write(tmp_path / 'train.tsv.gz', head, *(row.replace('One.', f'{i}.') for i in range(25)))
  found = read('glue/mrpc', tmp_path)
  assert [text for text, _ in found['valid'][::2]] == ['9.', '19.']
  assert len(found['train']) == 2 * 23 and 'test' not in found


def test_snli_and_scitail(tmp_path):
  rows = [('entailment', 'A.', 'B.'), ('-', 'C.', 'D.'), ('neutral', 'E.', 'F.')]
  write(
    tmp_path / 'snli_1.0/snli_1.0_train.jsonl',
    *(
      json.dumps({'gold_label': label, 'sentence1': a, 'sentence2': b, 'annotator_labels': []}) for label, a, b in rows
    ),
  )
  write(tmp_path / 'snli_1.0/snli_1.0_dev.txt', 'gold_label\tsentence1\tsentence2', 'contradiction\tG.\tH.')
  assert read('snli', tmp_path)['valid'] == [('G.', 'contradiction'), ('H.', '')]
  assert read('snli', tmp_path)['train'] == [('A.', 'entailment'), ('B.', ''), ('E.', 'neutral'), ('F.', '')]
  write(tmp_path / 'tsv_format/scitail_1.0_dev.tsv', 'A b.\tB a.\tentails')
  write(tmp_path / 'tsv_format/scitail_1.0_train.tsv', 'Ice melts.\tIce is cold.\tneutral', 'A b.\tB a.\tentails')
  assert read('scitail', tmp_path)['train'][:2] == [('Ice melts.', 'neutral'), ('Ice is cold.', '')]


NEWS = '"3","Bears, (Reuters)","Wall Street\'s dwindling\\band of ""ultra"" cynics."'


def test_news_articles_and_reviews_with_their_classes(tmp_path):
  """Zhang et al. 2015: no header, classes counted from 1, a line break in a cell as an escape."""
  write(tmp_path / 'ag_news_csv/train.csv', *(NEWS for _ in range(10)))
  write(tmp_path / 'ag_news_csv/test.csv', 'Class Index,Title,Description', NEWS, '4,,"<b>Chips</b>"')
  found = read('zhang2015/ag_news', tmp_path)
  text = 'Bears, (Reuters)\nWall Street\'s dwindling\nband of "ultra" cynics.'
  assert found['train'] == [(text, 'Business')] * 9 and found['valid'] == [(text, 'Business')]
  assert found['test'][1:] == [('<b>Chips</b>', 'Sci/Tech')]
  with pytest.raises(InputError, match=r'ag_news, split train: got 9 rows in'):
    read('zhang2015/ag_news', tmp_path, check_sizes=True)
  write(tmp_path / 'yelp_review_full_csv/train.csv.gz', *['"5","It\'s \\""good\\"".\\n\\nReally."'] * 10)
  assert read('zhang2015/yelp_full', tmp_path)['valid'] == [('It\'s "good".\n\nReally.', '5')]


@pytest.mark.parametrize(
  'rows,words',
  [
    ([NEWS, '"2","No text"'], 'train.csv, line 2: got 2 cells'),
    ([NEWS, '"5","Title","Text"'], r'train.csv, line 2: label: got "5"'),
    ([NEWS, '"0","Title","Text"'], r'train.csv, line 2: label: got "0"'),
    ([NEWS, 'label,title,text'], r'train.csv, line 2: label: got "label"'),
    ([NEWS, '"1","",""'], 'train.csv, line 2: text: got an empty cell'),
    ([NEWS, '"1","Title","Text', NEWS], 'train.csv, line 2: a quoted cell begins here'),
    ([NEWS, '"","Title","Text"'], r'train.csv: got 1 .*\(line 2\)'),
  ],
)
def test_broken_row_of_news_is_rejected(rows, words, tmp_path):
  write(tmp_path / 'train.csv', *rows)
  with pytest.raises(InputError, match=words):
    list(tables.read(DATA_SETS['zhang2015/ag_news'].layout, str(tmp_path / 'train.csv'), 'train'))


def test_bad_news_or_review_row_is_reported(tmp_path):
  (tmp_path / 'train.csv').write_bytes(f'{NEWS}\n"1","Caf'.encode() + b'\xe9","Text"\n')
  with pytest.raises(InputError, match='train.csv, line 2: not UTF-8 text'):
    list(tables.read(DATA_SETS['zhang2015/ag_news'].layout, str(tmp_path / 'train.csv'), 'train'))
  write(tmp_path / 'train.csv', '"5","Good."', '"6","Best."')
  with pytest.raises(InputError, match=r'train.csv, line 2: label: got "6"'):
    list(tables.read(DATA_SETS['zhang2015/yelp_full'].layout, str(tmp_path / 'train.csv'), 'train'))


def test_race_and_the_story_cloze_test(tmp_path):
  passage = {
    'article': 'It rained.',
    'questions': ['What fell?', '_ fell.'],
    'options': [list('wxyz'), list('abcd')],
    'answers': ['B', 'D'],
    'id': 'h1',
  }
  for split in ('train', 'dev', 'test'):
    for level in ('middle', 'high'):
      write(tmp_path / f'RACE/{split}/{level}/1.txt', json.dumps(passage))
  found = read('race', tmp_path)
  row = [('It rained.', '1'), ('What fell?', ''), ('w', ''), ('x', ''), ('y', ''), ('z', '')]
  assert found['train'][:6] == row and found['train'][6:8] == [('It rained.', '3'), ('_ fell.', '')]
  assert {split: len(rows) for split, rows in found.items()} == {'train': 24, 'valid': 24, 'test': 24}
  joined = read('race/joined', tmp_path)['train']
  assert joined[:5] == [('It rained.', '1'), *((f'What fell? {option}', '') for option in 'wxyz')]
  assert joined[5:10] == [('It rained.', '3'), *((f'{option} fell.', '') for option in 'abcd')]
  write(tmp_path / 'RACE/test/high/2.txt', json.dumps(passage | {'article': 'It snowed.'}))
  levels = {level: read(f'race/{level}', tmp_path)['test'] for level in ('middle', 'high', 'joined_high')}
  assert {level: len(rows) for level, rows in levels.items()} == {'middle': 12, 'high': 24, 'joined_high': 20}
  assert levels['high'][12] == ('It snowed.', '1') and levels['joined_high'][11] == ('What fell? w', '')
  (tmp_path / 'RACE/dev/high/1.txt').write_text('{}')
  with pytest.raises(InputError, match='dev/high/1.txt: no field "article"'):
    read('race', tmp_path)
  head = (
    'InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,RandomFifthSentenceQuiz1,'
    'RandomFifthSentenceQuiz2,AnswerRightEnding'
  )
  write(tmp_path / 'val.csv', head, *(f'{i},"A, b.",C.,D.,E.,Bad {i}.,Good.,2' for i in range(10)))
  found = read('story_cloze', tmp_path)
  assert found['train'][:4] == [('A, b. C. D. E.', '1'), ('', ''), ('Bad 0.', ''), ('Good.', '')]
  assert found['valid'][2] == ('Bad 9.', '') and len(found['train']) == 36


def test_own_tables_in_three_forms(tmp_path):
  write(tmp_path / 'train.tsv', 'premise\tof\thypothesis', 'A "b\tno\tC')
  write(tmp_path / 'train-0.csv.gz', 'premise,of,hypothesis', '"A, b",no,"C ""d"""')
  write(tmp_path / 'valid.jsonl', json.dumps({'premise': 'A', 'hypothesis': 'B', 'of': 'yes'}))
  write(tmp_path / 'test.jsonl', json.dumps({'premise': 'A', 'hypothesis': 'B'}))
  found = read('table_files', tmp_path, texts=('premise', 'hypothesis'), label='of')
  assert found['train'] == [('A, b', 'no'), ('C "d"', ''), ('A "b', 'no'), ('C', '')]
  assert found['valid'] == [('A', 'yes'), ('B', '')] and found['test'] == [('A', ''), ('B', '')]


def test_missing_splits_are_held_out_by_text_hash(tmp_path):
  lines = [json.dumps({'text': f'row {i}', 'label': 'ab'[i % 2]}) for i in range(400)]
  write(tmp_path / 'rows.jsonl', *lines)
  found = read('table_files', tmp_path, split_fraction=0.1)
  texts = {split: {text for text, _ in rows} for split, rows in found.items()}
  assert sum(map(len, texts.values())) == 400 and len(set.union(*texts.values())) == 400
  assert 20 < len(texts['valid']) < 60 and 20 < len(texts['test']) < 60
  write(tmp_path / 'rows.jsonl', *reversed(lines))
  again = read('table_files', tmp_path, split_fraction=0.1)
  assert {text for text, _ in again['valid']} == texts['valid']


@pytest.mark.parametrize(
  ('named', 'cut', 'options'),
  [
    ('valid', ['test'], {}),
    ('test', ['valid'], {}),
    ('', ['valid', 'test'], {}),
    ('valid', [], {'hold_out_test': False}),
    ('', ['valid', 'test'], {'hold_out_test': False}),
  ],
)
def test_rows_are_held_out_for_missing_splits(tmp_path, named, cut, options):
  for name in filter(None, ('train', named)):
    write(tmp_path / f'{name}.tsv', 'text\tlabel', *(f'{name} {i}\ta' for i in range(200)))
  found, source = (
    read('table_files', tmp_path, **options),
    sources.Config(dataset='table_files', manual_dir=str(tmp_path), **options),
  )
  assert source.held_out_splits() == cut and set(source.identity()['held_out']) == set(cut)
  assert set(found) == {'train', *filter(None, [named]), *cut}
  assert len(found['train']) + sum(len(found[split]) for split in cut) == 200 and all(found.values())


def rows(folder, name, content, split='train', **options):
  """What a table of the user's with columns 'text' and 'label' is read as."""
  path = folder / name
  path.write_bytes(content.encode())
  table = files.Table((('text',),), **options)
  return [(*texts, label) for _, texts, label in tables.read(table, str(path), split)]


def test_labels_are_stripped_and_whole_numbers_are_one_label(tmp_path):
  found = [('a', 'no'), ('b', 'no'), ('c', '1')]
  assert rows(tmp_path, 'a.csv', 'text, label\na, no\nb,no \nc,1.0\n') == found
  assert rows(tmp_path, 'a.tsv', 'text\tlabel \na\t no\nb\tno\nc\t1\n') == found
  lines = [{'text': 'a', 'label': ' no'}, {'text': 'b', 'label': 'no'}, {'text': 'c', 'label': 1.0}]
  assert rows(tmp_path, 'a.jsonl', '\n\n'.join(map(json.dumps, lines))) == found
  values = {
    '1': '1',
    '0.50': '0.5',
    '1e16': '1' + 16 * '0',
    '10000000000000000': '1' + 16 * '0',
    '-0.0': '0',
    '1' * 100: '1' * 100,
  }
  lines = [f'{{"text": "a", "label": {value}}}' for value in values]
  assert rows(tmp_path, 'b.jsonl', '\n'.join(lines)) == [('a', label) for label in values.values()]


@pytest.mark.parametrize('cell', ['1_000', '\uff11', '3,5', 'inf', 'nan', '1 2', '0x1', '1e400'])
def test_scores_follow_one_number_format(tmp_path, cell):
  for name, line in (('a.tsv', f'text\tlabel\nb\t{cell}\n'), ('a.jsonl', json.dumps({'text': 'b', 'label': cell}))):
    with pytest.raises(InputError, match=rf', line \d: label: got "{cell}"'):
      rows(tmp_path, name, line, scores=True)
  assert rows(tmp_path, 'a.tsv', 'text\tlabel\na\t 3.50 \nb\t-1e2\n', scores=True) == [('a', '3.5'), ('b', '-100.0')]


def test_one_label_in_two_formats_is_one_class(tmp_path):
  table = 'text,label\na,True\nb,False\nc,1.0\nd,yes\n'  # as pandas writes it
  values = {'a': True, 'b': False, 'c': 1, 'd': 'yes'}
  lines = ''.join(json.dumps({'text': text, 'label': label}) + '\n' for text, label in values.items())
  labels = [label for _, label in rows(tmp_path, 'a.csv', table)]
  assert labels == [label for _, label in rows(tmp_path, 'a.jsonl', lines)] == ['True', 'False', '1', 'yes']
  path = str(tmp_path / 'a.jsonl')
  splits = text_files.open_splits({'train': [path]}, path, 'file', 'text', 0.0, ())
  assert [label for _, _, label in splits['train']] == labels


def test_null_is_neither_label_nor_text(tmp_path):
  lines = '{"text": "a", "label": null}\n{"text": "b"}\n{"text": "c", "label": NaN}\n{"text": "d", "label": "x"}'
  assert [label for _, label in rows(tmp_path, 'a.jsonl', lines, 'test')] == ['', '', '', 'x']
  with pytest.raises(InputError, match=r'a.jsonl, line 2: got no column label'):
    rows(tmp_path, 'a.jsonl', lines)
  with pytest.raises(InputError, match=r'a.jsonl: got 2 .*\(lines 1, 3\)'):
    rows(tmp_path, 'a.jsonl', lines.replace('{"text": "b"}', ''))
  with pytest.raises(InputError, match=r'a.csv: got 7 .*\(lines 2, 3, 4, 5, 6,'):
    rows(tmp_path, 'a.csv', 'text,label\n' + 'a,\n' * 7)
  for value, said in (('null', 'text: got an empty cell'), ('["a"]', 'text: got a list')):
    with pytest.raises(InputError, match=f'line 1: {said}'):
      rows(tmp_path, 'b.jsonl', f'{{"text": {value}, "label": "x"}}')
  scored = [{'text': 'a', 'label': 1}, {'text': 'b', 'label': None}]
  assert rows(tmp_path, 'c.jsonl', '\n'.join(map(json.dumps, scored)), 'test', scores=True) == [('a', '1.0'), ('b', '')]
  for value in ('Infinity', '1e999', '"high"', '[1]'):
    with pytest.raises(InputError, match='line 1: label: '):
      rows(tmp_path, 'd.jsonl', f'{{"text": "a", "label": {value}}}', scores=True)


def test_csv_cells_are_of_any_length_and_lines_end_in_lone_carriage_returns(tmp_path):
  long = 'a' * 150_000
  assert rows(tmp_path, 'a.csv', f'text,label\n{long},x\n') == [(long, 'x')]
  for end in ('\r', '\r\n', '\n'):
    lines = ['text,label', '"one\ntwo",x', 'three,y', '']
    assert rows(tmp_path, 'a.csv', end.join(lines)) == [('one\ntwo', 'x'), ('three', 'y')], repr(end)
    assert rows(tmp_path, 'a.tsv', end.join(['text\tlabel', 'one\tx', 'two\ty'])) == [('one', 'x'), ('two', 'y')]


def test_open_quote_does_not_swallow_rows(tmp_path):
  for rest, wrong in (
    ('', 'is not closed'),
    ('"b, c",x\n', 'has text after its closing quote in line 5'),
    ('d,"x"\n', 'has text after its closing quote in line 5'),
  ):
    with pytest.raises(InputError, match=f'a.csv, line 3: a quoted cell begins here and {wrong}'):
      rows(tmp_path, 'a.csv', f'text,label\na,x\n"open,x\nc,y\n{rest}')
  for row in ('"hi" he,"open', '"hi" he,"two\nlines"'):
    with pytest.raises(InputError, match='line 2: a quoted cell begins here and has text after .* in line 2;'):
      rows(tmp_path, 'a.csv', f'text,label\n{row}\nc,y\n')
  with pytest.raises(InputError, match='line 1: got two columns named "label"'):
    rows(tmp_path, 'a.csv', 'text,label,label\na,x,y\n')


@pytest.mark.parametrize(
  ('cell', 'text'),
  [
    ('"hi" he said', 'hi he said'),
    (' "Hello" he said', '"Hello" he said'),
    (' "Hello"', '"Hello"'),
    ('he said "hi"', 'he said "hi"'),
    ('"a ""b"", c" ', 'a "b", c'),
    ('"one\ntwo"', 'one\ntwo'),
  ],
)
def test_quotes_of_a_csv_cell(cell, text, tmp_path):
  assert rows(tmp_path, 'a.csv', f'text,label\n{cell},x\nb,{cell}\n') == [(text, 'x'), ('b', text)]


def test_comma_in_quotes_after_a_space_separates_cells(tmp_path):
  with pytest.raises(InputError, match='line 2: got 3 cells; expected 2'):
    rows(tmp_path, 'a.csv', 'text,label\na, "b, c"\n')


@pytest.mark.parametrize('end', ['.tsv', '.csv', '.jsonl'])
def test_lines_of_white_space_are_skipped(end, tmp_path):
  line = {'.tsv': 'a\tx', '.csv': 'a,x', '.jsonl': '{"text": "a", "label": "x"}'}[end]
  head = {'.tsv': 'text\tlabel\n', '.csv': 'text,label\n', '.jsonl': ''}[end]
  for blank in ('\n', '  \n', '\t\n', ' '):
    assert rows(tmp_path, f'a{end}', f'{blank.strip(" ")}{head}{line}\n\n{line}\n{blank}') == [('a', 'x')] * 2


@pytest.mark.parametrize(
  'name', ['table_files', 'text_files', 'swag', 'story_cloze', 'race', 'glue/sst2', 'imdb', 'trec', 'sst2']
)
def test_reader_version_changes_cache_name(name):
  assert DATA_SETS[name].reading == 2


def test_records_of_qqp_that_break_over_lines_are_skipped_and_named(tmp_path):
  head, row, *_ = GLUE['qqp']
  broken = row.replace('Whom?', 'Whom\n?')
  write(tmp_path / 'QQP/train.tsv', head, row, broken, row, broken, '', broken, row.replace('Whom?', ''))
  with pytest.warns(InputWarning, match=r'train.tsv: 3 .*\(lines 3, 6, 8\)'):
    found = list(tables.read(DATA_SETS['glue/qqp'].layout, str(tmp_path / 'QQP/train.tsv'), 'train'))
  assert [texts for _, texts, _ in found] == [('Who?', 'Whom?')] * 2 + [('Who?', '')]
  with pytest.raises(InputError, match='got 2 cells; expected 3'):
    rows(tmp_path, 'a.tsv', 'text\tlabel\tid\na\tb\n')


@pytest.mark.parametrize(
  'lines,words',
  [
    (['text\tlabel', 'a'], r'line 2: got 1 cells; expected 2'),
    (['words\tlabel', 'a\tb'], r'no column "text"; expected text; it has words, label; name the columns'),
    (['text\tlabels', 'a\tb'], r'no column label'),
    (['text\tlabel', ' \tb'], r'line 2: text: got an empty cell'),
    (['text;label', 'a;b'], r'no column "text".*; separate the columns by commas'),
    (['text\tlabel'], r'train.*: the file has no rows'),
  ],
)
def test_bad_rows_are_reported(lines, words, tmp_path):
  write(tmp_path / 'train.tsv', *lines)
  with pytest.raises(InputError, match=words):
    read('table_files', tmp_path, split_fraction=0)
  assert not list((tmp_path / 'cache').rglob('dataset_info.json'))


def test_bad_files_and_labels(tmp_path):
  write(tmp_path / 'CoLA/train.tsv', '', 'gj04\t7\t\tIt is.')
  with pytest.raises(InputError, match=r'CoLA/train.tsv, line 1: label: got "7"'):
    read('glue/cola', tmp_path)
  write(tmp_path / 'STS-B/train.tsv', 'sentence1\tsentence2\tscore', 'A.\tB.\thigh')
  with pytest.raises(InputError, match='line 2: score: got "high"'):
    read('glue/stsb', tmp_path)
  with pytest.raises(InputError, match='expected train.tsv or QNLI/train.tsv'):
    read('glue/qnli', tmp_path)
  write(tmp_path / 'own/train.jsonl', '{"text": "a", "label": "b"}', '{"text": ')
  with pytest.raises(InputError, match='train.jsonl, line 2: not JSON'):
    read('table_files', tmp_path / 'own')
  with pytest.raises(InputError, match='data.manual_dir: got no directory'):
    sources.Config(dataset='glue/rte').identity()
  with pytest.raises(InputError, match='got no table'):
    sources.Config(dataset='table_files', manual_dir=str(tmp_path / 'none')).identity()
  with pytest.raises(InputError, match='data.dataset: unknown "glue/colo"; did you mean "glue/cola"'):
    sources.Config(dataset='glue/colo')


@pytest.mark.real_data
@pytest.mark.parametrize(
  ('name', 'train', 'valid'),
  [
    ('cola', 8_551, 1_043),
    pytest.param('sst2', 67_349, 872, marks=pytest.mark.slow),
    ('rte', 2_490, 277),
    ('stsb', 5_749, 1_500),
  ],
)
def test_published_rows_of_glue(data_dir, tmp_path, name, train, valid):
  found = sources.open_splits(sources.Config(dataset=f'glue/{name}', manual_dir=str(data_dir), cache_dir=str(tmp_path)))
  texts = len(DATA_SETS[f'glue/{name}'].layout.texts)
  assert (len(found['train']), len(found['valid'])) == (texts * train, texts * valid)


@pytest.mark.real_data
def test_published_scores_of_stsb(data_dir, tmp_path):
  made = corpora.load(
    corpora.Config(dataset='glue/stsb', tokenizer='words', manual_dir=str(data_dir), cache_dir=str(tmp_path))
  )
  scores = made.splits['valid'].labels[::2]
  assert len(scores) == 1_500 and scores.min() == 0 and scores.max() == 5 and abs(np.mean(scores) - 2.36) < 0.02


def test_choice_labels_are_indices(tmp_path):
  head = 'sent1,sent2,ending0,ending1,ending2,ending3,label'
  row = lambda label: f'a b,c,d e,f,g h,i,{label}'
  for split in ('train', 'val', 'test'):
    write(tmp_path / f'{split}.csv', head, row(3), row(1), row(3))
  options = {'manual_dir': str(tmp_path), 'cache_dir': str(tmp_path / 'cache'), 'check_sizes': False}
  cfg = pipeline.Config(dataset='swag', batching={'name': 'texts', 'form': 'separate'}, length=16, **options)
  made = pipeline.load(cfg)
  assert made.manifest['label_names'] == ['0', '1', '2', '3']
  assert np.asarray(made.splits['train'].labels)[::6].tolist() == [3, 1, 3]
  old = {split: dataclasses.replace(one, labels=np.asarray(one.labels) // 2) for split, one in made.splits.items()}
  before = dataclasses.replace(made, splits=old).with_record({'label_names': ['1', '3']})  # of an earlier version
  assert np.asarray(labels.number_choices(before).splits['train'].labels)[::6].tolist() == [3, 1, 3]
  write(tmp_path / 'train.csv', head, row(0), row(7))
  with pytest.raises(InputError, match=r'train.csv, line 3: label: got "7"'):
    pipeline.load(cfg)
