"""The meaning of Spark's expressions: set by tidegate in every session, however the session was made or set.

A batch is a pure function of its plan. A `spark-defaults.conf`, the conf of an Airflow connection or a
notebook may change how fast Spark is, but not what it computes. Expressions are refused whose value depends
on chance, or in which Spark itself converts a text to a timestamp: it takes a time of day as that time of the
day on which it runs. `model.conversions` guards a conversion that is written out. If Spark converts a text by
itself, as in `at > s`, there is nothing to guard.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from tidegate.errors import PipelineInvalid, Problem
from tidegate.model import lexis
from tidegate.model.conversions import with_constants_as_columns, without_conversions
from tidegate.spark.session import changed

PINNED = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # ${env:…} in an expression would read the driver's environment
    "spark.sql.variable.substitute": "false",
    # missing files are an error, never "no data"
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # days and times before 1582 and 1900 are written and read as they are
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
"""Setting -> value, for settings that change the result of an expression."""
_FAMILIES = (
    *("spark.sql.legacy.", "spark.sql.ansi.", "spark.sql.parser.", "spark.sql.json", "spark.sql.session."),
    *("spark.sql.parquet.binaryAsString", "spark.sql.parquet.int96", "spark.sql.parquet.inferTimestampNTZ"),
    *("spark.sql.parquet.fieldId", "spark.sql.parquet.mergeSchema", "spark.sql.parquet.outputTimestampType"),
    *("spark.sql.columnNameOfCorruptRecord", "spark.sql.sources.partitionColumnTypeInference"),
    *("spark.sql.charAsVarchar", "spark.sql.readSideCharPadding", "spark.sql.optimizer.excludedRules"),
)
"""Prefixes of settings that are reset to Spark's own default, unless they are pinned."""
_CONSTANT = "__constant"
_ALL_FIELDS = {"spark.sql.debug.maxToStringFields": "1000000", "spark.sql.maxPlanStringLength": "2000000000"}
_OPTIMIZED = re.compile(r"^== Optimized Logical Plan ==\n(.*?)^== Physical Plan ==", re.DOTALL | re.MULTILINE)
_CONVERTED = re.compile(r" as (?:timestamp|[a-z]+<[^()]*\btimestamp\b[^()]*>)\)")
_COLUMN = re.compile(r"([^(),\[\]]+)#\d+")
# Values with a date of their own: a cast of them to a timestamp cannot take the date of today.
_DATE_OPERAND = re.compile(
    r"(?:date_add|date_sub|add_months|last_day|next_day|make_date|trunc|date_from_unix_date)\(.*\)"
    r"|cast\(.* as (?:date|timestamp_ntz)\)",
    re.DOTALL,
)
_PARSED = re.compile(r"\bfrom_(?:json|csv)\(")


def pin_semantics(spark: SparkSession) -> None:
    """Set the session to the pinned semantics. Repeat it for each batch: a session may be shared."""
    for name in spark.conf.getAll:
        if name.startswith(_FAMILIES) and name not in PINNED and spark.conf.isModifiable(name):
            spark.conf.unset(name)
    for name, value in PINNED.items():
        spark.conf.set(name, value)


def require_functions_of_records(frame: DataFrame, expressions: Sequence[str], pipeline: str) -> None:
    """Raise PipelineInvalid if the value of an expression depends on anything but the record."""
    require_deterministic(frame, expressions, pipeline)
    require_no_conversions(frame, expressions, pipeline)


def require_deterministic(frame: DataFrame, expressions: Iterable[str], pipeline: str) -> None:
    """Let Spark itself check what `spec` has checked by name. Raises PipelineInvalid for another value each
    time.

    Spark allows only deterministic expressions in the condition of a join; it is only analysed, never run.
    """
    other = frame.sparkSession.range(0).toDF("__nothing")
    for expression in expressions:
        try:
            _ = frame.join(other, F.expr(expression).isNotNull()).schema
        except AnalysisException as error:
            if "NON_DETERMINISTIC" not in (error.getCondition() or ""):
                raise
            message = f"`{expression}` gives another value each time it is evaluated"
            fix = "A retry must compute the same bytes: use deterministic functions only."
            raise PipelineInvalid([Problem(pipeline, 1, "stages", message, fix)]) from error


def require_no_conversions(frame: DataFrame, expressions: Sequence[str], pipeline: str) -> None:
    """Raise PipelineInvalid if Spark itself converts a text to a timestamp in one of the expressions.

    Only Spark knows the types, and where it converts: this reads its optimized plan, in which functions such
    as `hour` are replaced by what they do. Conversions that are written out, which are guarded, are left out.
    """
    columns = [field for field in frame.schema if not field.name.startswith("__")]
    types = {field.name.lower(): field.dataType.simpleString() for field in columns}
    for sql in expressions:
        if _may_convert(sql, types.values()) and _converts(_plan(frame, columns, sql), types):
            message = f"`{sql}` takes a text for a timestamp, and of a time of day Spark would make today's"
            fix = "Convert it: `cast(x as timestamp)` of a text with its date, or `to_timestamp(x, 'HH:mm')`."
            raise PipelineInvalid([Problem(pipeline, 1, "stages", message, fix)])


def _may_convert(sql: str, types: Iterable[str]) -> bool:
    """Return False only if no timestamp can occur: without a call, a text or an interval, a column must be
    one.
    """
    words, _ = lexis.split(sql)
    calls, _ = lexis.calls(words)
    timed = any("timestamp" in type_ for type_ in types)
    return bool(calls) or any(word.kind == "string" or word.says("interval") for word in words) or timed


def _plan(frame: DataFrame, columns: Sequence[StructField], sql: str) -> str:
    """Return Spark's optimized plan of an expression over unknown values of these columns.

    Constants would be computed in it, so a text that is a time of day becomes a column, where it can.
    """
    schema = StructType([*columns, StructField(_CONSTANT, StringType())])
    session = frame.sparkSession
    unknown = session.range(1).mapInArrow(lambda batches: batches, schema)
    replaced = without_conversions(sql)
    for text in (with_constants_as_columns(replaced, _CONSTANT), replaced):
        printed = io.StringIO()
        try:
            with changed(session, _ALL_FIELDS), redirect_stdout(printed):
                unknown.select(F.expr(text).alias("it")).explain(True)
        except AnalysisException:
            continue  # Spark wants a constant there; a later step reports what is wrong with the expression
        plan = _OPTIMIZED.search(printed.getvalue())
        return plan[1] if plan else ""
    return ""


def _converts(plan: str, types: Mapping[str, str]) -> bool:
    for match in _CONVERTED.finditer(plan):
        operand = _before(plan, match.start())
        column = _COLUMN.fullmatch(operand)
        type_ = types.get(column[1].lower(), "string") if column else "string"
        if "string" in type_ and not _DATE_OPERAND.fullmatch(operand):
            return True
    return any(_parses_timestamps(_behind(plan, match.end())) for match in _PARSED.finditer(plan))


def _parses_timestamps(arguments: str) -> bool:
    """Return whether `from_json` or `from_csv` reads a timestamp as `cast` does, for want of a format."""
    has_format = "(timestampformat," in arguments.lower()
    falls_back = "enabledatetimeparsingfallback" in arguments.lower()
    return "TimestampType" in arguments and (falls_back or not has_format)


def _before(plan: str, end: int) -> str:
    """Return the text from the parenthesis that is still open at `end` to `end`."""
    depth = 0
    for at in range(end - 1, -1, -1):
        depth += (plan[at] == ")") - (plan[at] == "(")
        if depth < 0:
            return plan[at + 1 : end]
    return plan[:end]


def _behind(plan: str, start: int) -> str:
    """Return the text from `start` to the parenthesis that closes it."""
    depth = 1
    for at in range(start, len(plan)):
        depth += (plan[at] == "(") - (plan[at] == ")")
        if depth == 0:
            return plan[start:at]
    return plan[start:]
