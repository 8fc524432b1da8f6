"""Expressions mean the same in every session, whoever made it and however it was set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.world import World, key_of
from tidegate.spark.semantics import PINNED, pin_semantics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOSTILE = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.parseNullPartitionSpecAsStringLiteral": "true",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.legacy.literal.pickMinimumPrecision": "false",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.variable.substitute": "true",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
}
EXPRESSIONS = (
    "cast('x' as int)",
    "int(2147483647) + int(1)",
    "ID",
    "hour(timestamp_millis(0))",
    "cast(timestamp '2024-01-01 00:00:00' as bigint)",
    "typeof(timestamp '2024-01-01 00:00:00')",
    "map('a', 1, 'a', 2)['a']",
    "cast(1.2345678901234567890123456789 as decimal(38,28)) * cast(3.5 as decimal(38,10))",
    "to_date('2024-1-1x', 'yyyy-M-d')",
    r"length('\t')",
    "cast(struct(1, null) as string)",
    "to_json(struct(cast(null as int) as a))",
    "'${spark.sql.caseSensitive}'",
)
Outcomes = Callable[["SparkSession"], dict[str, str]]


def outcomes(session: SparkSession) -> dict[str, str]:
    """Return the result of each expression over one row: its value, or the condition of its error."""

    def outcome(expression: str) -> str:
        from pyspark.errors import PySparkException

        try:
            row: Any = session.range(1).selectExpr(f"{expression} as it").collect()[0][0]
        except PySparkException as error:
            return str(error.getCondition() or "error").split(".")[0]
        return repr(row)

    return {expression: outcome(expression) for expression in EXPRESSIONS}


def hostile(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    for name, value in HOSTILE.items():
        session.conf.set(name, value)
    return session


def test_foreign_session_settings_change_no_result(spark: SparkSession) -> None:
    plain = spark.newSession()
    pin_semantics(plain)
    expected = outcomes(plain)
    session = hostile(spark)
    before = outcomes(session)
    assert [expression for expression in EXPRESSIONS if before[expression] == expected[expression]] == []
    pin_semantics(session)
    assert outcomes(session) == expected


def test_performance_settings_stay_as_they_were(spark: SparkSession) -> None:
    session = hostile(spark)
    session.conf.set("spark.sql.files.maxPartitionBytes", "1000000")
    session.conf.set("spark.sql.parquet.compression.codec", "zstd")
    pin_semantics(session)
    assert session.conf.get("spark.sql.files.maxPartitionBytes") == "1000000"
    assert session.conf.get("spark.sql.parquet.compression.codec") == "zstd"
    assert {name: session.conf.get(name) for name in PINNED} == PINNED


def test_pinned_settings_are_the_spark_defaults(spark: SparkSession) -> None:
    """But for the time zone, which it takes from the machine, and for variables."""
    session = spark.newSession()
    own = {"spark.sql.session.timeZone", "spark.sql.variable.substitute"}
    for name in PINNED:
        session.conf.unset(name)
    settings = {name: session.conf.get(name) for name in PINNED if name not in own}
    assert settings == {name: value for name, value in PINNED.items() if name not in own}


@pytest.mark.broker
def test_hostile_session_gives_the_same_batch(world: World, spark: SparkSession) -> None:
    expression = "hour(timestamp_millis(quantity)) = 0 and STOREID = storeId and quantity > 0"
    world.write_pipeline(**{"quantity > 0": expression})
    world.open_session = lambda _: hostile(spark)
    world.stock(1, 0, 7)
    world.run()
    assert world.published() == {key_of(): [True, False, True]}
