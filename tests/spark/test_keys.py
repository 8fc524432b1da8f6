"""Canonical keys and their hashes: the bytes and numbers that Spark's own functions give."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tidegate.kernel.keys import canonical_keys, key_hashes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TEXTS = ["", "é日本😀", 'a"b\\c/d', "<>&'", "".join(map(chr, range(32))), "\x7f\u2028\ufeff", "null", " x "]
MOMENTS = [
    datetime(1, 1, 1),
    datetime(987, 6, 5, 4, 3, 2, 1),
    datetime(1582, 10, 10, 23, 59, 59, 999_999),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(2026, 1, 31, 10, 30),
    datetime(2026, 1, 31, 10, 30, 0, 120_000),
    datetime(2026, 1, 31, 10, 30, 10),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), TEXTS),
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 127]),
    "long": (pa.int64(), [0, -(2**63), 2**63 - 1]),
    "small": (pa.decimal128(10, 8), [Decimal(number) for number in ("0.00000001", "0E-8", "-1.5", "99")]),
    "large": (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal(-100)]),
    "money": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("0.00"), Decimal("-0.01")]),
    "day": (pa.date32(), [date(1, 1, 1), date(987, 6, 5), date(1582, 10, 10), date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=timezone.utc) for moment in MOMENTS]),
    "local": (pa.timestamp("us"), MOMENTS),
}
ROWS = 9
KEYS = [
    *([name] for name in COLUMNS),
    ["text", "long"],
    ["at", "local", "day"],
    ["small", "flag", "large"],
    [*COLUMNS],
]


def table() -> pa.Table:
    """The columns' values over and over, with nulls, so that there is one of each in some row."""
    columns = {}
    for name, (type_, values) in COLUMNS.items():
        columns[name] = pa.array([[*values, None][row % (len(values) + 1)] for row in range(ROWS)], type_)
    return pa.table(columns)


@pytest.mark.parametrize("key", KEYS, ids="-".join)
def test_keys_and_hashes_equal_those_of_spark(spark: SparkSession, key: list[str]) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from tidegate.spark.steps import canonical_key

    rows = table()
    session = spark.newSession()
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_LTZ")
    frame = session.createDataFrame(rows).withColumn("local", F.col("local").cast("timestamp_ntz"))
    text = canonical_key({name: F.col(name) for name in key})
    expected = frame.select(text.alias("key"), F.xxhash64(text).alias("hash")).collect()
    keys = canonical_keys(key, [rows.column(name).combine_chunks() for name in key])
    assert keys.to_pylist() == [row["key"] for row in expected]
    given = [row["hash"] for row in expected if row["key"] is not None]
    assert key_hashes(keys.drop_null()).to_pylist() == given
    assert given
