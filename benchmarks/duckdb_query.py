"""Emit on change as one query of DuckDB over events in a file: how quick the machine can be, without Kafka,
state, and guarantees.

`python -m benchmarks.duckdb_query EVENTS OUTPUT` prints the number of changes.
"""

from __future__ import annotations

import sys

import duckdb

_CHANGES = """
COPY (
    SELECT * EXCLUDE (before)
    FROM (
        SELECT "storeId", id, number, quantity > 0 AS "isAvailable",
            lag(quantity > 0) OVER (PARTITION BY "storeId", id ORDER BY number) AS before
        FROM (
            SELECT *, row_number() OVER () AS number
            FROM read_json(
                $events, format = 'newline_delimited',
                columns = {"storeId": 'VARCHAR', id: 'BIGINT', quantity: 'INTEGER'}
            )
        )
    )
    WHERE before IS DISTINCT FROM "isAvailable"
) TO $output (FORMAT parquet)
"""


def main() -> None:
    events, output = sys.argv[1:]
    connection = duckdb.connect()
    (changes,) = connection.execute(_CHANGES, {"events": events, "output": output}).fetchone() or (0,)
    print(changes)


if __name__ == "__main__":
    main()
