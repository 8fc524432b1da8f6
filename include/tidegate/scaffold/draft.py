"""What a user has chosen of a new pipeline."""

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
"""Ways to emit that a new pipeline can begin with, and what each lets out."""

SINKS = {"kafka": "topic", "sql": "table", "table": "path"}
"""Kinds of sinks, and the field that says where one writes to."""


@dataclass(frozen=True)
class Draft:
    """A pipeline to be.

    `columns` are Spark's DDL, `key` the columns of the key: none, and the record's own counts. `target` is
    the topic, the SQL table or the path of the one sink.
    """

    name: str
    topic: str
    columns: str
    key: tuple[str, ...] = ()
    way: str = "change"
    sink: str = "kafka"
    target: str = ""
    schedule: str | None = None
    has_suite: bool = True

    @cached_property
    def source_columns(self) -> tuple[Column, ...]:
        """The columns, taken apart. Raises SettingsInvalid."""
        columns, faults = parse_columns(self.columns)
        if faults:
            what = "; ".join(fault.message for fault in faults)
            raise SettingsInvalid(f"The columns cannot be used: {what}", faults[0].fix)
        return columns

    @property
    def emitted(self) -> dict[str, Column]:
        """Name in the emission -> source column: those beside the key; all, where the key has all."""
        beside = tuple(column for column in self.source_columns if column.name not in self.key)
        return {_emitted_name(column.name): column for column in beside or self.source_columns}

    def kind_of(self, name: str) -> str:
        """The kind of a source column's type; none where there is no such column, which the grammar says."""
        types = {column.name: column.type for column in self.source_columns}
        return parse_type(types[name]).kind if name in types else ""


def _emitted_name(name: str) -> str:
    """What the outbox has a column for already gets another name."""
    return f"event_{name}" if name.lower() in RESERVED else name
