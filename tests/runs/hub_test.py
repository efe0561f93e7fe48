"""Weights by name from a server on this machine that answers as huggingface.co does."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import re
import subprocess
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
MODES, TOKEN = ('regular', 'lfs'), 'hf_of_a_test'
CARD = '---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\nlicense: none of this\n'


class Server(http.server.ThreadingHTTPServer):
  """Files of one model, `some/model`, and what was asked for."""

  def __init__(self, files: dict[str, bytes]):
    super().__init__(('127.0.0.1', 0), Handler)
    self.files, self.asked, self.cut, self.cuts = files, [], 0, 0
    # Of uploads to `some/new`: its files, its visibility, files by SHA-256, what was sent and what fails.
    self.repo, self.private, self.large, self.posts, self.puts = None, None, {}, [], 0
    self.refusals, self.dropped = {}, ()

  @property
  def url(self) -> str:
    return f'http://127.0.0.1:{self.server_address[1]}'


class Handler(http.server.BaseHTTPRequestHandler):
  def log_message(self, *_):
    pass

  def do_HEAD(self):
    self.do_GET(head=True)

  def do_POST(self):
    """Answer the requests of an upload, in their order: create, branch, preupload, batch, commit."""
    server: Server = self.server
    body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
    server.posts.append((self.path, self.headers.get('Authorization'), body))
    kind = next(k for k in ('create', 'branch', 'validate', 'preupload', 'batch', 'commit') if f'/{k}' in self.path)
    if kind in server.refusals:
      return self.answer(server.refusals[kind], b'{"error": "refused"}')
    url = server.url + '/some/new'
    if kind == 'create':
      server.private, server.repo = b'"private"' in body, server.repo or {}
      return self.answer(200, json.dumps({'url': url}).encode())
    if kind in ('branch', 'validate'):  # validate: the front matter of README.md
      return self.answer(200, b'{}')
    if kind == 'preupload':
      modes = [
        {'path': f['path'], 'shouldIgnore': False, 'uploadMode': MODES[f['path'].endswith('safetensors')]}
        for f in json.loads(body)['files']
      ]
      return self.answer(200, json.dumps({'files': modes}).encode())
    if kind == 'batch':
      objects = [
        o | ({} if o['oid'] in server.large else {'actions': {'upload': {'href': f'{server.url}/put/{o["oid"]}'}}})
        for o in json.loads(body)['objects']
      ]
      return self.answer(200, json.dumps({'objects': objects}).encode())
    for line in map(json.loads, body.splitlines()):
      value = line['value']
      if line['key'] == 'file':
        server.repo[value['path']] = base64.b64decode(value['content'])
      elif line['key'] == 'lfsFile':
        server.repo[value['path']] = server.large[value['oid']]
      elif line['key'] == 'deletedFile':
        del server.repo[value['path']]
    about = {'commitUrl': f'{url}/commit/{"c" * 40}', 'commitOid': 'c' * 40}
    return self.answer(200, json.dumps(about).encode())

  def do_PUT(self):
    server: Server = self.server
    server.puts += 1
    if server.puts in server.dropped:
      return self.connection.close()
    content = self.rfile.read(int(self.headers['Content-Length']))
    server.large[hashlib.sha256(content).hexdigest()] = content
    return self.answer(200, b'')

  def do_GET(self, head=False):
    server: Server = self.server
    server.asked.append((self.command, self.path, self.headers.get('Range')))
    if re.match('/api/models/some/new(/|$)', self.path):
      return self.about_new()
    if match := re.fullmatch(r'/api/models/some/model/revision/(\w+)', self.path):
      if match[1] not in COMMITS:
        return self.answer(404, b'{"error": "no such revision"}', {'X-Error-Code': 'RevisionNotFound'})
      about = {'id': 'some/model', 'sha': COMMITS[match[1]], 'siblings': [{'rfilename': n} for n in server.files]}
      return self.answer(200, json.dumps(about).encode())
    match = re.fullmatch(r'/some/model/resolve/(\w+)/(.*)', self.path)
    if not match:
      return self.answer(404, b'{"error": "no such model"}', {'X-Error-Code': 'RepoNotFound'})
    content = server.files[match[2]]
    etag = (hashlib.sha256 if match[2].endswith('.safetensors') else hashlib.sha1)(content).hexdigest()
    headers = {'ETag': f'"{etag}"', 'X-Repo-Commit': match[1], 'Accept-Ranges': 'bytes'}
    begin = re.match(r'bytes=(\d+)-', self.headers.get('Range') or '')
    start = int(begin[1]) if begin else 0
    if start:
      headers['Content-Range'] = f'bytes {start}-{len(content) - 1}/{len(content)}'
    self.answer(206 if start else 200, content[start:], headers, head)

  def about_new(self):
    """Answer what the repository of uploads has."""
    server: Server = self.server
    if 'info' in server.refusals:
      return self.answer(server.refusals['info'], b'{"error": "Invalid credentials"}')
    if server.repo is None:
      return self.answer(404, b'{"error": "no such model"}', {'X-Error-Code': 'RepoNotFound'})
    if '/tree/' in self.path:
      tree = [{'type': 'file', 'path': n, 'size': len(c), 'oid': n} for n, c in server.repo.items()]
      return self.answer(200, json.dumps(tree).encode())
    siblings = [{'rfilename': name} for name in server.repo]
    about = {'id': 'some/new', 'sha': 'd' * 40, 'private': bool(server.private), 'siblings': siblings}
    return self.answer(200, json.dumps(about).encode())

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
  (span,) = {span for kind, path, span in server.asked if 'safetensors' in path and kind == 'GET' and span}
  assert span == 'bytes=1000-'
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


@pytest.fixture
def run(server, tmp_path, monkeypatch, capsys):
  """Work directory of an imported run; the user has a token."""
  monkeypatch.setattr('huggingface_hub.utils._http.time.sleep', lambda seconds: None)
  assert main.main(['import', '--from=hub:some/model', f'--workdir={tmp_path}/run']) == 0
  monkeypatch.setenv('HF_TOKEN', TOKEN)
  capsys.readouterr()
  return f'--workdir={tmp_path}/run'


def left(tmp_path):
  """Return the names of exports in the cache."""
  return [path.name for path in (tmp_path / 'cache' / 'hub').iterdir() if path.name.startswith('export')]


def test_export_is_pushed_as_one_commit(server, run, tmp_path, capsys):
  assert main.main(['export', run, '--to=hub:some/new@next', '--private']) == 0
  shown = capsys.readouterr()
  assert f'pushed hub:some/new@next to {server.url}: commit {"c" * 40}' in shown.out
  assert main.main(['export', run, f'--to={tmp_path}/folder']) == 0
  assert "lmx.load('hub:some/new')" in server.repo.pop('README.md').decode()
  (tmp_path / 'folder' / 'README.md').unlink()
  assert server.repo == {path.name: path.read_bytes() for path in (tmp_path / 'folder').iterdir()}
  assert server.private is True and [path for path, _, _ in server.posts if '/branch/next' in path]
  assert {token for _, token, _ in server.posts} == {f'Bearer {TOKEN}'}
  assert TOKEN not in shown.out + shown.err and not left(tmp_path)
  stored = [path for path in tmp_path.rglob('*') if path.is_file() and TOKEN.encode() in path.read_bytes()]
  assert not stored


def test_other_files_are_kept_unless_the_user_overwrites(server, run, capsys):
  old = {'pytorch_model.bin': b'old', 'LICENSE': b'text'}
  server.repo = {'.gitattributes': b'', **old}
  assert main.main(['export', run, '--to=hub:some/new']) == 2
  assert 'got a repository with LICENSE, pytorch_model.bin; expected an empty or a new one' in capsys.readouterr().err
  assert main.main(['export', run, '--to=hub:some/new', '--private', '--overwrite']) == 2
  assert '--private: got a public repository' in capsys.readouterr().err and not server.posts
  assert main.main(['export', run, '--to=hub:some/new', '--overwrite']) == 0
  assert {'LICENSE', 'model.safetensors'} <= server.repo.keys() and 'pytorch_model.bin' not in server.repo
  commit = json.loads(server.posts[-1][2].splitlines()[0])
  assert commit['value']['parentCommit'] == 'd' * 40  # a commit made meanwhile is not overwritten


def test_name_is_checked_by_a_process_that_imported_nothing_else():
  command = "from lmx.runs import hub_upload; hub_upload._target('hub:some/new/name')"
  found = subprocess.run([sys.executable, '-c', command], capture_output=True, text=True)
  assert 'InputError: --to: got hub:some/new/name; expected hub:NAME' in found.stderr


def test_token_and_options_are_checked_before_any_work(server, run, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr('lmx.runs.restore.load', lambda *_: pytest.fail('loaded'))
  cases = [
    (401, TOKEN, ['--to=hub:some/new'], 'token is not accepted; expected a valid one in HF_TOKEN'),
    (0, '', ['--to=hub:some/new'], 'no token to write there; set HF_TOKEN'),
    (0, f'{TOKEN} é', ['--to=hub:some/new'], 'HF_TOKEN: got a token with white space'),
    (0, TOKEN, ['--to=hub:a b'], 'expected hub:NAME or hub:NAME@BRANCH'),
    (0, TOKEN, ['--to=hub:some/new@'], 'expected a branch after @'),
    (0, TOKEN, [f'--to={tmp_path}/folder', '--private'], '--private: got --to='),
  ]
  for status, token, options, message in cases:
    server.refusals = {'info': status} if status else {}
    monkeypatch.setenv('HF_TOKEN', token)
    monkeypatch.setenv('HF_TOKEN_PATH', str(tmp_path / 'none'))
    monkeypatch.setattr('huggingface_hub.constants.HF_TOKEN_PATH', str(tmp_path / 'none'))
    assert main.main(['export', run, *options]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and TOKEN not in shown.out + shown.err
  assert not server.posts and not (tmp_path / 'folder').exists()


@pytest.mark.parametrize(
  ('refusals', 'message'),
  [
    ({'create': 403}, 'may not write there'),
    ({'batch': 403}, 'may not write there'),
    ({'commit': 409}, 'changed meanwhile'),
    ({'commit': 412}, 'changed meanwhile'),
  ],
)
def test_refused_upload_leaves_nothing(refusals, message, server, run, tmp_path, capsys):
  server.refusals = refusals
  assert main.main(['export', run, '--to=hub:some/new']) == 2
  shown = capsys.readouterr()
  assert message in shown.err and TOKEN not in shown.out + shown.err
  assert not server.repo and not left(tmp_path)


def test_repeated_push_sends_no_file_again_that_arrived(server, run, tmp_path, capsys):
  server.dropped = range(1, 100)
  assert main.main(['export', run, '--to=hub:some/new', '--max_shard_size=30KB']) == 2
  assert 'repeat the command; files that arrived whole are not sent again' in capsys.readouterr().err
  assert not server.repo
  server.dropped, server.refusals, server.puts = (), {'commit': 409}, 0
  assert main.main(['export', run, '--to=hub:some/new', '--max_shard_size=30KB']) == 2
  sent, server.refusals = server.puts, {}
  assert sent > 1
  assert main.main(['export', run, '--to=hub:some/new', '--max_shard_size=30KB']) == 0
  assert server.puts == sent and len([name for name in server.repo if name.endswith('.safetensors')]) == sent


def test_download_of_other_bytes_is_rejected(server, files, capsys):
  folder = files['model.safetensors']
  server.files = {**files, 'model.safetensors': folder}
  blob = hashlib.sha256(folder).hexdigest()
  cache = hub.pathlib.Path(hub.cache.root()) / 'hub' / 'models--some--model' / 'blobs'
  cache.mkdir(parents=True)
  (cache / f'{blob}.part').write_bytes(b'other bytes')
  with pytest.raises(InputError, match='model.safetensors: got other bytes than its SHA-256; repeat'):
    hub.download('hub:some/model')
  assert hub.download('hub:some/model').endswith(COMMITS['main'])
  assert (cache / blob).read_bytes() == folder
