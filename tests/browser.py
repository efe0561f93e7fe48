"""A page in a headless Chromium, driven by the DevTools protocol over pipes."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
from typing import Any

import pytest

NAMES = ('chromium', 'chromium-browser', 'google-chrome')
OPTIONS = ('--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--remote-debugging-pipe')
ERRORS = ('Runtime.exceptionThrown', 'Log.entryAdded', 'Page.javascriptDialogOpening', 'Network.requestWillBeSent')


class Browser:
  """One page; `problems` are errors of the console, dialogs, and requests for anything but the page or its site."""

  def __init__(self, to: Any, of: Any) -> None:
    self.to, self.of, self.count, self.session, self.own = to, of, 0, {}, ''
    self.problems: list[dict] = []
    target = self.call('Target.createTarget', url='about:blank')['targetId']
    self.session = {'sessionId': self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']}
    for domain in ('Runtime', 'Log', 'Page', 'Network'):
      self.call(f'{domain}.enable')

  def call(self, method: str, **params: Any) -> dict:
    self.count += 1
    message = {'id': self.count, 'method': method, 'params': params, **self.session}
    self.to.write(json.dumps(message).encode() + b'\0')
    self.to.flush()
    while (answer := self.read()).get('id') != self.count:
      pass
    assert 'result' in answer, answer
    return answer['result']

  def read(self) -> dict:
    """The next message, an event noted if it is a problem."""
    text = b''
    while (byte := self.of.read(1)) != b'\0':
      assert byte, 'the browser has ended'
      text += byte
    message = json.loads(text)
    params = message.get('params', {})
    address = params.get('request', {}).get('url', '')
    own = address and address.startswith((self.own, 'data:', 'blob:'))
    quiet = params.get('entry', {}).get('level') in ('verbose', 'info')
    logged = message.get('method') == 'Runtime.consoleAPICalled' and params['type'] in ('error', 'warning', 'assert')
    if logged or (message.get('method') in ERRORS and not own and not quiet):
      self.problems.append(message)
    return message

  def open(self, path: pathlib.Path, width: int = 1200, height: int = 900, scheme: str = 'light') -> None:
    self.visit(path.as_uri(), width, height, scheme)

  def visit(self, address: str, width: int, height: int = 900, scheme: str = 'light', site: str = '') -> None:
    """Open an address; requests to addresses that begin with `site`, the address itself by default, are no problem."""
    self.own = site or address
    feature = {'name': 'prefers-color-scheme', 'value': scheme}
    self.call('Emulation.setEmulatedMedia', features=[feature])
    self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=False)
    self.call('Page.navigate', url=address)
    while self.read().get('method') != 'Page.loadEventFired':
      pass

  def value(self, expression: str) -> Any:
    result = self.call('Runtime.evaluate', expression=expression, returnByValue=True)
    assert 'exceptionDetails' not in result, result
    return result['result'].get('value')

  def move(self, x: float, y: float) -> None:
    self.call('Input.dispatchMouseEvent', type='mouseMoved', x=x, y=y)


@contextlib.contextmanager
def browser(folder: pathlib.Path):
  """Yield a `Browser`; skips the test where there is no Chromium."""
  chromium = next(filter(None, map(shutil.which, NAMES)), None)
  if not chromium:
    pytest.skip('needs Chromium')
  (ours, its), (answers, out) = os.pipe(), os.pipe()
  command = [chromium, *OPTIONS, f'--user-data-dir={folder}']
  process = subprocess.Popen(  # the numbers of its pipes must be 3 and 4
    ['bash', '-c', f'exec "$@" 3<&{ours} 4>&{out}', 'bash', *command], pass_fds=(ours, out), stderr=subprocess.DEVNULL
  )
  os.close(ours), os.close(out)
  with open(its, 'wb') as to, open(answers, 'rb') as of:
    page = Browser(to, of)
    yield page
    page.session = {}
    page.call('Browser.close')
  assert process.wait(timeout=60) == 0
