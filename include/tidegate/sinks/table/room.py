"""Check that the columns of a Delta table can store what is emitted, since an edit can have widened a
type.

Without this check, delta-rs would narrow the values, or fail at the first that does not fit, after the
decision.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import Schema

from tidegate.errors import SchemaChanged, SinkRefused
from tidegate.storage.delta import delta_errors, existing_table, merged_columns


def require_room(path: str, rows: pa.Schema) -> None:
    """Check that each column of the table can store the type in `rows`, the schema of what will be
    appended.

    Raises SinkRefused if a column is narrower, LakeUnavailable if the table cannot be read.
    """
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
