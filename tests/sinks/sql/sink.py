"""A sink under test: emissions as an outbox has them, a publisher, and what a reader of the table sees."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from sqlalchemy import create_engine, text

from tidegate.kafka.shard import SendTask, send_here
from tidegate.ledger import Stream
from tidegate.sinks.outbox import POSITION
from tidegate.sinks.port import RequireCommitted
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.layout import Layout, Target
from tidegate.sinks.sql.progress import ProgressKey, SqlProgress
from tidegate.sinks.sql.sink import SqlPublisher

SHARDS = 1
"""In how many shards each batch is published."""
VALUE = pa.struct([("n", pa.int64())])
KEY_COLUMNS = pa.struct([("customerId", pa.int64())])
STREAM = "visitors/1"
VARIABLE = "TIDEGATE_SQL"
TIMES = ("window_start", "window_end", "emitted_timestamp", "valid_from", "valid_to")


def emission(key: str, value: dict[str, Any] | int | None, at: int = 1, window: int | None = None) -> Any:
    """One row of an outbox; a number stands for the column `n`."""
    return {
        "key": key,
        "key_columns": {"customerId": len(key)},
        "value": {"n": value} if isinstance(value, int) else value,
        "timestamp": at,
        "source": f"events/0/{at}",
        "window_start": window,
        "window_end": None if window is None else window + 10,
    }


def send_pickled(tasks: Sequence[SendTask]) -> list[int]:
    """Send shards as Spark does: from copies."""
    return send_here(pickle.loads(pickle.dumps(tasks)))


def schema(value: pa.DataType = VALUE) -> pa.Schema:
    return pa.schema(
        [
            ("key", pa.string()),
            ("key_columns", KEY_COLUMNS),
            ("value", value),
            ("timestamp", pa.int64()),
            ("source", pa.string()),
            ("window_start", pa.int64()),
            ("window_end", pa.int64()),
        ]
    )


@dataclass(frozen=True)
class MemoryOutbox:
    """An outbox that is no file: the place of each emission, and the emission."""

    seq: int
    attempt: str
    value: pa.DataType
    emissions: tuple[tuple[int, Any], ...]

    @property
    def plan(self) -> Any:
        return SimpleNamespace(seq=self.seq)

    @property
    def emitted(self) -> int:
        return len(self.emissions)

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        return schema(self.value)

    def cut(self, number: int) -> list[MemoryOutbox]:
        """Return parts, each with all emissions of its keys; a part can be empty."""
        keys = sorted({row["key"] for _, row in self.emissions}, key=str)
        part_of = {key: place % number for place, key in enumerate(keys)}
        return [
            replace(
                self, emissions=tuple((at, row) for at, row in self.emissions if part_of[row["key"]] == part)
            )
            for part in range(number)
        ]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of emissions that stand together."""
        for _, run in groupby(enumerate(self.emissions), lambda item: item[1][0] - item[0]):
            places, rows = zip(*(item for _, item in run), strict=True)
            batch = pa.RecordBatch.from_pylist(list(rows), schema=schema(self.value))
            yield batch.append_column(POSITION, pa.array(places, pa.int64()))


def takes_all(seq: int, is_of: Callable[[str], bool]) -> None:
    """A ledger that has committed whatever the sink has."""


@dataclass
class Sink:
    """A publisher's view (`publish`) and a reader's (`rows`) of one database."""

    url: str
    table: str = "visitor_batches"
    mode: str = "append"
    with_key: bool = False
    windowed: bool = False
    value: pa.DataType = VALUE
    types: tuple[tuple[str, str], ...] = ()
    shard: str = "tidegate-visitors-g1-sql:visitor_batches"
    stream: str = STREAM
    wait_s: float = 20.0
    idle_s: float = 40.0
    require_committed: RequireCommitted = takes_all

    def layout(self) -> Layout:
        target = Target(self.table, self.mode, self.with_key, self.windowed, self.types)
        return Layout(target, schema(self.value))

    def database(self) -> Database:
        return Database(self.url, VARIABLE, self.wait_s, self.idle_s)

    def batches(self, emissions: Sequence[Any], size: int = 2) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(emissions), size):
            yield pa.RecordBatch.from_pylist(emissions[first : first + size], schema=schema(self.value))

    def publisher(self, database: Database) -> SqlPublisher:
        return SqlPublisher(database, self._shard, self.layout(), self.require_committed)

    def progress_row(self, database: Database) -> SqlProgress:
        return SqlProgress(database, self._shard, self.layout().target, self.require_committed)

    @property
    def _shard(self) -> ProgressKey:
        pipeline, _, generation = self.stream.rpartition("/")
        return ProgressKey(self.shard, Stream(pipeline, int(generation)))

    def publish(
        self, seq: int, emissions: Sequence[Any], last_published: int = 0, attempt: str = "first"
    ) -> int:
        with self.database() as database:
            publisher = self.publisher(database)
            if SHARDS == 1:
                return publisher.publish(seq, attempt, self.batches(emissions), last_published)
            outbox: Any = MemoryOutbox(seq, attempt, self.value, tuple(enumerate(emissions)))
            return publisher.publish_in_shards(outbox, SHARDS, send_pickled, last_published)

    def query(self, statement: str) -> list[Any]:
        engine = create_engine(self.url)
        try:
            with engine.begin() as connection:
                result = connection.execute(text(statement))
                return [dict(row) for row in result.mappings()] if result.returns_rows else []
        finally:
            engine.dispose()

    def rows(self, order: str = "batch, ordinal") -> list[Any]:
        """The rows of the table, with the sink's own times in epoch ms."""
        rows = self.query(f"SELECT * FROM {self.quoted(self.table)} ORDER BY {order}")
        return [row | {name: at_ms(row[name]) for name in TIMES if name in row} for row in rows]

    def quoted(self, name: str) -> str:
        """A name as the database wants it in quotes."""
        return create_engine(self.url).dialect.identifier_preparer.quote_identifier(name)

    def values(self) -> list[tuple[Any, ...]]:
        """(key, n) in order."""
        return [(row["key"], row["n"]) for row in self.rows()]

    def progress(self) -> list[tuple[Any, ...]]:
        rows = self.query(f"SELECT shard, seq, {self.quoted('rows')} FROM tidegate_progress ORDER BY shard")
        return [(row["shard"], row["seq"], row["rows"]) for row in rows]


def at_ms(stored: Any) -> int | None:
    """A time of the table in epoch ms; SQLite gives a text, and MySQL no zone."""
    if stored is None:
        return None
    moment = datetime.fromisoformat(stored) if isinstance(stored, str) else stored
    return (moment.replace(tzinfo=moment.tzinfo or timezone.utc) - _EPOCH) // timedelta(milliseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
