"""Appending to a table sink by hand."""

from __future__ import annotations

import pyarrow as pa

from tests.attempts import FIRST, committed
from tidegate.sinks.table.sink import Appender, append_batch, check_table


def append(
    path: str, application: str, seq: int, rows: pa.RecordBatchReader, last: int, attempt: str = FIRST
) -> None:
    """Append a batch as an attempt of it, with the ledger that has committed that."""
    append_batch(Appender(path, application, committed(attempt)), seq, attempt, rows, last)


def check(path: str, application: str, last: int, attempt: str = FIRST) -> None:
    """Check the table as doctor does."""
    check_table(Appender(path, application, committed(attempt)), last)
