"""Arrow batches that Python yields in Spark's workers, as a frame: PySpark's data source API.

What a partition's reader holds, credentials among it, travels inside the pickled source, and stands in no
option, plan text, event log or page of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

ReadPartition = Callable[[], Iterator[pa.RecordBatch]]
"""Gives a partition's batches. It can be pickled, and gives the same when it is called again."""


class _Part(InputPartition):  # type: ignore[misc]  # pyspark has no types for it
    def __init__(self, read: ReadPartition) -> None:
        self.read = read


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, parts: Sequence[ReadPartition]) -> None:
        self._parts = parts

    def partitions(self) -> Sequence[InputPartition]:
        return [_Part(read) for read in self._parts]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The batches of a part. Where there are no parts, Spark reads one that is None."""
        return partition.read() if isinstance(partition, _Part) else iter(())


def spark_types(schema: pa.Schema) -> StructType:
    """Arrow's columns as Spark's: a timestamp without a zone stays one."""
    types: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return types


def frame_of(spark: SparkSession, name: str, schema: pa.Schema, parts: Sequence[ReadPartition]) -> DataFrame:
    """A frame of so many partitions, each read by one task. `name` is what Spark's page shows.

    A frame of the same name replaces the source of an earlier one in the session.
    """
    columns = spark_types(schema)

    class Rows(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return columns

        def reader(self, schema: StructType) -> DataSourceReader:
            return _Reader(parts)

    spark.dataSource.register(Rows)
    return spark.read.format(name).load()
