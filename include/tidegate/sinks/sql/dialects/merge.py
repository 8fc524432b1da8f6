"""The statement MERGE of the SQL standard, which SQLAlchemy does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import FromClause, Table, bindparam, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import ClauseElement


class Merge(Executable, ClauseElement):
    """Insert rows, or replace those with the same key.

    Args:
        key: The keys of the columns that identify a row.
        rows: The rows, with the columns of the table; None: one row, whose values are parameters.
        hint: What stands behind the table's name.
        end: The end of the statement.
    """

    inherit_cache = False

    def __init__(
        self, table: Table, key: Sequence[str], rows: FromClause | None = None, hint: str = "", end: str = ""
    ) -> None:
        self.table = table
        self.key = tuple(key)
        self.rows = _parameters(table) if rows is None else rows
        self.hint = hint
        self.end = end


def _parameters(table: Table) -> FromClause:
    columns = (bindparam(column.key, type_=column.type).label(column.name) for column in table.columns)
    return select(*columns).subquery("s")


@compiles(Merge)
def _compile(merge: Merge, compiler: Any, **arguments: Any) -> str:
    prepare = compiler.preparer
    columns = {column.key: prepare.quote(column.name) for column in merge.table.columns}
    rows = compiler.process(merge.rows, asfrom=True, **arguments)
    source = prepare.format_alias(merge.rows)
    matches = " AND ".join(f"t.{columns[key]} = {source}.{columns[key]}" for key in merge.key)
    changes = ", ".join(f"{name} = {source}.{name}" for key, name in columns.items() if key not in merge.key)
    return (
        f"MERGE INTO {prepare.format_table(merge.table)}{merge.hint} t USING {rows} ON ({matches}) "
        f"WHEN MATCHED THEN UPDATE SET {changes} "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns.values())}) "
        f"VALUES ({', '.join(f'{source}.{name}' for name in columns.values())}){merge.end}"
    )
