"""README.md beside exported weights: its front matter, metrics, licence, origin, and code that runs."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
import safetensors.numpy
import yaml

import lmx
from lmx.cli import main
from lmx.data.tokenizers import build
from lmx.interop import huggingface
from lmx.models import registry
from lmx.runs import convert, model_card
from tests import drawn

TEXTS = ['A text with a list of names.', 'Another text is a string, and so is a list of them.'] * 20
RESULTS = {
  'name': 'reviews',
  'model': 'bert 2x8, 5.0K',
  'dataset': 'table_files',
  'split': 'test',
  'metric': 'accuracy',
  'accuracy': 0.75,
  'macro_f1': 0.5,
  'lm_nll': 'NaN',
  'f1': 'NaN',
  'interval': [0.5, 0.875],
  'rows': {'count': 16, 'unit': 'documents'},
  'protocol': 'texts, batch 8',
  'step': 0,
  'seed': 3,
  'command': ['lmx', 'train', '--config=experiments/bert/tasks.py:own', '--workdir=a folder', 'https://me:pass@host/x'],
}
FRONT = '---\nlicense: other\nlicense_name: own\nlicense_link: LICENSE\n---\n# A model\n'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A classifier of pairs as transformers writes it, with a card."""
  to = tmp_path_factory.mktemp('classifier')
  tokenizer = build.train('wordpiece', TEXTS, vocab_size=200, lower_case=True)
  cfg = registry.get('bert').Config(V=tokenizer.vocab_size, T=16, D=8, H=2, N=2)
  params = {'model': drawn.params(registry.get('bert').init, cfg)}
  head = {'kernel': np.ones((8, 2), np.float32), 'bias': np.zeros(2, np.float32)}
  params['objective'] = {'block_0': head}
  config = {
    'architectures': ['BertForSequenceClassification'],
    'model_type': 'bert',
    **huggingface.family('bert').config(cfg),
  }
  (to / 'config.json').write_text(json.dumps(config | {'id2label': {'0': 'no | none', '1': 'yes'}}))
  tensors = huggingface.to_hf('bert', cfg, params, 'BertForSequenceClassification', 2)
  safetensors.numpy.save_file(tensors, to / 'model.safetensors')
  tokenizer._model.model.save(str(to))  # vocab.txt
  (to / 'README.md').write_text(FRONT)
  return to


@pytest.fixture(scope='module')
def workdir(folder, tmp_path_factory):
  to = tmp_path_factory.mktemp('runs') / 'imported'
  convert.import_run(str(folder), to, ["data.texts=('premise','hypothesis')"])
  return to


@pytest.fixture
def measured(workdir, tmp_path):
  shutil.copytree(workdir, tmp_path / 'run')
  (tmp_path / 'run/results.json').write_text(json.dumps(RESULTS))
  return tmp_path / 'run'


def read(folder):
  """Return (front matter, text) of a card."""
  _, front, body = (folder / 'README.md').read_text().split('---\n', 2)
  return yaml.safe_load(front), body


def test_front_matter_holds_licence_task_and_metrics(measured, tmp_path):
  hub = pytest.importorskip('huggingface_hub')
  assert main.main(['export', f'--workdir={measured}', f'--to={tmp_path}/out']) == 0
  front, body = read(tmp_path / 'out')
  assert front['license'] == 'other' and front['license_name'] == 'own' and front['license_link'] == 'LICENSE'
  data = hub.ModelCard.load(tmp_path / 'out/README.md').data
  assert (data.library_name, data.pipeline_tag, data.license) == ('transformers', 'text-classification', 'other')
  found = {one.metric_type: (one.metric_value, one.metric_args) for one in data.eval_results}
  assert found == {'accuracy': (0.75, {'interval': [0.5, 0.875]}), 'macro_f1': (0.5, None)}  # NaN is no metric
  assert {(one.task_type, one.dataset_type, one.dataset_split) for one in data.eval_results} == {
    ('text-classification', 'table_files', 'test')
  }
  assert '| accuracy | 75.0% | 50.0% to 87.5% |' in body
  assert 'own, LICENSE' in body and 'https://arxiv.org/abs/1810.04805' in body


def test_tokenizer_truncates_rows_where_the_run_does(workdir, tmp_path):
  """`model_max_length` is the length of its rows, 16 of a model with 16 positions, or fewer."""
  run = lmx.load(workdir)
  assert run.run.data.length == run.cfg.T
  config = json.loads((workdir / 'config.json').read_text())
  shutil.copytree(workdir, tmp_path / 'run')
  config['data']['length'] = 9
  (tmp_path / 'run/config.json').write_text(json.dumps(config))
  (tmp_path / 'run/checksums.json').unlink()
  for run, length in ((workdir, 16), (tmp_path / 'run', 9)):
    convert.export_run(run, tmp_path / str(length))
    settings = json.loads((tmp_path / str(length) / 'tokenizer_config.json').read_text())
    assert settings['model_max_length'] == length


def test_code_of_the_card_runs(workdir, tmp_path, monkeypatch, capsys):
  assert main.main(['export', f'--workdir={workdir}', f'--to={tmp_path}/out']) == 0
  _, body = read(tmp_path / 'out')
  code = next(block for block in re.findall(r'```python\n(.*?)```', body, re.DOTALL) if 'lmx' in block)
  monkeypatch.chdir(tmp_path)
  capsys.readouterr()
  exec(compile(code, 'README.md', 'exec'), {})
  assert "'no | none'" in capsys.readouterr().out


@pytest.mark.peer
def test_code_of_the_card_runs_in_transformers(workdir, tmp_path, monkeypatch, capsys):
  pytest.importorskip('transformers')
  assert main.main(['export', f'--workdir={workdir}', f'--to={tmp_path}/out']) == 0
  _, body = read(tmp_path / 'out')
  code = next(block for block in re.findall(r'```python\n(.*?)```', body, re.DOTALL) if 'import pipeline' in block)
  monkeypatch.chdir(tmp_path)
  capsys.readouterr()
  exec(compile(code, 'README.md', 'exec'), {})
  found = capsys.readouterr().out
  expected = lmx.load(workdir).predict([('A text.', 'Another text.')])[0]
  assert expected['label'] in found
  score = float(re.search(r"'score': ([\d.]+)", found)[1])
  assert score == pytest.approx(max(expected['probabilities'].values()), abs=1e-5)


@pytest.mark.parametrize(
  'given,expected',
  [
    ([], {'license': 'other', 'license_name': 'own'}),
    (['--license=mit'], {'license': 'mit', 'license_name': None}),
    (['--card=notes.md'], {'license': 'cc0-1.0', 'language': 'en'}),
    (['--card=notes.md', '--license=mit'], {'license': 'mit', 'language': 'en'}),
  ],
)
def test_options_replace_fields_of_the_front_matter(given, expected, workdir, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'notes.md').write_text('---\nlicense: cc0-1.0\nlanguage: en\n---\n## Limits\n\nNone known.\n')
  assert main.main(['export', f'--workdir={workdir}', '--to=out', *given]) == 0
  front, body = read(tmp_path / 'out')
  assert {name: front.get(name) for name in expected} == expected
  assert ('## Limits' in body) == ('--card=notes.md' in given)


def test_trained_weights_have_no_licence_but_name_their_origin(measured, workdir, tmp_path):
  run = lmx.load(workdir)
  trained = type(run)(**{**vars(run), 'step': 5, 'workdir': type(run.workdir)(measured)})
  out = tmp_path / 'out'
  convert.export_run(workdir, out)
  card = model_card.Card(trained, model_card.Options())
  assert 'give one by --license=NAME' in card.write(out)[0]
  front, body = read(out)
  assert 'license' not in front and 'model-index' not in front
  assert "lmx train --config=experiments/bert/tasks.py:own '--workdir=a folder'" in body and 'pass@' not in body
  assert 'licence other (own, LICENSE)' in body and 'No licence is given' in body
  assert 'has the metrics of step 0, and these weights are of step 5' in body


def test_folder_does_not_appear_without_its_card(workdir, tmp_path, monkeypatch):
  monkeypatch.setattr(model_card.Card, 'text', lambda card: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    convert.export_run(workdir, tmp_path / 'out')
  assert not [path for path in tmp_path.iterdir() if path.name.startswith('out')]


@pytest.mark.parametrize(
  'given,message',
  [
    ('--license=Apache 2.0', "--license: got 'Apache 2.0'; expected an identifier"),
    ('--card=missing.md', '--card: got missing.md; expected an existing file'),
    ('--card=broken.md', '--card: broken.md: front matter'),
    ('--card=list.md', '--card: list.md: front matter: got'),
  ],
)
def test_malformed_options_write_nothing(given, message, workdir, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'broken.md').write_text('---\nlicense: {\n---\n')
  (tmp_path / 'list.md').write_text('---\n- mit\n---\n')
  assert main.main(['export', f'--workdir={workdir}', '--to=out', given]) == 2
  assert message in capsys.readouterr().err and not (tmp_path / 'out').exists()
