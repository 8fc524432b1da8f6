"""Tables that sinks write to, in memory: a database's, and a Delta table's.

In both, a batch's rows and the number of the newest batch change together, and only from what that number
was found to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from tests.simulator.compute import Batch, SimOutbox
from tests.simulator.emissions import Emission
from tests.simulator.world import World
from tidegate.errors import Fenced, LakeUnavailable, OutcomeUnknown, ProgressLost, SinkAhead, SinkUnavailable
from tidegate.kafka.shard import SendShards
from tidegate.sinks.sql.sink import OpenSqlTable
from tidegate.sinks.table.sink import Appender


class Claim(NamedTuple):
    """The progress of a table: its last batch, and the attempt of that batch."""

    seq: int
    attempt: str


@dataclass
class Table:
    """Rows in the order in which they came, the newest batch, and the attempt that it is of."""

    rows: list[Emission] = field(default_factory=list)
    progress: int = 0
    attempt: str = ""


@dataclass
class Shelf:
    """The tables by their publishers. `watch` gets each commit: the publisher and its batch."""

    world: World
    watch: Callable[[str, int], None] = lambda *_: None
    tables: dict[str, Table] = field(default_factory=dict)

    def table(self, shard: str) -> Table:
        return self.tables.setdefault(shard, Table())

    def append(self, shard: str, stored_seq: int, batch: Claim, rows: Sequence[Emission]) -> None:
        """One transaction: rows and progress, or nothing if somebody was faster."""
        if self.table(shard).progress != stored_seq:
            self.world.counts["append fenced"] += 1
            raise Fenced(f"another publisher of {shard} was faster with batch {batch.seq}")
        self.write(shard, batch, rows)

    def write(self, shard: str, batch: Claim, rows: Sequence[Emission]) -> None:
        table = self.table(shard)
        self.watch(shard, batch.seq)
        table.rows += rows
        table.progress, table.attempt = batch


def append_batch(
    shelf: Shelf, appender: Appender, seq: int, attempt: str, rows: Sequence[Emission], last_published: int
) -> None:
    """Append a batch in place of `sinks.table.sink.append_batch`: a version that moved meanwhile is a
    conflict.
    """
    effect, table = shelf.world.effect, shelf.table(appender.application)
    progress = effect("table.version", lambda: Claim(table.progress, table.attempt), LakeUnavailable)
    if progress.seq < last_published:
        raise ProgressLost(f"the table says batch {progress.seq}, the ledger {last_published}", "Restore")
    if progress.seq:
        appender.require_committed(progress.seq, progress.attempt.__eq__)
    if progress.seq > seq:
        raise SinkAhead(f"{appender.application} is at batch {seq}, but batch {progress.seq} is in already")
    if progress.seq < seq:
        act = partial(shelf.append, appender.application, progress.seq, Claim(seq, attempt), rows)
        effect("table.append", act, LakeUnavailable)


def table_rows(sink: Any, outbox: SimOutbox) -> list[Emission]:
    """Return the rows of an outbox in place of `sinks.outbox.table_rows`."""
    return [row for batch in outbox.batches(()) for row in batch.rows]


@dataclass(frozen=True)
class SimLoadTask:
    """A task in place of `sql.shards.LoadTask`: it loads the rows of a shard into a table of its own."""

    world: World
    rows: list[Emission]
    number: int
    loaded: dict[int, list[Emission]]

    def send(self) -> int:
        self.world.effect(
            "sql.load", partial(self.loaded.__setitem__, self.number, self.rows), SinkUnavailable
        )
        return len(self.rows)


@dataclass(frozen=True)
class SimSqlPublisher:
    """A publisher in place of `sql.SqlPublisher`."""

    shelf: Shelf
    shard: str
    require_committed: Callable[[int, Callable[[str], bool]], None]

    def publish(self, seq: int, attempt: str, emissions: Iterable[Batch], last_published: int) -> int:
        rows = [row for batch in emissions for row in batch.rows]
        return self._publish(Claim(seq, attempt), last_published, lambda: rows)

    def publish_in_shards(self, outbox: SimOutbox, shards: int, send: SendShards, last_published: int) -> int:
        """Each task loads its part into a table of this try, and one transaction moves all of them."""

        def moved() -> list[Emission]:
            loaded: dict[int, list[Emission]] = {}
            tasks = [
                SimLoadTask(self.shelf.world, table_rows(None, part), number, loaded)
                for number, part in enumerate(outbox.cut(shards))
            ]
            sent = send(tasks)
            assert sent == [len(loaded[number]) for number in range(shards)]
            # ordinals say the order of rows, whatever shard they came with
            return sorted((row for rows in loaded.values() for row in rows), key=outbox.rows.index)

        return self._publish(Claim(outbox.plan.seq, outbox.attempt), last_published, moved)

    def _publish(self, batch: Claim, last_published: int, moved: Callable[[], list[Emission]]) -> int:
        (seq, _), effect, table = batch, self.shelf.world.effect, self.shelf.table(self.shard)
        stored_seq, stored_attempt = effect(
            "sql.progress", lambda: (table.progress, table.attempt), SinkUnavailable
        )
        if stored_seq < last_published:
            raise ProgressLost(
                f"the progress row says batch {stored_seq}, the ledger {last_published}", "Restore"
            )
        if stored_seq:
            self.require_committed(stored_seq, stored_attempt.__eq__)
        if stored_seq > seq:
            raise SinkAhead(f"{self.shard} is to publish batch {seq}, but batch {stored_seq} is in already")
        if stored_seq == seq:
            return 0
        rows = moved()
        act = partial(self.shelf.append, self.shard, stored_seq, batch, rows)
        effect("sql.commit", act, OutcomeUnknown)
        return len(rows)


def publisher_to(shelf: Shelf, database: None, sink: OpenSqlTable, outbox: SimOutbox) -> SimSqlPublisher:
    """Return a publisher in place of `sinks.sql.sink.publisher_to`."""
    return SimSqlPublisher(shelf, sink.shard, sink.require_committed)


@contextmanager
def sql_database(*_: Any) -> Iterator[None]:
    """Yield nothing in place of a connection, which nothing here reads."""
    yield None
