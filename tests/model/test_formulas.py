"""`reduce`: columns that are expressions over aggregates."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import made, refused
from tidegate.kernel import Aggregate, Aggregates
from tidegate.model.compiled import compile_pipeline, read_compiled


def reduced(**columns: str) -> Aggregates:
    reduce = made({"reduce": columns}).stages[0].reduce
    assert isinstance(reduce, Aggregates)
    return reduce


def test_formula_is_of_its_aggregates() -> None:
    reduce = reduced(mean="sum(price) / count(*)")
    assert [aggregate.text for aggregate in reduce] == ["sum(price)", "count(*)"]
    assert reduce.formulas[0].tree[0] == "/"
    assert reduce.description == ["mean: sum(price) / count(*)"]


def test_only_formulas_are_emitted() -> None:
    stage = made({"reduce": {"mean": "sum(price) / count(*)", "n": "count(*)"}}).stages[0]
    assert stage.emitted == ("mean", "n")
    assert [*stage.values.values()] == ["1", "price"]


def test_each_aggregate_is_stored_once() -> None:
    other = "sum( price ) - sum(price) filter (where ok)"
    reduce = reduced(a="sum(price) / count(*)", n="COUNT( * )", b=other)
    texts = ["count(*)", "sum(price)", "sum(case when (ok) then price end)"]
    assert [aggregate.text for aggregate in reduce] == texts
    assert reduce.aggregates[0].name == "n"


def test_edited_formula_keeps_the_names_of_its_aggregates() -> None:
    before = reduced(a="sum(price) / count(*)")
    after = reduced(a="100 * sum(price) / count(*)", b="count(*) + 1")
    assert {aggregate.name for aggregate in before} == {aggregate.name for aggregate in after}


def test_single_aggregate_needs_no_formula() -> None:
    assert reduced(n="count(*)", m="(sum(id))").aggregates[1] == Aggregate("m", "sum", "id")
    assert not reduced(n="count(*)").formulas


RESULTS = {
    "sum(id) / count(*)": "double",
    "cast(sum(cents) as double) / count(*)": "double",
    "sum(id) div count(*)": "bigint",
    "coalesce(sum(id), 0)": "bigint",
    "coalesce(sum(cents), 0)": "decimal(20,2)",
    "case when count(*) > 10 then 'many' else 'few' end": "string",
    "if(bool_and(ok), max(id), null)": "bigint",
    "count(*) > 1 and bool_or(ok)": "boolean",
    "-max(id) filter (where ok) + 1": "bigint",
    "max(id) - min(id)": "bigint",
    "size(collect_set(name))": "int",
    "concat(min(name), '-', max(name))": "string",
    "round(avg(price), 2)": "double",
    "round(avg(cents), 2)": "decimal(11,2)",
    "1": "int",
    "'all'": "string",
}


@pytest.mark.parametrize("text", RESULTS)
def test_formula_has_the_type_of_spark(text: str) -> None:
    later = made({"reduce": {"x": text, "n": "count(*)"}}, {"select": {"y": "x"}}).stages[1]
    assert later.types == {"y": RESULTS[text]}


def test_constants_alone_are_no_aggregate() -> None:
    ((field, message, fix),) = refused({"reduce": {"x": "1"}})
    assert (field, message) == ("stages.0.reduce", "there is no aggregate")
    assert "sum(quantity)" in fix


def test_condition_of_a_stage_can_name_a_formula() -> None:
    assert made({"reduce": {"mean": "sum(id) / count(*)"}, "where": "mean > 1.5"}).stages[0].condition


def test_plan_has_the_formula() -> None:
    pipeline: Any = made({"reduce": {"mean": "sum(id) / nullif(count(name), 0)", "n": "count(*)"}})
    assert read_compiled(compile_pipeline(pipeline), pipeline.text, "plan").stages == pipeline.stages
