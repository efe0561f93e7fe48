"""Tables in the paper's layout, and the role of each figure."""

from __future__ import annotations

import pytest

from experiments.tables import CORES, GPU, POD, Row, Run, Table, Unmeasured
from launch.tables import collection, measured, needs, pages, printed, report, verdict
from launch.tables import plan as plans
from lmx.errors import InputError
from tests.launch.tables.runs import all_pages

SQUAD = ('Devlin et al. 2019', '2')
TABLE = Table(
  'BERT, SQuAD',
  'Devlin et al. 2019',
  rows=(
    Row('bert/squad1.1/base/dev_em', 'run', 'exact_match'),
    Row('bert/squad1.1/base/dev_f1', 'run', 'answer_f1', differs='of another split'),
  ),
  runs=(Run('run'),),
  prints=(SQUAD,),
  context=('bert/squad1.1/human/*', '*/*_ens/test_*', '*/bidaf_elmo/*', '*/rm_reader_ens/dev_*'),
  unmeasured=(Unmeasured('bert/squad1.1/large*/dev_*', 'too large'), Unmeasured('*triviaqa/test_*', 'no test split')),
)


def squad(**changes):
  return TABLE._replace(**changes)


def test_each_value_has_one_role():
  role = printed.roles(TABLE)
  assert len(role) == 26
  assert [role[key] for key in ('bert/squad1.1/base/dev_em', 'bert/squad1.1/nlnet_ens/test_em')] == [
    'measured',
    'context',
  ]
  assert role['bert/squad1.1/large_ens/dev_f1'] == 'unmeasured'
  assert printed.reason(TABLE, 'bert/squad1.1/large_triviaqa/test_em') == 'no test split'


@pytest.mark.parametrize(
  'changes,message',
  [
    ({'context': TABLE.context[1:]}, r'human/test_em: '),
    ({'context': (*TABLE.context, '*/base/*')}, r"base/dev_em: .* got \['context', 'measured'\]"),
    ({'context': (*TABLE.context, '*/qanett/*')}, r'pattern "\*/qanett/\*" fits no printed figure'),
    ({'prints': (SQUAD, ('Devlin et al. 2019', '22'))}, 'published.csv has no table'),
  ],
)
def test_value_without_a_role_is_rejected(changes, message):
  with pytest.raises(InputError, match=message):
    printed.roles(squad(**changes))


def blocks_of(paper: str, table: str) -> list[printed.Block]:
  return printed.blocks(printed.figures_of((paper, table)))


def test_rows_and_columns_match_the_paper():
  [block] = blocks_of(*SQUAD)
  assert block.caption == 'squad1.1' and block.columns == ('dev, EM', 'dev, F1', 'test, EM', 'test, F1')
  assert [row.label for row in block.rows][:3] == ['Human', '#1 Ensemble - nlnet', '#2 Ensemble - QANet']
  assert block.rows[0].ids == ('', '', 'bert/squad1.1/human/test_em', 'bert/squad1.1/human/test_f1')


def test_rows_without_a_common_column_are_blocks_of_their_own():
  blocks = blocks_of('Yang et al. 2019 (v1, June 2019)', '2')
  assert [block.caption for block in blocks] == ['squad1.1, dev', 'squad2.0, dev', 'squad1.1, test', 'squad2.0, test']
  assert [len(block.rows) for block in blocks] == [2, 2, 4, 4]
  fine = blocks_of('Vaswani et al. 2017', '2')
  assert [len(block.rows) for block in fine] == [10], 'a row of one pair alone, and one of the other'
  assert [len(block.rows) for block in blocks_of('Radford et al. 2018', '2')] == [7]
  assert [len(block.rows) for block in blocks_of('Liu et al. 2018', '7')] == [5]


def test_blocks_of_tasks_become_rows():
  [main] = blocks_of('Peters et al. 2018', '1')
  increases = ('increase, absolute', 'increase, relative, %')
  assert main.columns == ('previous SOTA', 'our baseline', 'ELMo + baseline', *increases) and len(main.rows) == 6
  assert [plans.published()[key].text for key in main.rows[1].ids] == ['88.6', '88.0', '88.7', '0.7', '5.8']
  assert main.rows[1].label == 'snli, test, accuracy' and main.rows[1].remarks[0] == 'Chen et al. (2017)'
  [parameters] = blocks_of('Graves et al. 2014', '1')
  assert parameters.columns == ('parameters',) and len(parameters.rows) == 5
  [listed] = blocks_of('Radford et al. 2019', 'text')
  assert listed.columns == ('figure',) and 'coqa, dev, F1' in listed.rows[2].label


def lines_of(paper: str, table: str) -> list[printed.Line]:
  shown = printed.Shown({}, {}, {})
  return [line for block in blocks_of(paper, table) for line in printed.lines_of(block, shown)]


def test_sizes_have_a_column():
  [block] = blocks_of('Dai et al. 2019', '2')
  assert block.heads[:2] == ('', '#Params')
  cells = [line.cells for line in lines_of('Dai et al. 2019', '2')]
  assert ['Ours - 18L Transformer-XL (context)', '88M', '1.03'] in cells
  with_sizes = {key for key, line in plans.published().items() if line.parameters}
  shown = set()
  for place in dict.fromkeys((line.paper, line.table) for line in plans.published().values()):
    for block in printed.blocks(printed.figures_of(place)):
      counts = [key for row in block.rows for key in row.ids if key and 'parameters' in plans.published()[key].metric]
      shown |= {key for row in block.rows for key in row.ids if block.has_parameters or counts}
  assert with_sizes <= shown and len(with_sizes) == 445


def test_spreads_keep_their_digits():
  cells = {cell for line in lines_of('Peters et al. 2018', '1') for cell in line.cells}
  assert {'92.22 ± 0.10', '54.7 ± 0.5'} <= cells
  assert '3.3·10¹⁸' in {cell for line in lines_of('Vaswani et al. 2017', '2') for cell in line.cells}


def test_single_models_and_ensembles_are_apart():
  zaremba = [line.cells[0] for line in lines_of('Zaremba et al. 2014', '1') if line.kind == printed.GROUP]
  assert zaremba == ['Single models', 'Model averaging']
  glue = [line.cells[0] for line in lines_of('Yang et al. 2019 (v1, June 2019)', '4') if line.kind == printed.GROUP]
  assert glue == ['Single models', 'Ensembles']
  assert not [line for line in lines_of('Devlin et al. 2019', '2') if line.kind == printed.GROUP], 'the labels say it'


def test_figure_with_a_run_in_another_table_has_its_line():
  table = plans.table('xlnet_tasks_v2')
  key = 'xlnet/v2/glue/dev/bert/cola'
  assert printed.roles(table)[key] == printed.CONTEXT and pages.show(table)[0].role[key] == printed.MEASURED


def test_footnotes_begin_with_a_in_each_table_of_the_decks():
  parts = pages.decks().split('\n## ')[1:]
  first = [next((text for text in part.splitlines() if text.startswith('- [')), '') for part in parts]
  assert len([text for text in first if text]) > 5 and all(text.startswith('- [a]') for text in first if text)


def test_tables_that_nobody_ran_are_folded():
  text = all_pages()['nplm.md']
  assert text.startswith('# NPLM\n\nPrinted figures measured: ')
  measured_at, first, second = (text.index(part) for part in ('## Measured', ', table 1\n', ', table 2, not run'))
  assert measured_at < first < second and '<details' not in text[:first]
  assert '<details markdown="1"><summary>Bengio et al. 2003, table 2, not run</summary>\n\n' in text
  assert text.count('<details') == text.count('</details>')
  assert all(f'| {name} | ' in all_pages()['quickstart.md'] for name in ('AWD-LSTM', 'GPT-2', 'Transformer-XL'))
  assert '# GPT-2\n' in all_pages()['gpt2.md'] and '# Transformer-XL\n' in all_pages()['transformer_xl.md']


def test_labels_of_all_combinations_are_a_matrix():
  [block] = blocks_of('Mikolov et al. 2013a', '2')
  assert block.columns == tuple(f'{n} training words' for n in ('24M', '49M', '98M', '196M', '391M', '783M'))
  assert [row.label for row in block.rows] == [f'CBOW, dimensionality {n}' for n in (50, 100, 300, 600)]
  assert plans.published()[block.rows[3].ids[5]].text == '50.4'


def test_every_published_value_is_shown_once():
  places = dict.fromkeys((line.paper, line.table) for line in plans.published().values())
  for place in places:
    ids = printed.figures_of(place)
    shown = [key for block in printed.blocks(ids) for row in block.rows for key in row.ids if key]
    assert sorted(shown) == sorted(ids), place
    for block in printed.blocks(ids):
      assert {len(row.ids) for row in block.rows} == {len(block.columns)}
      assert all(len(row.remarks) in (0, len(row.ids)) for row in block.rows)


def test_measured_values_follow_their_row(monkeypatch, tmp_path):
  line = dict.fromkeys(measured.Measurement._fields, '') | {
    'id': 'bert/squad1.1/base/dev_em',
    'seeds': '0 1',
    'command': 'lmx train',
  }
  one = measured.Measurement(**line | {'value': '80.5', 'spread': '0.2', 'differs': 'a smaller model'})
  monkeypatch.setattr(verdict, 'rows', lambda: {row.id: row for row in TABLE.rows})
  monkeypatch.setattr(measured, 'measurements', lambda: (one,))
  shown, notes = pages.show(TABLE)
  plan = plans.Plan((tmp_path,))
  texts = report.documents('bert', TABLE, collection.collect(TABLE, list(TABLE.rows), plan), plan, {})
  lines = texts['md'].splitlines()
  base = next(i for i, text in enumerate(lines) if text.startswith('| BERT_BASE'))
  assert lines[base].startswith('| BERT_BASE (Single) | 110M | 80.8 | 88.5 |  |')
  assert lines[base + 1] == '| → lmx |  | 80.5 ± 0.2 (2 seeds) [a] | not run [b] |  |  |'
  assert lines[base + 3].startswith('| → lmx |  | – [c] | – [c] |')
  assert notes == ['[a] a smaller model.', '[b] of another split.', '[c] too large.', '[d] no test split.']
  assert '| Human (context) |  |  |  | 82.3 | 91.2 |' in lines
  assert pages.show(TABLE, {'bert/squad1.1/base/dev_em': '81.0'})[0].ours['bert/squad1.1/base/dev_em'] == '81.0'
  page = texts['html']
  assert '<tr class="absent"><td>Human (context)</td>' in page and page.count('<caption>') == 1


def test_rows_are_connected_through_other_rows():
  one, two, three = (('x', '', str(i)) for i in range(3))
  rows = [('a', {one: '1', two: '2'}), ('b', {one: '3'}), ('c', {three: '4'}), ('d', {two: '5'})]
  assert [[label for label, _ in part] for part in printed._connected(rows)] == [['a', 'b', 'd'], ['c']]


def test_row_requires_its_initial_runs():
  runs = {
    'start': Run('start', settings=('data.manual_dir={data.squad}',), seeds=0, needs=POD, gpu_hours=100),
    'run': Run('run', settings=('train.init_from={start}',), seeds=3, needs=GPU, gpu_hours=2),
    'again': Run('again', settings=('train.init_from={few}',), needs=POD),
    'few': Run('few', needs=CORES),
  }
  assert needs.of_row(Row('b', 'again', 'f1'), runs).hardware == POD
  assert needs.of_row(Row('a', 'run', 'f1'), runs) == needs.Needs(POD, 106, 0, ('squad',))
  assert (
    needs.describe(needs.of_row(Row('a', 'run', 'f1'), runs)) == 'a pod, about 106 hours of an H100; squad (CC BY-SA)'
  )
