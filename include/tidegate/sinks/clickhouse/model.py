"""The `clickhouse` sink in a pipeline file: a table of ClickHouse, and how rows get into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic import ValidationInfo as Info

from tidegate.model import names
from tidegate.model.connection import Connection, qualified
from tidegate.model.mistakes import mistake
from tidegate.sinks.model import SinkModel, check_columns, one_row_per_key

OWN_COLUMNS = {
    "stream": "the pipeline and its generation",
    "reason": "the reason",
    "seq": "the batch",
    "ordinal": "the place in the batch",
    "is_deleted": "whether the emission is a deletion",
    "row_version": "the version by which the newest row is chosen",
}
"""Column that each table of a ClickHouse sink has beside those that every outbox has -> its content."""
_TABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_TABLE = 200  # a name is also a folder of the server, with an ending


def _check_table(name: str) -> str:
    """Return the name of a table, with or without its database. Raises a mistake if it is not one."""
    if len(name) <= _LONGEST_TABLE and _TABLE.fullmatch(name):
        return name
    fix = "Write `table` or `database.table`: letters, digits and _, no digit first."
    raise mistake(f"{name[:40]!r} is not a table of ClickHouse", fix)


def _check_columns(mode: str, info: Info) -> str:
    """Refuse emitted columns that the table has already."""
    check_columns("ClickHouse table", OWN_COLUMNS, info)
    return mode


class ClickHouseSink(SinkModel):
    """A sink that writes emissions to a table of ClickHouse, as new rows or instead of the key's last row.

    The server and its secrets are never in the file: set TIDEGATE_CLICKHOUSE, or
    TIDEGATE_CLICKHOUSE_<CONNECTION> in capitals for a `connection`.
    """

    examples: ClassVar[Mapping[str, str]] = {"table": "table: shop.availability", "mode": "mode: upsert"}
    publisher = "tidegate.sinks.clickhouse.sink"
    target_field = "table"

    kind: Literal["clickhouse"] = Field(description="A table of ClickHouse.")
    table: Annotated[str, AfterValidator(_check_table)] = Field(
        description="The table, with its database or in that of the connection; it is created if it does not "
        "exist."
    )
    connection: Annotated[str, AfterValidator(names.check_clickhouse_connection)] | None = Field(
        default=None, description="The server, by its name. Null: TIDEGATE_CLICKHOUSE."
    )
    mode: Annotated[
        Literal["append", "upsert"], AfterValidator(one_row_per_key), AfterValidator(_check_columns)
    ] = Field(default="append", description="A row for each emission, or one for each key (and window).")

    @property
    def name(self) -> str:
        """The sink's name, which is unique in the pipeline."""
        return f"clickhouse:{qualified(self.connection, self.table)}"

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connection of its server."""
        return (Connection("clickhouse", self.connection),)


MODEL = ClickHouseSink
