"""The statement MERGE of the SQL standard, which SQLAlchemy does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import ClauseElement


class Merge(Executable, ClauseElement):
    """Insert a row, or replace that with the same key.

    Args:
        key: The keys of the columns that identify a row.
        hint: What stands behind the table's name.
        source: What a SELECT without a table needs, such as ` FROM DUAL`.
        end: The end of the statement.
    """

    inherit_cache = False

    def __init__(
        self, table: Table, key: Sequence[str], hint: str = "", source: str = "", end: str = ""
    ) -> None:
        self.table = table
        self.key = tuple(key)
        self.hint = hint
        self.source = source
        self.end = end


@compiles(Merge)
def _compile(merge: Merge, compiler: Any, **arguments: Any) -> str:
    prepare = compiler.preparer
    columns = {column.key: prepare.quote(column.name) for column in merge.table.columns}
    values = (
        f"{compiler.process(bindparam(column.key, type_=column.type), **arguments)} AS {columns[column.key]}"
        for column in merge.table.columns
    )
    matches = " AND ".join(f"t.{columns[key]} = s.{columns[key]}" for key in merge.key)
    changes = ", ".join(f"{name} = s.{name}" for key, name in columns.items() if key not in merge.key)
    return (
        f"MERGE INTO {prepare.format_table(merge.table)}{merge.hint} t "
        f"USING (SELECT {', '.join(values)}{merge.source}) s ON ({matches}) "
        f"WHEN MATCHED THEN UPDATE SET {changes} "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns.values())}) "
        f"VALUES ({', '.join(f's.{name}' for name in columns.values())}){merge.end}"
    )
