"""A pipeline file with every field on a line of its own, edits to it, and pipelines made of parts."""

from __future__ import annotations

import copy
from typing import Any

from tidegate.errors import PipelineInvalid
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.load import parse_case_pipeline, parse_pipeline

GOOD = """\
pipeline: levels
generation: 2
schedule: "*/5 * * * *"
source:
  topics: [stock]
  format: json
  columns: "storeId string, id bigint, quantity int, seenAt bigint, tags array<string>, weight double"
  key: [storeId, id]
  timestamp: record
  explode: null
  deduplicate: offset
  max_records: 5_000_000
  start: earliest
lookup: []
stages:
  - name: levels
    select:
      isAvailable: "quantity > 0"
      seen: "seenAt"
    reduce: latest
    emit:
      on: change
      equal: exact
    where: "isAvailable"
sinks:
  - kind: kafka
    topic: availability
    with_key: true
  - kind: table
    path: out/levels
    stage: levels
quality:
  suite: availability
  on_failure: stop
"""


def edited(*edits: tuple[str, str]) -> str:
    """GOOD with texts replaced, each of which must be there once."""
    text = GOOD
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def good(*edits: tuple[str, str]) -> Pipeline:
    """The pipeline of GOOD after the edits."""
    return parse_pipeline(edited(*edits), "p.yaml")


def problems(text: str, file: str = "p.yaml") -> list[tuple[int, str, str, str]]:
    """Line, field, message and fix of everything that is wrong; empty when nothing is."""
    try:
        parse_pipeline(text, file)
    except PipelineInvalid as error:
        return [(problem.line, problem.field, problem.message, problem.fix) for problem in error.problems]
    return []


COLUMNS = (
    "id bigint, name string, price double, cents decimal(10,2), small float, ok boolean, at timestamp, "
    "blob binary, tags array<string>, items array<struct<sku:string,n:int>>, place struct<city:string>"
)
SOURCE: dict[str, Any] = {"topics": ["in"], "format": "json", "columns": COLUMNS, "key": ["id"]}
LATEST: dict[str, Any] = {"select": {"price": "price", "ok": "ok", "name": "upper(name)"}}
COUNT: dict[str, Any] = {"reduce": {"n": "count(*)"}}
COLLECT: dict[str, Any] = {"reduce": "collect", "select": {"price": "price"}}
HOUR: dict[str, Any] = {"window": {"tumbling": "1h"}}
HOPPING = {"hopping": "1h", "every": "30m", "grace": "1m"}


def written(*stages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A pipeline with these stages, named s0, s1, … and emitting every update where they do not say, but for
    joins.
    """
    source = {**SOURCE, **fields.pop("source", {})}
    named = [
        {"name": f"s{at}", **({} if "join" in stage else {"emit": {"on": "update"}}), **stage}
        for at, stage in enumerate(stages)
    ]
    named = named or [{"name": "s0", "emit": {"on": "update"}}]
    # a copy, so that a test may change it
    return copy.deepcopy({"pipeline": "p", "source": source, "stages": named, **fields})


def everything() -> dict[str, Any]:
    """A pipeline that has something of everything."""
    deduplicate = {"columns": ["name", "id"], "keep": "1h"}
    buffer = {"max_records": 5, "max_bytes": 50, "when_full": "spill"}
    return written(
        {
            "reduce": {"n": "count(*)", "mean": "sum(price) / count(*)"},
            "filter": "ok",
            "window": {
                "hopping": "1d",
                "every": "6h",
                "grace": "1m",
                "timezone": "Africa/Abidjan",
                "offset": "1h",
            },
            "where": "n < window_end",
            "on_late": "quarantine",
        },
        {"key": ["n"], "select": {"m": "n * 2"}, "emit": {"on": "change", "equal": {"within": {"m": "1%"}}}},
        {
            "filter": "m > 1",
            "emit": {
                "on": "change",
                "columns": ["m"],
                "equal": {"sql": "old.m = new.m"},
                "heartbeat": "1h",
                "at_most_every": "30s",
                "clock": "stream",
            },
        },
        {
            "reduce": {"most": "max(m)"},
            "window": {"tumbling": "1h"},
            "emit": {"on": "window_close", "early": {"every": "1m"}, "buffer": buffer},
        },
        {
            "emit": {
                "any": [
                    {"on": "change", "equal": {"sql": "old.most = new.most"}},
                    {"on": "interval", "every": "5m"},
                ],
            },
        },
        {
            "emit": {"on": "time_limit", "after": "30s", "buffer": buffer, "clock": "stream"},
            "ttl": {"after": "7d", "emit": "deletion"},
        },
        {
            "from": "s4",
            "reduce": "collect",
            "emit": {"on": "threshold", "count": 5, "max_bytes": 5, "after": "1s", "until": "most > 5"},
        },
        {
            "join": {
                "left": "s5",
                "right": "s6",
                "kind": "left",
                "within": "1m",
                "before": "0s",
                "grace": "1s",
            },
        },
        {
            "from": "source",
            "emit": {"on": "quiet", "after": "10m"},
            "expected": {"table": "stores/current", "key": ["id"]},
        },
        source={
            "explode": "tags",
            "filter": "price > 1",
            "deduplicate": deduplicate,
            "timestamp": {"column": "at", "timezone": "Europe/Berlin"},
            "metadata": ["topic", "offset"],
            "headers": {"trace": {"name": "x-trace", "type": "string"}},
        },
        outboxes={"keep": "90d"},
        lookup=[
            {"table": "stores/current", "on": ["key", "name"], "columns": ["region"], "on_change": "nothing"}
        ],
        sinks=[
            {
                "kind": "sql",
                "table": "a.b",
                "connection": "c",
                "stage": "s1",
                "mode": "upsert",
                "refused_row": "quarantine",
            },
            {"kind": "http", "path": "a/b", "format": "cloudevents", "cloudevents": {"mode": "binary"}},
            {"kind": "iceberg", "table": "a.b", "connection": "c", "stage": "s1", "mode": "upsert"},
        ],
    )


def several_sources() -> dict[str, Any]:
    """A pipeline that reads sources of two formats, their union, and joins them."""
    data = written(
        {"from": "orders", "select": {"price": "price"}, "on_error": "quarantine"},
        {"from": ["payments"], "select": {"paid": "paid"}, "ttl": "7d", "emit": {"on": "change"}},
        {
            "join": {"left": "s0", "right": "s1", "kind": "outer", "before": "0s", "after": "1m"},
            "select": {"price": "left.price", "paid": "right.paid"},
            "on_late": "quarantine",
        },
        {"from": ["orders", "payments"], **COUNT, **HOUR, "on_late": "emit"},
        sinks=[{"kind": "table", "path": name, "stage": name} for name in ("s2", "s3.late")],
    )
    orders = {**data.pop("source"), "topics": {"pattern": "orders-.*"}, "metadata": ["topic"]}
    payments = {"topics": ["payments"], "format": "csv", "columns": "id bigint, paid double", "key": ["id"]}
    return {**data, "sources": {"orders": orders, "payments": payments}}


def made(*stages: dict[str, Any], **fields: Any) -> Pipeline:
    """Return the pipeline of `written`, which has no mistakes."""
    return parse_case_pipeline(written(*stages, **fields), "p.yaml")


def refused(*stages: dict[str, Any], **fields: Any) -> list[tuple[str, str, str]]:
    """Field, message and fix of everything that is wrong with it; empty when nothing is."""
    try:
        made(*stages, **fields)
    except PipelineInvalid as error:
        return [(problem.field, problem.message, problem.fix) for problem in error.problems]
    return []
