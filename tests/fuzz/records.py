"""Records for a pipeline: values of its columns, also at the bounds of types, and some unusable ones."""

from __future__ import annotations

import csv
import io
import json
import random
import struct
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.schemas import KINDS, damaged, writer_of
from tests.fuzz.tables import TableDrawing, keys_of
from tidegate.expressions.types import Type
from tidegate.model.columns import parse_type
from tidegate.model.lookup import KEY
from tidegate.model.pipeline import Pipeline
from tidegate.model.source import Source
from tidegate.model.sources import TopicPattern
from tidegate.yaml.cases import CaseRecord, CaseStep, Tick

START_MS = 1_767_225_600_000
_STEPS_MS = (0, 0, 1, 500, 1_000, 9_999, 30_000, 60_000, 3_600_000)
_KEYS = ("a", "a", "a", "bb", "bb", "ccc", "ключ", None)
_KEYS_OF_PAIRS = ("a", "a", "a", "bb")
_STEPS_OF_PAIRS_MS = (0, 1, 1, 5, 500, 1_000, 9_999)
"""So that records of both sides of a join often meet."""
_DISTINCT = (None, "a", "bb", "ccc", "ключ")
_NUMBERS = {"int": ">i", "bigint": ">q", "double": ">d"}
_INTEGERS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


class RecordDrawing:
    """The records of one run. `folder` has the pipeline's schema files."""

    def __init__(self, dice: random.Random, pipeline: Pipeline, folder: Path) -> None:
        self.dice = dice
        # of a key in several partitions, timers fire before or after a record as the batches' cut has it
        self.is_timed = any(stage.timed for stage in pipeline.stages)
        self.regroups = any(stage.key is not None for stage in pipeline.stages)
        self.mixes = any(len(pipeline.sources_of(stage)) > 1 for stage in pipeline.stages)
        self.joins = any(stage.join is not None for stage in pipeline.stages)
        self.expects = any(stage.expected is not None for stage in pipeline.stages)
        keys = {name for source in pipeline.sources.values() for name in source.key or ()}
        keys |= {*keys_of(pipeline)}
        shared: dict[str, tuple[Any, ...]] = {}
        self.sources = [
            SourceRecords(dice, source, folder, keys, shared) for source in pipeline.sources.values()
        ]
        self.can_be_cut = True
        self.tables = TableDrawing(dice, pipeline, self._table_value)

    def inputs(self) -> list[CaseStep]:
        """Return records of up to three partitions of each source, in the order in which they are written, or
        with ticks and changes of tables. Afterwards `can_be_cut` says whether the result must be the same for
        any cut.

        A key's records are in one partition, or their timestamps rise: otherwise their order depends on what
        is read together, and so may the result.
        """
        places = self._places()
        self.can_be_cut = places.can_be_cut
        offsets: Counter[tuple[str, int]] = Counter()
        at = START_MS
        ticks = 0.15 if self.dice.random() < 0.4 else 0.0
        keys, steps = (_KEYS, _STEPS_MS) if not self.joins else (_KEYS_OF_PAIRS, _STEPS_OF_PAIRS_MS)
        records: list[CaseStep] = []
        for _ in range(self.dice.randint(4, 24 if len(self.sources) == 1 else 36)):
            source, key = self.dice.choice(self.sources), self.dice.choice(keys)
            at += self.dice.choice(steps) + places.rising
            partition = places.partition(key, self.dice)
            late = 0 if places.rising else self.dice.choice((0, 0, 0, 0, 2_000, 120_000))
            place = source.topic, partition
            records.append(
                CaseRecord(key, source.payload(), at - late, *place, offsets[place], source.drawn_headers())
            )
            offsets[place] += self.dice.choice((1, 1, 1, 3))
            if self.dice.random() < ticks:
                at += self.dice.choice(_STEPS_MS)
                records.append(Tick(at))
            if self.dice.random() < 0.15 and (change := self.tables.change()) is not None:
                records.append(change)
        return records

    def _table_value(self, column: str) -> Any:
        """Draw a value of a column of records, or of their key, for a row of a table."""
        if column == KEY:
            return self.dice.choice(_DISTINCT[1:])
        drawing = next(source for source in self.sources if column in source.columns)
        return drawing.key_value(column)

    def _places(self) -> Places:
        """Return where records are written.

        Of a key that several sources have, a partition with no other key makes the time of each place the
        time of the key, so that timers fire at the same records however the log is cut.
        """
        sources = [drawing.source for drawing in self.sources]
        if self.dice.random() < 0.1:
            return Places(self.dice.randint(1, 3), by_key=False, can_be_cut=False)
        if self.expects:
            # a key that has no record yet waits for the first records of all partitions
            partitions = self.dice.randint(1, 2)
            return Places(partitions, can_be_cut=partitions == 1)
        is_simple = all(source.timestamp == "record" for source in sources) and not self.regroups
        own_key = all(source.key is None and source.key_format == "text" for source in sources)
        if self.mixes:
            if is_simple and own_key and self.dice.random() < 0.7:
                return Places(len(_DISTINCT), rising=True)
            if is_simple and not self.is_timed:
                return Places(self.dice.randint(1, 3), rising=True, by_key=False)
            return Places(self.dice.randint(1, 3), by_key=own_key, can_be_cut=False)
        ordered = any(source.sequence is not None or source.key_format != "text" for source in sources)
        if self.regroups or ordered:
            return Places(1)
        if is_simple and not self.is_timed and self.dice.random() < 0.5:
            return Places(self.dice.randint(2, 3), rising=True, by_key=False)
        return Places(self.dice.randint(1, 3) if own_key else 1)


@dataclass(frozen=True)
class Places:
    """The partitions of each topic. `rising`: timestamps rise; `by_key`: a key has one partition;
    `can_be_cut`: the result does not depend on what is read together.
    """

    partitions: int
    rising: bool = False
    by_key: bool = True
    can_be_cut: bool = True

    def partition(self, key: str | None, dice: random.Random) -> int:
        """Return the partition of a record."""
        if not self.by_key:
            return dice.randrange(self.partitions)
        return _DISTINCT.index(key) % self.partitions


class SourceRecords:
    """The records of one source. `keys` are columns that have few values, which all sources share."""

    def __init__(
        self,
        dice: random.Random,
        source: Source,
        folder: Path,
        keys: Collection[str],
        shared: dict[str, tuple[Any, ...]],
    ) -> None:
        self.dice = dice
        self.source = source
        schema = source.schema_file
        self.write = writer_of(source.format, folder / schema) if schema is not None else None
        self.columns = {column.name: parse_type(column.type) for column in source.columns}
        self.keys = keys
        self.shared = shared

    @property
    def topic(self) -> str:
        """The topic of the records; of a pattern, one that it selects."""
        selection = self.source.selection
        return selection.pattern.replace(".*", "eu") if isinstance(selection, TopicPattern) else selection[0]

    def drawn_headers(self) -> tuple[tuple[str, str], ...]:
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
        row = {
            name: self._key_value(name, type_) if name in self.keys else self._value(type_)
            for name, type_ in self.columns.items()
        }
        if self.dice.random() < 0.1:
            row.pop(self.dice.choice(list(row)), None)
        return row

    def _json(self) -> bytes:
        return json.dumps(self._row(), ensure_ascii=self.dice.random() < 0.5).encode()

    def _debezium(self) -> bytes:
        kind = self.dice.choice(("c", "u", "u", "d"))
        change = {"op": kind, "before": self._row(), "after": None if kind == "d" else self._row()}
        return json.dumps(change | {"source": {"lsn": self.dice.randint(1, 9)}}).encode()

    def _cloudevents(self) -> bytes:
        """Return an event in structured mode; its attributes are the columns that begin with `ce_`."""
        row = self._row()
        event: dict[str, Any] = {"specversion": "1.0", "id": "e", "source": "/s", "type": "t"}
        event |= {name[3:]: row.pop(name) for name in list(row) if name.startswith("ce_")}
        return json.dumps(event | {"data": self.dice.choice((row, row, row, row, None))}).encode()

    def _csv(self) -> bytes:
        out = io.StringIO()
        row = [self._row().get(name) for name in self.columns]
        # CSV has `true`, where Python writes `True`.
        texts = (
            "" if value is None else str(value).lower() if isinstance(value, bool) else value for value in row
        )
        csv.writer(out, lineterminator="").writerow(texts)
        return out.getvalue().encode()

    def _kafka(self) -> bytes:
        """Return the one column as Kafka's serializers write it; a value of another type is too short."""
        ((name, type_),) = self.columns.items()
        value = self._row().get(name)
        form = None if type_ is None else _NUMBERS.get(type_.kind)
        if form is None:
            return str(value).encode()
        try:
            return struct.pack(form, value)
        except struct.error:
            return b"\0"

    def _text(self) -> bytes:
        return self.dice.choice(("", "a", "b", "ä", "x" * 300)).encode()

    def key_value(self, name: str) -> Any:
        """Draw one of two values, so that records of all sources, and rows of tables, meet in one key."""
        type_ = self.columns[name]
        if type_ is None:
            return None
        values = self.shared.setdefault(name, (self._of_type(type_), self._of_type(type_)))
        return self.dice.choice(values)

    def _key_value(self, name: str, type_: Type | None) -> Any:
        return self.key_value(name) if self.dice.random() < 0.9 else self._value(type_)

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


_ENCODE: dict[str, Callable[[SourceRecords], bytes]] = {
    "json": SourceRecords._json,
    "debezium": SourceRecords._debezium,
    "cloudevents": SourceRecords._cloudevents,
    "csv": SourceRecords._csv,
    "kafka": SourceRecords._kafka,
    "string": SourceRecords._text,
    "bytes": SourceRecords._text,
}
COMPUTED = frozenset((*_ENCODE, *KINDS))
"""The formats that records are drawn for."""
