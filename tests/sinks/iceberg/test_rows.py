"""The rows of an Iceberg table: each batch is one snapshot, and an upsert has the newest row of each key."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.sinks.iceberg.lakehouse import Lakehouse, duck
from tidegate.batch import validate_batch
from tidegate.errors import SinkRefused
from tidegate.sinks.iceberg.sink import OpenIcebergTable


def test_batch_is_a_snapshot_with_its_offsets(appending: Lakehouse) -> None:
    appending.decide(1, ("a", 1), ("b", 2))
    appending.decide(2, ("a", None))
    assert appending.rows() == [("a", 1, 1), ("a", None, 2), ("b", 2, 1)]
    assert appending.marks() == [(1, '{"events-0": 1}'), (2, '{"events-0": 2}')]
    summary = appending.table.current_snapshot().summary
    assert summary["tidegate.stream"] == "visitors/1"
    assert summary["tidegate.attempt"] == appending.attempt_name(2)


def test_published_batch_is_not_written_again(appending: Lakehouse) -> None:
    appending.decide(1, ("a", 1))
    assert appending.publish(1) == {"iceberg:shop.visitors": 1}
    assert (appending.rows(), len(appending.table.snapshots())) == ([("a", 1, 1)], 1)


def test_upsert_has_the_last_row_of_each_key(upserting: Lakehouse) -> None:
    upserting.decide(1, ("a", 1), ("b", 2), ("a", 3), ("c", 4))
    assert upserting.rows() == [("a", 3, 1), ("b", 2, 1), ("c", 4, 1)]
    upserting.decide(2, ("b", None), ("a", 5), ("d", None), ("e", None), ("e", 6))
    assert upserting.rows() == [("a", 5, 2), ("c", 4, 1), ("e", 6, 2)]
    assert len(upserting.table.snapshots()) == 2


def test_upserted_rows_equal_a_fold_of_emissions(upserting: Lakehouse) -> None:
    dice, expected = random.Random(7), dict[str, tuple[int, int]]()
    for seq in range(1, 6):
        keys = [f"key-{dice.randint(0, 12):04}" for _ in range(dice.randint(1, 9))]
        rows = [(key, dice.choice([None, seq, seq * 10])) for key in keys]
        upserting.decide(seq, *rows)
        for key, value in rows:
            expected.pop(key, None)
            if value is not None:
                expected[key] = (value, seq)
    assert upserting.rows() == sorted((key, *row) for key, row in expected.items())


def test_upsert_leaves_files_without_its_keys(upserting: Lakehouse) -> None:
    upserting.decide(1, ("a", 1), ("c", 1))
    (former,) = (task.file.file_path for task in upserting.table.scan().plan_files())
    upserting.decide(2, ("b", 2))
    files = [task.file.file_path for task in upserting.table.scan().plan_files()]
    assert former in files
    assert len(files) == 2


COLUMNS = pa.struct(
    [
        ("small", pa.int16()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("bytes", pa.binary()),
        ("tags", pa.list_(pa.struct([("name", pa.string())]))),
        ("sizes", pa.map_(pa.string(), pa.int32())),
    ]
)


def emitted(sink: OpenIcebergTable, value: pa.StructArray) -> pa.RecordBatchReader:
    batch = pa.RecordBatch.from_pydict({"key": pa.array(["k"] * len(value)), **_parts(value)})
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


def _parts(value: pa.StructArray) -> dict[str, pa.Array]:
    return dict(zip(value.type.names, value.flatten(), strict=True))


def test_types_survive_for_other_readers(appending: Lakehouse) -> None:
    (sink,) = appending.app.sinks(appending.stream, appending.pipeline)
    assert isinstance(sink, OpenIcebergTable)
    row = {"small": 1, "price": "2.50", "at": 1, "day": 2, "bytes": b"x", "tags": [{"name": "t"}]}
    value = pa.array([row | {"price": None, "sizes": [("s", 3)]}], COLUMNS)
    with sink._opened() as table:
        rows = emitted(sink, value)
        table.create_for(rows.schema)
        table.change(None, rows)
    location = appending.table.metadata_location
    query = f"""SELECT small, epoch_us("at"), day::VARCHAR, tags, sizes FROM iceberg_scan('{location}')"""
    columns = duck(query)
    assert columns == [(1, 1, "1970-01-03", [{"name": "t"}], {"s": 3})]


def test_new_column_extends_the_table(appending: Lakehouse) -> None:
    appending.decide(1, ("a", 1))
    text = appending.file.read_text()
    appending.file.write_text(text.replace("kind: iceberg,", "kind: iceberg, with_key: true,"))
    appending.decide(2, ("bb", 2))
    location = appending.table.metadata_location
    assert duck(f"SELECT key, customerId FROM iceberg_scan('{location}')") == [("a", None), ("bb", 2)]


def test_column_of_another_type_is_refused_early(appending: Lakehouse) -> None:
    columns = pa.schema([("key", pa.string()), ("n", pa.list_(pa.int32()))])
    appending.catalog.create_namespace("shop")
    appending.catalog.create_table("shop.visitors", columns)
    plan = appending.compute(1, {"first": [("a", 1)]})
    with pytest.raises(SinkRefused, match=r"does not take the emissions.*Nothing was published"):
        validate_batch(appending.app, plan, "test")


def test_column_without_a_value_is_refused_early(appending: Lakehouse) -> None:
    columns = [pa.field("key", pa.string(), nullable=False), pa.field("country", pa.string(), nullable=False)]
    appending.catalog.create_namespace("shop")
    appending.catalog.create_table("shop.visitors", pa.schema(columns))
    plan = appending.compute(1, {"first": [("a", 1)]})
    with pytest.raises(SinkRefused, match="needs a value in country, which is not emitted"):
        validate_batch(appending.app, plan, "test")
    with appending.table.update_schema() as update:
        update.make_column_optional("country")
    validate_batch(appending.app, plan, "test")
    appending.lease = appending.app.ledger.acquire(appending.stream, "test")
    attempt = appending.lease.attempt(appending.stream, 1)
    assert attempt is not None
    appending.lease.commit(plan, attempt)
    appending.lease.release()
    appending.publish(1)
    assert appending.rows() == [("a", 1, 1)]


def test_narrow_column_of_the_table_is_widened(appending: Lakehouse) -> None:
    appending.decide(1, ("a", 1))
    (sink,) = appending.app.sinks(appending.stream, appending.pipeline)
    assert isinstance(sink, OpenIcebergTable)
    with sink._opened() as table:
        table.change(None, emitted(sink, pa.array([{"n": 2**40}], pa.struct([("n", pa.int64())]))))
    location = appending.table.metadata_location
    assert duck(f"SELECT n FROM iceberg_scan('{location}')") == [(1,), (2**40,)]


def test_foreign_partitioned_table_takes_rows(upserting: Lakehouse) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import IntegerType, NestedField, StringType

    schema = Schema(NestedField(1, "key", StringType()), NestedField(2, "n", IntegerType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
    upserting.catalog.create_namespace("shop")
    upserting.catalog.create_table("shop.visitors", schema, partition_spec=spec)
    upserting.decide(1, ("a", 1), ("b", 2))
    upserting.decide(2, ("a", 2))
    assert upserting.rows() == [("a", 2, 2), ("b", 2, 1)]
