"""Several sources: the union is that of plain SQL, and branches of one source are what they are alone."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from tidegate.spark.accounting import account_for, counts_of_sources, stage_counts
from tidegate.spark.case_parts import Outcome
from tidegate.spark.case_run import CaseRun
from tidegate.spark.frames import accounting_passes
from tidegate.spark.shuffle import Report, SliceReport, TaskReport
from tidegate.spark.steps import passes_of
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline
from tidegate.yaml.tree import read_exactly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE: dict[str, Any] = {
    "pipeline": "p",
    "sources": {
        "orders": {
            "topics": ["eu", "us"],
            "format": "json",
            "columns": "id bigint, amount bigint, note string, other string",
            "key": ["id"],
            "filter": "amount < 90",
        },
        "payments": {
            "topics": ["paid"],
            "format": "csv",
            "columns": "id bigint, amount bigint, method string",
            "key": ["id"],
        },
    },
    "stages": [
        {
            "name": "all",
            "from": ["orders", "payments"],
            "reduce": {
                "n": "count(*)",
                "sum": "sum(amount)",
                "notes": "count(note)",
                "methods": "count(distinct method)",
            },
            "emit": {"on": "update"},
        },
        {
            "name": "of_orders",
            "from": "orders",
            "reduce": {"n": "count(*)", "most": "max(amount)"},
            "emit": {"on": "update"},
        },
    ],
}
ORACLE = """
    select id, count(*), sum(amount)::bigint, count(note), count(distinct method)
    from (select * from orders where amount < 90 union all by name select * from payments)
    where id is not null group by id
"""
# Spark computes all values if one stage has an expression that tidegate does not compute itself.
IN_SPARK = {
    "name": "hexed",
    "from": "payments",
    "reduce": {"last": "last(hex(amount))"},
    "emit": {"on": "update"},
}


def drawn(dice: random.Random) -> tuple[list[CaseRecord], dict[str, list[dict[str, Any]]]]:
    """Records, and the rows of both sources in them."""
    rows: dict[str, list[dict[str, Any]]] = {"orders": [], "payments": []}
    records, offsets = [], {"eu": 0, "us": 0, "paid": 0}
    for instant in range(40):
        topic = dice.choice(list(offsets))
        row: dict[str, Any] = {"id": dice.choice((1, 2, 3, None)), "amount": dice.randint(80, 99)}
        if topic == "paid":
            row["method"] = dice.choice(("card", "cash", None))
            text = ",".join("" if value is None else str(value) for value in row.values())
        else:
            row["note"] = dice.choice(("x", None))
            text = json.dumps(row)
        rows["payments" if topic == "paid" else "orders"].append(row)
        records.append(CaseRecord(None, text.encode(), instant, topic, 0, offsets[topic]))
        offsets[topic] += 1
    return records, rows


def last_values(outcome: Outcome, stage: str) -> dict[str, tuple[Any, ...]]:
    return {
        key: tuple(read_exactly(emissions[-1].value).values())
        if isinstance(emissions[-1].value, str)
        else tuple((emissions[-1].value or {}).values())
        for key, emissions in outcome.by_key(stage).items()
    }


@pytest.mark.spark
@pytest.mark.parametrize(
    "stages", [PIPELINE["stages"], [*PIPELINE["stages"], IN_SPARK]], ids=["", "in Spark"]
)
def test_union_is_that_of_sql_however_cut(spark: SparkSession, stages: list[dict[str, Any]]) -> None:
    records, rows = drawn(random.Random(len(stages)))
    pipeline = parse_case_pipeline({**PIPELINE, "stages": stages}, "case")
    with duckdb.connect() as connection:
        for name, own in rows.items():
            connection.register(name, pa.Table.from_pylist(own))
        expected = {str(key): tuple(values) for key, *values in connection.execute(ORACLE).fetchall()}
    outcomes = CaseRun(spark, pipeline, records, stages=["all", "of_orders"]).run_all(
        [[], [7, 20], list(range(1, len(records)))]
    )
    assert len(expected) == 3
    for outcome in outcomes:
        assert outcome.error is None
        assert last_values(outcome, "all") == expected
    alone = {
        "pipeline": "p",
        "source": PIPELINE["sources"]["orders"],
        "stages": [stages[1] | {"from": "source"}],
    }
    orders = [record for record in records if record.topic != "paid"]
    (single,) = CaseRun(spark, parse_case_pipeline(alone, "case"), orders, stages=["of_orders"]).run_all()
    assert last_values(outcomes[0], "of_orders") == last_values(single, "of_orders")


def reports(of_union: int, of_orders: int) -> list[Report]:
    """A batch of ten orders, of which one is unusable and two are removed, and of five payments."""
    return [
        SliceReport("orders", "eu", 0, 0, 10, 10, 0, 0, None, unusable=1, removed=2),
        SliceReport("payments", "paid", 0, 0, 5, 5, 0, 0, None),
        TaskReport("all", 0, {"used": of_union, "quarantined": 1}, ()),
        TaskReport("of_orders", 0, {"used": of_orders}, ()),
    ]


def test_batch_has_the_counts_of_the_union() -> None:
    passes = passes_of(parse_case_pipeline(PIPELINE, "case"))
    batch_reports = reports(12, 7)
    counts = account_for(passes, stage_counts(batch_reports, passes), batch_reports)
    assert (counts["read"], counts["used"], counts["quarantined"], counts["removed"]) == (15, 12, 1, 2)
    of_sources = counts_of_sources(batch_reports)
    assert of_sources["orders:records"]["removed"] == 2
    assert sum(source["read"] for source in of_sources.values()) == 15


@pytest.mark.parametrize(
    ("inputs", "accounting"),
    [
        ([["a", "b"]], [0]),
        ([["a"], ["a", "b"]], [1]),
        ([["a"], ["a", "b"], ["b"]], [0, 2]),
        ([["b"], ["a"], ["c"]], [0, 1, 2]),
        ([["a", "b"], ["b", "c"]], [0]),
    ],
)
def test_each_source_is_accounted_for_once(inputs: list[list[str]], accounting: list[int]) -> None:
    source = {"format": "json", "columns": "id bigint", "key": ["id"]}
    names = sorted({name for sources in inputs for name in sources})
    stages = [
        {"name": f"s{at}", "from": sources, "emit": {"on": "update"}} for at, sources in enumerate(inputs)
    ]
    written = {name: {**source, "topics": [name]} for name in names}
    passes = passes_of(parse_case_pipeline({"pipeline": "p", "sources": written, "stages": stages}, "case"))
    assert sorted(passes.index(pass_) for pass_ in accounting_passes(passes)) == accounting


def test_records_of_left_over_sources_have_a_fate() -> None:
    source = {"format": "json", "columns": "id bigint", "key": ["id"]}
    written = {name: {**source, "topics": [name]} for name in "abc"}
    stages = [
        {"name": "s0", "from": ["a", "b"], "emit": {"on": "update"}},
        {"name": "s1", "from": ["b", "c"], "emit": {"on": "update"}},
    ]
    passes = passes_of(parse_case_pipeline({"pipeline": "p", "sources": written, "stages": stages}, "case"))
    batch_reports: list[Report] = [
        *(SliceReport(name, name, 0, 0, 4, 4, 0, 0, None, unusable=1) for name in "abc"),
        TaskReport("s0", 0, {"used": 6, "quarantined": 2}, ()),
        TaskReport("s1", 0, {"used": 6, "quarantined": 1}, ()),
    ]
    counts = account_for(passes, stage_counts(batch_reports, passes), batch_reports)
    assert (counts["read"], counts["used"], counts["quarantined"]) == (12, 9, 3)
