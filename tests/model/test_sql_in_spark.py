"""What is believed about Spark, asked of Spark itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from tests.model.expressions import ALLOWED, COLUMNS
from tidegate.model.columns import parse_columns
from tidegate.model.sql import classified

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TYPES = [
    "byte",
    "short",
    "integer",
    "long",
    "real",
    "dec(4)",
    "numeric",
    "timestamp_ltz",
    "array<map<string,struct<`x-y` int, z: decimal(5,2)>>>",
]
RANDOM = ["rand()", "`rand`()", "identifier('rand')()", "r'\\' || rand() || r'\\'", "array(rand(), 2)[0]"]
OF_THE_CLOCK = [
    "cast('now' as timestamp)",
    "timestamp'today UTC'",
    "coalesce(cast(null as timestamp), '\\156ow')",
    "coalesce(cast(null as timestamp), 'n\\ow')",
    "cast(concat('no', 'w') as timestamp)",
    "cast(cast(x'6E6F77' as string) as timestamp)",
    "cast('n' 'ow' as timestamp)",
]

Select = Callable[[str], "DataFrame"]


@pytest.fixture(scope="module")
def select(spark: SparkSession) -> Select:
    """An expression over one row of nulls, in a session with Spark's own settings."""
    from pyspark.sql import functions as F  # noqa: N812

    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.variable.substitute", "true")
    width = len(session.createDataFrame([], COLUMNS).columns)
    frame = session.createDataFrame([(None,) * width], COLUMNS)
    return lambda expression: frame.select(F.expr(expression).alias("it"))


def deterministic(selected: DataFrame) -> bool:
    """Return whether Spark considers the expression deterministic."""
    return bool(selected._jdf.queryExecution().analyzed().expressions().head().deterministic())


def value(selected: DataFrame) -> Any:
    return selected.collect()[0][0]


@pytest.fixture(scope="module")
def functions(spark: SparkSession) -> set[str]:
    return {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}


def test_every_spark_function_is_allowed_or_refused(functions: set[str]) -> None:
    assert functions - classified().keys() == set()


def test_every_classified_function_exists(functions: set[str]) -> None:
    of_the_grammar = {name for name, group in classified().items() if group.name == "grammar"}
    assert classified().keys() - of_the_grammar - functions == set()


@pytest.mark.parametrize("expression", ALLOWED)
def test_allowed_functions_exist_in_spark_and_are_deterministic(select: Select, expression: str) -> None:
    assert deterministic(select(expression))


@pytest.mark.parametrize("expression", RANDOM)
def test_chance_really_hides_there(select: Select, expression: str) -> None:
    assert not deterministic(select(expression))


@pytest.mark.parametrize("expression", OF_THE_CLOCK)
def test_spark_calls_hidden_clocks_deterministic(select: Select, expression: str) -> None:
    selected = select(expression)
    assert deterministic(selected)
    assert (
        abs(value(selected.selectExpr("unix_seconds(it)")) - datetime.now(timezone.utc).timestamp()) < 90_000
    )


def test_clock_word_in_a_text_is_allowed(select: Select) -> None:
    choice = "case when quantity is null then 'now' else 'later' end"
    assert value(select(choice)) == "now"
    assert value(select(f"try_cast({choice} as timestamp)")) is None


@pytest.mark.parametrize("expression", ["'${env:PATH}'", "'\\${env:PATH}'"])
def test_spark_really_puts_the_environment_into_texts(select: Select, expression: str) -> None:
    assert "/bin" in value(select(expression))


@pytest.mark.parametrize("type_", TYPES)
def test_types_are_normalised_as_spark_does(select: Select, type_: str) -> None:
    columns, faults = parse_columns(f"c {type_}")
    assert faults == []
    assert columns[0].type.replace("`", "") == value(select(f"typeof(cast(null as {type_}))"))
