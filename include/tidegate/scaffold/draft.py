"""The draft of a new pipeline: the choices of a user."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tidegate.errors import SettingsInvalid
from tidegate.spec.columns import Column, parse_columns, parse_type
from tidegate.spec.names import RESERVED

WAYS = {
    "change": "when the value has changed",
    "threshold": "100 records at once, or those of a minute",
    "time_limit": "the newest value, at most every 30 seconds",
    "window_close": "a count per hour, when the hour is over",
}
"""Ways to emit that a new pipeline can begin with -> what each emits, as `tidegate init` shows it."""


@dataclass(frozen=True)
class Draft:
    """The choices for a new pipeline with one topic, one stage and one sink.

    Args:
        columns: The source's columns, as Spark's DDL.
        key: The columns of the key. If empty, the pipeline uses the key of the Kafka record.
        way: A way to emit of `WAYS`.
        target: The topic, the SQL table or the path of the sink. None: one with the name of the pipeline.
        schedule: Airflow's schedule; None if only triggers start the DAG.

    Example: `Draft("stock", "stock", "sku STRING, left INT", key=("sku",), target="stock-changes")`
    """

    name: str
    topic: str
    columns: str
    key: tuple[str, ...] = ()
    way: str = "change"
    sink: str = "kafka"
    target: str | None = None
    schedule: str | None = None
    has_suite: bool = True

    @cached_property
    def source_columns(self) -> tuple[Column, ...]:
        """The parsed columns. Raises SettingsInvalid if the DDL has a mistake."""
        columns, faults = parse_columns(self.columns)
        if faults:
            what = "; ".join(fault.message for fault in faults)
            raise SettingsInvalid(f"The columns cannot be used: {what}", faults[0].fix)
        return columns

    @property
    def emitted(self) -> dict[str, Column]:
        """Name in the emission -> source column: the columns beside the key, or all if the key has all
        columns.
        """
        beside = tuple(column for column in self.source_columns if column.name not in self.key)
        return {_emitted_name(column.name): column for column in beside or self.source_columns}

    def kind_of(self, name: str) -> str:
        """Return the kind of a source column's type, such as `bigint`.

        An unknown column has the kind "": the grammar reports it with line and fix, so no error is raised
        here.
        """
        types = {column.name: column.type for column in self.source_columns}
        return parse_type(types[name]).kind if name in types else ""


def _emitted_name(name: str) -> str:
    """Return the column's name in an emission: another one if the outbox already has a column of
    this name.
    """
    return f"event_{name}" if name.lower() in RESERVED else name
