"""`reduce`: aggregates, and what is emitted with each way to reduce."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.model.files import COLLECT, COUNT, LATEST, made, refused
from tidegate.kernel import Aggregate, Aggregates, Latest
from tidegate.kernel.aggregates import FUNCTIONS
from tidegate.model.aggregates import NAMES
from tidegate.model.kernel_stages import value_schema
from tidegate.model.stage import Stage


def stage(text: str) -> Stage:
    return made({"reduce": {"x": text}}).stages[0]


def test_count_of_records_has_no_argument() -> None:
    assert stage("count(*)").reduce == Aggregates((Aggregate(name="x", function="count", argument=None),))
    assert stage("COUNT ( * )").values == {"x": "1"}


@pytest.mark.parametrize(
    "function", [name for name in NAMES if not (FUNCTIONS[name].chooses or FUNCTIONS[name].parameter)]
)
def test_an_aggregate_is_of_one_expression(function: str) -> None:
    argument = "(id > (1))" if FUNCTIONS[function].takes == "booleans" else "if(ok, (id + 1), null)"
    parsed = stage(f" {function.upper()} ({argument}) ")
    assert parsed.reduce == Aggregates((Aggregate(name="x", function=function, argument=argument),))
    assert parsed.values == {"x": argument}


def test_distinct_values_are_counted() -> None:
    parsed = stage("count(DISTINCT upper(name))")
    assert parsed.reduce == Aggregates((Aggregate("x", "count_distinct", "upper(name)"),))
    assert parsed.reduce.description == ["x: count(distinct upper(name))"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("count(*) filter (where ok)", "case when (ok) then 1 end"),
        ("sum(id) FILTER (WHERE id > (2))", "case when (id > (2)) then id end"),
        ("count(distinct id) filter (where ok or id > 1)", "case when (ok or id > 1) then id end"),
    ],
)
def test_filter_leaves_null_where_it_is_not_true(text: str, value: str) -> None:
    assert stage(text).values == {"x": value}


def test_choosing_aggregate_has_two_expressions() -> None:
    parsed = stage("min_by(upper(name), greatest(id, 1)) filter (where ok)")
    by = "case when (ok) then greatest(id, 1) end"
    assert parsed.reduce == Aggregates((Aggregate("x", "min_by", "upper(name)", by),))
    assert parsed.values == {"x": f"named_struct('value', upper(name), 'by', {by})"}
    assert parsed.reduce.description == [f"x: min_by(upper(name), {by})"]


@pytest.mark.parametrize(
    ("text", "aggregate"),
    [
        ("percentile(id + 1, 0.95)", Aggregate("x", "percentile", "id + 1", None, 0.95)),
        ("percentile(id, 1)", Aggregate("x", "percentile", "id", None, 1)),
        ("TOP(greatest(id, 1), 3)", Aggregate("x", "top", "greatest(id, 1)", None, 3)),
        ("top(name, 3, price)", Aggregate("x", "top", "name", "price", 3)),
        (
            "top(name, 3, price) filter (where ok)",
            Aggregate("x", "top", "name", "case when (ok) then price end", 3),
        ),
    ],
)
def test_constant_is_part_of_the_aggregate(text: str, aggregate: Aggregate) -> None:
    assert stage(text).reduce == Aggregates((aggregate,))
    assert stage(aggregate.text).reduce == Aggregates((aggregate,))


RESULTS = {
    "top(cents, 2)": "array<decimal(10,2)>",
    "top(name, 2, hour(at))": "array<string>",
    "percentile(cents, 0.5)": "double",
    "median(id)": "double",
    "approx_count_distinct(hour(at))": "bigint",
    "count(*)": "bigint",
    "count(distinct name)": "bigint",
    "sum(id)": "bigint",
    "sum(cents)": "decimal(20,2)",
    "avg(cents)": "decimal(14,6)",
    "avg(id)": "double",
    "variance(cents)": "double",
    "stddev(id)": "double",
    "bool_and(ok)": "boolean",
    "max(name)": "string",
    "max_by(name, id)": "string",
    "collect_set(id)": "array<bigint>",
}


@pytest.mark.parametrize("text", RESULTS)
def test_result_has_the_type_of_spark(text: str) -> None:
    """A later stage can name it, with that type."""
    later = made({"reduce": {"x": text}}, {"select": {"y": "x"}}).stages[1]
    assert later.types == {"y": RESULTS[text]}


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("min_by(name, id)", pa.string()),
        ("top(cents, 2)", pa.list_(pa.decimal128(10, 2))),
        ("max_by(id, hour(at))", pa.null()),
    ],
)
def test_chosen_column_has_its_type_in_schemas(text: str, type_: pa.DataType) -> None:
    pipeline = made({"reduce": {"x": text}})
    assert value_schema(pipeline, pipeline.stages[0]).field("x").type == type_


def test_aggregates_keep_their_order() -> None:
    parsed = made({"reduce": {"b": "sum(id)", "a": "count(*)"}}).stages[0]
    assert parsed.emitted == ("b", "a")
    assert list(parsed.values.values()) == ["id", "1"]


def test_latest_emits_what_is_selected() -> None:
    parsed = made(LATEST).stages[0]
    assert (parsed.emitted, parsed.values) == (("price", "ok", "name"), LATEST["select"])


def test_collect_emits_an_events_column() -> None:
    parsed = made(COLLECT).stages[0]
    assert (parsed.emitted, parsed.values) == (("events",), {"price": "price"})


def test_latest_is_the_default() -> None:
    assert made().stages[0].reduce == Latest()


def test_function_arguments_are_no_aggregate_arguments() -> None:
    assert stage("max(greatest(id, 1))").values == {"x": "greatest(id, 1)"}
    assert stage("max(array(id, 1)[0])").values == {"x": "array(id, 1)[0]"}


REFUSED = [
    ("cnt(*)", "`cnt` is not an aggregate", "Did you mean `count`?"),
    ("mode(id)", "`mode` is not an aggregate", "Write `count(*)`, or one of"),
    ("count_distinct(id)", "`count_distinct` is not an aggregate", "Write `count(distinct x)`."),
    ("id", "it is not an aggregate", "`sum(quantity)`"),
    ("", "the expression is empty", "Write"),
    ("sum", "it is not an aggregate", "Write"),
    ("sum(id", "it is not an aggregate", "Write"),
    ("'sum'(id)", "is not an aggregate", "Did you mean `sum`?"),
    ("sum()", "`sum()` has no argument", "Write"),
    ("sum(*)", "`sum(*)` has no argument", "Write `sum(quantity)`."),
    ("sum(DISTINCT id)", "`distinct` is not used here", "Use `count(distinct x)`"),
    ("sum(id) filter (ok)", "`filter` has no condition", "filter (where x > 0)"),
    ("sum(id) filter", "`filter` has no condition", "filter (where x > 0)"),
    ("sum(id) filter (where ok) 1", "it cannot be read", "Write one"),
    ("sum(id) filter (where id + 1)", "the condition of `filter` is bigint", "filter (where x > 0)"),
    ("sum(id) filter (where idd > 1)", "`idd` does not exist", "Did you mean `id`?"),
    ("min_by(name)", "`min_by` takes two expressions", "the price with the least"),
    ("min_by(name, id, id)", "`min_by` takes two expressions", "the price with the least"),
    ("count(distinct id, name)", "`count(distinct …)` takes one expression", "struct(x, y)"),
    ("mean(id)", "`mean` is not an aggregate", "Write `avg(x)`."),
    ("coalesce(mean(id), 0)", "`mean` is not an aggregate", "Write `avg(x)`."),
    ("count_if(ok) / count(*)", "`count_if` is not an aggregate", "Write `count(*) filter (where x)`."),
    ("round(stddev_pop(id), 2)", "`stddev_pop` is not an aggregate", "those of a sample"),
    ("coalesce(medain(id), 0)", "`medain` is not an aggregate", "Did you mean `median`?"),
    ("max_by(name, place)", "`max_by` takes single values, not struct", "one field"),
    ("max_by(nam, id)", "`nam` does not exist", "Did you mean `name`?"),
    ("percentile(id)", "`percentile` takes 2 arguments, not 1", "`percentile(price, 0.95)`"),
    ("percentile(id, 95)", "`95` is no constant of `percentile`", "from 0 to 1"),
    ("percentile(id, price)", "`price` is no constant of `percentile`", "from 0 to 1"),
    ("percentile(id, array(0.5, 0.9))", "`array(0.5, 0.9)` is no constant", "from 0 to 1"),
    ("percentile(name, 0.5)", "`percentile` takes numbers, not string", "cast"),
    ("top(id, 0)", "`0` is no constant of `top`", "`top(price, 3)`"),
    ("top(id, 1.5)", "`1.5` is no constant of `top`", "`top(price, 3)`"),
    ("top(id, 3, price, 1)", "`top` takes 2 or 3 arguments, not 4", "`top(name, 3, price)`"),
    ("top(place, 3)", "`top` takes single values, not struct", "one field"),
    ("top(nam, 3, id)", "`nam` does not exist", "Did you mean `name`?"),
    ("median(name)", "`median` takes numbers, not string", "cast"),
    ("bool_and(id)", "`bool_and` takes true or false, not bigint", "Write a condition"),
    ("variance(name)", "`variance` takes numbers, not string", "cast"),
    ("sum(id) over (partition by name)", "`over` is not used here", "per `window:`"),
    ("sum(id) / price", "`price` stands outside of an aggregate", "Write `last(price)`"),
    ("sum(id) + place.city", "`place.city` stands outside of an aggregate", "Write `last(place.city)`"),
    ("sum(id) / avg(idd)", "`idd` does not exist", "Did you mean `id`?"),
    ("sum(id) + mode(id)", "`mode`", ""),
    ("sum(id) + max(name)", "`+` computes with string", "cast(x as double)"),
    ("sum(cents) / count(*)", "it divides decimals", "cast(x as double)"),
    ("log(sum(id))", "an expression over aggregates cannot call `log`", "Tidegate computes"),
    ("nullif(null, count(*))", "it is always null", "Leave it out"),
    ("sum(id) = count(*) = true", "it can be read in two ways", "parentheses"),
    ("sum(id), sum(id)", "there is `,` behind the aggregate", "Write one aggregate"),
    ("first(name, true)", "`first` takes one expression", "Nulls are always ignored"),
    ("sum(sum(id))", "`sum` folds many records", "Compute it"),
    ("sum(idd)", "`idd` does not exist", "Did you mean `id`?"),
    ("sum(rand())", "`rand` gives another value", "Derive"),
    ("sum(id); drop", "`;` ends a statement", "Write one expression"),
    ("sum(id) -- all", "comments and hints", "Put the comment"),
    ("sum(name)", "`sum` takes numbers, not string", "cast"),
    ("avg(ok)", "`avg` takes numbers, not boolean", "if(x, 1, 0)"),
    ("sum(id > 1)", "`sum` takes numbers, not boolean", "if(x, 1, 0)"),
    ("max(place)", "`max` takes single values, not struct", "one field"),
]


@pytest.mark.parametrize(("text", "part", "fix"), REFUSED, ids=[text or "empty" for text, *_ in REFUSED])
def test_anything_else_is_refused_with_a_fix(text: str, part: str, fix: str) -> None:
    mistakes = refused({"reduce": {"x": text}})
    assert {field for field, *_ in mistakes} == {"stages.0.reduce.x"}
    assert any(part in message and fix in how for _, message, how in mistakes), mistakes


@pytest.mark.parametrize(
    ("written", "field", "part"),
    [
        ({}, "", "there is no aggregate"),
        ({"n": 5}, ".n", "has to be text, not 5"),
        ({"timestamp": "count(*)"}, ".timestamp", "is reserved"),
        ({"a b": "count(*)"}, ".a b", "not a legal column name"),
        ({"n": "count(*)", "N": "count(*)"}, "", "`N` appears twice"),
        ({"ID": "count(*)"}, "", "`ID` is a key column, but is also an aggregate"),
        ("sum", "", "'sum' is not known"),
        (["latest"], "", "a list is not known"),
    ],
)
def test_a_mistake_in_reduce_is_reported(written: Any, field: str, part: str) -> None:
    ((actual_field, message, fix),) = refused({"reduce": written})
    assert (actual_field, part in message) == (f"stages.0.reduce{field}", True), (actual_field, message)
    assert fix


def test_select_does_not_go_with_aggregates() -> None:
    ((field, message, fix),) = refused({**COUNT, "select": {"a": "id"}})
    assert (field, message) == ("stages.0.select", "`select` does not go with aggregates")
    assert "into an aggregate" in fix


def test_key_column_named_events_is_refused() -> None:
    source = {"columns": "Events string, n int", "key": ["Events"]}
    ((field, message, _),) = refused({**COLLECT, "select": {"n": "n"}}, source=source)
    assert (field, "`Events` is a key column" in message) == ("stages.0.reduce", True)


def test_event_field_can_share_the_key_name() -> None:
    assert made({"reduce": "collect", "select": {"id": "id + 1"}}).stages[0].values == {"id": "id + 1"}


def test_mistakes_of_several_aggregates_are_reported_at_once() -> None:
    mistakes = refused({"reduce": {"a": "sum(x)", "b": "cnt(*)"}, "where": "a > 0"})
    assert [field for field, *_ in mistakes] == ["stages.0.reduce.a", "stages.0.reduce.b"]
