"""`lmx score`: one row out per row in, the other columns kept, and bad files refused before any text is scored."""

from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx import documents
from lmx.cli import main
from lmx.cli import score as score_command
from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.interop import huggingface
from lmx.models import registry
from lmx.runs import convert
from lmx.scoring import scorer
from tests import drawn
from tests.interop import imports

TEXTS = ['The method returns a list of names.', 'A name is a string, and so is a list of them.'] * 20
LINES = ['The method returns names.', 'A list, of strings']


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
  """Folders of transformers: a GPT-2, which is also imported as `run`, and a BERT."""
  root = tmp_path_factory.mktemp('published')
  for name, model, kind in (('GPT2LMHeadModel', 'gpt2', 'bpe'), ('BertForMaskedLM', 'bert', 'wordpiece')):
    to = root / model
    to.mkdir()
    tokenizer, module = build.train(kind, TEXTS, vocab_size=280), registry.get(model)
    cfg = module.Config(V=tokenizer.vocab_size, T=64, D=8, H=2, N=1)
    params = {'model': drawn.params(module.init, cfg), 'objective': {}}
    family = huggingface.family(model)
    config = {'model_type': family.TYPE, 'architectures': [name], **family.config(cfg)}
    (to / 'config.json').write_text(json.dumps(config))
    safetensors.numpy.save_file(huggingface.to_hf(model, cfg, params, name, 0), to / 'model.safetensors')
    imports.save_tokenizer(tokenizer, to)
  convert.import_run(str(root / 'gpt2'), root / 'run')
  return root


def score(folder, text, *options, name='in.txt'):
  """Write a file and score it; return the exit code."""
  path = folder / name
  path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
  return main.main(['score', f'--input={path}', *options])


def test_rows_are_those_of_the_python_api(folders, tmp_path, capsys):
  assert score(tmp_path, '\n'.join(LINES) + '\n\n', f'--workdir={folders}/run', '--by=word') == 0
  printed = capsys.readouterr()
  rows = [json.loads(line) for line in printed.out.splitlines()]
  run = lmx.load(folders / 'run')
  assert 'score' in run.abilities()
  for row, one, text in zip(rows, run.score(LINES), LINES, strict=True):
    assert row['text'] == one.text == text and row['tokens'] == one.predicted and row['unknown'] == 0
    expected = {'sum': 1, 'per_token': one.predicted, 'per_word': len(text.split()), 'per_byte': len(text.encode())}
    assert {name: row[name] for name in expected} == pytest.approx({k: one.sum / n for k, n in expected.items()}, 1e-4)
    assert [(word['word'], word['surprisal']) for word in row['words']] == [(w, pytest.approx(s)) for w, s in one.words]
  assert 'log-likelihood, after a start symbol' in printed.err and 'bits per byte' in printed.err
  (one,) = run.score(LINES[0])
  assert one.sum == pytest.approx(rows[0]['sum'], abs=1e-4)
  for options, error in (({'context': 3}, 'context'), ({'end': 1}, 'end'), ({'start': 'no'}, '--start')):
    with pytest.raises(InputError, match=f'^{error}: '):
      run.score(LINES, **options)


def test_tables_keep_their_columns(folders, tmp_path, capsys):
  """.csv to .tsv by sentence and by token; .jsonl.gz to .jsonl, with a leading space and a context."""
  table = 'id,sentence,n\na,"The method, returns",3\nb,A name,4\n'
  out, total = tmp_path / 'out.tsv', tmp_path / 'total.json'
  options = ['--column=sentence', f'--workdir={folders}/bert', f'--output={out}', f'--total={total}']
  assert score(tmp_path, table, *options, name='in.csv') == 0
  err = capsys.readouterr().err
  assert f'wrote {out}: 2 texts\n' in err and f'wrote {total}\n' in err
  header, *rows = (line.split('\t') for line in out.read_text().splitlines())
  assert header == ['id', 'sentence', 'n', 'tokens', 'sum', 'per_token', 'per_word', 'unknown']
  assert [row[:3] for row in rows] == [['a', 'The method, returns', '3'], ['b', 'A name', '4']]
  found = json.loads(total.read_text())
  assert found['sum'] == pytest.approx(sum(float(row[4]) for row in rows), abs=1e-4)
  assert found['method'] == 'pll' and found['texts'] == 2 and 'bits_per_byte' not in found
  options = ['--column=sentence', f'--workdir={folders}/gpt2', f'--output={out}', '--by=token', '--start=none']
  assert score(tmp_path, table, *options, name='in.csv') == 0
  header, *rows = (line.split('\t') for line in out.read_text().splitlines())
  assert header[3:] == ['row', 'position', 'token', 'surprisal']
  assert [row[3:5] for row in rows[:2]] == [['1', '1'], ['1', '2']] and rows[0][6] == '' and float(rows[1][6]) > 0
  capsys.readouterr()
  lines = gzip.compress(b'{"text": "A name", "n": [1, 2]}\n\n{"text": "a list", "m": null}\n')
  (tmp_path / 'context.txt').write_text('The method')
  options = [f'--workdir={folders}/gpt2', '--leading_space', f'--context={tmp_path}/context.txt']
  assert score(tmp_path, lines, *options, name='in.jsonl.gz') == 0
  rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert rows[0]['n'] == [1, 2] and rows[1]['m'] is None
  run = lmx.load(folders / 'gpt2')
  again = run.score(['A name', 'a list'], leading_space=True, context='The method')
  np.testing.assert_allclose([row['sum'] for row in rows], [one.sum for one in again], atol=1e-4)


def test_context_is_the_text_of_the_file_without_the_last_line_end(folders, tmp_path, capsys):
  totals = []
  for text in ('The method', 'The method\n', 'The method\n\n'):
    (tmp_path / 'context.txt').write_text(text)
    assert score(tmp_path, ' name\n', f'--workdir={folders}/gpt2', f'--context={tmp_path}/context.txt') == 0
    totals.append(json.loads(capsys.readouterr().out)['sum'])
  run = lmx.load(folders / 'gpt2')
  expected = [run.score([' name'], context=context)[0].sum for context in ('The method', 'The method\n')]
  np.testing.assert_allclose(totals, [expected[0], *expected], atol=1e-4)
  assert abs(expected[0] - expected[1]) > 1e-3
  (tmp_path / 'context.txt').write_text('\n')
  assert score(tmp_path, ' name\n', f'--workdir={folders}/gpt2', f'--context={tmp_path}/context.txt') == 2
  assert '--context: got a text without a token' in capsys.readouterr().err


@pytest.mark.parametrize('ending', ['.gz', '.xz', '.zst'])
def test_compressed_output_is_read_again(folders, tmp_path, capsys, ending):
  options = [f'--workdir={folders}/run', f'--output={tmp_path}/out.jsonl{ending}']
  assert score(tmp_path, 'The method\n', *options, f'--total={tmp_path}/total.json{ending}') == 0
  (row,) = (row for _, row in documents.read_json_lines(tmp_path / f'out.jsonl{ending}'))
  assert row['text'] == 'The method' and documents.read_json(tmp_path / f'total.json{ending}')['texts'] == 1
  with pytest.raises(UnicodeDecodeError):
    (tmp_path / f'out.jsonl{ending}').read_text()


@pytest.mark.parametrize(
  ('name', 'content', 'options', 'message'),
  [
    ('in.txt', 'a\n\nb\n', (), r'in.txt, line 2: text: got an empty text'),
    ('in.txt', '', (), 'in.txt: the file is empty'),
    ('in.txt', b'a\n\xff\n', (), 'in.txt, line 2: not UTF-8'),
    ('in.txt', 'a ' * 100, (), r'in.txt, line 1: got 1\d\d tokens .*; expected at most 65'),
    ('in.txt', 'a\n', ('--column=text',), '--column: got text'),
    ('in.txt', 'a\n', ('--output={}/out.csv',), '--output: got .*out.csv'),
    ('in.txt', 'a\n', ('--method=pll',), '--method: unknown "pll"'),
    ('in.pdf', 'a\n', (), '--input: got .*in.pdf'),
    ('in.tsv', 'text\na\n\nb\n', (), 'in.tsv, line 3: got an empty text'),
    ('in.tsv', 'text\tn\na\t1\n \t2\n', (), 'in.tsv, line 3: text: got an empty text'),
    ('in.tsv', 'txt\tn\na\t1\n', (), 'in.tsv, line 2: got no column "text"; did you mean "txt"'),
    ('in.tsv', 'text\tsum\na\t1\n', (), 'in.tsv: got a column "sum"'),
    ('in.csv', 'text,n\n"a\tb",1\n', ('--output={}/out.tsv',), 'in.csv, line 2: text: got a tab'),
    ('in.jsonl', '{"text": "a"}\n{"text": 3}\n', (), 'in.jsonl, line 2: text: got 3; expected a text'),
    ('in.jsonl', '', (), 'in.jsonl'),
  ],
)
def test_bad_files_are_refused(folders, tmp_path, capsys, monkeypatch, name, content, options, message):
  monkeypatch.setattr('lmx.scoring.scorer.RunScorer.score', None)  # nothing is scored before
  options = [option.format(tmp_path) for option in options]
  assert score(tmp_path, content, f'--workdir={folders}/gpt2', *options, name=name) == 2
  printed = capsys.readouterr()
  assert not printed.out
  assert re.search(message, printed.err), printed.err
  assert not {path.name for path in tmp_path.iterdir()} - {name}


def test_options_name_every_method():
  assert score_command.METHODS == tuple(scorer.METHODS)
