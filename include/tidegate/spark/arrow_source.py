"""Arrow batches that Python yields in Spark's workers, as a frame.

The content of a part, credentials among it, travels inside the pickled function; it is in no option, plan
text, event log or page of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

ReadPart = Callable[[], Iterator[pa.RecordBatch]]
"""Yields a part's batches. It can be pickled, and yields the same batches when it is called again."""


@dataclass(frozen=True, repr=False)
class _ReadParts:
    """A function for `mapInArrow`: numbers of parts in, their batches out."""

    parts: tuple[ReadPart, ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from self.parts[number]()


def spark_types(schema: pa.Schema) -> StructType:
    """Return Arrow's columns as Spark's; a timestamp without a zone keeps that type.

    Example: `timestamp[us, tz=UTC]` becomes `timestamp`, and `timestamp[us]` becomes `timestamp_ntz`.
    """
    types: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return types


def frame_of(spark: SparkSession, schema: pa.Schema, parts: Sequence[ReadPart]) -> DataFrame:
    """Return a frame with one partition per part, each read by one task.

    PySpark's data source API is not used: it starts three more Python daemons, only to plan (decision 23).

    Args:
        spark: the session of the batch.
        schema: the columns of all batches that the parts yield.
        parts: the functions that yield the rows; they are pickled.
    """
    # One row per partition, so that Spark gives each part to a task of its own.
    numbers = spark.range(0, len(parts), 1, max(len(parts), 1))
    return numbers.mapInArrow(_ReadParts(tuple(parts)), spark_types(schema))
