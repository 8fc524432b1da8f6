"""The keys of a table as rows of a stage that expects them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidegate import kernel
from tidegate.errors import PipelineInvalid, Problem
from tidegate.kernel.tables import topic_of
from tidegate.model.tables import Expected
from tidegate.spark.shuffle import REPORT, TO, value_column
from tidegate.spark.steps import KeyTypes, canonical_key


def expected_rows(
    table: DataFrame,
    expected: Expected,
    keys: KeyTypes,
    schema: StructType,
    pass_: tuple[int, str],
    seq: int,
) -> DataFrame:
    """Return a row for each key of a table, without nulls. Its value has nulls in all columns.

    Args:
        table: the rows of the table.
        expected: the columns that make the key.
        keys: the types of the columns of the stage's key.
        schema: the columns of the kernel's rows.
        pass_: the number and the name of the pass of the stage.
        seq: the number of the batch.

    Raises PipelineInvalid if the table has no such column.
    """
    number, stage = pass_
    missing = [name for name in expected.key if name not in table.columns]
    if missing:
        what = f"the table {expected.table} has no column `{missing[0]}`"
        fix = f"Its columns are {', '.join(table.columns)}."
        raise PipelineInvalid([Problem(stage, 1, f"stages.{stage}.expected", what, fix)])
    columns = [F.col(f"`{name}`") for name in expected.key]
    types = zip(keys.items(), columns, strict=False)
    parts = {name: column.cast(type_) for (name, type_), column in types} or {"key": columns[0]}
    value = schema[value_column(number)].dataType
    assert isinstance(value, StructType)
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in value]
    everything = {
        "kind": F.lit(kernel.RECORD),
        "hash": F.xxhash64("key"),
        "key": F.col("key"),
        "topic": F.lit(topic_of(expected.table)),
        "partition": F.lit(0),
        "offset": F.lit(seq),
        "timestamp": F.lit(0),
        "passes": F.lit(True),
        value_column(number): F.struct(*nulls),
        REPORT: F.lit(None),
        TO: F.lit(number),
    }
    rows = table.select(canonical_key(parts).alias("key")).where(F.col("key").isNotNull()).distinct()
    return rows.select(
        *[everything.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in schema]
    )
