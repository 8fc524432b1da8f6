"""Records for a pipeline: values of its columns, also at the bounds of types, and some unusable ones."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.schemas import KINDS, damaged, writer_of
from tidegate.expressions.types import Type
from tidegate.model.columns import parse_type
from tidegate.model.pipeline import Pipeline
from tidegate.model.topics import TopicPattern
from tidegate.yaml.cases import CaseRecord, Tick

START_MS = 1_767_225_600_000
_STEPS_MS = (0, 0, 1, 500, 1_000, 9_999, 30_000, 60_000, 3_600_000)
_KEYS = ("a", "a", "bb", "ccc", "ключ", None)
_INTEGERS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


class RecordDrawing:
    """The records of one run. `folder` has the pipeline's schema file."""

    def __init__(self, dice: random.Random, pipeline: Pipeline, folder: Path) -> None:
        self.dice = dice
        self.source = pipeline.sources["source"]
        schema = self.source.schema_file
        self.write = writer_of(self.source.format, folder / schema) if schema is not None else None
        # of a key in several partitions, timers fire before or after a record as the batches' cut has it
        self.is_timed = any(stage.emit.sets_timers or stage.window for stage in pipeline.stages)
        self.regroups = any(stage.key is not None for stage in pipeline.stages)
        self.columns = {column.name: parse_type(column.type) for column in self.source.columns}

    def inputs(self) -> list[CaseRecord | Tick]:
        """Return records of up to three partitions, in the order in which they are written, or with ticks.

        A key's records are in one partition, or their timestamps rise: otherwise their order depends on what
        is read together, and so may the result.
        """
        partitions, rising = self._partitions()
        offsets, at = dict.fromkeys(range(partitions), 0), START_MS
        ticks = 0.15 if self.dice.random() < 0.4 else 0.0
        records: list[CaseRecord | Tick] = []
        for _ in range(self.dice.randint(4, 24)):
            at += self.dice.choice(_STEPS_MS) + rising
            key = self.dice.choice(_KEYS)
            partition = self.dice.randrange(partitions) if rising else len(key or "") % partitions
            late = 0 if rising else self.dice.choice((0, 0, 0, 0, 2_000, 120_000))
            place = self._topic, partition, offsets[partition]
            records.append(CaseRecord(key, self.payload(), at - late, *place, self._headers()))
            offsets[partition] += self.dice.choice((1, 1, 1, 3))
            if self.dice.random() < ticks:
                at += self.dice.choice(_STEPS_MS)
                records.append(Tick(at))
        return records

    @property
    def _topic(self) -> str:
        """The topic of the records; of a pattern, one that it selects."""
        selection = self.source.selection
        return "orders-eu" if isinstance(selection, TopicPattern) else selection[0]

    def _partitions(self) -> tuple[int, bool]:
        """Return how many there are, and whether timestamps rise."""
        source = self.source
        if self.regroups or source.sequence is not None or source.key_format != "text":
            return 1, False
        if source.timestamp == "record" and not self.is_timed and self.dice.random() < 0.5:
            return self.dice.randint(2, 3), True
        return (self.dice.randint(1, 3), False) if source.key is None else (1, False)

    def _headers(self) -> tuple[tuple[str, str], ...]:
        """Draw the headers that the source reads, some of them missing, twice or unusable."""
        declared = [*self.source.headers.values(), *self.source.headers.values()]
        return tuple(
            (header.name, json.dumps(self._value(parse_type(header.type))).strip('"'))
            for header in declared
            if self.dice.random() < 0.6
        )

    def payload(self) -> bytes | None:
        draw = self.dice.random()
        if draw < 0.08:
            return None
        if draw < 0.14:
            return self.dice.choice((b"", b"{", b"null", b"[]", b'{"n": ', b"\xff\xfe", b'"text"', b"1e999"))
        value = self.write(self.dice) if self.write is not None else _ENCODE[self.source.format](self)
        return damaged(self.dice, value) if value and self.dice.random() < 0.05 else value

    def _row(self) -> dict[str, Any]:
        row = {name: self._value(type_) for name, type_ in self.columns.items()}
        if self.dice.random() < 0.1:
            row.pop(self.dice.choice(list(row)), None)
        return row

    def _json(self) -> bytes:
        return json.dumps(self._row(), ensure_ascii=self.dice.random() < 0.5).encode()

    def _debezium(self) -> bytes:
        kind = self.dice.choice(("c", "u", "u", "d"))
        change = {"op": kind, "before": self._row(), "after": None if kind == "d" else self._row()}
        return json.dumps(change | {"source": {"lsn": self.dice.randint(1, 9)}}).encode()

    def _csv(self) -> bytes:
        out = io.StringIO()
        row = [self._row().get(name) for name in self.columns]
        csv.writer(out, lineterminator="").writerow("" if value is None else value for value in row)
        return out.getvalue().encode()

    def _text(self) -> bytes:
        return self.dice.choice(("", "a", "b", "ä", "x" * 300)).encode()

    def _value(self, type_: Type | None) -> Any:
        if type_ is None or self.dice.random() < 0.1:
            return None
        if self.dice.random() < 0.03:
            return self.dice.choice(("wrong", 1.5, [], {}, True, "2026-02-31"))
        return self._of_type(type_)

    def _of_type(self, type_: Type) -> Any:
        if type_.kind in _INTEGERS:
            bound = 2 ** _INTEGERS[type_.kind]
            return self.dice.choice((0, 1, 1, 2, 3, 20, -5, bound - 1, -bound))
        if type_.kind == "array":
            return [self._value(type_.parts[0]) for _ in range(self.dice.randint(0, 2))]
        if type_.kind == "struct":
            return {name: self._value(part) for name, part in type_.fields}
        values = {
            "string": ("", "a", "b", "text", "ä\u0000", "12", "2026-01-31"),
            "double": (0.0, -0.0, 0.1, 0.5, 1.5, 1e308, -1e-308, 3),
            "boolean": (True, False),
            "decimal": (0, 1, 1.5, 19.99, -3, 12345678),
            "date": ("2026-01-31", "1970-01-01", "0001-01-01", "9999-12-31"),
            "timestamp": ("2026-01-31T08:00:00Z", "2026-01-31 08:00:00", "1970-01-01T00:00:00.123456Z"),
        }
        return self.dice.choice(values.get(type_.kind, ("AAE=",)))


_ENCODE: dict[str, Callable[[RecordDrawing], bytes]] = {
    "json": RecordDrawing._json,
    "debezium": RecordDrawing._debezium,
    "csv": RecordDrawing._csv,
    "string": RecordDrawing._text,
    "bytes": RecordDrawing._text,
}
COMPUTED = frozenset((*_ENCODE, *KINDS))
"""The formats that records are drawn for."""
