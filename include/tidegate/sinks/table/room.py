"""Whether the columns of a Delta table have room for what is emitted: an edit may have widened it.

delta-rs would make the values narrow, or fail at the first that does not fit, when the batch is decided.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import Schema

from tidegate.errors import SchemaChanged, SinkRefused
from tidegate.lake.delta import delta_errors, existing_table
from tidegate.lake.table_columns import merged_columns


def require_room(path: str, rows: pa.Schema) -> None:
    """`rows`: what is to be appended. Raises SinkRefused, LakeUnavailable."""
    with delta_errors(path):
        table = existing_table(path)
    if table is None:
        return
    try:
        columns = merged_columns(table.schema(), Schema.from_arrow(rows))
    except SchemaChanged as error:
        raise _refused(path, error.what) from error
    if columns.widened is not None:
        types = {column.name: column.type for column in table.schema().fields}
        narrow = next(column for column in columns.widened.fields if column.type != types[column.name])
        raise _refused(path, f"Its column {narrow.name} is narrower than what is emitted")


def _refused(path: str, why: str) -> SinkRefused:
    return SinkRefused(
        f"The table {path} does not take the emissions: {why}",
        "Emit the column in the type that the table has (`cast(n as int)`), or name another path. "
        "Nothing was published.",
    )
