"""The table of a ClickHouse sink, and beside it the progress of its publishers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.errors import ProgressUnreadable, SinkRefused
from tidegate.failpoints import failpoint
from tidegate.ledger import Plan
from tidegate.sinks.clickhouse.rows import STREAM, VERSION, ClickHouseRows, versions
from tidegate.sinks.clickhouse.server import Server, quoted_name, quoted_text
from tidegate.storage.schema import KEY, ORDINAL, SEQ

FORMAT = 1
"""The format of the progress; raise it when the meaning of a column changes."""
PROGRESS = "tidegate_progress"
_ENGINE = "ReplacingMergeTree"


@dataclass(frozen=True)
class ClickHouseProgress:
    """The newest batch that a table has of a publisher.

    Args:
        term: Rows of a later term replace those of an earlier one, whatever their batches.
        promotion: The promotion by which the batch goes out; see `Charge`.
        table: The identity of the table; "" if there was none.
    """

    seq: int = 0
    attempt: str = ""
    term: int = 0
    promotion: int = -1
    table: str = ""


class ClickHouseTable:
    """A table as it is when it is asked for the first time.

    Args:
        name: The table's name, with or without its database.
        shard: The publisher's name; see `sinks.port.shard_name`.
    """

    def __init__(self, server: Server, name: str, shard: str, stream: str) -> None:
        self._server = server
        self._name = name
        database, _, self._table = name.rpartition(".")
        self._database = quoted_text(database) if database else "currentDatabase()"
        prefix = f"{quoted_name(database)}." if database else ""
        self._place, self._progress_place = prefix + quoted_name(self._table), prefix + PROGRESS
        self._shard = shard
        self._stream = stream

    @cached_property
    def _tables(self) -> dict[str, tuple[str, str, str]]:
        """Table -> its identity, its engine and its sorting key, of the table and that of the progress."""
        names = f"{quoted_text(self._table)}, {quoted_text(PROGRESS)}"
        query = "SELECT name, toString(uuid), engine_full, sorting_key FROM system.tables"
        rows = self._server.rows(f"{query} WHERE database = {self._database} AND name IN ({names})")
        return {name: (identity, engine, sorting_key) for name, identity, engine, sorting_key in rows}

    @cached_property
    def progress(self) -> ClickHouseProgress:
        """The newest batch that the table has. Raises ProgressUnreadable."""
        with failpoint("clickhouse.read_progress"):
            if PROGRESS not in self._tables:
                return ClickHouseProgress()
            columns = "format, seq, attempt, term, promotion, table"
            where = f"WHERE shard = {quoted_text(self._shard)}"
            rows = self._server.rows(f"SELECT {columns} FROM {self._progress_place} FINAL {where}")
        for format_, *content in rows:
            if int(format_) != FORMAT:
                raise ProgressUnreadable.of_format(
                    f"The table {PROGRESS} beside {self._name}",
                    str(format_),
                    FORMAT,
                    "Name a table in another database, and raise `generation`: it fills the table from the "
                    "start.",
                )
            seq, attempt, term, promotion, table = content
            return ClickHouseProgress(int(seq), attempt, int(term), int(promotion), table)
        return ClickHouseProgress()

    @property
    def identity(self) -> str:
        """The identity of the table, which no other table of that name has; "" if there is no table."""
        return self._tables[self._table][0] if self.exists else ""

    @property
    def exists(self) -> bool:
        """Whether there is a table."""
        return self._table in self._tables

    def check(self, rows: ClickHouseRows) -> None:
        """Check that an existing table takes these rows, and replaces them as the mode needs it. Raises
        SinkRefused.
        """
        if not self.exists:
            return
        _, definition, order = self._tables[self._table]
        engine = re.split(" (?:PARTITION|PRIMARY|ORDER) BY ", definition)[0]
        arguments, needed_order = ", ".join(rows.version), ", ".join(rows.sorting_key)
        # a server that replicates the table writes further arguments first
        is_fit = re.search(rf"{_ENGINE}\((.*, )?{arguments}\)$", engine) is not None
        if not is_fit or order.strip("()") != needed_order:
            raise SinkRefused(
                f"The table {self._name} has the engine {engine}, ordered by {order or 'nothing'}, and not "
                f"{_ENGINE}({arguments}), ordered by {needed_order}: rows that come again would be further "
                "rows",
                "Name another table, which tidegate creates. Nothing was published.",
            )
        for column, type_ in rows.columns.items():
            existing = self._columns.get(column, type_)
            if existing != type_:
                change = f"ALTER TABLE {self._place} MODIFY COLUMN {quoted_name(column)} {type_}"
                raise SinkRefused(
                    f"The table {self._name} has the column {column} of the type {existing}, and {type_} is "
                    "emitted",
                    f"Change it by {change}; or emit the type that it has (`cast(n as int)`), or name "
                    "another table. Nothing was published.",
                )

    @cached_property
    def _columns(self) -> dict[str, str]:
        where = f"WHERE database = {self._database} AND table = {quoted_text(self._table)}"
        rows = self._server.rows(f"SELECT name, type FROM system.columns {where}")
        return dict(rows)

    def create_for(self, rows: ClickHouseRows) -> None:
        """Create the table, and the columns that it lacks. Raises SinkRefused."""
        with failpoint("clickhouse.create"):
            if not self.exists:
                columns = ", ".join(f"{quoted_name(name)} {type_}" for name, type_ in rows.columns.items())
                engine = f"{_ENGINE}({', '.join(rows.version)}) ORDER BY ({', '.join(rows.sorting_key)})"
                self._server.run(f"CREATE TABLE IF NOT EXISTS {self._place} ({columns}) ENGINE = {engine}")
                del self._tables
            self.check(rows)
            added = [
                f"ADD COLUMN IF NOT EXISTS {quoted_name(name)} {type_}"
                for name, type_ in rows.columns.items()
                if name not in self._columns
            ]
            if added:
                self._server.run(f"ALTER TABLE {self._place} {', '.join(added)}")

    def insert(self, rows: ClickHouseRows, renew: Callable[[], object]) -> None:
        """Insert the rows of a batch, or the same rows again.

        Args:
            renew: Raises Fenced if another process has taken over. It is called before each insertion.
        """
        for inserted in rows.inserts(self._stream, self.progress.term):
            renew()
            with failpoint("clickhouse.insert"):
                self._server.insert(self._place, inserted)

    def next_term(self) -> int:
        """Return a term whose rows replace all that the table has."""
        terms = [self.progress.term]
        if PROGRESS in self._tables:
            terms += self._numbers(f"max(term) FROM {self._progress_place}")
        if self.exists:  # the progress can be lost
            versions = self._numbers(f"toString(max({VERSION})) FROM {self._place}")
            terms += [version >> 64 for version in versions]
        return max(terms) + 1

    def _numbers(self, query: str) -> list[int]:
        return [int(number) for ((number),) in self._server.rows(f"SELECT {query}")]

    def set_progress(self, progress: ClickHouseProgress, plan: Plan | None) -> None:
        """Store the progress. `plan`: that of its batch, for people; None if it no longer exists."""
        offsets = {} if plan is None else {f"{read.topic}-{read.partition}": read.end for read in plan.ranges}
        row = {
            "shard": self._shard,
            "format": FORMAT,
            "stream": self._stream,
            "offsets": json.dumps(offsets),
            **asdict(progress),
            VERSION: versions(progress.term, progress.seq, np.zeros(1, np.int64))[0],
        }
        with failpoint("clickhouse.progress"):
            if PROGRESS not in self._tables:
                self._server.run(f"CREATE TABLE IF NOT EXISTS {self._progress_place} {_PROGRESS_TABLE}")
            self._server.insert(self._progress_place, pa.Table.from_pylist([row]))
        self.__dict__.pop("_tables", None)
        self.progress = progress

    def count(self, seq: int) -> int:
        """Return the number of emissions of a batch that the table has."""
        where = f"WHERE {STREAM} = {quoted_text(self._stream)} AND {SEQ} = {seq}"
        return self._numbers(f"uniqExact({ORDINAL}) FROM {self._place} {where}")[0] if self.exists else 0

    def delete_after(self, seq: int) -> None:
        """Delete the stream's rows of batches after `seq`."""
        self._delete(f"{STREAM} = {quoted_text(self._stream)} AND {SEQ} > {seq}")

    def delete_keys(self, seq: int) -> None:
        """Delete all rows of the keys of batch `seq`, also those of other generations of the pipeline."""
        # Statements stay in `system.mutations` and in logs, so they must not contain the keys themselves.
        # Each part of the table looks them up anew, so the rows of the batch that has them go last.
        batch = f"{STREAM} = {quoted_text(self._stream)} AND {SEQ} = {seq}"
        keys = f"SELECT {KEY} FROM {self._place} WHERE {batch}"
        pipeline = f"startsWith({STREAM}, {quoted_text(self._stream.partition('/')[0] + '/')})"
        self._delete(f"{pipeline} AND {KEY} IN ({keys}) AND NOT ({batch})")
        self._delete(batch)

    def _delete(self, condition: str) -> None:
        self._server.run(f"ALTER TABLE {self._place} DELETE WHERE {condition}")


_PROGRESS_TABLE = f"""(
    shard String,
    format UInt8,
    seq Int64,
    attempt String,
    term UInt64,
    promotion Int64,
    table String,
    stream String,
    offsets String,
    {VERSION} UInt128,
    written_at DateTime DEFAULT now()
) ENGINE = {_ENGINE}({VERSION}) ORDER BY shard"""
