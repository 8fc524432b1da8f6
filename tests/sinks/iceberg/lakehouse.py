"""A stream with an Iceberg sink, and readers of its table that know nothing of tidegate."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.batch.committed import Committed

NAME = "shop.visitors"
APPEND = f"  - {{kind: iceberg, table: {NAME}, stage: first}}"
UPSERT = f"  - {{kind: iceberg, table: {NAME}, stage: first, mode: upsert}}"


class Lakehouse(Committed):
    """A stream whose first stage goes to a table of a SQL catalog: SQLite by default."""

    def __init__(self, folder: Path, sinks: str = APPEND, catalog: str = "", properties: str = "") -> None:
        self.catalog_url = catalog or f"sqlite:///{folder}/catalog.db"
        self.warehouse = f"file://{folder}/warehouse"
        by_sql = json.dumps({"uri": self.catalog_url, "warehouse": self.warehouse})
        super().__init__(folder, sinks, iceberg=properties or by_sql)

    def decide(self, seq: int, *rows: tuple[str, int | None]) -> None:
        """Commit a batch, and publish it."""
        self.commit(seq, {"first": rows})
        self.lease.release()
        self.publish(seq)

    @property
    def catalog(self) -> SqlCatalog:
        """The catalog as another program opens it."""
        return SqlCatalog("default", uri=self.catalog_url, warehouse=self.warehouse)

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.catalog.load_table(NAME)

    def rows(self) -> list[tuple[str, int | None, int]]:
        """Return key, value and batch of each row, as DuckDB and PyIceberg read them."""
        table = self.table
        names = ("key", "n", "seq")
        read = table.scan(selected_fields=names).to_arrow().select(list(names)).to_pylist()
        rows = sorted((tuple(row.values()) for row in read), key=str)
        assert duck(f"SELECT key, n, seq FROM iceberg_scan('{table.metadata_location}')") == rows
        return rows  # type: ignore[return-value]

    def marks(self) -> list[tuple[int, str]]:
        """Return batch and offsets of each snapshot, the oldest first."""
        summaries = [snapshot.summary for snapshot in self.table.snapshots()]
        return [
            (int(summary["tidegate.seq"]), summary["tidegate.offsets"])
            for summary in summaries
            if summary and summary.get("tidegate.seq")
        ]


@cache
def _reader() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    for extension in (duckdb_extension_avro, duckdb_extension_iceberg):
        file = next(Path(str(extension.__file__)).parent.rglob("*.duckdb_extension"))
        connection.execute(f"LOAD '{file}'")
    return connection


def duck(query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query of DuckDB, sorted."""
    with _reader().cursor() as cursor:
        return sorted(cursor.execute(query).fetchall(), key=str)
