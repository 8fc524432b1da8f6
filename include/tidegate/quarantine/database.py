"""DuckDB over rows of quarantine: in memory, bounded, without files, network or extensions.

Rows reach DuckDB as Arrow tables that tidegate has read itself. So a damaged file is found by its checksum,
and a lake in a bucket needs no extension of DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY = "512MB"
_SETTINGS = {
    "memory_limit": MEMORY,
    # memory grows with threads, and most queries wait for the lake
    "threads": "1",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # otherwise a name in an expression could read a variable of Python
    "python_enable_replacements": "false",
    # Nothing that a user writes may read files or the network. Spilling is still possible.
    "enable_external_access": "false",
}


class DuckDatabase:
    """A database for the queries of one command. Tables that do not fit into memory spill to a folder."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self.connection = connection

    def run(self, sql: str, parameters: Sequence[Any] = (), rows: pa.Table | None = None) -> None:
        """Run a statement without a result. Arguments: as `query`."""
        self.query(sql, parameters, rows)

    def query(self, sql: str, parameters: Sequence[Any] = (), rows: pa.Table | None = None) -> pa.Table:
        """Return the result of a query.

        Args:
            parameters: The values of the question marks. What users give is always a parameter.
            rows: The rows that the query reads as the table `rows`; `row` numbers them from 0.

        Example::

            database.query("SELECT row FROM rows WHERE topic = ?", ["stock"], table)
        """
        if rows is not None:
            # SQL has no order of its own: `row` leads from a result back to the rows of the table.
            numbers = pa.array(range(rows.num_rows), pa.int64())
            self.connection.register("rows", rows.append_column("row", numbers))
        try:
            return self.connection.execute(sql, list(parameters)).to_arrow_table()
        finally:
            if rows is not None:
                self.connection.unregister("rows")

    def stream(self, sql: str, block_rows: int) -> Iterator[pa.Table]:
        """Yield the result of a query in blocks. Queries that run meanwhile do not disturb it."""
        # A cursor has a result of its own; a second query on the connection would end this one.
        with self.connection.cursor() as cursor:
            for batch in cursor.execute(sql).to_arrow_reader(block_rows):
                yield pa.table(batch)


@contextmanager
def open_database() -> Iterator[DuckDatabase]:
    """Open an empty database; it spills to a temporary folder, which is removed at the end."""
    import duckdb  # late: loading its library takes longer than most commands

    with (
        TemporaryDirectory(prefix="tidegate-duckdb-") as folder,
        duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": folder}) as connection,
    ):
        # Last: from here on no statement, and no expression of a user, can change the settings above.
        connection.execute("SET lock_configuration = true")
        yield DuckDatabase(connection)
