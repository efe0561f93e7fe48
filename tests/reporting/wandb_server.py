"""Stand-in for the server of Weights & Biases, to which `wandb sync` uploads: it keeps history rows and summaries."""

from __future__ import annotations

import gzip
import http.server
import json
import threading
from typing import Any


class Server(http.server.ThreadingHTTPServer):
  """Server of one run on a free port of this machine; a context manager.

  Attributes:
    rows: history rows in the order in which they were added.
    summary: the last summary.
    ids: ids under which runs were uploaded.
    exits: number of uploads that ended.
  """

  def __init__(self) -> None:
    super().__init__(('127.0.0.1', 0), _Handler)
    self.url = f'http://127.0.0.1:{self.server_address[1]}'
    self.rows: list[dict[str, Any]] = []
    self.summary: dict[str, Any] = {}
    self.ids: set[str] = set()
    self.exits = 0

  def __enter__(self) -> Server:
    threading.Thread(target=self.serve_forever, daemon=True).start()
    return self

  def __exit__(self, *_: Any) -> None:
    self.shutdown()
    self.server_close()

  def handle_error(self, *_: Any) -> None:
    """Ignore that `wandb sync` closes connections."""

  def answer(self, query: dict[str, Any]) -> Any:
    """Return the data of a GraphQL query."""
    name, variables = query.get('operationName') or '', query.get('variables') or {}
    project = {'id': 'project', 'name': 'lmx', 'entity': {'id': 'entity', 'name': 'me'}}
    bucket: dict[str, Any] = {'id': 'run', 'name': variables.get('name'), 'displayName': 'run', 'project': project}
    if name == 'UpsertBucket':
      self.ids.add(variables['name'])
      return {'upsertBucket': {'bucket': {**bucket, 'historyLineCount': 0}, 'inserted': not self.rows}}
    if name == 'RunResumeStatus':
      tail = [json.dumps(row) for row in self.rows[-1:]]
      about = {'logLineCount': 0, 'eventsLineCount': 0, 'eventsTail': '[]', 'config': '{}', 'wandbConfig': '{"t": 1}'}
      about |= {'historyLineCount': len(self.rows), 'historyTail': json.dumps(tail), 'tags': []}
      about['summaryMetrics'] = json.dumps(self.rows[-1] if self.rows else {})
      return {'model': {**project, 'bucket': {**bucket, **about} if self.rows else None}}
    if name == 'CreateRunFiles':
      files = [{'name': file, 'uploadUrl': f'{self.url}/upload'} for file in variables['files']]
      return {'createRunFiles': {'runID': 'run', 'uploadHeaders': [], 'files': files}}
    return {}

  def add(self, stream: dict[str, Any]) -> None:
    """Add what an upload streams; rows replace those from their offset on, as on the server."""
    for name, part in (stream.get('files') or {}).items():
      lines = [json.loads(line) for line in part['content']]
      if name == 'wandb-history.jsonl':
        self.rows[part['offset'] :] = lines
      elif name == 'wandb-summary.json':
        self.summary = lines[-1]
    self.exits += bool(stream.get('complete'))


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = 'HTTP/1.1'
  server: Server

  def log_message(self, *_: Any) -> None:
    """Print nothing."""

  def do_POST(self) -> None:
    data = self.rfile.read(int(self.headers.get('Content-Length') or 0))
    data = gzip.decompress(data) if self.headers.get('Content-Encoding') == 'gzip' else data
    answer: dict[str, Any] = {}
    if 'graphql' in self.path:
      answer = {'data': self.server.answer(json.loads(data))}
    elif 'file_stream' in self.path:
      self.server.add(json.loads(data))
    body = json.dumps(answer).encode()
    self.send_response(200)
    self.send_header('Content-Type', 'application/json')
    self.send_header('Content-Length', str(len(body)))
    self.end_headers()
    self.wfile.write(body)

  do_PUT = do_GET = do_POST
