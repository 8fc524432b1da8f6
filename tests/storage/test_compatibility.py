"""Edits within a generation: those that its state survives, and those that it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.model.files import COLLECT, COLUMNS, COUNT, HOUR, made
from tidegate.kernel import Aggregates
from tidegate.model.compiled import compile_pipeline, read_compiled
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import with_suites
from tidegate.storage.compatibility import incompatible_changes, notable_changes
from tidegate.yaml.load import parse_case_pipeline

Parts = dict[str, Any]
CHANGE: Parts = {"select": {"price": "price", "name": "name"}, "emit": {"on": "change"}}
NAME: Parts = {"select": {"name": "name"}, "emit": {"on": "change"}}
HASH: Parts = {**CHANGE, "emit": {"on": "change", "state": "hash"}}
THRESHOLD: Parts = {**COLLECT, "emit": {"on": "threshold", "count": 5}}
SIDES: tuple[Parts, ...] = (
    {"select": {"amount": "price"}},
    *({"from": "source", "select": {"paid": "price"}} for _ in range(2)),
)
JOIN: Parts = {"left": "s0", "right": "s1", "within": "10m"}
LIMIT: Parts = {"emit": {"on": "time_limit", "after": "30s"}}
CLOSE: Parts = {**COUNT, **HOUR, "emit": {"on": "window_close"}}
TABLE: Parts = {"kind": "table", "path": "out"}
LOOKUP: Parts = {"table": "/a", "on": ["id"], "columns": ["region"]}
QUIET: Parts = {"select": {"price": "price"}, "emit": {"on": "quiet", "after": "1m"}}
KEYS: Parts = {"table": "/a", "key": ["id"]}
REACTING: Parts = {**LOOKUP, "on_change": "emit"}


def emit(stage: Parts, **emit: Any) -> Parts:
    return {**stage, "emit": {**stage["emit"], **emit}}


def bounded(**buffer: Any) -> Parts:
    return emit(LIMIT, buffer=buffer)


def source(**source: Any) -> Parts:
    return {"source": source}


def several(*names: str, key: list[str] | None = None) -> Pipeline:
    """A pipeline of sources with these names; its stage reads the first one, and another stage all others."""
    parts = {"format": "json", "columns": COLUMNS, "key": key or ["id"]}
    stages = [{"name": "s0", "from": names[-1], **CHANGE}, {"name": "s1", "from": names[0], **CHANGE}]
    sources = {name: {**parts, "topics": [name]} for name in names}
    return parse_case_pipeline({"pipeline": "p", "sources": sources, "stages": stages}, "p.yaml")


def renamed(name: str, *older: str) -> Parts:
    return {"aliases": {name: list(older)}}


def typed(column: str, **stage: Any) -> Pipeline:
    """A pipeline that emits a column of some type."""
    name = column.partition(" ")[0]
    return made(
        {"select": {name: name}, "emit": {"on": "change"}, **stage},
        **source(columns=f"k string, {column}", key=["k"]),
    )


def hashed(column: str) -> Pipeline:
    return typed(column, emit={"on": "change", "state": "hash"})


def summed(function: str, type_: str) -> Pipeline:
    return made({"reduce": {"n": f"{function}(x)"}}, **source(columns=f"k string, x {type_}", key=["k"]))


RENAMED_PRICE = source(columns=COLUMNS.replace("price double", "cost double"), aliases={"cost": ["price"]})


def changed_fields(before: Pipeline, after: Pipeline) -> list[str]:
    loaded = read_compiled(compile_pipeline(before), before.text, "the head")
    return [change.field for change in incompatible_changes(loaded, after)]


def refusing(column: str) -> Pipeline:
    """Return a pipeline with a suite that refuses rows whose `column` is null."""
    expectation = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": column}}
    pipeline = made(CHANGE, quality={"suite": "s", "on_failure": "quarantine"})
    planned = with_suites(pipeline, lambda _: json.dumps({"name": "s", "expectations": [expectation]}))
    assert kernel_stage(planned, planned.stages[0]).expectations
    return planned


COMPATIBLE: dict[str, tuple[Any, Any]] = {
    "nothing": (made(CHANGE), made(CHANGE)),
    "the schedule, the suite and the bound of a batch": (
        made(CHANGE),
        made(CHANGE, schedule="@daily", quality={"suite": "s"}, **source(max_records=5, start="latest")),
    ),
    "which rows go into quarantine": (refusing("price"), refusing("name")),
    "the source's connection": (made(CHANGE), made(CHANGE, **source(connection="shop"))),
    "the source's filter": (made(CHANGE), made(CHANGE, **source(filter="price > 1"))),
    "a column of metadata or a header more": (
        made(CHANGE),
        made(CHANGE, **source(metadata=["offset"], headers={"traceId": "string"})),
    ),
    "a pattern in place of a topic": (made(CHANGE), made(CHANGE, **source(topics={"pattern": "i.*"}))),
    "a topic more": (made(CHANGE), made(CHANGE, **source(topics=["in", "more"]))),
    "a column more": (made(CHANGE), made(CHANGE, **source(columns=COLUMNS + ", more int"))),
    "a column less that is not used": (
        made(CHANGE),
        made(CHANGE, **source(columns=COLUMNS.replace("blob binary, ", ""))),
    ),
    "a wider integer as key": (
        made(CHANGE, **source(columns=COLUMNS.replace("id bigint", "id int"))),
        made(CHANGE),
    ),
    "an emitted column more": (made(CHANGE), made({**CHANGE, "select": {**CHANGE["select"], "ok": "ok"}})),
    "an expression of the same type": (
        made(CHANGE),
        made({**CHANGE, "select": {"price": "price * 2", "name": "name"}}),
    ),
    "what is compared, and how": (
        made(CHANGE),
        made(emit(CHANGE, columns=["price"], equal={"within": {"price": "1%"}}, heartbeat="1h")),
    ),
    "no heartbeat": (made(emit(CHANGE, heartbeat="1h")), made(CHANGE)),
    "changes that wait": (made(CHANGE), made(emit(CHANGE, at_most_every="30s"))),
    "changes that wait for longer": (
        made(emit(CHANGE, at_most_every="30s")),
        made(emit(CHANGE, at_most_every="1m")),
    ),
    "a stage's filter": (made(CHANGE), made({**CHANGE, "filter": "price > 1"})),
    "where": (made(CHANGE), made({**CHANGE, "where": "price > 1"})),
    "what becomes of records that cannot be used": (
        made(CHANGE),
        made({**CHANGE, "on_error": "quarantine"}),
    ),
    "what becomes of late records": (made(CLOSE), made({**CLOSE, "on_late": "quarantine"})),
    "what is as it was": (made(CHANGE), made({**CHANGE, "unchanged": "nulls"})),
    "a column more of which only hashes are kept, not compared": (
        made(emit(HASH, columns=["price"])),
        made({**emit(HASH, columns=["price"]), "select": {"price": "price", "name": "name", "ok": "ok"}}),
    ),
    "a column less of which only hashes are kept": (
        made(emit(HASH, columns=["price"])),
        made({**emit(HASH, columns=["price"]), "select": {"price": "price"}}),
    ),
    "an emitted column less": (made(CHANGE), made({**CHANGE, "select": {"price": "price"}})),
    "an emitted column that takes more": (typed("id int"), typed("id bigint")),
    "an emitted column that takes fractions": (typed("id int"), typed("id double")),
    "an emitted number with more digits": (typed("id decimal(10,2)"), typed("id decimal(14,4)")),
    "fields of an emitted column": (
        typed("id struct<a:int,b:string>"),
        typed("id struct<a:bigint,c:array<int>>"),
    ),
    "emitted columns in another order": (
        made(CHANGE),
        made({**CHANGE, "select": {"name": "name", "price": "price"}}),
    ),
    "an emitted column's name": (
        made(CHANGE),
        made({**CHANGE, **renamed("title", "name"), "select": {"price": "price", "title": "name"}}),
    ),
    "an emitted column's name and type": (
        typed("id int"),
        made(
            {"select": {"n": "id"}, "emit": {"on": "change"}, **renamed("n", "id")},
            **source(columns="k string, id bigint", key=["k"]),
        ),
    ),
    "a source column's name": (
        made({"reduce": {"n": "max(price)"}}),
        made({"reduce": {"n": "max(cost)"}}, **RENAMED_PRICE),
    ),
    "older names of a column of records": (
        made(CHANGE),
        made(CHANGE, **source(aliases={"price": ["cost"]})),
    ),
    "another expression over the same aggregates": (
        made({"reduce": {"mean": "sum(price) / count(*)"}}),
        made({"reduce": {"mean": "round(100 * sum(price) / count(*), 2)"}}),
    ),
    "an expression more over aggregates": (
        made({"reduce": {"total": "sum(price)", "n": "count(*)"}}),
        made({"reduce": {"total": "sum(price)", "n": "count(*)", "mean": "sum(price) / count(*)"}}),
    ),
    "an aggregate less": (made({"reduce": {"n": "count(*)", "m": "max(price)"}}), made(COUNT)),
    "an aggregate's name": (
        made({"reduce": {"n": "count(*)"}}),
        made({"reduce": {"number": "count(*)"}, **renamed("number", "n")}),
    ),
    "an aggregate of wider values": (summed("max", "int"), summed("max", "bigint")),
    "a count of other values": (summed("count", "int"), summed("count", "string")),
    "the fields of events": (
        made(COLLECT),
        made({**COLLECT, "select": {"cost": "price", "ok": "ok"}, **renamed("cost", "price")}),
    ),
    "a longer whole number of which only hashes are kept": (hashed("id int"), hashed("id bigint")),
    "the type of a column that is not compared, of which only hashes are kept": (
        made(emit(HASH, columns=["name"])),
        made({**emit(HASH, columns=["name"]), "select": {"price": "ok", "name": "name"}}),
    ),
    "thresholds": (made(THRESHOLD), made(emit(THRESHOLD, count=9, max_bytes=100))),
    "other triggers": (
        made({**CHANGE, "emit": {"any": [{"on": "change"}, {"on": "interval", "every": "5m"}]}}),
        made({**CHANGE, "emit": {"any": [{"on": "time_limit", "after": "5m"}, {"on": "change"}]}}),
    ),
    "early results": (
        made(emit({**COUNT, **HOUR, "emit": {"on": "window_close"}}, early={"every": "1m"})),
        made(emit({**COUNT, **HOUR, "emit": {"on": "window_close"}}, early={"on": "change"})),
    ),
    "a condition that ends a threshold": (
        made(emit(THRESHOLD, until="price > 1")),
        made(emit(THRESHOLD, until="price > 2")),
    ),
    "a condition less": (made(emit(THRESHOLD, until="price > 1")), made(THRESHOLD)),
    "a timer less": (made(emit(THRESHOLD, after="1h")), made(THRESHOLD)),
    "another time limit": (made(LIMIT), made(emit(LIMIT, after="1h"))),
    "a time to live": (made(CHANGE), made({**CHANGE, "ttl": "7d"})),
    "a longer one": (
        made({**CHANGE, "ttl": "7d"}),
        made({**CHANGE, "ttl": {"after": "9d", "emit": "deletion"}}),
    ),
    "the window of a join": (
        made(*SIDES, {"join": JOIN}),
        made(*SIDES, {"join": {**JOIN, "within": "5m", "grace": "1m"}}),
    ),
    "no time to live": (made({**CHANGE, "ttl": "7d"}), made(CHANGE)),
    "another silence": (
        made({"emit": {"on": "quiet", "after": "1h"}}),
        made({"emit": {"on": "quiet", "after": "10m"}}),
    ),
    "another interval": (
        made({"emit": {"on": "interval", "every": "1h"}}),
        made({"emit": {"on": "interval", "every": "2h"}}),
    ),
    "another bound of a buffer": (
        made(bounded(max_records=5)),
        made(bounded(max_bytes=5, when_full="shut_down")),
    ),
    "a buffer that spills": (made(LIMIT), made(bounded(when_full="spill"))),
    "from stream time to the run's clock": (
        made(emit(CLOSE, clock="stream")),
        made(emit(CLOSE, clock="run")),
    ),
    "an expression event by event": (made(COLLECT), made({**COLLECT, "select": {"price": "price + 1"}})),
    "blanks in an aggregate": (
        made({"reduce": {"n": "sum(price+1)"}}),
        made({"reduce": {"n": "sum( price + 1 )"}}),
    ),
    "aggregates in another order": (
        made({"reduce": {"n": "count(*)", "m": "max(price)"}}),
        made({"reduce": {"m": "max(price)", "n": "count(*)"}}),
    ),
    "sinks": (made(CHANGE, sinks=[TABLE]), made(CHANGE, sinks=[{"kind": "kafka", "topic": "out"}])),
    "a lookup's table": (
        made(lookup=[{"table": "/a", "on": ["id"], "columns": ["region"]}]),
        made(lookup=[{"table": "/b", "on": ["id"], "columns": ["region"]}]),
    ),
    "keys that are expected": (made(QUIET), made({**QUIET, "expected": KEYS})),
    "keys of another table": (
        made({**QUIET, "expected": KEYS}),
        made({**QUIET, "expected": {**KEYS, "table": "/b"}}),
    ),
    "a last record's column that is renamed": (
        made(NAME, lookup=[REACTING]),
        made(NAME, lookup=[REACTING], **RENAMED_PRICE),
    ),
    "a last record's column that is removed with its older name": (
        made(NAME, lookup=[REACTING], **RENAMED_PRICE),
        made(NAME, lookup=[REACTING], **source(columns=COLUMNS.replace("price double, ", ""))),
    ),
    "a lookup that stops to react": (made(CHANGE, lookup=[REACTING]), made(CHANGE, lookup=[LOOKUP])),
}
INCOMPATIBLE: dict[str, tuple[Any, Any, list[str]]] = {
    "keys that are no longer expected": (
        made({**QUIET, "expected": KEYS}),
        made(QUIET),
        ["stages.s0.expected"],
    ),
    "a lookup that reacts": (
        made(CHANGE, lookup=[LOOKUP]),
        made(CHANGE, lookup=[REACTING]),
        ["lookup.on_change"],
    ),
    "a last record's column with the name of another one": (
        made(NAME, lookup=[REACTING]),
        made(NAME, lookup=[REACTING], **source(aliases={"price": ["cost"]})),
        ["source.aliases.price"],
    ),
    "a last record's column without its older name": (
        made(NAME, lookup=[REACTING], **RENAMED_PRICE),
        made(NAME, lookup=[REACTING], **source(columns=RENAMED_PRICE["source"]["columns"])),
        ["source.aliases.cost"],
    ),
    "a pattern that matches another topic": (
        made(CHANGE),
        made(CHANGE, **source(topics={"pattern": "in-.*"})),
        ["source.topics"],
    ),
    "a topic less": (made(CHANGE, **source(topics=["in", "more"])), made(CHANGE), ["source.topics"]),
    "a source less": (several("a", "b"), several("a"), ["sources", "stages.s0.from"]),
    "a source of another name": (several("a", "b"), several("a", "c"), ["sources", "stages.s0.from"]),
    "the key of one of several sources": (
        several("a", "b", key=["id"]),
        several("a", "b", key=["name"]),
        ["sources.a.key", "sources.b.key"],
    ),
    "the format": (
        made({"select": {"v": "value"}}, **source(columns="value string", key=["value"])),
        made({"select": {"v": "value"}}, **source(format="string", columns=None, key=["value"])),
        ["source.format"],
    ),
    "how CSV is written": (
        made(**source(format="csv", columns="id bigint")),
        made(**source(format="csv", columns="id bigint", csv={"delimiter": ";"})),
        ["source.csv"],
    ),
    "the key": (made(CHANGE), made(CHANGE, **source(key=["id", "name"])), ["source.key"]),
    "the record's key": (made(CHANGE), made(CHANGE, **source(key=None)), ["source.key"]),
    "the type of a key column": (
        made(CHANGE),
        made(CHANGE, **source(columns=COLUMNS.replace("id bigint", "id string"))),
        ["source.columns.id"],
    ),
    "the content of a key column": (
        made({"select": {"ok": "ok"}}, **source(key=["a"], headers={"a": "string"})),
        made({"select": {"ok": "ok"}}, **source(key=["a"], metadata={"a": "topic"})),
        ["source.columns.a"],
    ),
    "the timestamp": (made(CHANGE), made(CHANGE, **source(timestamp="at")), ["source.timestamp"]),
    "explode": (made(CHANGE), made(CHANGE, **source(explode="tags")), ["source.explode"]),
    "deduplicate": (made(CHANGE), made(CHANGE, **source(deduplicate="root")), ["source.deduplicate"]),
    "how long repetitions are remembered": (
        made(CHANGE, **source(deduplicate={"columns": ["name"], "keep": "1h"})),
        made(CHANGE, **source(deduplicate={"columns": ["name"], "keep": "2h"})),
        ["source.deduplicate"],
    ),
    "the type of a column that makes repetitions": (
        made(CHANGE, **source(deduplicate={"columns": ["cents"], "keep": "1h"})),
        made(
            CHANGE,
            **source(
                deduplicate={"columns": ["cents"], "keep": "1h"}, columns=COLUMNS.replace("(10,2)", "(10,3)")
            ),
        ),
        ["source.columns.cents"],
    ),
    "a sequence": (
        made(CHANGE),
        made(CHANGE, **source(sequence={"columns": ["id"]})),
        ["source.sequence"],
    ),
    "how long deletions are remembered": (
        made(CHANGE, **source(sequence={"columns": ["id"], "keep": "1h"})),
        made(CHANGE, **source(sequence={"columns": ["id"]})),
        ["source.sequence"],
    ),
    "the type of a column that makes a sequence": (
        made(CHANGE, **source(sequence={"columns": ["n"]}, columns=f"{COLUMNS}, n string")),
        made(CHANGE, **source(sequence={"columns": ["n"]}, columns=f"{COLUMNS}, n bigint")),
        ["source.columns.n"],
    ),
    "a stage renamed": (made({**CHANGE, "name": "a"}), made({**CHANGE, "name": "b"}), ["stages"]),
    "a stage more": (made(CHANGE), made(CHANGE, {}), ["stages"]),
    "a stage less": (made(CHANGE, {}), made(CHANGE), ["stages"]),
    "stages in another order": (
        made({"name": "a", **CHANGE}, {"name": "b", **CHANGE}),
        made({"name": "b", **CHANGE}, {"name": "a", **CHANGE}),
        ["stages"],
    ),
    "a stage's input": (
        made(CHANGE, CHANGE, CHANGE),
        made(CHANGE, CHANGE, {"from": "s0", **CHANGE}),
        ["stages.s2.from"],
    ),
    "a later stage's key": (
        made(CHANGE, {"select": {"m": "price"}}),
        made(CHANGE, {"key": ["name"], "select": {"m": "price"}}),
        ["stages.s1.key"],
    ),
    "the window's size": (made(CLOSE), made({**CLOSE, "window": {"tumbling": "2h"}}), ["stages.s0.window"]),
    "the window's grace": (
        made(CLOSE),
        made({**CLOSE, "window": {"tumbling": "1h", "grace": "1m"}}),
        ["stages.s0.window"],
    ),
    "the window's kind": (made(CLOSE), made({**CLOSE, "window": {"session": "1h"}}), ["stages.s0.window"]),
    "reduce": (made(COUNT), made(CHANGE), ["stages.s0.reduce", "stages.s0.emit.on"]),
    "an aggregate more": (
        made(COUNT),
        made({"reduce": {"n": "count(*)", "m": "max(price)"}}),
        ["stages.s0.reduce.m"],
    ),
    "an aggregate of sums that may not fit": (
        summed("sum", "bigint"),
        summed("sum", "double"),
        ["stages.s0.n"],
    ),
    "an aggregate's argument": (
        made({"reduce": {"m": "max(price)"}}),
        made({"reduce": {"m": "max(price + 1)"}}),
        ["stages.s0.reduce.m"],
    ),
    "an emitted column that takes less": (typed("id bigint"), typed("id int"), ["stages.s0.id"]),
    "a long whole number as a double": (typed("id bigint"), typed("id double"), ["stages.s0.id"]),
    "a day as a time": (typed("id date"), typed("id timestamp"), ["stages.s0.id"]),
    "fields of an emitted column that take less": (
        typed("id array<struct<a:bigint>>"),
        typed("id array<struct<a:int>>"),
        ["stages.s0.id"],
    ),
    "an older name that no column has": (
        made(CHANGE),
        made({**CHANGE, "select": {"price": "price", "title": "name"}, **renamed("title", "nmae")}),
        ["stages.s0.aliases.title"],
    ),
    "an older name for a column that is there": (
        made(CHANGE),
        made({**CHANGE, **renamed("name", "title")}),
        ["stages.s0.aliases.name"],
    ),
    "an older name less": (
        made({**CHANGE, **renamed("name", "title")}),
        made(CHANGE),
        ["stages.s0.aliases.name"],
    ),
    "two columns that become one": (
        made(CHANGE),
        made(
            {**CHANGE, "select": {"both": "concat(name, price)"}, "aliases": {"both": ["name", "price"]}},
        ),
        ["stages.s0.aliases.both"],
    ),
    "an emitted column's type": (
        made(CHANGE),
        made({**CHANGE, "select": {"price": "price > 1", "name": "name"}}),
        ["stages.s0.price"],
    ),
    "a column's name in another case": (
        made(CHANGE),
        made({**CHANGE, "select": {"Price": "price", "name": "name"}}),
        ["stages.s0.Price"],
    ),
    "a column's name in another case, by an alias": (
        made(CHANGE),
        made({**CHANGE, "select": {"Price": "price", "name": "name"}, **renamed("Price", "price")}),
        ["stages.s0.Price"],
    ),
    "a column's type that is emitted": (
        made(CHANGE),
        made(CHANGE, **source(columns=COLUMNS.replace("price double", "price bigint"))),
        ["stages.s0.price"],
    ),
    "the fields of events whose bytes are counted": (
        made(emit(THRESHOLD, max_bytes=100)),
        made({**emit(THRESHOLD, max_bytes=100), "select": {"price": "price", "ok": "ok"}}),
        ["stages.s0.select"],
    ),
    "an expression over another aggregate": (
        made({"reduce": {"mean": "sum(price) / count(*)"}}),
        made({"reduce": {"mean": "sum(price) / count(name)"}}),
        ["stages.s0.reduce"],
    ),
    "the type of an expression over aggregates": (
        made({"reduce": {"mean": "sum(price) / count(*)"}}),
        made({"reduce": {"mean": "sum(price) > count(*)"}}),
        ["stages.s0.reduce.mean"],
    ),
    "a side of a join": (
        made(*SIDES, {"join": {**JOIN, "right": "s2"}}),
        made(*SIDES, {"join": JOIN}),
        ["stages.s3.join.right"],
    ),
    "the kind of a join": (
        made(*SIDES, {"join": JOIN}),
        made(*SIDES, {"join": {**JOIN, "kind": "left"}}),
        ["stages.s3.join.kind"],
    ),
    "retract": (
        made({}, {"key": ["name"], "reduce": {"n": "count(*)"}}),
        made({}, {"key": ["name"], "reduce": {"n": "count(*)"}, "retract": True}),
        ["stages.s1.retract"],
    ),
    "when it emits": (made(CHANGE), made({**CHANGE, "emit": {"on": "update"}}), ["stages.s0.emit.on"]),
    "values to hashes": (made(CHANGE), made(HASH), ["stages.s0.emit.state"]),
    "hashes to values": (made(HASH), made(CHANGE), ["stages.s0.emit.state"]),
    "a hash's column with other digits": (
        hashed("id decimal(10,2)"),
        hashed("id decimal(14,4)"),
        ["stages.s0.id"],
    ),
    "what a hash is of": (made(HASH), made(emit(HASH, columns=["price"])), ["stages.s0.emit.columns"]),
    "how a hash is made": (made(HASH), made(emit(HASH, equal="bytes")), ["stages.s0.emit.equal"]),
    "whether a hash is of the timestamp, too": (
        made(emit(HASH, equal="bytes")),
        made(emit(HASH, equal="bytes", timestamp=True)),
        ["stages.s0.emit.timestamp"],
    ),
    "a bound for a buffer": (made(LIMIT), made(bounded(max_records=5)), ["stages.s0.emit.buffer"]),
    "no bound any more": (
        made(bounded(max_records=5)),
        made(bounded(when_full="spill")),
        ["stages.s0.emit.buffer"],
    ),
    "no early results any more": (
        made(emit({**COUNT, **HOUR, "emit": {"on": "window_close"}}, early={"every": "1m"})),
        made({**COUNT, **HOUR, "emit": {"on": "window_close"}}),
        ["stages.s0.emit.early"],
    ),
    "no change waits any more": (
        made(emit(CHANGE, at_most_every="30s", clock="stream")),
        made(CHANGE),
        ["stages.s0.emit.at_most_every"],
    ),
    "a timer more": (made(THRESHOLD), made(emit(THRESHOLD, after="1h")), ["stages.s0.emit.after"]),
    "from the run's clock to stream time": (
        made(emit(CLOSE, clock="run")),
        made(emit(CLOSE, clock="stream")),
        ["stages.s0.emit.clock"],
    ),
}


@pytest.mark.parametrize("edit", COMPATIBLE)
def test_an_edit_that_state_survives(edit: str) -> None:
    before, after = COMPATIBLE[edit]
    assert changed_fields(before, after) == []


@pytest.mark.parametrize("edit", INCOMPATIBLE)
def test_incompatible_edit_is_named(edit: str) -> None:
    before, after, fields = INCOMPATIBLE[edit]
    assert changed_fields(before, after) == fields


def test_change_reports_old_new_and_reason() -> None:
    (change,) = incompatible_changes(made(CHANGE), made(CHANGE, **source(key=["id", "name"])))
    assert str(change) == '`source.key` was ["id"] and is ["id", "name"] (state is found by the key)'


def test_changed_sinks_are_reported() -> None:
    stages = ({"name": "a", **CHANGE}, {"name": "b", **CHANGE})
    before = made(*stages, sinks=[{**TABLE, "stage": "a"}, {"kind": "table"}])
    after = made(*stages, sinks=[{**TABLE, "stage": "b"}, {"kind": "kafka", "topic": "out"}])
    assert sorted(notable_changes(before, after)) == [
        "The sink kafka:out is new: it gets emissions from now on",
        "The sink table was removed: it gets nothing more",
        "The sink table:out gets the emissions of b from now on, no longer those of a",
    ]
    assert notable_changes(before, before) == []


def planned(pipeline: Pipeline, *stages: Parts) -> Pipeline:
    """Return a pipeline as a plan has it, with texts in its stages that today's grammar refuses."""
    read = read_compiled(compile_pipeline(pipeline), pipeline.text, "the head")
    changed = (stage.model_copy(update=fields) for stage, fields in zip(read.stages, stages, strict=True))
    return read.model_copy(update={"stages": tuple(changed)})


UNREADABLE = "price >>> $(`"


def test_texts_of_the_head_are_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    edited = made({**CHANGE, "select": {"price": "price * 2", "name": "ok"}}, CHANGE)
    before = planned(made(CHANGE, CHANGE), {"select": {"price": UNREADABLE, "name": UNREADABLE}}, {})
    for place in ("tidegate.model.sql._parse", "tidegate.model.condition.parse"):
        monkeypatch.setattr(place, lambda *_: pytest.fail("a text was read"))
    changes = incompatible_changes(before, edited)
    assert [(change.field, change.before, change.after) for change in changes] == [
        ("stages.s0.name", "string", "boolean"),
        ("stages.s1.name", "string", "boolean"),
    ]


def test_untyped_head_is_left_to_spark() -> None:
    before = planned(made(CHANGE), {})
    for stage in before.stages:
        stage._types = None
    assert incompatible_changes(before, made({**CHANGE, "select": {"price": "ok", "name": "name"}})) == []


def test_ambiguous_aggregate_is_compared_as_text() -> None:
    def summed(argument: str) -> Pipeline:
        (aggregate,) = pipeline.stages[0].reduce.by_name.values()
        return planned(pipeline, {"reduce": Aggregates((replace(aggregate, argument=argument),))})

    pipeline = made({"reduce": {"n": "sum(price)"}})
    assert incompatible_changes(summed(UNREADABLE), summed(UNREADABLE)) == []
    (change,) = incompatible_changes(summed(UNREADABLE), pipeline)
    assert (change.field, change.before) == ("stages.s0.reduce.n", f"sum({UNREADABLE})")
    assert incompatible_changes(summed(UNREADABLE), summed(f"{UNREADABLE} "))


def test_key_of_a_removed_type_compares_by_name() -> None:
    def typed(type_: str) -> Pipeline:
        columns = (column.model_copy(update={"type": type_}) for column in pipeline.sources["source"].columns)
        return pipeline.model_copy(
            update={
                "single_source": pipeline.sources["source"].model_copy(update={"columns": tuple(columns)})
            }
        )

    pipeline = made(CHANGE, **source(key=["id"]))
    assert incompatible_changes(typed("geography"), typed("geography")) == []
    assert [change.field for change in incompatible_changes(typed("geography"), pipeline)] == [
        "source.columns.id"
    ]
