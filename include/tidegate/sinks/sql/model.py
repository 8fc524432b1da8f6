"""The `sql` sink in a pipeline file: a table of a SQL database, and how rows get into it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic import ValidationInfo as Info

from tidegate.model import names
from tidegate.model.columns import NESTED
from tidegate.model.connection import Connection, qualified
from tidegate.model.mistakes import Fault, as_mistake, mistake
from tidegate.model.scope import suggest_column
from tidegate.model.windows import WINDOW_COLUMNS
from tidegate.sinks.model import SinkModel, Treatment, check_columns, one_row_per_key, stage_of

SQL_COLUMNS = {
    "key": "the key",
    "window_start": "the start of the window",
    "window_end": "the end of the window",
    "emitted_timestamp": "the time of the emission",
    "source": "the position of the record",
    "stream": "the pipeline and its generation",
    "batch": "the batch",
    "ordinal": "the place in the batch",
}
"""Column that each table of a SQL sink has beside the emitted ones -> its content."""
MODE_COLUMNS = {
    "append": {"deleted": "whether it is a deletion"},
    "upsert": {},  # a deletion deletes the row, so that no column marks it
    "insert_ignore": {},  # a deletion changes nothing
    "history": {
        "deleted": "whether it is a deletion",
        "valid_from": "when the version begins",
        "valid_to": "when the version ends",
        "is_current": "whether it is the newest version",
    },
}
"""The columns that a table of a mode has in addition."""
# PostgreSQL truncates longer identifiers.
_SQL_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")


def _check_table(name: str) -> str:
    """Return the name of a SQL table: `name` or `schema.name`. Raises a mistake if it is not one."""
    if _SQL_TABLE.fullmatch(name):
        return name
    fix = "Write `name` or `schema.name`: letters, digits and _, at most 63 each, no digit first."
    raise mistake(f"{name!r} is not a table's name", fix)


def _check_sql_columns(mode: str, info: Info) -> str:
    """Refuse emitted columns that the SQL table has already."""
    own = SQL_COLUMNS | MODE_COLUMNS[mode]
    if stage_of(info).windowed is False:
        # the window of the stage before, in the key
        own = {name: meaning for name, meaning in own.items() if name not in WINDOW_COLUMNS}
    check_columns("SQL table", own, info)
    return mode


ColumnForm = Literal["json", "text"]
"""A type that a column can be stored as instead of that of its values: JSON, or JSON as a text."""


def _check_types(types: dict[str, ColumnForm], info: Info) -> dict[str, ColumnForm]:
    """Refuse types of columns that are not emitted, or whose values cannot have them."""
    faults = [fault for name, form in types.items() for fault in _type_faults(name, form, info)]
    if faults:
        raise as_mistake(faults)
    return types


def _type_faults(name: str, form: ColumnForm, info: Info) -> Iterator[Fault]:
    stage = stage_of(info)
    keys = stage.keys if info.data.get("with_key") else {}
    if stage.emitted is None or keys is None:
        return
    columns = {**keys, **stage.emitted}
    if name not in columns:
        yield Fault(f"the column `{name}` is not emitted", suggest_column(name, columns))
        return
    type_ = columns[name]
    possible = (*NESTED, "string") if form == "json" else NESTED
    if type_ is not None and type_.is_known and type_.kind not in possible:
        fix = f"Leave `{name}` out of `types`, or `select` it as a string."
        yield Fault(f"`{name}` is {type_.text}, which cannot have the type `{form}`", fix)


class SqlSink(SinkModel):
    """A sink that writes emissions to a table of a SQL database, as new rows or instead of the key's last
    row.

    The URL of the database is never in the file: set TIDEGATE_SQL, or TIDEGATE_SQL_<CONNECTION> in capitals
    for a `connection`.
    """

    examples: ClassVar[Mapping[str, str]] = {
        "table": "table: availability",
        "connection": "connection: reports",
        "mode": "mode: append",
        "types": "types: {payload: json}",
        "refused_row": "refused_row: quarantine",
        "writers": "writers: 1",
    }
    publisher = "tidegate.sinks.sql.sink"
    target_field = "table"

    kind: Literal["sql"] = Field(description="A table of a SQL database.")
    table: Annotated[str, AfterValidator(_check_table)] = Field(
        description="The table, with its schema if it has one; it is created if it does not exist."
    )
    connection: Annotated[str, AfterValidator(names.check_connection)] | None = Field(
        default=None, description="The database, by its name. Null: TIDEGATE_SQL."
    )
    mode: Annotated[
        Literal["append", "upsert", "insert_ignore", "history"],
        AfterValidator(one_row_per_key),
        AfterValidator(_check_sql_columns),
    ] = Field(
        default="append",
        description="A row for each emission; or one for each key (and window), the newest or, with "
        "`insert_ignore`, the first; or one for each version of a key with the time for which it was valid.",
    )

    types: Annotated[dict[str, ColumnForm], AfterValidator(_check_types)] = Field(
        default={},
        description="Columns with another type than that of their values: `json`, for a string whose text is "
        "JSON, or an array; `text`, for a nested value as JSON text.",
    )

    refused_row: Treatment = Field(
        default="halt",
        description="What an emission does that the database refuses as a row: halt the batch, or go into "
        "quarantine.",
    )

    writers: int = Field(
        default=8,
        ge=1,
        le=64,
        description="The most Spark tasks that load a batch of two million emissions or more into PostgreSQL "
        "at once, each by a connection of its own. 1: no task, only the process that publishes.",
    )

    @property
    def name(self) -> str:
        """The sink's name, which is unique in the pipeline."""
        return f"sql:{qualified(self.connection, self.table)}"

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connection of its database."""
        return (Connection("sql", self.connection),)


MODEL = SqlSink
