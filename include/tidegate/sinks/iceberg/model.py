"""The `iceberg` sink in a pipeline file: a table of an Iceberg catalog, and how rows get into it."""

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

OWN_COLUMNS = {"stream": "the pipeline and its generation", "reason": "the reason", "seq": "the batch"}
"""Column that each table of an Iceberg sink has beside those that every outbox has -> its content."""
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")
_LONGEST_TABLE = 255  # a SQL catalog stores no longer name


def _check_table(name: str) -> str:
    """Return the name of a table with its namespace. Raises a mistake if it is not one."""
    if len(name) <= _LONGEST_TABLE and _TABLE.fullmatch(name):
        return name
    fix = "Write `namespace.table`: letters, digits and _, no digit first."
    raise mistake(f"{name[:40]!r} is not a table of an Iceberg catalog", fix)


def _check_columns(mode: str, info: Info) -> str:
    """Refuse emitted columns that the table has already."""
    check_columns("Iceberg table", OWN_COLUMNS, info)
    return mode


class IcebergSink(SinkModel):
    """A sink that writes emissions to a table of an Iceberg catalog, as new rows or instead of the key's last
    row.

    The catalog and its secrets are never in the file: set TIDEGATE_ICEBERG, or TIDEGATE_ICEBERG_<CONNECTION>
    in capitals for a `connection`.
    """

    examples: ClassVar[Mapping[str, str]] = {"table": "table: shop.availability", "mode": "mode: append"}
    publisher = "tidegate.sinks.iceberg.sink"
    target_field = "table"

    kind: Literal["iceberg"] = Field(description="A table of an Iceberg catalog.")
    table: Annotated[str, AfterValidator(_check_table)] = Field(
        description="The table with its namespace; both are created if they do not exist."
    )
    connection: Annotated[str, AfterValidator(names.check_iceberg_connection)] | None = Field(
        default=None, description="The catalog, by its name. Null: TIDEGATE_ICEBERG."
    )
    mode: Annotated[
        Literal["append", "upsert"], AfterValidator(one_row_per_key), AfterValidator(_check_columns)
    ] = Field(default="append", description="A row for each emission, or one for each key (and window).")

    @classmethod
    def new_target(cls, pipeline: str) -> str:
        """Return the target that `tidegate init` suggests: a table has a namespace."""
        return f"tidegate.{pipeline}"

    @property
    def name(self) -> str:
        """The sink's name, which is unique in the pipeline."""
        return f"iceberg:{qualified(self.connection, self.table)}"

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connection of its catalog."""
        return (Connection("iceberg", self.connection),)


MODEL = IcebergSink
