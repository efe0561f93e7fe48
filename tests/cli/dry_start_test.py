"""The check of a sweep before its first trial: values, comma lists, data and labels."""

from __future__ import annotations

import pytest

from lmx.cli import dry_start
from lmx.config import resolve
from lmx.errors import InputError

LM = 'experiments/rnn_lm/quickstart.py:tiny'


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch, root):
  monkeypatch.chdir(root)


def check(config, *overrides, values=None, lists=(), workdir=''):
  dry_start.check(dry_start.Request(config, overrides, lists, values or [[{'optim.lr': '0.1'}]], workdir))


def test_each_value_of_the_space_must_be_valid():
  check(LM, values=[[{'optim.lr': '0.1'}], [{'optim.lr': '0.2'}]])
  with pytest.raises(InputError, match=r'optim\.lrr: .*did you mean "lr"'):
    check(LM, values=[[{'optim.lrr': '0.1'}]])
  with pytest.raises(InputError, match=r'optim\.lr: got .*fast'):
    check(LM, values=[[{'optim.lr': '0.1'}], [{'optim.lr': 'fast'}]])
  # A value is valid if some point with it is: heads that do not divide one width may divide another.
  sizes = [{'model.D': '64', 'model.H': '3'}, {'model.D': '96', 'model.H': '3'}]
  check('experiments/gpt2/quickstart.py:tiny', values=[sizes])
  with pytest.raises(InputError, match=r'model\.'):
    check('experiments/gpt2/quickstart.py:tiny', values=[sizes[:1]])


def test_comma_list_is_refused_where_the_key_takes_one_value():
  for text in ('optim.lr=1e-3,1e-4', 'model.cell=lstm,gru', 'data.tokenizer=words,bytes'):
    with pytest.raises(InputError) as error:
      check(LM, text, lists=[text])
    assert f'--config.{text.replace("=", ": got ")}, a comma list' in str(error.value)
    assert f"--space '{text}'" in str(error.value)
  check(LM, "log.to='wandb','mlflow'", lists=["log.to='wandb','mlflow'"])  # a tuple
  with pytest.raises(InputError, match=r'optim\.lrr: .*did you mean'):
    check(LM, 'optim.lrr=1,2', lists=['optim.lrr=1,2'])


def test_data_and_labels_are_read(tmp_path):
  data, bert = tmp_path / 'data', 'experiments/bert/tasks.py:own'
  data.mkdir()
  small = ('model.variant=tiny', 'data.tokenizer=wordpiece', 'data.length=32', 'data.batch_size=4')
  small += ('train.like_init=false',)
  given = (*small, f'data.manual_dir={data}', f'data.cache_dir={tmp_path / "cache"}')
  row = 'some words {},{}\n'.format
  (data / 'train.csv').write_text('text,label\n' + ''.join(row(i, 'good') for i in range(20)))
  with pytest.raises(InputError, match='only the label "good"'):
    check(bert, *given, workdir=str(tmp_path / 'run'))
  with (data / 'train.csv').open('a') as file:
    file.writelines(row(i, 'bad') for i in range(20, 40))
  check(bert, *given, workdir=str(tmp_path / 'run'))
  assert not (tmp_path / 'run').exists()


def test_weights_of_every_value_are_read(tmp_path):
  """A value that no data check reads, such as a rate, is not started again."""
  missing = str(tmp_path / 'missing')
  with pytest.raises(InputError, match='train.init_from: .*missing'):
    check(LM, f'train.init_from={missing}', workdir=str(tmp_path / 'run'))
  values = [[{'train.init_from': ''}], [{'train.init_from': missing}]]
  with pytest.raises(InputError, match='train.init_from: .*missing'):
    check(LM, values=values, workdir=str(tmp_path / 'run'))
  with pytest.raises(InputError, match=r'data\.manual_dir|missing'):
    own = ('data.dataset=text_files', f'data.cache_dir={tmp_path / "cache"}')
    check(LM, *own, values=[[{'data.manual_dir': missing}]], workdir=str(tmp_path / 'run'))
  with pytest.raises(InputError, match=r'train\.best_by: got "bleu"'):
    check(LM, 'train.best_by=bleu', workdir=str(tmp_path / 'run'))


def test_only_values_that_change_what_is_read_are_started_again(tmp_path, monkeypatch):
  started = []
  monkeypatch.setattr(dry_start, 'check_start', lambda config, workdir: started.append(config.model.N))
  values = [[{'optim.lr': '0.1'}], [{'optim.lr': '0.2'}], [{'seed': '3'}], [{'model.N': '5'}]]
  check(LM, values=values, workdir=str(tmp_path / 'run'))
  assert started == [resolve.load(LM).model.N, 5]


def test_files_and_labels_are_read_without_a_tokenizer(tmp_path):
  rows = [f'some words {i},{label}\n' for i in range(40) for label in ('good', 'bad')]
  (tmp_path / 'train.csv').write_text('text,label\n' + ''.join(rows))
  given = ('data.dataset=table_files', f'data.manual_dir={tmp_path}', f'data.cache_dir={tmp_path / "cache"}')
  given += (f'data.tokenizer_path={tmp_path / "later"}', 'data.label=label')

  def check_files(*more, **named):
    config = resolve.load('experiments/ulmfit/classifier.py:tiny', [*given, *more])
    dry_start.check_files(config, tmp_path / 'run', **named)

  check_files()
  missing = tmp_path / 'missing'
  for change, message in (
    (f'data.manual_dir={missing}', 'missing'),
    ('data.label=stars', 'got no column stars'),
    ('objective.classes=3', 'objective.classes: got 3, but the data set has 2: bad, good'),
    (f'train.init_from={missing}', 'train.init_from: .*missing'),
    ("data.train_splits=('train','unsupervised')", 'got no split "unsupervised"'),
  ):
    with pytest.raises(InputError, match=message):
      check_files(change)
  check_files(f'train.init_from={missing}', with_weights=False)
  (tmp_path / 'train.csv').write_text('text,label\n' + ''.join(rows[::2]))
  with pytest.raises(InputError, match='only the label "good"'):
    check_files()
