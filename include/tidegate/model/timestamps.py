"""`source.timestamp` and `start`: where a record has its time, and where the first batch begins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
)
from pydantic import ValidationInfo as Info

from tidegate.expressions.types import Type
from tidegate.formats.registry import formats
from tidegate.formats.times import EPOCHS, BadFormat, TimeRule, compiled_format
from tidegate.model.mistakes import did_you_mean, mistake, shown
from tidegate.model.nested import type_at
from tidegate.model.scope import Model, scope_of
from tidegate.model.zones import Zone

_NUMBERS = ("bigint", "int")
_TIMES = ("timestamp", "timestamp_ntz")


def _check_plain(name: str, info: Info) -> str:
    """Return `record`, or a column whose type can be a time. Raises a mistake otherwise."""
    types = scope_of(info).source.columns
    if name == "record" or types is None:
        return name
    type_ = type_at(name, types, alternatives=("record",))
    if type_ is not None and type_.text not in ("bigint", "timestamp"):
        fix = "Use a `bigint` column with milliseconds since 1970, or a `timestamp` column."
        if type_.text in ("string", *_NUMBERS):
            other = "epoch_seconds" if type_.text == "int" else "dd.MM.yyyy HH:mm:ss"
            fix += f' Or say how it is written: `timestamp: {{column: {name}, format: "{other}"}}`.'
        raise mistake(f"`{name}` is {type_.text}, which is not a time", fix)
    return name


def _check_column(name: str, info: Info) -> str:
    types = scope_of(info).source.columns
    if types is None:
        return name
    type_ = type_at(name, types)
    if type_ is not None and type_.text not in ("string", *_NUMBERS, *_TIMES):
        fix = "Use a `string`, `bigint`, `int`, `timestamp` or `timestamp_ntz` column."
        raise mistake(f"`{name}` is {type_.text}, which is not a time", fix)
    return name


def _check_format(text: str | None, info: Info) -> str | None:
    if text is None:
        return None
    type_ = _type_of(info)
    if text in EPOCHS:
        if type_ is not None and type_.text not in _NUMBERS:
            fix = "Declare the column as `bigint`."
            raise mistake(f"`{text}` is for whole numbers, and the column is {type_.text}", fix)
        return text
    try:
        compiled_format(text)
    except BadFormat as error:
        message, fix = error.args
        raise mistake(message, did_you_mean(text, EPOCHS, fix)) from None
    if type_ is not None and type_.text in (*_NUMBERS, "timestamp_ntz"):
        fix = f"Declare it as `string`, or write {', '.join(f'`{name}`' for name in EPOCHS)} for numbers."
        raise mistake(f"the column is {type_.text}, and has no text of this format", fix)
    return text


def _type_of(info: Info) -> Type | None:
    columns, name = scope_of(info).source.columns, info.data.get("column")
    return None if columns is None or name is None else type_at(name, columns)


class TimestampColumn(Model):
    """A column with the times of records, and how they are written.

    A time without a zone is in UTC, or in `timezone`. As in Spark, a local time that comes twice is the first
    of the two, and one that the clock leaves out is as much later as the clock jumps.
    """

    column: Annotated[str, AfterValidator(_check_column)] = Field(
        description="The column, or the path of a field."
    )
    format: Annotated[str | None, AfterValidator(_check_format)] = Field(
        default=None,
        description="Spark's letters, or `epoch_seconds`, `epoch_millis`, `epoch_micros`. Null: ISO 8601, or "
        "epoch ms.",
    )
    timezone: Zone | None = Field(
        default=None, description="The IANA time zone of times without one. Null: UTC."
    )
    zoneless: Literal["accept", "refuse"] = Field(
        default="accept",
        description="What a record with a time without a zone does: it is used, or goes into quarantine.",
    )

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, zone: Zone | None, info: Info) -> Zone | None:
        type_ = _type_of(info)
        is_number = info.data.get("format") in EPOCHS or (type_ is not None and type_.text in _NUMBERS)
        if zone is not None and is_number:
            raise mistake("a number is an instant, and has no zone", "Leave it out.")
        return zone

    @field_validator("zoneless")
    @classmethod
    def _check_zoneless(cls, zoneless: str, info: Info) -> str:
        type_, format_ = _type_of(info), info.data.get("format")
        if zoneless == "refuse" and info.data.get("timezone") is not None:
            fix = "Leave one of them out."
            raise mistake("`timezone` says what times without a zone are, and `zoneless` refuses them", fix)
        has_zones = format_ is None or any(letter in format_ for letter in "XxZ")
        if zoneless == "refuse" and type_ is not None:
            if type_.text in _NUMBERS:
                raise mistake(f"a number (`{type_.text}`) is an instant, and has no zone", "Leave it out.")
            if type_.text == "timestamp_ntz" or not has_zones:
                raise mistake(
                    "no time of the column has a zone: all records would be refused",
                    "Add the offset to the format (`XXX`), or write `timezone:`.",
                )
        return zoneless

    @property
    def rule(self) -> TimeRule:
        """The rule that reads the column."""
        return TimeRule(self.format, self.timezone, self.zoneless)


def _check_readable(timestamp: str | TimestampColumn, info: Info) -> str | TimestampColumn:
    """Refuse a rule for instants that are no texts in records, or that the format has read already."""
    columns, format_ = scope_of(info).source.columns, formats().get(info.data.get("format", ""))
    if isinstance(timestamp, str) or columns is None or format_ is None:
        return timestamp
    type_ = type_at(timestamp.column, columns)
    if type_ is None or type_.text != "timestamp":
        return timestamp
    fix = "Declare it as `string`."
    if not (format_.is_json or format_.is_flat or format_.has_envelope):
        fix = f"Write `timestamp: {timestamp.column}`."
        raise mistake(f"a `timestamp` of `format: {format_.name}` is an instant, and no text", fix)
    name = timestamp.column.partition(".")[0]
    if name not in {column.name for column in info.data.get("columns") or ()}:
        raise mistake(f"`{name}` is not in the value, and read already", fix)
    exploded = info.data.get("explode")
    if exploded is not None and f"{timestamp.column}.".startswith(f"{exploded}."):
        raise mistake(f"`{timestamp.column}` is in an exploded array, and read already", fix)
    return timestamp


def _check_form(written: Any) -> Any:
    if isinstance(written, (str, Mapping)):
        return written
    fix = 'Write `record`, a column, or `{column: at, format: "dd.MM.yyyy HH:mm:ss"}`.'
    raise mistake(f"{shown(written)} is not a time of records", fix)


Timestamp = Annotated[
    Annotated[
        Annotated[str, AfterValidator(_check_plain), Tag("word")] | Annotated[TimestampColumn, Tag("column")],
        Discriminator(lambda written: "word" if isinstance(written, str) else "column"),
    ],
    BeforeValidator(_check_form),
    AfterValidator(_check_readable),
]


# The forms that datetime.fromisoformat reads in the same way in every supported Python.
_INSTANT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{3}(?:\d{3})?)?)?)(?P<zone>Z|[+-]\d\d:\d\d)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_START = "Write `earliest`, `latest`, `2026-01-31T00:00:00Z`, or milliseconds since 1970."


def _read_start(written: Any) -> Any:
    """Read `earliest`, `latest`, epoch milliseconds, or ISO 8601 with a zone, which becomes milliseconds."""
    if isinstance(written, str) and written not in ("earliest", "latest"):
        return _milliseconds(written)
    if isinstance(written, str) or (type(written) is int and 0 <= written < 2**47):
        return written
    raise mistake(f"{shown(written)} is not a place to start", _START)


def _milliseconds(text: str) -> int:
    """Return the milliseconds since 1970 of an ISO 8601 time with a zone. Raises a mistake otherwise."""
    match = _INSTANT.fullmatch(text)
    # Without a zone the start would depend on the machine.
    if match and not match["zone"]:
        raise mistake(f"{text!r} has no time zone", f"Write it with one: `{text}Z`.")
    try:
        instant = datetime.fromisoformat(
            match["time"] + match["zone"].replace("Z", "+00:00") if match else ""
        )
    except ValueError:
        raise mistake(f"{text!r} is not a place to start", _START) from None
    if instant < _EPOCH:
        raise mistake(f"{text!r} is before 1970", _START)
    # Integer arithmetic: `timestamp() * 1000` is a double, and can be off by one.
    return (instant - _EPOCH) // timedelta(milliseconds=1)


Start = Annotated[
    Literal["earliest", "latest"] | int,
    BeforeValidator(_read_start),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["earliest", "latest"]},
                {"type": "integer"},
                {"pattern": r"^\d{4}-\d\d-\d\d[T ]"},
            ]
        }
    ),
]
