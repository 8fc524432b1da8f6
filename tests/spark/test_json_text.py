"""The JSON text of a value: what `core` counts and compares is, byte for byte, what Spark sends."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tidegate.kernel.json_text import encoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FLOATS = [0.0, -0.0, 0.1, 1e-3, 9.99e-4, 1e7, 9999999.0, 123456789.125, 1e16, 1e22, -1.5e300, 2.0**-30]
TEXT = pa.string()
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.float64(), [*FLOATS, math.nan, math.inf, -math.inf]),
    (pa.float32(), [0.0, 0.1, 1e6, 16777216.0, 1e10, 3.4e38, 1e-5, 0.001, math.nan]),
    (pa.int64(), [0, -(2**63), 2**63 - 1]),
    (pa.int8(), [-1]),
    (pa.bool_(), [True, False]),
    (pa.decimal128(10, 7), [Decimal("0.0000001"), Decimal("0.0000000"), Decimal("-1.5000000")]),
    (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal(100)]),
    (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("0.00")]),
    (TEXT, ["", "é日本😀", 'a"b\\c/d', "<>&'", "".join(map(chr, range(33))), "\x7f\u2028", "NaN"]),
    (pa.binary(), [b"", b"\x00\xff", b"abc"]),
    (pa.date32(), [date(2026, 1, 31), date(1, 1, 1)]),
    (
        pa.timestamp("us", "UTC"),
        [
            datetime(2026, 1, 31, 10, 30, tzinfo=timezone.utc),
            datetime(2026, 1, 31, 10, 30, 0, 123, timezone.utc),
            datetime(1900, 1, 1, tzinfo=timezone.utc),
        ],
    ),
    (pa.timestamp("us"), [datetime(2026, 1, 31, 10, 30, 0, 500_000)]),
    (pa.list_(TEXT), [[], ["a", None]]),
    (pa.struct([("a", pa.int32()), ("b b", TEXT)]), [{"a": None, "b b": "x"}]),
    (pa.map_(TEXT, pa.float64()), [[], [("b", 1.0), ("a", None)]]),
    (pa.map_(pa.int64(), TEXT), [[(2, "x"), (1, None)]]),
    (pa.list_(pa.map_(TEXT, pa.list_(pa.int32()))), [[[("k", [1, 2])], None]]),
]


@pytest.mark.parametrize(("type_", "values"), VALUES, ids=[str(type_) for type_, _ in VALUES])
def test_it_is_what_spark_writes(spark: SparkSession, type_: pa.DataType, values: list[Any]) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from tidegate.spark.steps import to_json

    table = pa.table({"v": pa.array([*values, None], type_)})
    value = F.col("v").cast("timestamp_ntz") if type_ == pa.timestamp("us") else F.col("v")
    frame = spark.createDataFrame(table).select(to_json(F.struct(value.alias("v"))).alias("text"))
    encode = encoder(pa.struct([("v", type_)]))
    assert [row["text"] for row in frame.collect()] == [encode(row) for row in table.to_pylist()]


def test_map_order_is_kept_by_default() -> None:
    type_ = pa.map_(TEXT, pa.int64())
    assert encoder(type_)([("b", 1), ("a", 2)]) == '{"b":1,"a":2}'
    assert encoder(type_, ordered=True)([("b", 1), ("a", 2)]) == '{"a":2,"b":1}'
