"""Tables for others: changes that are given one by one, and readers that know nothing of tidegate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.storage.files_for_tests import SCHEMA, row
from tidegate.storage.datafile import RowWriter
from tidegate.storage.delta_tables import SharedDeltaTable
from tidegate.storage.layout import files_folder
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import LIVE, STATE_COLUMNS, UPDATED_SEQ, entry_columns
from tidegate.storage.store import Store
from tidegate.storage.tables import SharedTable, TableChange, TableVersion

APPLICATION, FOLDER = "availability/1", "availability/g1/s/state"
WIDER_VALUE = pa.field("value", pa.struct([pa.field("n", pa.int64()), pa.field("more", pa.string())]))
WIDER = SCHEMA.set(SCHEMA.get_field_index("value"), WIDER_VALUE).append(pa.field("bytes", pa.int64()))
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), True),
    "small": (pa.int8(), -3),
    "real": (pa.float64(), 0.5),
    "exact": (pa.decimal128(20, 2), Decimal("12345678901234567.89")),
    "raw": (pa.binary(), b"\x00\xff"),
    "day": (pa.date32(), date(2024, 2, 29)),
    "at": (pa.timestamp("us", "UTC"), datetime(2024, 2, 29, 1, 2, 3, 4, timezone.utc)),
    "local": (pa.timestamp("us"), datetime(2024, 2, 29, 1, 2, 3, 4)),
    "many": (pa.list_(pa.struct([pa.field("key", pa.string())])), [{"key": "a"}]),
    "pairs": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
}


def shared_table(store: Store, folder: str = FOLDER) -> SharedDeltaTable:
    return SharedDeltaTable(store, folder, STATE_COLUMNS)


def opened(table: SharedDeltaTable) -> DeltaTable:
    return DeltaTable(table.store.uri(table.folder), storage_options=table.store.delta_options)


def number(table: SharedTable, application: str = APPLICATION) -> int:
    return opened(table).transaction_version(application) or 0


def written(
    table: SharedTable, name: str, rows: Sequence[dict[str, Any]], schema: pa.Schema = SCHEMA
) -> DataFile:
    path = f"{files_folder(table.folder, name)}/0.parquet"
    with RowWriter(table.store, path, "state", "s") as file:
        file.write(pa.RecordBatch.from_pylist(rows, schema))
    assert file.file is not None
    return file.file


def change_of(seq: int, *added: DataFile, application: str = APPLICATION) -> TableChange:
    return TableChange({application: seq}, added)


def batch(table: SharedTable, seq: int, *hashes: int, application: str = APPLICATION) -> TableChange:
    rows = [row(hash_, seq) for hash_ in hashes or (seq,)]
    return change_of(seq, written(table, f"attempt-{seq}", rows), application=application)


def catch_up(table: SharedTable, changes: Sequence[TableChange]) -> None:
    """Apply those changes, in this order, that the table does not have."""

    def following(version: TableVersion) -> TableChange | None:
        lacking = (
            change
            for change in changes
            if any(version.number(application) < seq for application, seq in change.numbers.items())
        )
        return next(lacking, None)

    table.catch_up(following)


def put_several_rows_of_an_entry(table: SharedTable) -> list[tuple[int, int | None, int]]:
    """Two batches; gives (hash, window_start, updated_seq) of the rows that the view has."""
    changes = [
        [row(1, 1), row(2, 1), row(3, 1, window=0), row(3, 1, window=10)],
        [row(1, 2), row(2, 2, live=False), row(3, 2, window=10)],
    ]
    catch_up(table, [change_of(n, written(table, f"a{n}", rows)) for n, rows in enumerate(changes, start=1)])
    return [(1, None, 2), (3, 0, 1), (3, 10, 2)]


def put_wider_rows(table: SharedTable) -> None:
    """Two batches, the second with a field and a column more."""
    newer = row(2, 2) | {"value": {"n": 2, "more": "x"}, "bytes": 7}
    catch_up(table, [batch(table, 1), change_of(2, written(table, "attempt-2", [newer], WIDER))])


NARROW = pa.struct(
    [
        *(pa.field("n", pa.int32()), pa.field("f", pa.float32()), pa.field("d", pa.decimal128(10, 2))),
        *(pa.field("many", pa.list_(pa.int32())), pa.field("pairs", pa.map_(pa.string(), pa.int16()))),
        *(pa.field("inner", pa.struct([("a", pa.int8())])), pa.field("part", pa.int32())),
        pa.field("exact", pa.int32()),
    ]
)
WIDE = pa.struct(
    [
        *(pa.field("n", pa.int64()), pa.field("f", pa.float64()), pa.field("d", pa.decimal128(14, 4))),
        *(pa.field("many", pa.list_(pa.int64())), pa.field("pairs", pa.map_(pa.string(), pa.int32()))),
        *(
            pa.field("inner", pa.struct([("a", pa.int32()), ("b", pa.string())])),
            pa.field("part", pa.float64()),
        ),
        pa.field("exact", pa.decimal128(12, 2)),
    ]
)
NARROW_ROW = {
    "n": 1,
    "f": 0.5,
    "d": Decimal("1.25"),
    "many": [1],
    "pairs": [("k", 1)],
    "inner": {"a": 1},
    "part": 3,
    "exact": 4,
}
WIDE_ROW = {
    "n": 2**40,
    "f": 0.1,
    "d": Decimal("1.2345"),
    "many": [2**40],
    "pairs": [("k", 2**20)],
    "inner": {"a": 2**20, "b": "x"},
    "part": 3.5,
    "exact": Decimal("4.50"),
}
WIDENED = [
    {
        **NARROW_ROW,
        "inner": {"a": 1, "b": None},
        "part": 3.0,
        "exact": Decimal("4.00"),
        "d": Decimal("1.2500"),
    },
    WIDE_ROW,
]
"""The rows of `put_widened_rows`, as readers see them."""


def put_widened_rows(table: SharedTable) -> None:
    """Two batches, the second with wider columns, and a third with the narrow ones again, without rows."""
    for seq, (type_, value) in enumerate([(NARROW, NARROW_ROW), (WIDE, WIDE_ROW)], start=1):
        schema = pa.schema([pa.field("hash", pa.int64()), pa.field("value", type_)])
        rows = [{"hash": seq, "value": value}]
        catch_up(table, [change_of(seq, written(table, f"attempt-{seq}", rows, schema))])


def duck(query: str) -> list[tuple[Any, ...]]:
    extension = next(Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension"))
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute(f"LOAD '{extension}'")
        return connection.execute(query).fetchall()


def scan(table: SharedDeltaTable) -> str:
    return f"delta_scan('{table.store.uri(table.folder)}')"


def values_of(table: SharedDeltaTable, *columns: str) -> list[tuple[Any, ...]]:
    """The columns of all rows, by three readers."""
    names = ", ".join(columns)
    by_arrow = opened(table).to_pyarrow_table(columns=list(columns))
    engine = QueryBuilder().register("shared", opened(table))
    by_datafusion = pa.table(engine.execute(f"SELECT {names} FROM shared").read_all())
    rows = sorted(duck(f"SELECT {names} FROM {scan(table)}"), key=str)
    for other in (by_arrow, by_datafusion):
        assert sorted((tuple(stored.values()) for stored in other.to_pylist()), key=str) == rows
    return rows


def newest_rows_sql(source: str, by_place: bool = False) -> str:
    """Return a query for one row per live entry of a table of state.

    `source` is the text after FROM. DuckDB, DataFusion and Trino accept the query; for Spark, replace the
    quotes around names by backticks. `by_place`: in a bounded stage a key has an entry per topic-partition.

    Example: `newest_rows_sql("delta_scan('/lake/orders/g1/orders/state')")`.
    """
    entry = ", ".join(f'"{name}"' for name in entry_columns(by_place))
    age = f'row_number() OVER (PARTITION BY {entry} ORDER BY "{UPDATED_SEQ}" DESC)'
    return f'SELECT * FROM (SELECT *, {age} AS age FROM {source}) AS aged WHERE age = 1 AND "{LIVE}"'
