"""`lmx bench`: the figures it gives, and the conversation with the other interpreter."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lmx.benchmark import attention, growth, row
from lmx.cli.main import main
from lmx.config import resolve
from lmx.data import pipeline
from tests import small_text

TINY = ['bench', 'rnn_lm:tiny', '--batch=2', '--length=4', '--steps=3', '--warmup=1']


def test_describe_reports_the_model(tmp_path, capsys):
  file = tmp_path / 'out.json'
  assert main([*TINY, f'--json={file}']) == 0
  assert 'tokens a second' in capsys.readouterr().out
  (found,) = json.loads(file.read_text())
  assert found['steps'] == 3 and found['waiting_share'] == 0 and 0 < found['mfu'] < 1
  assert found['tokens_per_second'] == pytest.approx(8 / found['step_seconds'])
  assert found['quartile_1'] <= found['step_seconds'] <= found['quartile_3']
  for name in ('compile_seconds', 'planned_bytes', 'peak_process_bytes', 'flops_per_second'):
    assert found[name] > 0, name


def test_bench_run_with_several_batch_shapes(tmp_path, capsys):
  file = tmp_path / 'out.json'
  words = [
    'bench',
    '--config=experiments/transformer/quickstart.py:tiny',
    '--config.data.batching.buckets=(10,)',
    '--config.data.batching.tokens=400',
    *(f'--config.{setting}' for setting in small_text.numbers(tmp_path)),
    '--config.parallel.data=1',
    '--config.model.encoder_layers=1',
    '--config.model.decoder_layers=1',
    '--config.model.dropout=0.0',
    '--warmup=0',
    '--steps=4',
  ]
  assert main([*words, f'--json={file}']) == 0
  (found,) = json.loads(file.read_text())
  assert len(found['shapes']) == 2 and found['programs'] == len(found['shapes'])
  assert all(rows * length <= 400 for rows, length in found['shapes'])
  assert ', 2 programs' in capsys.readouterr().out
  # No step was timed with its compiling, which takes much longer; of the four, two compile.
  assert found['quartile_3'] < found['compile_seconds'] / found['programs']


@pytest.mark.slow
def test_row_groups_are_counted_after_truncation(tmp_path):
  file, path = tmp_path / 'out.json', 'experiments/transformer/quickstart.py:tiny'
  changes = [*small_text.numbers(tmp_path), 'data.batching.buckets=(10,)', 'data.batching.groups=2', 'parallel.data=1']
  changes += ['data.batch_size=16', 'model.encoder_layers=1', 'model.decoder_layers=1']
  words = [f'--config={path}', *(f'--config.{change}' for change in changes), '--warmup=0', '--steps=1']
  assert main(['bench', *words, f'--json={file}']) == 0
  (found,) = json.loads(file.read_text())
  run = resolve.to_run(resolve.load(path, changes))
  batch = pipeline.batches(run.data, pipeline.load(run.data), 'train', run.seed, train=True)(0)
  sizes = np.sort(np.maximum(batch['source_valid_BS'].sum(1), batch['valid_BT'].sum(1)))
  shapes = [[part.size, 10 if part.max() <= 10 else 24] for part in np.split(sizes, 2)]
  assert found['shapes'] == shapes and shapes[0] != shapes[1] and found['programs'] == 1
  places = found['tokens_per_second'] * found['step_seconds']
  assert places == pytest.approx(sum(n * length for n, length in shapes)) and places < found['batch'] * found['length']


def test_attention_by_length(tmp_path, capsys):
  file = tmp_path / 'out.json'
  assert main(['bench', '--attention=64,256', '--steps=1', f'--json={file}']) == 0
  assert 'exponent' in capsys.readouterr().out
  found = json.loads(file.read_text())
  assert [(f['kind'], f['length']) for f in found] == [(kind, n) for kind in attention.KINDS for n in (64, 256)]
  assert all(f['seconds'] > 0 and f['planned_bytes'] > 0 for f in found)
  assert {f['stride'] for f in found} == {8, 16}
  growth = {f['kind']: f['memory_exponent'] for f in found}
  assert growth['strided'] < 1.75 < growth['dense']


def test_rounds_alternate_with_the_peer(peer, tmp_path, capsys):
  file = tmp_path / 'out.json'
  assert main([*TINY, f'--peer={peer}', '--rounds=2', f'--json={file}']) == 0
  assert 'times as fast' in capsys.readouterr().out
  (found,) = json.loads(file.read_text())
  assert found['steps'] == 6 and len(found['peer']['ratio_of_rounds']) == 2
  assert found['peer']['step_seconds'] == 1.0
  assert found['peer']['ratio'] == pytest.approx(1 / found['step_seconds'])


def test_tables_are_combined(tmp_path, capsys):
  files = []
  for i, ours in enumerate((1.0, 2.0)):
    files.append(str(tmp_path / f'{i}.json'))
    (tmp_path / f'{i}.json').write_text(json.dumps([row.make('prepare', 'MB/s', [ours], [4.0])]))
  words = [f'--combine={",".join(files)}', f'--json={tmp_path / "c.json"}', f'--markdown={tmp_path / "c.md"}']
  assert main(['bench', *words]) == 0
  (found,) = json.loads((tmp_path / 'c.json').read_text())
  assert found['ratio_of_rounds'] == [0.25, 0.5] and found['ours']['median'] == 1.5
  text = (tmp_path / 'c.md').read_text()
  assert text == capsys.readouterr().out and '| `prepare` | 1.5 MB/s | 4.0 MB/s | 0.38 (0.25, 0.50) |' in text


def test_time_exponent_in_length_is_fitted(tmp_path, monkeypatch):
  monkeypatch.setattr(growth, 'token_seconds', lambda presets: {key: one.batch**-0.5 for key, one in presets.items()})
  file, picture = tmp_path / 'out.json', tmp_path / 'out.png'
  assert main(['bench', '--growth', 'cfnet', f'--json={file}', f'--picture={picture}']) == 0
  found = {row['size']: row for row in json.loads(file.read_text())}
  assert set(found) == set(growth.VALUES) and found['batch']['exponent'] == pytest.approx(-0.5)
  assert picture.stat().st_size > 1000
  assert main(['bench', '--growth=batch', 'cfnet', f'--json={file}', f'--picture={tmp_path / "x.pdq"}']) == 2
  assert [row['size'] for row in json.loads(file.read_text())] == ['batch']


DATA = ['bench', '--data', '--config=experiments/xlnet/pretrain.py:tiny', '--steps=2', '--rounds=2', '--warmup=1']


def test_host_batches_contain_step_inputs(tmp_path, capsys):
  file, report = tmp_path / 'out.json', tmp_path / 'report.json'
  words = [*DATA, f'--config.data.cache_dir={tmp_path}', '--config.data.batch_size=8', '--hosts=2', f'--json={file}']
  assert main([*words, '--step_seconds=0.5']) == 0
  assert 'random tokens' in (text := capsys.readouterr().out) and '4 of 8 rows of 32' in text
  (found,) = json.loads(file.read_text())
  assert found['batch_tokens'] == 4 * 32 and found['batch_seconds'] > 0
  assert found['quartile_1'] <= found['tokens_per_second'] <= found['quartile_3'] * (1 + 1e-9)
  assert found['step']['tokens_per_second'] == 4 * 32 / 0.5
  assert found['step']['ratio'] == pytest.approx(found['tokens_per_second'] / 256)
  step = {'rows': 8, 'length': 32, 'chips': 4, 'estimate': {'compute_seconds': 0.25, 'collective_seconds': 0.125}}
  report.write_text(json.dumps(step))
  assert main([*words, f'--report={report}']) == 0
  (found,) = json.loads(file.read_text())
  assert found['step']['seconds'] == 0.25 and '2 chips a host' in capsys.readouterr().out
  for change, message in (
    ({'rows': 16}, 'expected the 8 rows of 32'),
    ({'chips': 1}, '--hosts: got 2; expected a divisor of the 1 chips'),
    ({'estimate': None}, 'estimate: got null'),
  ):
    report.write_text(json.dumps(step | change))
    assert main([*words, f'--report={report}']) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ([], 'MODEL: got nothing'),
    (['gpt2:tiny', '--hosts=2'], '--hosts: got it without --data'),
    (['--data', '--config=experiments/gpt2/quickstart.py:tiny', '--batch=4'], '--batch: got it without MODEL'),
    (['gpt2:tiny', '--data'], '--data: got no --config'),
    ([*DATA[1:], '--peer=python'], '--data: got --peer'),
    ([*DATA[1:], '--hosts=3', '--config.data.cache_dir=absent'], '--hosts: got 3; expected a divisor of the'),
    (['--data', '--config=experiments/bert/tasks.py:mnli', '--config.data.cache_dir=absent'], 'lmx prepare'),
    (['gpt2:tiny', '--preset=all'], 'MODEL: got nothing to time, or several'),
    (['--preset=gpt2_125m'], 'did you mean "gpt2_124m"'),
    (['--growth=widht', 'gpt2'], '--growth: got "widht"'),
    (['--growth', 'gpt22'], 'did you mean "gpt2"'),
    (['--growth=width'], '--growth: got no MODEL'),
    (['--growth=width', 'gpt2', '--set=T=8'], '--growth: got no MODEL'),
    (['gpt2:tiny', '--picture=x.png'], '--picture: got it without --growth'),
    (['gpt2:tiny', '--rows=64'], '--rows: got it without --preset'),
    (['--combine=absent.json', '--rounds=2'], 'absent.json'),
    (['--combine=setup.cfg', '--preset=all'], 'MODEL: got nothing to time, or several'),
    (['gpt2:tiny', '--markdown=x.md'], '--markdown: got it without --preset'),
    (['--preset=gpt2_124m', '--set=T=8'], '--config.model.FIELD=VALUE'),
    (['gpt2:tiny', '--config.model.T=8'], '--set=FIELD=VALUE'),
    (['--attention=1024'], 'two or more'),
    (['--attention=64,no'], 'two or more'),
    (['gpt2:tiny', '--optimizer=adamx'], 'did you mean'),
    (['gpt2:tiny', '--evaluation=8'], 'gpt2:tiny has none'),
    (['transformer_xl:tiny', '--evaluation=8,x'], '--evaluation: got "8,x"'),
    (['transformer_xl:tiny', '--evaluation=0'], '--evaluation: got "0"'),
    (['--preset=transformer_xl', '--evaluation=8'], '--evaluation: got'),
  ],
)
def test_invalid_input_is_rejected(arguments, message, capsys):
  assert main(['bench', *arguments]) == 2
  assert message in capsys.readouterr().err


@pytest.mark.slow
def test_memory_with_sliding_windows_is_rejected(tmp_path, capsys):
  file = tmp_path / 'out.json'
  small = [f'--set={change}' for change in ('N=1', 'D=16', 'H=2', 'F=16')]
  words = ['bench', 'transformer_xl:tiny', *small, '--evaluation=6,800', '--batch=1', '--length=4', '--warmup=0']
  assert main([*words, '--steps=3', '--rounds=2', f'--json={file}']) == 0
  said = capsys.readouterr().out
  assert 'transformer_xl:tiny: evaluation of 1 rows, in segments of 4' in said
  short, long = json.loads(file.read_text())
  assert (short['attention_length'], long['attention_length']) == (6, 800)
  assert short['paper'] is None and long['paper'] == 363 and said.splitlines()[-1].endswith('363x')
  for found in (short, long):
    assert found['ratio'] == pytest.approx(found['window_seconds'] / found['memory_seconds'])
    assert len(found['ratio_of_rounds']) == 2 and found['memory_seconds'] > 0
  assert long['ratio'] > 2  # 800 tokens are read for one, where 4 are read for 4
