"""The command line on bad input: exit code 2, and a message that says what to mend."""

from __future__ import annotations

import errno
import json
import warnings

import pytest

from lmx.cli import main as cli
from lmx.errors import InputNote, InputWarning
from tests import small_text

DRAWS = True  # of tests/conftest.py
TINY = 'experiments/rnn_lm/quickstart.py:tiny'
QUIET = ('--config.evaluation.baselines=false', '--config.samples.count=0', '--config.parallel.data=1')


def refused(capsys, *argv: str) -> str:
  assert cli.main(list(argv)) == 2
  return capsys.readouterr().err


def train(workdir, *more: str) -> list[str]:
  return ['train', f'--config={TINY}', f'--workdir={workdir}', *QUIET, *more]


def texts(tmp_path, content: bytes = b'one two three\n' * 400) -> list[str]:
  directory = tmp_path / 'texts'
  directory.mkdir()
  (directory / 'train.txt').write_bytes(content)
  for split in ('valid', 'test'):
    (directory / f'{split}.txt').write_bytes(b'one two three\n' * 100)
  return ['--config.data.dataset=text_files', f'--config.data.manual_dir={directory}']


def test_unknown_command_or_option_suggests_the_nearest(capsys):
  assert 'did you mean "train"' in refused(capsys, 'trian')
  assert 'did you mean "--workdir"' in refused(capsys, 'train', f'--config={TINY}', '--workdir=x', '--workdri=3')


@pytest.mark.parametrize('command', [['list'], ['describe', 'gpt2:tiny'], ['export', '--workdir=x', '--to=y']])
def test_override_without_config_is_rejected(capsys, command):
  message = refused(capsys, *command, '--config.model.D=8')
  assert f'--config.model.D=8: got it for lmx {command[0]}' in message


def test_lmx_warnings_are_printed_as_messages(capsys, monkeypatch):
  usual = warnings.formatwarning

  def run(args):
    for category in (InputWarning, InputWarning, InputNote, UserWarning):  # the repeated one is shown once
      print(warnings.formatwarning('3 rows are cut', category, 'x.py', 7), end='')
    return 0

  monkeypatch.setattr('lmx.cli.list.run', run)
  assert cli.main(['list']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines == ['lmx: warning: 3 rows are cut', 'lmx: 3 rows are cut', 'x.py:7: UserWarning: 3 rows are cut']
  assert warnings.formatwarning is usual


def test_allocator_is_tuned_only_in_its_own_process(capsys, monkeypatch):
  calls = []
  monkeypatch.setattr(cli.host, 'keep_heap', lambda: calls.append(1))
  assert cli.main(['list', 'experiments']) == 0 and not calls
  monkeypatch.setattr(cli.sys, 'argv', ['lmx', 'list', 'experiments'])
  assert cli.main() == 0 and calls == [1]
  others = (
    ['prepare', '--config=none.py'],  # threads learn its vocabulary, for which one heap is slow
    ['export', '--workdir=none', '--to=out'],  # tensors are large and used once
  )
  for command in others:
    monkeypatch.setattr(cli.sys, 'argv', ['lmx', *command])
    assert cli.main() == 2 and calls == [1]


def test_unknown_config_key_suggests_the_nearest(capsys, tmp_path):
  message = refused(capsys, *train(tmp_path, '--config.optim.weight_decy=0.1'))
  assert 'optim.weight_decy' in message and 'did you mean "weight_decay"' in message


def test_missing_config_file_is_rejected(capsys, tmp_path):
  message = refused(capsys, 'train', '--config=nothing.py', f'--workdir={tmp_path}')
  assert '--config: got nothing.py' in message
  for path in ('rnn_lm/quickstart.py', 'experiments/rnn_lm/quikstart.py'):
    message = refused(capsys, 'train', f'--config={path}:tiny', f'--workdir={tmp_path}')
    assert f'{path}; expected a config file; did you mean "experiments/rnn_lm/quickstart.py"?' in message


def test_no_arguments_list_the_experiments(capsys):
  for argv, code in (([], 0), (['train', '--workdir=x'], 2), (['pipeline'], 2)):
    with pytest.raises(SystemExit) as end:
      cli.main(argv)
    text = ''.join(capsys.readouterr())
    assert end.value.code == code and 'experiments/ulmfit/quickstart.py  ' in text
    assert ('experiments/rnn_lm/quickstart.py  ' in text) == (argv != ['pipeline'])  # it has no stages
    assert 'experiments/translation.py' not in text


def test_unknown_variant_is_rejected(capsys, tmp_path):
  message = refused(capsys, 'train', '--config=experiments/rnn_lm/quickstart.py:ful', f'--workdir={tmp_path}')
  assert 'did you mean "full"' in message


@pytest.mark.parametrize('content', [b'', b'\n\n \n', b'\x00\x01\xff\xfe binary \x00' * 50])
def test_empty_or_binary_text_file_is_rejected(capsys, tmp_path, content):
  assert 'train.txt' in refused(capsys, *train(tmp_path / 'run', *texts(tmp_path, content)))


def test_vocabulary_smaller_than_data_ids_is_rejected(capsys, tmp_path):
  more = (*texts(tmp_path), '--config.model.V=3')
  assert 'vocabulary size of the tokenizer' in refused(capsys, *train(tmp_path / 'run', *more))


def test_data_without_preparation_is_accepted(capsys):
  assert cli.main(['prepare', '--config=experiments/ntm/quickstart.py:tiny']) == 0
  assert capsys.readouterr().out == 'data set generated is generated on the fly; there is nothing to prepare\n'


def test_split_smaller_than_one_batch_is_rejected(capsys, tmp_path):
  data = texts(tmp_path, b'one two three\n' * 5)
  assert 'tokens' in refused(capsys, *train(tmp_path / 'run', *data))


def test_work_directory_without_a_run_is_rejected(capsys, tmp_path):
  for command in ('evaluate', 'generate'):
    assert 'got no config.json' in refused(capsys, command, f'--workdir={tmp_path}')


def test_finished_run_can_be_evaluated_and_loaded(capsys, tmp_path):
  import lmx

  workdir = tmp_path / 'run'
  more = (
    *(f'--config.{setting}' for setting in small_text.settings(tmp_path)),
    '--config.train.steps=4',
    '--config.evaluation.baselines=true',
    '--config.samples.count=1',
    '--config.samples.tokens=5',
  )
  assert cli.main([*train(workdir), *more]) == 0
  found = json.loads((workdir / 'results.json').read_text())
  assert found['split'] == 'test' and found['baselines']['kneser_ney']['perplexity_per_word'] > 1
  assert found['validation_baselines']['kneser_ney']['loss'] != found['baselines']['kneser_ney']['loss']
  for name in ('config.json', 'metrics.jsonl', 'loss.png', 'samples.txt', 'data.json'):
    assert (workdir / name).stat().st_size > 0, name
  assert list(workdir.rglob('events.out.tfevents*'))
  capsys.readouterr()
  assert cli.main(['evaluate', f'--workdir={workdir}', '--json', '--no-baselines']) == 0
  again = json.loads(capsys.readouterr().out)
  assert again['perplexity_per_word'] == pytest.approx(found['perplexity_per_word'], rel=1e-6)
  run = lmx.load(workdir)
  assert run.step == 4 and run.cfg.V == run.tokenizer.vocab_size and run.config.train.steps == 4


@pytest.mark.parametrize('command', [['phrases', '--output=x', '--input=--'], ['describe', '--workdir=--']])
def test_double_dash_is_not_a_value(capsys, command):
  assert f'{command[-1][:-3]}: got --, which ends the options' in refused(capsys, *command)


@pytest.mark.parametrize('error', [MemoryError(), RuntimeError('RESOURCE_EXHAUSTED'), RuntimeError('Out of memory')])
def test_missing_memory_is_reported(error, capsys, monkeypatch):
  def fail(*_):
    raise error

  monkeypatch.setattr('lmx.cli.list.run', fail)
  assert 'out of memory' in refused(capsys, 'list')


@pytest.mark.parametrize(
  ('number', 'advice'),
  [
    ('ENOSPC', 'free some space'),
    ('EDQUOT', 'larger quota'),
    ('EFBIG', 'ulimit -f'),
    ('EROFS', 'mount the file system writable'),
    ('EIO', 'check the disk'),
    ('EACCES', 'change its permissions'),
    ('EISDIR', 'use another path'),
  ],
)
def test_disk_failure_is_reported(number, advice, capsys, monkeypatch):
  def fail(*_):
    raise OSError(getattr(errno, number), 'reason', 'a/file')

  monkeypatch.setattr('lmx.cli.list.run', fail)
  message = refused(capsys, 'list')
  assert message.startswith('lmx: a/file: cannot be read or written (reason); ') and advice in message


def test_other_os_errors_keep_their_traceback(monkeypatch):
  def fail(*_):
    raise FileNotFoundError(errno.ENOENT, 'reason', 'a/file')

  monkeypatch.setattr('lmx.cli.list.run', fail)
  with pytest.raises(FileNotFoundError):
    cli.main(['list'])


def test_missing_device_is_reported(capsys, monkeypatch):
  """JAX fails so where JAX_PLATFORMS names a device that it lacks; elsewhere an assertion is a defect."""
  scope: dict = {}
  for file in ('jax/_src/xla_bridge.py', 'jax/_src/core.py'):
    exec(compile('def fail(*_):\n  assert False', file, 'exec'), scope)
    monkeypatch.setattr('lmx.cli.list.run', scope['fail'])
    monkeypatch.setenv('JAX_PLATFORMS', 'cuda')
    if file.endswith('bridge.py'):
      assert 'JAX_PLATFORMS: got "cuda", but JAX finds no such device' in refused(capsys, 'list')
      monkeypatch.delenv('JAX_PLATFORMS')
    with pytest.raises(AssertionError):
      cli.main(['list'])
