"""Notice of preemption by Compute Engine's metadata server, which asks the training to save and end as SIGTERM does.

A spot machine has 30 seconds after the notice (Compute Engine, "Preemptible VM instances"). Kubernetes, Slurm and
systemd send SIGTERM themselves; here is the case of a plain machine, whose shutdown may not reach the process. The
server is asked only on Compute Engine, or if GCE_METADATA_HOST names it, as for Google's libraries.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any

from lmx.cluster.hosts import LOG

VARIABLE = 'GCE_METADATA_HOST'
_PRODUCT = pathlib.Path('/sys/class/dmi/id/product_name')
_URL = '/computeMetadata/v1/instance/preempted'
_HEADERS = {'Metadata-Flavor': 'Google'}
_WAIT = 60  # seconds for which the server holds a request while nothing changes
_AGAIN = 5.0  # seconds between two requests if one fails
_PAUSE = 1.0  # seconds between other requests, because a proxy may answer at once


def server() -> str:
  """Return the address of the metadata server, '' outside Compute Engine."""
  if address := os.environ.get(VARIABLE):
    return address
  with contextlib.suppress(OSError):
    if _PRODUCT.read_text(encoding='utf-8', errors='replace').startswith('Google'):
      return 'metadata.google.internal'
  return ''


class _Refused(Exception):
  """The server has no such value."""


class Notice:
  """Context in which a notice of preemption sends SIGTERM to this process."""

  def __init__(self, note: Callable[[str], None]):
    """Describe the watch; `note` is called with a line when the notice comes."""
    self._note, self._server = note, server()
    self._ended = threading.Event()

  def __enter__(self) -> Notice:
    if self._server:
      threading.Thread(target=self._watch, name='lmx-notice', daemon=True).start()
    return self

  def __exit__(self, *_: Any) -> None:
    self._ended.set()

  def _watch(self) -> None:
    etag = ''
    while not self._ended.is_set():
      try:
        is_preempted, etag = self._ask(etag)
      except _Refused as error:  # such as a metadata server of Kubernetes, whose pods get SIGTERM
        LOG.info(f'no notices of preemption: {self._server} answers {error}')
        return
      except (OSError, http.client.HTTPException):
        self._ended.wait(_AGAIN)
        continue
      if is_preempted and not self._ended.is_set():
        self._note('Compute Engine preempts this host: saving after the current update')
        os.kill(os.getpid(), signal.SIGTERM)
        return
      self._ended.wait(_PAUSE)

  def _ask(self, etag: str) -> tuple[bool, str]:
    """Return whether the host is preempted, and the answer's ETag; with one, wait until the answer changes."""
    connection = http.client.HTTPConnection(self._server, timeout=_WAIT + 10)
    with contextlib.closing(connection):
      query = f'?wait_for_change=true&timeout_sec={_WAIT}&last_etag={etag}' if etag else ''
      connection.request('GET', _URL + query, headers=_HEADERS)
      answer = connection.getresponse()
      text = answer.read(64).decode(errors='replace').strip()
      if answer.status != 200:
        raise (_Refused if 400 <= answer.status < 500 else http.client.HTTPException)(f'status {answer.status}')
    return text == 'TRUE', answer.headers.get('ETag', '')
