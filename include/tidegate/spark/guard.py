"""Find the records on which an expression of a stage fails, where Spark computes it.

Spark computes whole batches: if an expression fails on one record, the job fails, and the error does not name
the record. In the good case nothing is tested. Only if a job has failed so, it is computed once more with a
guard, which tests each expression on each record before Spark computes the values. So one more job finds all
such records, in every stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from tidegate.errors import RecordFailed
from tidegate.kernel.unusable import GO_ON, RECORD_FAILED
from tidegate.model.conversions import guarded
from tidegate.spark.errors import EXPRESSION_FIX, report_worker_errors
from tidegate.spark.steps import KernelPass

_FAILED = "__failed"
"""The column with the failure of a record; null for the others."""
_REPORTED = re.compile("`(.+?)` fails on")
"""The part of an expression that Spark's message names."""
_EPOCH = date(1970, 1, 1)
SETTINGS = {
    # Spark would compute what several expressions have in common before, and outside of, the test
    "spark.sql.subexpressionElimination.enabled": "false",
}
"""Spark's settings for a job with a guard."""


@dataclass(frozen=True)
class Guard:
    """Tests expressions on records, since one of them has failed in the batch.

    Args:
        failure: the message of the job that has failed.
        pass_: the pass whose expressions are tested.
        is_later: whether the pass reads emissions of another stage, and not records.
    """

    failure: str
    pass_: KernelPass
    is_later: bool

    def quarantine_failing(self, frame: DataFrame, expressions: Sequence[str], tested: Column) -> DataFrame:
        """Return the frame, in which each tested record that an expression fails on has a `__reason`.

        If the stage stops for such records, the task fails with RecordFailed instead, which names the record.
        """
        failure = _first_failure({sql: self._text(sql) for sql in expressions})
        marked = frame.withColumn(_FAILED, F.when(tested, failure))
        # Spark moves no expression over a task of Python: otherwise it might compute one without its test
        task = _Report(self._stops, self.pass_.name if self.is_later else "")
        marked = marked.mapInArrow(task, nullable(marked.schema))
        reason = F.concat(F.lit(f"{RECORD_FAILED}: "), F.col(_FAILED))
        return marked.withColumn("__reason", F.coalesce("__reason", reason)).drop(_FAILED)

    def _text(self, sql: str) -> str:
        """Return the failure of an expression: Spark's message, if it may be that of this expression."""
        reported = _REPORTED.match(self.failure)
        is_reported = reported is None or reported[1] in sql
        return self.failure if is_reported and self._stops else f"`{sql}` has no result"

    @property
    def _stops(self) -> bool:
        return self.pass_.logic.on_error == "stop"


def guards_of(failure: str | None, level: Iterable[KernelPass]) -> dict[str, Guard]:
    """Return stage -> its guard; empty without a failure."""
    if failure is None:
        return {}
    stages = [pass_ for pass_ in level if not pass_.is_filter]
    return {stage.name: Guard(failure, stage, is_later=not stage.reads_source) for stage in stages}


def _first_failure(texts: Mapping[str, str]) -> Column:
    """Return the text of the first expression that fails on a record; null if none does.

    Spark has no function that only tests an expression. `try_add` of a date gives null if an operand fails,
    and never else: the size of an array of one value is 1, whatever the value is.
    """
    # One test for each expression: several may have one text.
    failed = [
        F.when(F.try_add(F.lit(_EPOCH), F.size(F.array(F.expr(guarded(sql))))).isNull(), text)
        for sql, text in texts.items()
    ]
    return F.coalesce(*failed)


@dataclass(frozen=True)
class _Report:
    """Passes on all rows; fails at a record with a failure if the stage stops for it."""

    stops: bool
    stage: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self.stops:
                self._require_none(batch)
            yield batch

    def _require_none(self, rows: pa.RecordBatch) -> None:
        failed = rows.filter(rows.column(_FAILED).is_valid())
        if not failed.num_rows:
            return
        place = (failed.column(f"__{name}")[0].as_py() for name in ("topic", "partition", "offset"))
        what = (f"In the stage `{self.stage}`: " if self.stage else "") + failed.column(_FAILED)[0].as_py()
        with report_worker_errors():
            raise RecordFailed.with_command(what, f"{EXPRESSION_FIX} {GO_ON}", *place)


def nullable(type_: DataType) -> DataType:
    """Return the type with all of its parts nullable."""
    if isinstance(type_, StructType):
        return StructType([StructField(field.name, nullable(field.dataType)) for field in type_])
    if isinstance(type_, ArrayType):
        return ArrayType(nullable(type_.elementType))
    if isinstance(type_, MapType):
        return MapType(nullable(type_.keyType), nullable(type_.valueType))
    return type_
