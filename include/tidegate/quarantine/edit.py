"""Edit many quarantined records with one expression: `$.quantity = integer($.quantity)`.

An edit assigns to a place in a record's value, which must be JSON, or to its `key`. The right side is a JSON
literal, another place, a conversion of another place, or `nothing`, which removes the place. Numbers keep
their digits. The language is small on purpose: an exported file can be edited in any way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from tidegate.errors import SettingsInvalid
from tidegate.lake.quarantine_files import QUARANTINE

Place = tuple[str | int, ...]
_EDIT = re.compile(r"\s*(?P<place>key|\$[^=]*?)\s*=\s*(?P<source>.*?)\s*", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<number>\d+)\]|\[(?P<text>\"(?:[^\"\\]|\\.)*\")\]")
_CALL = re.compile(r"(?P<name>[a-z]+)\((?P<place>\$.*)\)", re.DOTALL)
_NOTHING = object()
_SYNTAX = 'Write for example `$.quantity = 5`, `$.id = integer($.id)`, `$.note = nothing` or `key = "a"`.'


class _Unfit(Exception):
    """The edit cannot be applied to a record."""


@dataclass(frozen=True)
class _Assignment:
    """An assignment. `place` is None for the key."""

    text: str
    place: Place | None
    source: Callable[[Any], Any]


@dataclass(frozen=True)
class ValueEdit:
    """Edits that are applied to each record, in order.

    Example::

        ValueEdit.parse(["$.quantity = integer($.quantity)"]).apply(rows)
    """

    assignments: tuple[_Assignment, ...]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> ValueEdit:
        """Parse edits. Raises SettingsInvalid if a text is not an edit."""
        return cls(tuple(map(_assignment, texts)))

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return quarantined rows with the edits applied. Raises SettingsInvalid at a record that they do
        not fit.
        """
        keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
        positions = zip(*(rows[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
        for number, position in enumerate(positions):
            try:
                keys[number], values[number] = self._edited(keys[number], values[number])
            except _Unfit as error:
                place = "/".join(map(str, position))
                raise SettingsInvalid(
                    f"The edit does not fit {place}: {error}",
                    "Choose records that it fits with --reason and the other filters, or edit a file.",
                ) from error
        for name, edited in (("key", keys), ("value", values)):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, QUARANTINE.field(name), pa.array(edited, pa.binary()))
        return rows

    def _edited(self, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        document = _parsed(value)
        for assignment in self.assignments:
            assigned = assignment.source(document)
            if assignment.place is not None:
                document = _with(document, assignment.place, assigned)
            elif assigned is _NOTHING or assigned is None:
                key = None
            elif isinstance(assigned, str):
                key = assigned.encode()
            else:
                raise _Unfit(f"a key is text, and `{assignment.text}` gives {_text(assigned)}")
        return key, None if document is _NOTHING else _text(document).encode()


def _assignment(text: str) -> _Assignment:
    match = _EDIT.fullmatch(text)
    if match is None:
        raise SettingsInvalid(f"`{text}` is no edit", _SYNTAX)
    place = None if match["place"] == "key" else _place(match["place"], text)
    return _Assignment(text, place, _source(match["source"], text))


def _place(written: str, text: str) -> Place:
    steps, end = list[str | int](), 1
    while end < len(written):
        match = _STEP.match(written, end)
        if match is None:
            raise SettingsInvalid(f"`{written}` in `{text}` is no place in a value", _SYNTAX)
        number, quoted = match["number"], match["text"]
        steps.append(int(number) if number else json.loads(quoted) if quoted else match["name"])
        end = match.end()
    return tuple(steps)


def _source(written: str, text: str) -> Callable[[Any], Any]:
    if written == "nothing":
        return lambda _: _NOTHING
    if written.startswith("$"):
        return partial(_at, place=_place(written, text))
    call = _CALL.fullmatch(written)
    if call is not None and call["name"] in _CONVERSIONS:
        convert, place = _CONVERSIONS[call["name"]], _place(call["place"], text)
        return lambda document: convert(_at(document, place))
    try:
        literal = _loads(written)
    except ValueError as error:
        raise SettingsInvalid(f"`{written}` in `{text}` is no JSON, place or conversion", _SYNTAX) from error
    return lambda _: literal


def _at(document: Any, place: Place) -> Any:
    for step in place:
        is_field = isinstance(step, str) and isinstance(document, dict) and step in document
        is_element = isinstance(step, int) and isinstance(document, list) and step < len(document)
        if is_field or is_element:
            document = document[step]
        else:
            raise _Unfit(f"it has nothing at {_written(place)}")
    if document is _NOTHING:
        raise _Unfit("it has no value")
    return document


def _with(document: Any, place: Place, value: Any) -> Any:
    """Return the document with a value at a place whose parent exists."""
    if not place:
        return value
    *parents, last = place
    parent = _at(document, tuple(parents))
    if isinstance(last, str) and isinstance(parent, dict):
        changed: Any = {name: part for name, part in parent.items() if value is not _NOTHING or name != last}
        changed |= {} if value is _NOTHING else {last: value}
    elif isinstance(last, int) and isinstance(parent, list) and last < len(parent):
        changed = [*parent[:last], *([] if value is _NOTHING else [value]), *parent[last + 1 :]]
    else:
        raise _Unfit(f"it has no place {_written(place)}")
    return _with(document, tuple(parents), changed)


def _integer(value: Any) -> int:
    try:
        number = Decimal(str(value)) if not isinstance(value, bool) else None
    except ArithmeticError:
        number = None
    if number is None or not number.is_finite() or number != number.to_integral_value():
        raise _Unfit(f"{_text(value)} is no integer")
    return int(number)


def _number(value: Any) -> Decimal | int:
    try:
        number = _loads(str(value))
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, (int, Decimal)):
        raise _Unfit(f"{_text(value)} is no number")
    return number


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else _text(value)


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {"integer": _integer, "number": _number, "text": _as_text}


def _parsed(value: bytes | None) -> Any:
    if value is None:
        return _NOTHING
    try:
        return _loads(value.decode())
    except ValueError as error:
        raise _Unfit(f"its value is no JSON ({error})") from error


def _loads(text: str) -> Any:
    # as Decimal, so that numbers that the edit does not touch keep their digits
    return json.loads(
        text, parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_unique_names
    )


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a field is there twice")
    return document


def _text(document: Any) -> str:
    """Return JSON in which numbers keep the digits that they were read with."""
    if isinstance(document, dict):
        fields = (f"{json.dumps(name, ensure_ascii=False)}:{_text(part)}" for name, part in document.items())
        return "{" + ",".join(fields) + "}"
    if isinstance(document, list):
        return "[" + ",".join(map(_text, document)) + "]"
    return str(document) if isinstance(document, Decimal) else json.dumps(document, ensure_ascii=False)


def _written(place: Place) -> str:
    return "$" + "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in place)
