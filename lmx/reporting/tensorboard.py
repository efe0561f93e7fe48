"""TensorBoard's event file of one session: scalars, pictures, texts, and settings with results (tab HPARAMS)."""

from __future__ import annotations

import pathlib
import struct
import time
from collections.abc import Mapping
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.summary import hparams, scalar, text

_PNG = b'\x89PNG\r\n\x1a\n'
_PNG_SIZE = struct.Struct('>II')  # width and height, in bytes 16 to 24 of a PNG file
_RGBA = 4


class Board:
  """TensorBoard's event file of one session. Points are on disk once `flush` has returned."""

  def __init__(self, directory: pathlib.Path, purge_step: int | None) -> None:
    """Open a new file; TensorBoard drops the points of earlier sessions from `purge_step` on."""
    directory.mkdir(parents=True, exist_ok=True)
    self.name = str(directory)
    self._file = EventsWriter(str(directory / 'events'), f'.{time.time_ns()}')
    if purge_step is not None:
      start = SessionLog(status=SessionLog.START)
      self._file.write_event(Event(wall_time=time.time(), step=purge_step, session_log=start))

  def add(self, tag: str, value: float, step: int) -> None:
    self._write(scalar(tag, value), step)

  def add_text(self, tag: str, value: str, step: int) -> None:
    """Add a text, which TensorBoard shows verbatim: an indented Markdown block keeps its line breaks."""
    self._write(text(tag, ''.join(f'    {line}\n' for line in value.splitlines())), step)

  def add_picture(self, path: pathlib.Path, step: int) -> None:
    """Add a PNG file under its name; other files are ignored."""
    data = path.read_bytes()
    if not data.startswith(_PNG):
      return
    width, height = _PNG_SIZE.unpack_from(data, 16)
    picture = Summary.Image(width=width, height=height, colorspace=_RGBA, encoded_image_string=data)
    self._write(Summary(value=[Summary.Value(tag=path.stem, image=picture)]), step)

  def add_results(self, settings: Mapping[str, Any], results: Mapping[str, float], step: int) -> None:
    """Add results as scalars, and with the settings to the tab HPARAMS."""
    plain = {k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in settings.items()}
    for summary in hparams(plain, results):
      self._write(summary, step)
    for tag, value in results.items():
      self.add(tag, value, step)

  def _write(self, summary: Summary, step: int) -> None:
    self._file.write_event(Event(wall_time=time.time(), step=step, summary=summary))

  def flush(self) -> None:
    self._file.flush()

  def close(self) -> None:
    self._file.close()
