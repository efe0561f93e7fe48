"""Rows of Parquet files, also with dictionary-encoded text columns (pandas' category, Polars' Categorical)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lmx import storage
from lmx.errors import InputError, nearest

_ROWS = 1024  # read at once


def open_file(path: str) -> Any:
  """Return the open `pyarrow.parquet.ParquetFile`. Raises InputError."""
  import pyarrow as pa  # takes time to import
  from pyarrow import parquet

  try:
    source = parquet.ParquetFile(storage.open_file(path) if storage.is_remote(path) else path)
  except (pa.ArrowException, OSError) as error:
    raise _damaged(path, error) from None
  names = source.schema_arrow.names
  if twice := [name for name in names if names.count(name) > 1]:
    source.close()
    raise InputError(f'{path}: got two columns named "{twice[0]}"; expected different names; rename one')
  return source


def columns(source: Any) -> list[str]:
  """Return the columns of text, numbers and booleans, which table cells may have."""
  return [field.name for field in source.schema_arrow if _is_text(field.type) or _is_number(field.type)]


def check_texts(source: Any, path: str, column: str) -> None:
  """Raise InputError unless a file has a column of texts with this name."""
  import pyarrow as pa

  names = source.schema_arrow.names
  if column not in names:
    raise InputError(
      f'data.column: got "{column}", which {path} does not have{nearest(column, names)}; set it to the text column'
    )
  kind = source.schema_arrow.field(column).type
  if pa.types.is_null(kind):
    raise InputError(f'data.column: got "{column}", which is empty in {path}; expected texts; choose another')
  if not _is_text(kind):
    raise InputError(f'data.column: got "{column}" of type {kind} in {path}; expected texts')


def rows(
  source: Any, path: str, names: Sequence[str], groups: Sequence[int] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yield (number of the row in the file, {column: value}) of some row groups, None for all.

  Raises:
    InputError: the file is damaged.
  """
  import pyarrow as pa

  groups = range(source.num_row_groups) if groups is None else groups
  number = sum(source.metadata.row_group(group).num_rows for group in range(groups[0] if groups else 0))
  try:
    for batch in source.iter_batches(row_groups=list(groups), columns=list(names), batch_size=_ROWS):
      for row in batch.to_pylist():
        number += 1
        yield number, row
  except (pa.ArrowException, OSError) as error:
    raise _damaged(path, error) from None


def _damaged(path: str, error: Exception) -> InputError:
  return InputError(f'{path}: cannot be read as Parquet ({error}); expected a complete file')


def _is_text(kind: Any) -> bool:
  import pyarrow as pa

  values = kind.value_type if pa.types.is_dictionary(kind) else kind
  return pa.types.is_string(values) or pa.types.is_large_string(values) or pa.types.is_string_view(values)


def _is_number(kind: Any) -> bool:
  import pyarrow as pa

  values = kind.value_type if pa.types.is_dictionary(kind) else kind
  return any(is_kind(values) for is_kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean))
