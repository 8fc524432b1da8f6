"""Several stages: what each may name, its key, its `where`; and what records are made of before the first."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.model.files import COLLECT, COUNT, HOUR, LATEST, made, refused, written
from tidegate.errors import PipelineInvalid
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.load import parse_case_pipeline

PER_NAME: dict[str, Any] = {"key": ["name"], "reduce": {"most": "max(n)"}}
NAMED: dict[str, Any] = {"reduce": {"n": "count(*)", "name": "last(name)"}}


def fields(mistakes: list[tuple[str, str, str]]) -> list[str]:
    assert all(fix for *_, fix in mistakes)
    return [field for field, *_ in mistakes]


def where(text: str, stage: dict[str, Any]) -> list[tuple[str, str]]:
    mistakes = refused({**stage, "where": text})
    assert all(field == "stages.0.where" for field, *_ in mistakes), mistakes
    return [(message, fix) for _, message, fix in mistakes]


SUPPRESSED = {**LATEST, "emit": {"on": "time_limit", "after": "1m"}}

# what a later stage sees


def test_later_stage_reads_emissions_of_the_previous() -> None:
    pipeline = made(NAMED, PER_NAME)
    assert [stage.emitted for stage in pipeline.stages] == [("n", "name"), ("most",)]
    assert [stage.key for stage in pipeline.stages] == [None, ("name",)]
    assert [pipeline.key_of(stage) for stage in pipeline.stages] == [("id",), ("name",)]


def test_later_stage_sees_the_previous_key() -> None:
    assert made(COUNT, {"select": {"id": "id", "twice": "id * 2 + n"}}).stages[1].emitted == ("id", "twice")


def test_later_stage_sees_windows_as_timestamps() -> None:
    select = {"start": "window_start", "size": "window_end - window_start + n"}
    later = made({**COUNT, **HOUR}, {"select": {"start": "window_start"}}, COUNT).stages[1]
    assert later.types == {"start": "timestamp"}
    mistakes = refused(COUNT, {"select": select})
    assert [(field, message) for field, message, _ in mistakes] == [
        ("stages.1.select.size", "the column `window_end` does not exist"),
        (
            "stages.1.select.size",
            "the column `window_start` does not exist (also: stages.1.select.start, line 1)",
        ),
    ]


@pytest.mark.parametrize(
    ("before", "after", "takes"),
    [
        ({}, {}, True),
        ({}, {"key": ["id"]}, True),
        (NAMED, {"key": ["name"]}, False),
        (NAMED, {"key": ["id", "name"]}, False),
        (HOUR, {}, False),
        (HOUR, {"key": ["id"]}, False),
    ],
)
def test_later_stage_takes_only_deletions_of_its_key(
    before: dict[str, Any], after: dict[str, Any], takes: bool
) -> None:
    pipeline = made(before, {"select": {"m": "1"}, **after})
    assert [pipeline.takes_deletions(stage) for stage in pipeline.stages] == [True, takes]


def test_regrouped_stage_forwards_deletions_of_its_key() -> None:
    pipeline = made(NAMED, {"key": ["name"], "select": {"m": "n"}}, {"select": {"m": "m"}})
    assert [pipeline.takes_deletions(stage) for stage in pipeline.stages] == [True, False, True]


def test_a_later_stage_does_not_see_the_source() -> None:
    ((field, message, _),) = refused(COUNT, {"select": {"x": "price"}})
    assert (field, message) == ("stages.1.select.x", "the column `price` does not exist")


def test_the_third_stage_sees_the_second_only() -> None:
    mistakes = refused(NAMED, PER_NAME, {"select": {"a": "most", "b": "name", "c": "n", "d": "id"}})
    assert fields(mistakes) == ["stages.2.select.c", "stages.2.select.d"]


def test_later_stage_emits_previous_columns_without_select() -> None:
    assert made({**NAMED, **HOUR}, {}).stages[1].select == {"n": "`n`", "name": "`name`"}


def test_a_later_stage_sees_events_as_an_array() -> None:
    assert made(COLLECT, {"select": {"n": "size(events)", "first": "events[0].price"}})
    ((field, message, _),) = refused(COLLECT, {"select": {"x": "events[0].pice", "y": "events.pice"}})
    assert (field, message) == ("stages.1.select.y", "`events` has no field `pice`")


@pytest.mark.parametrize(
    ("aggregate", "sum_of_it"),
    [
        ("count(ok)", True),
        ("sum(id)", True),
        ("avg(price)", True),
        ("max(name)", False),
        ("first(ok)", False),
        ("collect_list(id)", False),
        ("max(from_json(name, 'x int').x)", True),
    ],
)
def test_column_types_are_known_where_possible(aggregate: str, sum_of_it: bool) -> None:
    mistakes = refused({"reduce": {"x": aggregate}}, {"reduce": {"y": "sum(x)"}})
    assert (mistakes == []) is sum_of_it


def test_stage_mistakes_cause_none_in_later_stages() -> None:
    mistakes = refused({"reduce": {"n": "cnt(*)"}}, {"key": ["n"], "select": {"a": "n", "b": "id"}})
    assert fields(mistakes) == ["stages.0.reduce.n"]
    mistakes = refused({**COUNT, "window": {"tumbling": "x"}}, {"select": {"a": "window_start"}})
    assert fields(mistakes) == ["stages.0.window.tumbling"]
    mistakes = refused({"select": {"a": "prise"}}, {"select": {"b": "a"}}, where="x")
    assert fields(mistakes) == ["stages.0.select.a", "where"]


def test_stages_have_names_of_their_own() -> None:
    ((field, message, _),) = refused({"name": "a"}, {"name": "b"}, {"name": "a", **COUNT})
    assert (field, message) == ("stages.2.name", "there are two stages `a`")


# keys


def test_first_stage_has_the_source_key() -> None:
    ((field, message, fix),) = refused({**COUNT, "key": ["name"]})
    assert (field, message, fix) == (
        "stages.0.key",
        "the first stage has the source's key",
        "Use `source.key`.",
    )


@pytest.mark.parametrize(
    ("key", "field", "part"),
    [
        (["nam"], "key.0", "`nam` does not exist"),
        (["price"], "key.0", "`price` does not exist"),
        (["name", "name"], "key", "`name` is named twice"),
        (["mean"], "key.0", "`mean` is double"),
        (["all"], "key.0", "`all` is array<bigint>"),
        (["window_strat"], "key.0", "`window_strat` does not exist"),
        ([], "key", "is empty"),
        ("name", "key", "has to be a list"),
    ],
)
def test_a_mistake_in_a_key_is_reported(key: Any, field: str, part: str) -> None:
    first = {"reduce": {"name": "last(name)", "mean": "avg(price)", "all": "collect_set(id)"}, **HOUR}
    ((actual_field, message, fix),) = refused(first, {**COUNT, "key": key})
    assert (actual_field, part in message) == (f"stages.1.{field}", True), (actual_field, message)
    assert fix


def test_window_can_be_part_of_a_later_key() -> None:
    per_window = {**COUNT, "key": ["name", "window_start"]}
    first = {"reduce": {"name": "last(name)"}, **HOUR}
    pipeline = made(first, per_window, COUNT, {**COUNT, "key": ["window_start"]})
    assert [pipeline.key_of(stage) for stage in pipeline.stages[1:]] == [
        ("name", "window_start"),
        ("name", "window_start"),
        ("window_start",),
    ]


@pytest.mark.parametrize(
    ("stage", "field", "part"),
    [
        ({**COUNT, "key": ["window_start"]}, "key.0", "`window_start` does not exist"),
        (
            {**COUNT, "key": ["window_start"], **HOUR},
            "window",
            "the key has `window_start` of another window",
        ),
    ],
)
def test_window_in_a_key_is_another_stages(stage: dict[str, Any], field: str, part: str) -> None:
    first = COUNT if field == "key.0" else {**COUNT, **HOUR}
    ((actual_field, message, fix),) = refused(first, stage)
    assert (actual_field, part in message) == (f"stages.1.{field}", True), (actual_field, message)
    assert fix


def test_key_combines_previous_key_and_emitted_columns() -> None:
    pipeline = made(NAMED, {**COUNT, "key": ["id", "name"]}, COUNT)
    assert [pipeline.key_of(stage) for stage in pipeline.stages] == [("id",), ("id", "name"), ("id", "name")]


def test_later_stage_cannot_redefine_its_key() -> None:
    ((field, message, _),) = refused(NAMED, {"key": ["name"], "select": {"name": "upper(name)"}})
    assert (field, "`name` is a key column" in message) == ("stages.1.select", True)
    assert made(NAMED, {"key": ["name"], "select": {"name": "name", "id": "id + 1"}})


def test_sink_adds_the_key_of_its_stage() -> None:
    unkeyed = {"source": {"key": None}}
    sinks = [{"kind": "table", "with_key": True, "stage": "s0"}]
    assert made(NAMED, PER_NAME, sinks=[{"kind": "table", "with_key": True}], **unkeyed)
    assert fields(refused(NAMED, PER_NAME, sinks=sinks, **unkeyed)) == ["sinks.0.with_key"]


# where


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("n < 3", COUNT),
        ("n < 3 and window_end - window_start >= 3600000", {**COUNT, **HOUR}),
        ("size(events) > 2 and window_start > 0", {**COLLECT, **HOUR}),
        ("ok and (price > 1.5 or price is null) and name like 'A%'", SUPPRESSED),
        ("N > 1", COUNT),
    ],
)
def test_where_is_over_what_is_emitted(text: str, stage: dict[str, Any]) -> None:
    condition = made({**stage, "where": text}).stages[0].condition
    assert condition is not None
    assert condition.text == text


def test_where_over_a_record_allows_all_spark_sql() -> None:
    text = "regexp_replace(name, 'a', '') in ('b') and exists(array(id), x -> x > 1)"
    stage = made({**LATEST, "where": text}).stages[0]
    assert stage.where_of_record == text
    assert stage.condition is None
    assert where("nobody > 1", LATEST)
    parsed = made({**SUPPRESSED, "where": "ok"}).stages[0]
    assert parsed.where_of_record is None


def test_where_of_the_kernel_may_name_key_columns() -> None:
    condition = made({**COUNT, "where": "n > 1 and id = 7"}).stages[0].condition
    assert condition is not None
    assert [condition.evaluate({"n": n, "__key": key}) for n, key in [(2, "7"), (1, "7"), (2, "8")]] == [
        True,
        False,
        False,
    ]
    several = (
        made({**COUNT, "where": "id = 7 and name = 'a'"}, source={"key": ["id", "name"]}).stages[0].condition
    )
    assert several is not None
    assert several.evaluate({"n": 1, "__key": '{"id":7,"name":"a"}'}) is True
    assert several.evaluate({"n": 1, "__key": '{"id":7,"name":"b"}'}) is False


def test_where_names_columns_as_they_are_declared() -> None:
    condition = made({**COUNT, "where": "N > 1"}).stages[0].condition
    assert condition is not None
    assert condition.evaluate({"n": 2}) is True


@pytest.mark.parametrize("name", ["window_start", "WINDOW_END", "`window_end`"])
def test_where_has_no_window_without_one(name: str) -> None:
    ((message, fix),) = where(f"{name} > 5 and n > 1", COUNT)
    assert "exists only if the stage has a window" in message
    assert "epoch milliseconds" in fix


@pytest.mark.parametrize(
    ("text", "stage", "part"),
    [
        ("nobody > 1", COUNT, "`nobody` does not exist"),
        ("price > 1", COLLECT, "`price` does not exist"),
        ("events[0].prise > 1", COLLECT, "the field `prise` is taken out of struct"),
        ("n", COUNT, "neither true nor false"),
        ("name > 1", SUPPRESSED, "string and int are compared"),
        ("rand() > 0.5", LATEST, "`rand` gives another value"),
        ("price + 1", LATEST, "neither true nor false"),
        ("sum(n) > 1", COUNT, "`sum` folds many records"),
        ("window_start > timestamp'2026-01-01'", {**COUNT, **HOUR}, "bigint and timestamp are compared"),
    ],
)
def test_where_that_cannot_be_tested_is_refused(text: str, stage: dict[str, Any], part: str) -> None:
    mistakes = where(text, stage)
    assert any(part in message and fix for message, fix in mistakes), mistakes


# what records are made of


def test_an_exploded_column_is_one_element_in_expressions() -> None:
    select = {"sku": "items.sku", "twice": "items.n * 2"}
    assert made({"select": select}, source={"explode": "items"}).sources["source"].explode == "items"
    mistakes = refused({"select": {"x": "items[0].sku", "y": "size(tags)"}}, source={"explode": "tags"})
    assert mistakes == []


def test_exploded_column_can_be_key_and_time() -> None:
    source = {"columns": "tags array<string>, times array<bigint>, n int"}
    keyed = made(source={**source, "explode": "tags", "key": ["tags"]})
    assert keyed.key_of(keyed.stages[0]) == ("tags",)
    assert made(source={**source, "explode": "times", "timestamp": "times", "key": ["n"]})
    assert fields(refused(source={**source, "explode": "times", "key": ["tags"]})) == ["source.key.0"]


def test_declared_columns_are_those_of_the_record() -> None:
    columns = {
        column.name: column.type for column in made(source={"explode": "tags"}).sources["source"].columns
    }
    assert columns["tags"] == "array<string>"


@pytest.mark.parametrize(
    ("explode", "part"),
    [("tag", "`tag` does not exist"), ("place", "has no elements"), ("id", "`id` is bigint"), (5, "be text")],
)
def test_only_an_array_can_be_exploded(explode: Any, part: str) -> None:
    ((field, message, fix),) = refused(source={"explode": explode})
    assert (field, part in message) == ("source.explode", True)
    assert fix


@pytest.mark.parametrize("way", ["offset", "root"])
def test_records_are_deduplicated_by_offset_or_root(way: str) -> None:
    assert made(source={"deduplicate": way}).sources["source"].deduplicate == way


def test_records_are_deduplicated_by_columns_for_a_time() -> None:
    source = {"explode": "tags", "deduplicate": {"columns": ["name", "tags"], "keep": "1h"}}
    deduplication = made(source=source).sources["source"].deduplicate
    assert not isinstance(deduplication, str)
    assert (deduplication.columns, deduplication.keep_ms) == (("name", "tags"), 3_600_000)


@pytest.mark.parametrize(
    ("way", "field", "part"),
    [
        ("ofset", "", "'ofset' is not known"),
        (None, "", "null is not known"),
        ({"columns": ["id"]}, ".keep", "`keep` is missing"),
        ({"keep": "1h"}, ".columns", "`columns` is missing"),
        ({"columns": ["id"], "keep": "1"}, ".keep", "'1' is not a duration"),
        ({"columns": ["idd"], "keep": "1h"}, ".columns.0", "`idd` does not exist"),
        ({"columns": ["tags"], "keep": "1h"}, ".columns.0", "`tags` is array<string>"),
        ({"columns": ["price"], "keep": "1h"}, ".columns.0", "`price` is double"),
        ({"columns": ["id", "id"], "keep": "1h"}, ".columns", "named twice"),
        ({"columns": [], "keep": "1h"}, ".columns", "is empty"),
        ({"columns": ["id"], "keep": "1h", "for": 1}, ".for", "unknown field `for` in `deduplicate`"),
    ],
)
def test_a_mistake_in_deduplicate_is_reported(way: Any, field: str, part: str) -> None:
    ((actual_field, message, fix),) = refused(source={"deduplicate": way})
    assert (actual_field, part in message) == (f"source.deduplicate{field}", True), (actual_field, message)
    assert fix


def lookup(**changes: Any) -> list[dict[str, Any]]:
    return [{"table": "stores/current", "on": ["name"], "columns": ["region"], **changes}]


@pytest.mark.parametrize(
    ("on", "is_one"),
    [(["key"], True), (["key", "id"], True), (["key", "window_start"], False), (["name"], False)],
)
def test_windows_may_share_their_start(on: list[str], is_one: bool) -> None:
    source = {"columns": "id int, name string, window_start bigint"}
    pipeline = made({"select": {"id": "id"}}, source=source, lookup=lookup(table="visits/daily", on=on))
    assert pipeline.lookup[0].finds_one_row is is_one


def test_lookup_columns_can_be_named_and_selected() -> None:
    pipeline = made({"select": {"r": "upper(region)"}, "where": "r = 'N'"}, lookup=lookup())
    assert pipeline.lookup[0].columns == ("region",)
    assert list(made(lookup=lookup(), source={"columns": "id int, name string"}).stages[0].select) == [
        "id",
        "name",
        "region",
    ]


@pytest.mark.parametrize(
    ("table", "state"),
    [
        ("stores/current", ("stores", "current")),
        ("/lake/stores", None),
        ("s3://bucket/stores", None),
        ("abfss://data@account.dfs.core.windows.net/stores", None),
        ("file:///lake/stores", None),
    ],
)
def test_lookup_name_with_slash_is_a_state(table: str, state: tuple[str, str] | None) -> None:
    assert made(lookup=lookup(table=table)).lookup[0].state == state


@pytest.mark.parametrize(
    ("changes", "field", "part"),
    [
        ({"table": "stores"}, "table", "not a table"),
        ({"table": "a/b/c"}, "table", "not a table"),
        ({"table": "Stores/current"}, "table", "not a table"),
        ({"table": "/lake/../etc"}, "table", "not a table"),
        ({"table": "s3://user:secret@host/x"}, "table", "not a table"),
        ({"table": "s3://host/x?token=1"}, "table", "not a table"),
        ({"table": "p/s0"}, "table", "the state of this pipeline itself"),
        ({"on": ["nam"]}, "on.0", "`nam` does not exist"),
        ({"on": ["tags"]}, "on.0", "`tags` is array<string>"),
        ({"on": ["name", "name"]}, "on", "named twice"),
        ({"on": []}, "on", "is empty"),
        ({"columns": ["name"]}, "columns.0", "`name` is the source's column already"),
        ({"columns": ["a", "A"]}, "columns.1", "`A` is another lookup's column already"),
        ({"columns": ["a b"]}, "columns.0", "not a legal column name"),
        ({"columns": []}, "columns", "is empty"),
        ({"column": ["a"]}, "column", "unknown field `column`"),
    ],
)
def test_a_mistake_in_a_lookup_is_reported(changes: dict[str, Any], field: str, part: str) -> None:
    ((actual_field, message, fix),) = refused(lookup=lookup(**changes))
    assert (actual_field, part in message) == (f"lookup.0.{field}", True), (actual_field, message)
    assert fix
    assert "secret" not in message + fix


@pytest.mark.parametrize(
    ("stage", "field"),
    [
        ({"reduce": {"n": "count(*)"}}, "`reduce`"),
        ({"window": {"tumbling": "1h"}, "reduce": {"n": "count(*)"}}, "`window`"),
        ({"emit": {"on": "quiet", "after": "1m"}}, "`emit`"),
        ({"emit": {"on": "change", "at_most_every": "1m"}}, "`emit`"),
        ({"ttl": "7d"}, "`ttl`"),
        ({"on_error": "quarantine"}, "`on_error`"),
    ],
    ids=str,
)
def test_stage_that_cannot_take_records_twice_is_refused(stage: dict[str, Any], field: str) -> None:
    ((place, message, fix),) = refused(stage, lookup=lookup(on_change="emit"))
    assert (place, message.split(" of ")[0]) == ("stages", field)
    assert "Let a stage with `reduce: latest`" in fix
    assert made({}, stage, lookup=lookup(on_change="emit")), "a stage after it can"


def test_lookup_that_reacts_needs_a_single_source() -> None:
    document = written({"from": "a"}, {"from": "b"}, lookup=lookup(on_change="emit"))
    document["sources"] = {name: {**document["source"], "topics": [name]} for name in "ab"}
    del document["source"]
    with pytest.raises(PipelineInvalid, match="`on_change: emit` needs a single source"):
        parse_case_pipeline(document, "p.yaml")


@pytest.mark.parametrize(
    ("windowed", "changes", "part"),
    [
        (True, {}, "a row for each window of a key"),
        (True, {"columns": ["window_start"]}, "a row for each window of a key"),
        (True, {"on": ["name", "window_end"]}, ""),
        (True, {"on": ["name", "window_end"], "columns": ["window_start"]}, ""),
        (False, {}, ""),
        (False, {"on": ["name", "window_end"]}, "no windows, and so no `window_end`"),
        (False, {"columns": ["window_start"]}, "no windows, and so no `window_start`"),
    ],
)
def test_lookup_names_a_window_only_where_windows_exist(
    windowed: bool, changes: dict[str, Any], part: str
) -> None:
    source = {"columns": "id int, name string, window_end bigint"}
    # `select`: what is emitted cannot be called like the window
    pipeline = made(
        {"select": {"id": "id"}, **(HOUR if windowed else {})}, source=source, lookup=lookup(**changes)
    )
    what, _ = pipeline.lookup[0].state_mistake(pipeline.stages[0]) or ("", "")
    assert part in what if part else not what


def test_lookups_do_not_add_the_same_column() -> None:
    ((field, message, _),) = refused(lookup=lookup() + lookup(table="/other"))
    assert (field, message) == ("lookup.1.columns.0", "`region` is another lookup's column already")


def test_a_lookup_by_key_means_the_records_key() -> None:
    assert made(lookup=lookup(on=["key", "id"])).lookup[0].on == ("key", "id")
    source = {"columns": "key string, id int", "key": ["id"]}
    ((field, message, _),) = refused(LATEST_KEY, source=source, lookup=lookup(on=["key"]))
    assert (field, "means the record's key here" in message) == ("lookup.0.on.0", True)


LATEST_KEY: dict[str, Any] = {"select": {"id": "id"}}


def test_full_pipeline_survives_pickling() -> None:
    pipeline: Pipeline = made({**NAMED, **HOUR, "where": "n > 1"}, PER_NAME, lookup=lookup())
    copy = pickle.loads(pickle.dumps(pipeline))
    assert copy == pipeline
    assert copy.stages[0].condition == pipeline.stages[0].condition
