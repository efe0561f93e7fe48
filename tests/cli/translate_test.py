"""`lmx translate`: files and pipes, columns, scores, pictures, alignments, and what is refused."""

from __future__ import annotations

import concurrent.futures
import errno
import functools
import gzip
import io
import json
import os
import pathlib
import re
import sys

import jax
import numpy as np
import pytest

import lmx
from lmx import documents, train
from lmx.cli import translate as cli
from lmx.cli.main import main
from lmx.config import resolve
from lmx.data.tokenizers import build
from lmx.decoding import translate
from lmx.errors import InputError, InputWarning
from lmx.models import registry
from tests import small_text

QUICK = (
  'parallel.data=1',
  'train.steps=40',
  'train.eval_every=40',
  'data.batching.buckets=()',
  'model.encoder_layers=1',
  'model.decoder_layers=1',
  'model.dropout=0.0',  # whose masks take half of the time that a step compiles
  'samples.count=0',
  'data.batch_size=64',
  'optim.schedule=constant',
  'optim.warmup_steps=0',
  'evaluation.beam=0',
)
LINES = ['three hundred and twelve', '', 'five', 'sixty thousand and one']


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """A run of few updates: what it writes is nonsense, and the same each time."""
  directory = tmp_path_factory.mktemp('run')
  options = [*QUICK, *small_text.numbers(tmp_path_factory.mktemp('numbers'))]
  assert train.train(resolve.load('experiments/transformer/quickstart.py:tiny', options), directory) == 0
  return directory


@pytest.fixture
def text(tmp_path):
  path = tmp_path / 'in.txt'
  path.write_text('\n'.join(LINES) + '\n')
  return path


def _write(capsys, workdir, *options: str) -> tuple[list[str], str]:
  beam = [] if '--sample' in options else ['--beam=2']
  assert main(['translate', f'--workdir={workdir}', *beam, '--max_extra=3', *options]) == 0
  said = capsys.readouterr()
  return said.out.splitlines(), said.err


def test_without_options_the_search_matches_the_run(workdir, text, capsys, monkeypatch):
  seen = []

  def note(translator, sources, options, **more):
    seen.append(options)
    return [[translate.Translation('', (), 0.0, 0.0)] for _ in sources]

  monkeypatch.setattr(translate, 'translate_ids', note)
  run = [
    '--config.evaluation.alpha=0.9',
    '--config.evaluation.penalty=power',
    '--config.evaluation.stop=full',
    '--config.evaluation.max_extra=3',
  ]
  command = ['translate', f'--workdir={workdir}', f'--input={text}']
  assert main([*command, *run]) == main([*command, *run, '--config.evaluation.beam=3']) == 0
  assert main([*command, *run, '--config.evaluation.beam=3', '--beam=2', '--alpha=0', '--stop=current']) == 0
  then = [
    '--config.evaluation.allow_unk=true',
    '--config.evaluation.min_ratio=0.5',
    '--config.evaluation.max_ratio=1.5',
  ]
  assert main([*command, *then]) == main([*command, *then, '--no-allow_unk', '--max_extra=9']) == 0
  (*_, papers, other) = [(one.allow_unk, one.min_ratio, one.max_ratio, one.max_extra) for one in seen]
  assert (papers[:3], other) == ((True, 0.5, 1.5), (False, 0.5, 0.0, 9))
  found = [(one.beam, one.alpha, one.penalty, one.stop, one.max_extra) for one in seen[:3]]
  assert found == [(4, 0.9, 'power', 'full', 3), (3, 0.9, 'power', 'full', 3), (2, 0.0, 'power', 'current', 3)]


def test_line_separator_ends_a_line(workdir, text, capsys, tmp_path):
  found, _ = _write(capsys, workdir, f'--input={text}')
  assert len(found) == 4 and [bool(line) for line in found] == [True, False, True, True]
  assert _write(capsys, workdir, f'--input={text}', '--lines=1')[0] == found
  out, err = _write(capsys, workdir, f'--input={text}', '--lines=3', f'--output={tmp_path / "out.txt"}')
  assert out == [] and f'wrote {tmp_path / "out.txt"}: 4 translations' in err
  assert (tmp_path / 'out.txt').read_text().splitlines() == found
  _write(capsys, workdir, f'--input={text}', f'--output={tmp_path / "out.txt.gz"}')
  assert gzip.decompress((tmp_path / 'out.txt.gz').read_bytes()).decode().splitlines() == found
  assert main(['translate', f'--workdir={workdir}', f'--input={tmp_path / "out.txt.gz"}']) == 2
  assert 'out.txt.gz; expected a plain text' in capsys.readouterr().err


def test_standard_input_is_streamed(workdir, text, capsys, monkeypatch):
  expected, _ = _write(capsys, workdir, f'--input={text}')
  (stdin, given), (answers, stdout) = os.pipe(), os.pipe()
  monkeypatch.setattr(sys, 'stdin', os.fdopen(stdin))
  monkeypatch.setattr(sys, 'stdout', os.fdopen(stdout, 'w'))
  with concurrent.futures.ThreadPoolExecutor(1) as pool, os.fdopen(answers) as reader, os.fdopen(given, 'w') as writer:
    code = pool.submit(main, ['translate', f'--workdir={workdir}', '--beam=2', '--max_extra=3', '--lines=1'])
    for line, wanted in zip(LINES, expected, strict=True):
      writer.write(line + '\n')
      writer.flush()
      assert reader.readline() == wanted + '\n'  # answered before the next line is there
    writer.close()
    assert code.result() == 0


def test_columns_of_several_translations_with_scores(workdir, text, capsys):
  best, _ = _write(capsys, workdir, f'--input={text}')
  rows = [line.split('\t') for line in _write(capsys, workdir, f'--input={text}', '--n_best=2')[0]]
  assert [row[0] for row in rows] == ['1', '1', '2', '3', '3', '4', '4']
  assert [row[3] for row in rows if row[0] == '1'][0] == best[0] and float(rows[0][1]) >= float(rows[1][1])
  for number, score, log_p, _ in rows:
    assert float(score) >= float(log_p) and (float(log_p) < 0) == (number != '2')
  scored, _ = _write(capsys, workdir, f'--input={text}', '--scores')
  assert [row.split('\t')[3] for row in scored] == best


def test_ensemble_of_equal_runs_translates_as_one(workdir, text, capsys):
  expected, _ = _write(capsys, workdir, f'--input={text}', '--scores')
  found, _ = _write(capsys, workdir, f'--input={text}', '--scores', f'--ensemble={workdir}')
  assert [row.split('\t')[3] for row in found] == [row.split('\t')[3] for row in expected]


def test_samples_depend_on_the_seed(workdir, text, capsys):
  options = (f'--input={text}', '--sample', '--temperature=2')
  first, second = (_write(capsys, workdir, *options, f'--seed={seed}')[0] for seed in (1, 2))
  assert first != second and first == _write(capsys, workdir, *options, '--seed=1', '--lines=1')[0]


def test_writes_scores_plots_and_alignments(workdir, text, capsys, tmp_path):
  reference, gold = tmp_path / 'reference.txt', tmp_path / 'gold.txt'
  reference.write_text('3 1 2\n\n5\n6 0 0 0 1\n')
  gold.write_text('0-0 1p1\n\n0-0\n0-0\n')
  plots = tmp_path / 'plots'
  out, err = _write(
    capsys,
    workdir,
    f'--input={text}',
    f'--reference={reference}',
    f'--plot={plots}',
    f'--alignments={gold}',
    f'--metrics={tmp_path / "metrics.json"}',
  )
  metrics = json.loads((tmp_path / 'metrics.json').read_text())
  assert f'{metrics["alignment_error_rate"]:.3f}' in err and f'{metrics["chrf"]:.2f}' in err
  assert main(['translate', f'--workdir={workdir}', f'--input={text}', '--metrics=m.json']) == 2
  assert 'got it without --reference' in capsys.readouterr().err
  assert len(out) == 4 and 'bleu ' in err and 'chrf' in err and 'tok:13a' in err and 'alignment error rate' in err
  assert sorted(path.name for path in plots.iterdir()) == ['0001.png', '0003.png', '0004.png']
  again, _ = _write(
    capsys, workdir, f'--input={text}', f'--reference={reference}', f'--output={tmp_path / "o"}', '--language=de'
  )
  assert any('tok:moses-de' in line for line in again)  # to standard output, which holds no translations then
  own, _ = _write(capsys, workdir, f'--input={text}', f'--output={tmp_path / "o"}', f'--plot={tmp_path / "own"}')
  assert 'wrote 3 pictures' in own[0]


def test_attention_plots_need_an_attention_model(workdir, text, capsys, monkeypatch):
  model, cfg = registry.get('rnn_encdec'), registry.config('rnn_encdec', 'tiny', V=300)
  params = jax.eval_shape(functools.partial(model.init, cfg), jax.random.key(0))
  monkeypatch.setattr(
    translate, 'build_translator', lambda run, _, tokenizer: translate.Translator(model, cfg, params, tokenizer)
  )
  monkeypatch.setattr(translate, 'translate_ids', None)
  assert main(['translate', f'--workdir={workdir}', f'--input={text}', '--plot=pictures']) == 2
  assert 'model "rnn_encdec" has no attention' in capsys.readouterr().err


@pytest.mark.parametrize('kind', ['bpe', 'unigram', 'words', 'characters'])
def test_alignments_are_between_words(kind):
  lines = ('ab bcd', 'efg hij ab')
  tokenizer = build.train(kind, ['ab bcd efg hij ab'] * 9, vocab_size=500, rule='prose')
  source, text = (np.append(tokenizer.encode(line), 0) for line in lines)
  starts = [translate.word_starts(tokenizer, line, ids[:-1]) for line, ids in zip(lines, (source, text), strict=True)]
  assert [int(start.sum()) for start in starts] == [2, 3] and all(start[0] for start in starts)
  # The first word looks at the first one's last piece, the others at the last one's first.
  last_S = np.flatnonzero(starts[0])[1]
  word_of = np.append(np.cumsum(starts[1]) - 1, 99)
  a_TS = np.zeros((len(text), len(source)))
  a_TS[word_of == 0, last_S - 1] = 1
  a_TS[word_of > 0, last_S] = 1
  nothing = np.zeros(0, np.int32)
  rate = lambda sure: cli._error_rate(
    tokenizer,
    [lines, ('', '')],
    [source, nothing],
    [text, text[-1:]],
    [a_TS, np.zeros((0, 0))],
    ([sure, set()], [set(), set()]),
  )
  assert rate({(0, 0), (1, 1), (1, 2)}) == 0
  assert rate({(1, 0), (1, 1), (1, 2)}) == pytest.approx(1 / 3)


@pytest.mark.parametrize('kind', ['bpe', 'bpe with a space first', 'unigram', 'words', 'characters', 'word_bpe'])
@pytest.mark.parametrize('line', [' ab  bcd', 'ab   bcd', 'ab bcd '])
def test_words_are_split_at_any_white_space(kind, line):
  kind, _, first = kind.partition(' ')
  tokenizer = build.train(kind, ['ab bcd'] * 9, vocab_size=500, rule='prose', prefix_space=bool(first))
  ids = tokenizer.encode(line.strip())
  starts = translate.word_starts(tokenizer, line, ids)
  assert starts[0] and starts.sum() == 2
  assert tokenizer.decode(ids[np.flatnonzero(starts)[1] :]).strip() == 'bcd'


def test_words_sharing_a_subword_are_not_aligned():
  tokenizer = build.train('words', ['a b'], rule='prose')
  with pytest.raises(InputError, match='words cannot be aligned'):
    translate.word_starts(tokenizer, 'a b', tokenizer.encode('a b b'))


def test_plot_labels_mark_word_continuations():
  tokenizer = build.train('bpe', ['gr\u00fcn'], vocab_size=257)  # bytes alone
  ids = np.append(tokenizer.encode('ab cd'), tokenizer.eos_id)
  assert translate.token_labels(tokenizer, ids) == ['a', '\u00b7b', '', 'c', '\u00b7d', '<eos>']
  letters = build.train('characters', ['ab cd'])
  assert translate.token_labels(letters, letters.encode('ab cd')) == ['a', 'b', '', 'c', 'd']  # each is one


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (['--beam=2', '--n_best=3'], 'expected at most --beam=2'),
    (['--sample', '--n_best=2'], 'at most 1 with --sample'),
    (['--sample', '--beam=3'], 'beam: got 3 with sample, which searches nothing; omit one of them'),
    (['--sample', '--alpha=1'], 'alpha: got 1.0 with sample'),
    (['--sample', '--stop=full'], 'stop: got full with sample'),
    (['--sample', '--temperature=0', '--seed=0'], 'seed: got 0 with temperature=0, which samples nothing'),
    (['--alpha=0', '--penalty=power'], 'penalty: got power with alpha=0, which penalises no length'),
    (['--max_extra=3', '--max_ratio=2'], 'max_extra: got 3 with max_ratio=2, which replaces it'),
    (['--input=/nowhere/x'], '--input: got /nowhere/x; expected an existing file'),
    (['--output=/nowhere/x'], '--output: got /nowhere/x; expected a file in a folder that exists'),
    (['--reference=LINES3'], '--reference: got'),
  ],
)
def test_invalid_options_are_rejected(workdir, text, capsys, tmp_path, options, message):
  (tmp_path / 'three').write_text('1\n2\n3\n')
  options = [option.replace('LINES3', str(tmp_path / 'three')) for option in options]
  given = [option for option in (f'--input={text}',) if option.split('=')[0] not in str(options)]
  assert main(['translate', f'--workdir={workdir}', *given, *options]) == 2
  said = capsys.readouterr()
  assert message in said.err and not said.out  # before anything is translated


def test_missing_references_at_stream_end_are_reported(workdir, text, capsys, tmp_path):
  (tmp_path / 'three').write_text('1\n2\n3\n')
  more = ['--beam=1', '--max_extra=1', f'--input={text}', '--lines=2', f'--reference={tmp_path / "three"}']
  assert main(['translate', f'--workdir={workdir}', *more]) == 2
  said = capsys.readouterr()
  assert '--reference: got' in said.err and len(said.out.splitlines()) == 4


@pytest.mark.parametrize(
  ('option', 'message'),
  [
    ('--alignments=setup.cfg', '--alignments: got'),
    ('--language=de', '--language: got de'),
    ('--language=german --reference=setup.cfg', '--language: got german; expected two letters'),
    ('--temperature=0.5', '--temperature: got'),
    ('--seed=0', 'or --seed, without --sample'),
  ],
)
def test_invalid_options_are_rejected_before_loading(capsys, option, message):
  assert main(['translate', '--workdir=.', *option.split()]) == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize('name', ['input', 'reference', 'alignments'])
def test_output_must_not_be_an_input(text, capsys, tmp_path, name):
  (tmp_path / 'other').symlink_to(text)
  given = {'reference': 'setup.cfg', name: text}  # alignments need a reference
  options = [f'--{name}={path}' for name, path in given.items()]
  assert main(['translate', '--workdir=.', *options, f'--output={tmp_path / "other"}']) == 2
  assert f'the file of --{name}; expected another file' in capsys.readouterr().err
  assert text.read_text().splitlines() == LINES


def test_pipes_are_read_and_written_like_files(monkeypatch, tmp_path):
  written = b'gr\xc3\xbcn\rblau\n\xff\n'
  text = b'\xef\xbb\xbf' + written  # as some editors mark UTF-8
  (tmp_path / 'in').write_bytes(text)
  monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text)))
  monkeypatch.setattr(sys, 'stdout', io.TextIOWrapper(io.BytesIO(), 'ascii'))  # what the locale asks for
  lines = ['gr\u00fcn\rblau', '\udcff']
  assert cli._lines(str(tmp_path / 'in')) == cli._lines('-') == lines
  (tmp_path / 'mac').write_bytes(b'eins\rzwei\r')
  assert cli._lines(str(tmp_path / 'mac')) == ['eins', 'zwei']
  for path in ('-', str(tmp_path / 'out')):
    with cli._open_output(path) as out:
      out.writelines(f'{line}\n' for line in lines)
      out.flush()
  assert sys.stdout.buffer.getvalue() == (tmp_path / 'out').read_bytes() == written


@pytest.mark.parametrize('path', ['-', '/dev/full'])
def test_full_disk_is_reported(monkeypatch, path):
  class Full(io.StringIO):
    def flush(self):
      raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(sys, 'stdout', Full())
  with pytest.raises(InputError, match='cannot be written .No space left on device'), cli._open_output(path) as out:
    out.write('a line\n')
    out.flush()


def test_closed_stream_is_reported(monkeypatch):
  for name, use in (('stdin', cli._open_input), ('stdout', cli._open_output)):
    monkeypatch.setattr(sys, name, None)  # as after `<&-`
    with pytest.raises(InputError, match=f'standard {name[3:]}put is closed'), use('-'):
      pass


def test_closed_reader_is_not_an_error():
  with pytest.raises(BrokenPipeError), cli._open_output('-'):
    raise BrokenPipeError


def test_long_lines_are_rejected_or_truncated_with_a_warning(workdir, capsys, monkeypatch):
  monkeypatch.setattr(translate.generate, 'window', lambda cfg: 6)
  text = b'five\none two three four five six seven\n'
  monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text)))
  assert main(['translate', f'--workdir={workdir}', '--beam=1', '--lines=0']) == 2
  assert 'line 2 has 7 tokens' in capsys.readouterr().err
  monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text)))
  with pytest.warns(InputWarning, match='line 2 has 7 tokens'):
    assert main(['translate', f'--workdir={workdir}', '--beam=1', '--truncate']) == 0


def test_python_method_matches_the_command(workdir, text, capsys):
  run = lmx.load(workdir)
  assert run.abilities() == ['translate']
  translations = run.translate(LINES, beam=2, max_extra=3)
  assert translations == _write(capsys, workdir, f'--input={text}')[0]
  assert run.translate(LINES[0], beam=2, max_extra=3) == translations[:1]
  best = run.translations(LINES, beam=2, max_extra=3)
  assert [len(hypotheses) for hypotheses in best] == [2, 1, 2, 2] and best[0][0].score >= best[0][1].score
  page = (pathlib.Path(__file__).parents[2] / 'docs/python.md').read_text()
  example = re.search(r"^run = lmx.load\('TRANSLATOR'\).*\n.+\n", page, re.M)[0]
  scope = {'lmx': lmx}
  exec(example.replace("'TRANSLATOR'", repr(str(workdir))), scope)
  assert len(scope['translations']) == 1
  with pytest.raises(InputError, match='cannot generate: model "transformer"'):
    run.generate('a')


def test_endless_sentence_is_rejected(monkeypatch):
  monkeypatch.setattr(documents, 'LONGEST', 10)
  assert list(cli._bounded(io.StringIO('123456789\n12\n'), '-')) == ['123456789\n', '12\n']
  with pytest.raises(InputError, match='-, line 2: got'):
    list(cli._bounded(io.StringIO('a\n' + 'b' * 11), '-'))


@pytest.mark.parametrize('path', ['/dev/zero', '/dev/null'])
def test_device_files_are_rejected_as_input(path):
  with pytest.raises(InputError, match='got a device'), cli._open_input(path):
    pass
