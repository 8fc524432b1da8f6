"""A time of day is no timestamp, whoever converts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tidegate.errors import PipelineInvalid
from tidegate.model.conversions import as_written, guarded
from tidegate.spark.semantics import pin_semantics, require_no_conversions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "s string, j string, at timestamp, d date, n bigint, x decimal(5,2), ntz timestamp_ntz, "
    "ss array<string>, ds array<date>, ats array<timestamp>, m map<timestamp,int>"
)
CONVERTED_BY_SPARK = [
    *("at > s", "s <= at", "at = s", "at <=> s", "at in (s)", "at between s and s", "nullif(at, s)"),
    *("coalesce(at, s)", "case when n > 0 then at else s end", "if(n > 0, s, at)", "array(at, s)"),
    *("m[s]", "transform(ss, x -> x > at)", "exists(ats, x -> x = s)"),
    *(
        "hour(s)",
        "minute(concat(s, ''))",
        "extract(hour from s)",
        "date_part('hour', s)",
        "date_trunc('day', s)",
    ),
    *("date_format(s, 'yyyy')", "from_utc_timestamp(s, 'UTC')", "timestampadd(day, 1, s)"),
    *("timestampdiff(day, s, at)", "months_between(s, at)", "s + interval 1 day", "s - at"),
    *("from_json(j, 'a timestamp').a", "from_csv(s, 'a timestamp').a", "cast(ss as array<timestamp>)"),
    *("from_json(j, 'a array<struct<b: timestamp>>')", "at > concat(s, ':30')", "hour(upper(s))"),
    "from_json(j, 'a timestamp', map('timestampFormat', 'HH:mm', 'enableDateTimeParsingFallback', 'true'))",
    *(
        "at > '10:30'",
        "coalesce(at, 'T10')",
        "hour(coalesce('1:2', s))",
        "cast(array('10:30') as array<timestamp>)",
    ),
]
ACCEPTED = [
    *(
        "at > d",
        "at > ntz",
        "at > timestamp'2026-01-31 10:30:00'",
        "at > '2026-01-31'",
        "hour(at)",
        "hour(d)",
    ),
    *("at > cast(s as timestamp)", "hour(to_timestamp(s, 'HH:mm'))", "hour(cast(s as timestamp))"),
    *("at > date_add(d, 1)", "at > to_date(s)", "at > cast(s as date)", "at = last_day(d)", "year(s)"),
    *("from_json(j, 'a timestamp_ntz').a", "from_json(j, 'a string').a", "unix_timestamp(s)", "n > 1"),
    "from_json(j, 'a timestamp', map('timestampFormat', 'yyyy-MM-dd HH:mm')).a",
    *("s = '10:30'", "concat(s, ' 10:30')", "s like '10:30'", "split(s, '10:')", "date_format(at, 'HH:mm')"),
    *("cast(at as string)", "transform(ds, x -> date_add(x, 1))", "s || '10:30' > 'T10'", "ats[0] > at"),
    "cast(concat(cast(d as string), 'T10:30:00Z') as timestamp) > at",
]
EXPLICIT = [
    *("cast(s as timestamp)", "CAST ( s AS TIMESTAMP_LTZ )", "timestamp(s)", "to_timestamp(s)"),
    *("to_timestamp_ltz(concat(s, ''))", "cast(cast(cast(s as timestamp) as string) as timestamp)"),
    *("transform(array(s), x -> cast(x as timestamp))[0]", "date_trunc('day', cast(s as timestamp))"),
]
TRIED = ["try_cast(s as timestamp)", "try_to_timestamp(s)", "coalesce(try_cast(s as timestamp), at)"]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    own = spark.newSession()
    pin_semantics(own)
    return own


@pytest.fixture(scope="module")
def frame(session: SparkSession) -> DataFrame:
    return session.createDataFrame([], COLUMNS)


def computed(session: SparkSession, sql: str, text: str) -> Any:
    """The value of the guarded expression where `s` is the text."""
    from pyspark.sql import functions as F  # noqa: N812

    row = (
        session.createDataFrame([(text,)], "s string")
        .repartition(1)
        .selectExpr("s", "cast(null as timestamp) as at")
    )
    return row.select(F.expr(guarded(sql)).cast("string")).collect()[0][0]


@pytest.mark.spark
@pytest.mark.parametrize("sql", CONVERTED_BY_SPARK)
@pytest.mark.sample(10)
def test_implicit_conversion_of_text_is_refused(frame: DataFrame, sql: str) -> None:
    with pytest.raises(PipelineInvalid, match="takes a text for a timestamp"):
        require_no_conversions(frame, ["n + 1", sql], "p")


@pytest.mark.spark
def test_other_expressions_are_accepted(frame: DataFrame) -> None:
    require_no_conversions(frame, ACCEPTED, "p")


@pytest.mark.sample(1)
@pytest.mark.spark
@pytest.mark.parametrize("sql", EXPLICIT)
def test_cast_fails_only_on_a_time_of_day(session: SparkSession, sql: str) -> None:
    for text in ("10:30", " 1:2", "T10", "\tT10:30:00.5", "23:59:59"):
        with pytest.raises(PySparkException, match="time of day is no timestamp"):
            computed(session, sql, text)
    assert computed(session, sql, "2026-01-31 00:00:00") == "2026-01-31 00:00:00"
    assert computed(session, sql, "2026-01-31") == "2026-01-31 00:00:00"
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        computed(session, sql, "Tuesday")


@pytest.mark.spark
@pytest.mark.parametrize("sql", TRIED)
@pytest.mark.sample(1)
def test_try_cast_gives_null_for_time_of_day(session: SparkSession, sql: str) -> None:
    assert computed(session, sql, "10:30") is None
    assert computed(session, sql, "T10") is None
    assert computed(session, sql, "2026-01-31 00:00:00") == "2026-01-31 00:00:00"


@pytest.mark.spark
def test_a_guard_changes_no_other_value(session: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    row = session.range(1).selectExpr(
        "1.25 as x", "5 as n", "date'2026-01-31' as d", "timestamp'2026-01-31 10:30:00' as at",
        "timestamp_ntz'2026-01-31 10:30:00' as ntz", "cast(null as string) as nothing", "2.5D as f",
    )  # fmt: skip
    for sql in ("cast(x as timestamp)", "cast(n as timestamp)", "cast(d as timestamp)", "to_timestamp(at)",
                "timestamp(ntz)", "cast(nothing as timestamp)", "try_cast(f as timestamp)"):  # fmt: skip
        plain, guard = row.select(F.expr(sql).alias("a"), F.expr(guarded(sql)).alias("b")).collect()[0]
        assert plain == guard


@pytest.mark.parametrize(
    "sql",
    [
        "to_timestamp(s, 'HH:mm')",
        "cast(s as date)",
        "cast(s as timestamp_ntz)",
        "'cast(s as timestamp)'",
        "x.timestamp",
    ],
)
def test_expression_without_conversion_is_unchanged(sql: str) -> None:
    assert guarded(sql) == sql


def test_conversion_error_names_the_original_expression() -> None:
    written = "date_trunc('day', cast(s as timestamp))"
    fragment = guarded("cast(s as timestamp)")
    assert fragment != "cast(s as timestamp)"
    assert as_written(fragment, ["n + 1", written]) == written
    assert as_written("n + 1", [written]) == "n + 1"
