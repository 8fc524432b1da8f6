"""Arrow's types as Spark's."""

from __future__ import annotations

import pyarrow as pa

from tidegate.spark.source import spark_types


def test_timestamp_is_zoneless_in_spark_as_in_arrow() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))])
    assert [field.dataType.simpleString() for field in spark_types(schema)] == ["timestamp", "timestamp_ntz"]
