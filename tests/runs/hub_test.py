"""Weights by name from a server on this machine that answers as huggingface.co does."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import sys
import threading

import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx.cli import main
from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.interop import huggingface
from lmx.models import registry
from lmx.runs import hub
from tests import drawn
from tests.interop import imports

pytest.importorskip('huggingface_hub')
TEXTS = ['The method returns a list of names.', 'A name is a string, and so is a list of them.'] * 20
COMMITS = {'main': 'a' * 40, 'v1': 'b' * 40}
CARD = '---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\nlicense: none of this\n'


class Server(http.server.ThreadingHTTPServer):
  """Files of one model, `some/model`, and what was asked for."""

  def __init__(self, files: dict[str, bytes]):
    super().__init__(('127.0.0.1', 0), Handler)
    self.files, self.asked, self.cut, self.cuts = files, [], 0, 0

  @property
  def url(self) -> str:
    return f'http://127.0.0.1:{self.server_address[1]}'


class Handler(http.server.BaseHTTPRequestHandler):
  def log_message(self, *_):
    pass

  def do_HEAD(self):
    self.do_GET(head=True)

  def do_GET(self, head=False):
    server: Server = self.server
    server.asked.append((self.command, self.path, self.headers.get('Range')))
    if match := re.fullmatch(r'/api/models/some/model/revision/(\w+)', self.path):
      if match[1] not in COMMITS:
        return self.answer(404, b'{"error": "no such revision"}', {'X-Error-Code': 'RevisionNotFound'})
      about = {'id': 'some/model', 'sha': COMMITS[match[1]], 'siblings': [{'rfilename': n} for n in server.files]}
      return self.answer(200, json.dumps(about).encode())
    match = re.fullmatch(r'/some/model/resolve/(\w+)/(.*)', self.path)
    if not match:
      return self.answer(404, b'{"error": "no such model"}', {'X-Error-Code': 'RepoNotFound'})
    content = server.files[match[2]]
    etag = hashlib.sha1(content).hexdigest()
    headers = {'ETag': f'"{etag}"', 'X-Repo-Commit': match[1], 'Accept-Ranges': 'bytes'}
    begin = re.match(r'bytes=(\d+)-', self.headers.get('Range') or '')
    start = int(begin[1]) if begin else 0
    if start:
      headers['Content-Range'] = f'bytes {start}-{len(content) - 1}/{len(content)}'
    self.answer(206 if start else 200, content[start:], headers, head)

  def answer(self, code, content, headers=None, head=False):
    server: Server = self.server
    self.send_response(code)
    for name, value in {'Content-Length': str(len(content)), **(headers or {})}.items():
      self.send_header(name, value)
    self.end_headers()
    if not head:
      self.close_connection = len(content) > 10_000 and server.cuts > 0
      server.cuts -= self.close_connection
      self.wfile.write(content[: server.cut] if self.close_connection else content)


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  folder, tokenizer = tmp_path_factory.mktemp('model'), build.train('bpe', TEXTS, vocab_size=300)
  cfg = registry.get('gpt2').Config(V=tokenizer.vocab_size, T=16, D=16, H=2, N=2)
  params = {'model': drawn.params(registry.get('gpt2').init, cfg), 'objective': {}}
  config = {'model_type': 'gpt2', **huggingface.family('gpt2').config(cfg)}
  safetensors.numpy.save_file(huggingface.to_hf('gpt2', cfg, params), folder / 'model.safetensors')
  imports.save_tokenizer(tokenizer, folder)
  made = {path.name: path.read_bytes() for path in folder.iterdir()}
  others = {'pytorch_model.bin': b'x' * 3000, 'onnx/model.safetensors': b'y', 'flax_model.msgpack': b'z'}
  return made | {'config.json': json.dumps(config).encode(), 'README.md': CARD.encode()} | others


@pytest.fixture
def server(files, tmp_path, monkeypatch):
  with Server(files) as made:
    threading.Thread(target=made.serve_forever, daemon=True).start()
    monkeypatch.setenv('HF_ENDPOINT', made.url)
    monkeypatch.setenv('LMX_CACHE', str(tmp_path / 'cache'))
    monkeypatch.setenv('HF_HUB_DISABLE_XET', '1')
    yield made
    made.shutdown()


def test_second_import_needs_no_server(server, files, tmp_path, capsys):
  assert main.main(['import', '--from=hub:some/model', f'--workdir={tmp_path}/run']) == 0
  shown = capsys.readouterr()
  assert f'hub:some/model: commit {COMMITS["main"]}, licence: apache-2.0 (downloaded' in shown.err
  fetched = {path.rpartition('/')[2] for kind, path, _ in server.asked if kind == 'GET' and 'resolve' in path}
  assert fetched == {'config.json', 'model.safetensors', 'tokenizer.json', 'README.md'}  # no second copy of the weights
  server.asked.clear()
  run = lmx.load('hub:some/model')
  assert not server.asked and 'from the cache' in capsys.readouterr().err
  np.testing.assert_array_equal(
    run.params['model']['norm']['scale'], lmx.load(tmp_path / 'run').params['model']['norm']['scale']
  )
  assert run.generate('The method', tokens=3)[0].startswith('The method')


def test_revision_is_a_separate_commit(server, capsys):
  assert hub.download('hub:some/model@v1').endswith(COMMITS['v1'])
  assert hub.download('hub:some/model').endswith(COMMITS['main'])
  with pytest.raises(InputError, match=r'hub:some/model@v2: not found'):
    hub.download('hub:some/model@v2')
  with pytest.raises(InputError, match='hub:other/model: not found'):
    hub.download('hub:other/model')


def test_broken_connection_is_resumed_and_whole_files_are_not_fetched_again(server, files, monkeypatch):
  monkeypatch.setattr('huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE', 1000)
  monkeypatch.setattr('huggingface_hub.file_download.time.sleep', lambda seconds: None)
  server.cut, server.cuts = 500, 100  # less than a chunk
  with pytest.raises(InputError, match='cannot be downloaded'):
    hub.download('hub:some/model')
  server.cut, server.cuts, server.asked = 1500, 1, []
  folder = hub.download('hub:some/model')
  with open(f'{folder}/model.safetensors', 'rb') as file:
    assert file.read() == files['model.safetensors']
  fetched = [
    (path.rpartition('/')[2], span) for kind, path, span in server.asked if kind == 'GET' and 'resolve' in path
  ]
  assert 'bytes=1000-' in [span for _, span in fetched] and 'tokenizer.json' not in [name for name, _ in fetched]


def test_missing_server_or_library_suggests_a_fix(server, tmp_path, monkeypatch, capsys):
  server.shutdown()
  server.server_close()
  arguments = ['import', '--from=hub:some/model', f'--workdir={tmp_path}/run']
  assert main.main(arguments) == 2
  assert re.search(r'hub:some/model: cannot be downloaded from http.*; .*give a folder', capsys.readouterr().err)
  monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
  assert main.main(arguments) == 2
  assert "pip install 'lmx[hub]'" in capsys.readouterr().err and not (tmp_path / 'run').exists()


def test_model_of_other_files_is_rejected(server):
  server.files = {'README.md': b'# no front matter', 'model.gguf': b'x'}
  with pytest.raises(InputError, match='hub:some/model: .*without config.json'):
    hub.download('hub:some/model')


@pytest.mark.parametrize(
  ('card', 'licence'),
  [
    (CARD, 'apache-2.0'),
    ('---\nlicense: [mit, gpl]\n---\n', 'mit, gpl'),
    ('---\nlicense: other\nlicense_name: own\nlicense_link: LICENSE\n---\n', 'other (own, LICENSE)'),
    ('# no front matter\nlicense: mit\n', 'not in the model card'),
    ('---\nlicense: {\n---\n', 'not in the model card'),
    (None, 'not in the model card'),
  ],
)
def test_licence_matches_the_model_card(card, licence, tmp_path):
  if card is not None:
    (tmp_path / 'README.md').write_text(card)
  assert hub.licence(tmp_path) == licence
