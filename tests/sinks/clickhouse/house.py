"""A stream with a ClickHouse sink, and its table as another client reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.batch.committed import Committed
from tests.clickhouse import ask
from tidegate.sinks.clickhouse.sink import OpenClickHouseTable

APPEND = "  - {kind: clickhouse, table: visitors, stage: first}"
UPSERT = "  - {kind: clickhouse, table: visitors, stage: first, mode: upsert}"


class House(Committed):
    """A stream whose first stage goes to a table of ClickHouse."""

    def __init__(self, folder: Path, url: str, sinks: str = APPEND) -> None:
        super().__init__(folder, sinks, clickhouse=url)
        self.url = url

    def decide(self, seq: int, *rows: tuple[str, int | None]) -> None:
        """Commit a batch, and publish it."""
        self.commit(seq, {"first": rows})
        self.lease.release()
        self.publish(seq)

    @property
    def sink(self) -> OpenClickHouseTable:
        (sink,) = self.app.sinks(self.stream, self.pipeline)
        assert isinstance(sink, OpenClickHouseTable)
        return sink

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement as another client does."""
        return ask(self.url, statement)

    def rows(self) -> list[tuple[str, int | None, int]]:
        """Return key, value and batch of each row that a reader with FINAL sees."""
        rows = self.ask("SELECT key, n, seq FROM visitors FINAL")
        return sorted((tuple(row) for row in rows), key=str)  # type: ignore[arg-type]

    def stored(self) -> int:
        """Return the number of rows that the table stores, also replaced ones."""
        ((number,),) = self.ask("SELECT count() FROM visitors")
        return int(number)

    def progress(self) -> tuple[int, int]:
        """Return batch and term that the sink says."""
        ((seq, term),) = self.ask("SELECT seq, term FROM tidegate_progress FINAL")
        return int(seq), int(term)
