"""What Spark says, as typed errors that name the cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from grpc import StatusCode
from py4j.protocol import Py4JNetworkError
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from tidegate.errors import PipelineInvalid, RecordFailed, SparkLost
from tidegate.model.conversions import guarded
from tidegate.model.pipeline import Pipeline
from tidegate.spark.errors import translated
from tidegate.spark.semantics import require_deterministic
from tidegate.spark.session import changed
from tidegate.yaml.load import parse_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pipeline() -> Pipeline:
    return parse_pipeline(
        "pipeline: p\nsource: {topics: [t], format: string}\n"
        "stages: [{name: s, emit: {on: update}}]\nsinks: [{kind: kafka, topic: out}]\n",
        "p.yaml",
    )


@pytest.mark.spark
def test_failing_expression_is_named_with_its_text(spark: SparkSession, pipeline: Pipeline) -> None:
    frame = spark.range(3)
    with pytest.raises(RecordFailed) as caught, translated(pipeline):
        frame.selectExpr("id + 10 div id as n").collect()
    assert caught.value.what.startswith("`id + 10 div id as n` fails on a record's values: [DIVIDE_BY_ZERO]")
    assert "try_divide" in caught.value.fix
    for sql, sign in [
        ("cast(concat('x', id) as int)", "CAST_INVALID_INPUT"),
        ("array(id)[id + 1]", "INVALID_ARRAY_INDEX"),
        ("cast(id + 40000 as smallint)", "CAST_OVERFLOW"),
        ("id + 9223372036854775807L", "ARITHMETIC_OVERFLOW"),
        ("to_timestamp(concat('x', id), 'yyyy')", "CANNOT_PARSE_TIMESTAMP"),
    ]:
        with pytest.raises(RecordFailed, match=sign), translated(pipeline):
            frame.selectExpr(sql).collect()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sql", "sign"),
    [
        ("map_concat(map('x', id), map('x', 1))", "DUPLICATED_MAP_KEY"),
        ("map(nullif(id, 1), 1)", "NULL_MAP_KEY"),
        (
            "lpad(cast('a' as binary), -1 - cast(id as int), cast('b' as binary))",
            "NegativeArraySizeException: -",
        ),
        ("split(cast(id as string), '(')", "PatternSyntaxException: Unclosed group"),
        ("format_string('%d', cast(id as string))", "IllegalFormatConversionException: d"),
        ("sequence(1, id - 5, id)", "Illegal sequence boundaries"),
        ("to_number(concat('x', id), '99')", "INVALID_FORMAT"),
        ("regexp_replace('x', concat('(', id), '')", "INVALID_PARAMETER_VALUE"),
        ("date_format(timestamp_seconds(id), concat('b', id))", "INVALID_DATETIME_PATTERN"),
        (guarded("cast(concat('10:', id + 10) as timestamp)"), "`cast.*`: a time of day is no timestamp"),
    ],
)
@pytest.mark.parametrize("mode", ["FALLBACK", "NO_CODEGEN"], ids=["compiled", "interpreted"])
@pytest.mark.parametrize("planned", [True, False], ids=["while it is planned", "in a task"])
def test_whatever_an_expression_raises_is_typed(
    spark: SparkSession, pipeline: Pipeline, sql: str, sign: str, planned: bool, mode: str
) -> None:
    settings = {"spark.sql.codegen.factoryMode": mode}
    if mode == "NO_CODEGEN":
        settings["spark.sql.codegen.wholeStage"] = "false"
    frame = spark.createDataFrame([(1,)], "id bigint") if planned else spark.range(3)
    with (
        changed(spark, settings),
        pytest.raises(RecordFailed, match=sign) as caught,
        translated(pipeline),
    ):
        frame.selectExpr(f"{sql} as it").collect()
    assert "SQLSTATE" not in caught.value.what


@pytest.mark.spark
def test_expression_error_has_no_ansi_advice_or_log(
    spark: SparkSession, pipeline: Pipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RecordFailed) as caught, translated(pipeline):
        spark.createDataFrame([(0,)], "id bigint").selectExpr("1 div id as it").collect()
    assert "try_divide" in caught.value.what
    assert "ansi" not in str(caught.value)
    assert "JVM" not in capfd.readouterr().err


def test_java_error_through_connect_is_typed(pipeline: Pipeline) -> None:
    says = (
        "(java.lang.NegativeArraySizeException) -1\n\nJVM stacktrace:\njava.lang.NegativeArraySizeException"
    )
    with pytest.raises(RecordFailed, match="NegativeArraySizeException: -1"), translated(pipeline):
        raise SparkConnectGrpcException(message=says)


@pytest.mark.spark
def test_an_expression_that_spark_calls_nondeterministic_is_refused(spark: SparkSession) -> None:
    with pytest.raises(PipelineInvalid, match="deterministic"):
        require_deterministic(spark.range(1), ["rand()"], "p")


@pytest.mark.parametrize(
    ("status", "says", "message"),
    [
        (StatusCode.UNAVAILABLE, "Socket closed", "ended, was restarted, or hangs"),
        (StatusCode.INTERNAL, "[INVALID_HANDLE.SESSION_CHANGED] The handle is invalid", "was restarted"),
        (StatusCode.RESOURCE_EXHAUSTED, "too many calls", "takes no more: too many calls"),
        (StatusCode.INTERNAL, "Cannot call methods on a stopped SparkContext.", "was ended"),
        (StatusCode.INTERNAL, "Job 3 cancelled because SparkContext was shut down", "was ended"),
        (StatusCode.INTERNAL, "[OPERATION_CANCELED] Operation has been canceled.", "interrupted"),
        (StatusCode.INTERNAL, "Python worker exited unexpectedly (crashed)", "Python worker of Spark has"),
    ],
)
def test_server_lost_during_a_batch_is_transient(
    pipeline: Pipeline, status: StatusCode, says: str, message: str
) -> None:
    with pytest.raises(SparkLost, match=message), translated(pipeline):
        raise SparkConnectGrpcException(message=says, grpc_status_code=status)


def interrupted() -> None:
    """PySpark calls the JVM on the way out, after py4j has closed the connection for the signal."""
    try:
        raise KeyboardInterrupt
    finally:
        raise Py4JNetworkError("An error occurred while trying to connect to the Java server")


def test_signal_behind_a_lost_connection_is_raised(pipeline: Pipeline) -> None:
    with pytest.raises(KeyboardInterrupt), translated(pipeline):
        interrupted()
