"""`lookup: {on_change: emit}`: records come again when the row that they look up changes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.played import Played
from tidegate.erasure.files import rows_of_keys
from tidegate.erasure.keys import ErasedKeys
from tidegate.errors import SchemaChanged
from tidegate.model.kernel_stages import DEDUPLICATION, LOOKUP
from tidegate.spark import computation
from tidegate.spark.case_run import CaseRun
from tidegate.yaml.cases import CaseRecord, LookupRows
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
RATES = "rates/current"
PIPELINE: dict[str, Any] = {
    "pipeline": "prices",
    "source": {"topics": ["in"], "format": "json", "columns": "amount int, currency string"},
    "lookup": [{"table": RATES, "on": ["currency"], "columns": ["rate"], "on_change": "emit"}],
    "stages": [
        {"name": "all", "select": {"total": "amount * rate"}, "emit": {"on": "update"}},
        {"name": "prices", "from": "source", "select": {"total": "amount * rate"}, "emit": {"on": "change"}},
        {"name": "sums", "key": ["total"], "reduce": {"n": "count(*)"}, "emit": {"on": "update"}},
    ],
    "sinks": [{"kind": "kafka", "topic": stage, "stage": stage} for stage in ("all", "prices", "sums")],
}
Rates = dict[str, int | None]


@dataclass(frozen=True)
class Rows:
    """A table as the plan of a batch pins it."""

    rates: Rates

    parts: ClassVar[int] = 1

    def open(self, spark: SparkSession) -> DataFrame:
        columns = {"currency": list(self.rates), "rate": list(self.rates.values())}
        schema = pa.schema([("currency", pa.string()), ("rate", pa.int32())])
        return spark.createDataFrame(pa.table(columns, schema))


class Stream(Played):
    """A stream whose batches have a table each."""

    rates: Rates | None = None

    def priced(self, rates: Rates, *records: CaseRecord) -> Any:
        changed = {RATES} if rates != self.rates and self.rates is not None else set()
        self.rates = rates
        tables: Any = {RATES: Rows(rates)}
        self.before = replace(self.before, lookups=tables, changed_tables=changed)
        return self.batch(records)

    def totals(self, stage: str) -> dict[str, list[int | None]]:
        return {
            key: [row["text"] and json.loads(row["text"])["total"] for row in rows]
            for key, rows in self.emissions(stage).items()
        }


def record(offset: int, key: str, amount: int | None, currency: str | None) -> CaseRecord:
    value = None if amount is None else json.dumps({"amount": amount, "currency": currency}).encode()
    return CaseRecord(key, value, 1_000 + offset, "in", offset=offset)


def stream_of(spark: SparkSession, folder: Path) -> Stream:
    return Stream(spark, parse_case_pipeline(PIPELINE, "case"), folder)


def test_changed_and_deleted_rows_emit_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(spark, tmp_path)
    stream.priced(
        {"usd": 2, "gbp": 3},
        *[record(0, "a", 10, "usd"), record(1, "b", 5, "gbp"), record(2, "gone", 1, "usd")],
        *[record(3, "none", 7, None), record(4, "gone", None, None)],
    )
    computed = stream.priced({"usd": 4, "gbp": 3}, record(5, "b", 6, "gbp"))
    assert computed.counts[""]["read"] == computed.counts[""]["used"] == 1
    assert (computed.counts["prices"]["rejoined"], computed.counts["prices"]["emitted.lookup"]) == (1, 1)
    with monkeypatch.context() as patched:
        patched.setattr(computation, "rejoined", lambda *_: pytest.fail("no table has changed"))
        stream.priced({"usd": 4, "gbp": 3})
    stream.priced({"gbp": 3})
    assert stream.totals("all") == {
        "a": [20, 40, None],
        "b": [15, 18],
        "gone": [2, None],
        "none": [None],
    }
    last = stream.emissions("prices")["a"][-1]
    assert (last["reason"], last["source"], last["timestamp"]) == (
        f"lookup:{RATES}",
        "#rates.current/0/4",
        1_000,
    )
    assert stream.counts["rejoined"] == 2 * 3, "one of two keys a batch, in each of the three passes"


@pytest.mark.sample(3, of="a naive model beside Spark")
def test_history_agrees_with_sql(spark: SparkSession, tmp_path: Path) -> None:
    chance, stream = random.Random(5), stream_of(spark, tmp_path)
    offset, records, tables = 0, [], []
    for batch in range(3):
        rates = {name: rate for name in ("usd", "gbp", "eur") if (rate := chance.choice([1, 2, None]))}
        tables += [(batch, name, rate) for name, rate in rates.items()]
        own = []
        for _ in range(chance.randrange(12)):
            amount = chance.choice([None, 0, 1, 2, 4])
            own.append((offset, chance.choice("abcdef"), amount, chance.choice(["usd", "gbp", "eur", None])))
            offset += 1
        records += [(batch, *part) for part in own]
        stream.priced(rates, *[record(*part) for part in own])
    everything = in_sql(records, tables)
    assert any(kind == 0 for _, kind, *_ in everything), "a changed row makes emissions"
    for stage, is_change in (("all", False), ("prices", True)):
        expected: dict[str, list[int | None]] = {}
        for _, _, key, deleted, total in everything:
            before = expected.setdefault(key, [])
            value = "deleted" if deleted else total
            if not (deleted and (not before or before[-1] == "deleted")) and not (
                is_change and before[-1:] == [value]
            ):
                before.append(value)
        got = {
            key: ["deleted" if row["text"] is None else json.loads(row["text"])["total"] for row in rows]
            for key, rows in stream.emissions(stage).items()
        }
        assert got == {key: values for key, values in expected.items() if values}


def in_sql(records: Sequence[tuple[Any, ...]], rates: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return what comes to a stage, in order: (batch, 0 of a changed row or 1 of a record, key, whether it
    deletes, total).
    """
    connection = duckdb.connect()
    connection.sql("create table records (batch int, number int, key text, amount int, currency text)")
    connection.sql("create table rates (batch int, currency text, rate int)")
    connection.executemany("insert into records values (?, ?, ?, ?, ?)", records)
    connection.executemany("insert into rates values (?, ?, ?)", rates)
    return connection.sql("""
        with last as (
            select b.batch, arg_max(r, r.number) as r
            from (select distinct unnest(range(1, 3)) as batch) b join records r on r.batch < b.batch
            group by b.batch, r.key
        ), again as (
            select batch, 0 as kind, r.number as number, r.key as key, r.amount as amount,
                   (select rate from rates t where t.batch = l.batch and t.currency = r.currency) as rate,
                   (select rate from rates t where t.batch = l.batch - 1 and t.currency = r.currency) as old
            from last l where r.amount is not null
        )
        select batch, kind, key, deleted, total from (
            select batch, kind, number, key, false as deleted, amount * rate as total from again
            where rate is distinct from old
            union all
            select r.batch, 1, number, key, amount is null, amount * rate
            from records r left join rates t on t.batch = r.batch and t.currency = r.currency
        ) order by batch, kind, number
    """).fetchall()


def edited(**source: Any) -> Any:
    """Return the pipeline of one stage after an edit of its source."""
    amount = "qty" if "aliases" in source else "amount"
    stage = {"name": "all", "select": {"total": f"cast({amount} as int) * rate"}, "emit": {"on": "update"}}
    parts = {"source": {**PIPELINE["source"], **source}, "stages": [stage], "sinks": PIPELINE["sinks"][:1]}
    return parse_case_pipeline({**PIPELINE, **parts}, "case")


def test_last_records_follow_a_renamed_column(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, edited(), tmp_path)
    stream.priced({"usd": 2}, record(0, "a", 10, "usd"), record(1, "b", 20, "usd"))
    stream.pipeline = edited(columns="qty bigint, currency string", aliases={"qty": ["amount"]})
    stream.priced({"usd": 2}, record(2, "b", 30, "usd"))
    stream.priced({"usd": 4})
    assert stream.totals("all") == {"a": [20, 40], "b": [40, 60, 120]}


def test_last_records_do_not_convert_other_records(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, edited(), tmp_path)
    stream.priced({"usd": 2}, record(0, "a", 10, "usd"))
    stream.pipeline = edited(columns="amount string, currency string")
    other = CaseRecord("b", b'{"amount": "007", "currency": "usd"}', 1_001, "in", offset=1)
    with pytest.raises(SchemaChanged, match="amount was int32 in the state and is string"):
        stream.priced({"usd": 4}, other)


def test_erased_keys_match_state_before_stages(spark: SparkSession, tmp_path: Path) -> None:
    source = {
        "columns": "shop string, sku int, event string, amount int, currency string",
        "key": ["shop", "sku"],
        "deduplicate": {"columns": ["shop", "event"], "keep": "1h"},
    }
    stream = Stream(spark, edited(**source), tmp_path)
    value = {"shop": "s1", "sku": 7, "event": "e", "amount": 1, "currency": "usd"}
    stream.priced({"usd": 2}, CaseRecord(None, json.dumps(value).encode(), 1_000, "in"))
    shop, matches = ErasedKeys(("s1",), ("shop",)), {}
    for file in stream.batches[0].manifest.files:
        if file.kind == "state":
            matches[file.stage] = rows_of_keys(file, shop, pq.read_table(tmp_path / file.path)).to_pylist()
    assert matches == {DEDUPLICATION: [True], LOOKUP: [True], "all": [True]}


@pytest.mark.long
def test_case_joins_again_at_the_time_of_batches(spark: SparkSession, tmp_path: Path) -> None:
    quiet = {"name": "quiet", "from": "prices", "emit": {"on": "quiet", "after": "10s"}}
    stages = [{"name": "prices", "emit": {"on": "change"}}, quiet]
    pipeline = parse_case_pipeline({**PIPELINE, "stages": stages, "sinks": []}, "case")

    def record(offset: int, key: str, seconds: int, amount: int, currency: str) -> CaseRecord:
        value = json.dumps({"amount": amount, "currency": currency}).encode()
        return CaseRecord(key, value, seconds * 1_000, "in", offset=offset)

    # the fourth record repeats the second: it advances the time of its partition, and not that of `quiet`
    some = [record(0, "k", 1, 1, "usd"), record(1, "a", 90, 1, "gbp"), record(2, "k", 100, 2, "usd")]
    before, after = [*some, record(3, "a", 3600, 1, "gbp")], [record(4, "a", 3603, 2, "gbp")]
    stream = Stream(spark, pipeline, tmp_path)
    stream.priced({"usd": 2, "gbp": None}, *before)
    stream.priced({"usd": None, "gbp": 5}, *after)
    rates = ({"currency": "usd", "rate": 2}, {"currency": "gbp", "rate": None})
    change = LookupRows(RATES, ({"currency": "gbp", "rate": 5},))
    (outcome,) = CaseRun(spark, pipeline, [*before, change, *after], {RATES: rates}).run_all()
    assert outcome.error is None
    expected = {
        key: [(json.loads(row["text"]), row["timestamp"]) for row in emitted]
        for key, emitted in stream.emissions().items()
    }
    actual = outcome.by_key()
    assert {
        key: [(emission.value, emission.timestamp) for emission in emitted] for key, emitted in actual.items()
    } == expected
    assert [value["rate"] for value, _ in expected["k"]] == [2, 2, None]


def test_case_has_the_table_as_reason(spark: SparkSession) -> None:
    change = LookupRows(RATES, ({"currency": "usd", "rate": 3},))
    record = CaseRecord("a", json.dumps({"amount": 2, "currency": "usd"}).encode(), 1, "in")
    tables = {RATES: ({"currency": "usd", "rate": 2},)}
    pipeline = parse_case_pipeline(PIPELINE, "case")
    run = CaseRun(spark, pipeline, [record, change], tables, stages=["all", "prices"])
    (outcome,) = run.run_all()
    assert outcome.error is None
    for stage in ("all", "prices"):
        emitted = [(emission.value, emission.reason) for emission in outcome.by_key(stage)["a"]]
        assert emitted == [({"total": 4}, "new"), ({"total": 6}, f"lookup:{RATES}")]


def followed_by(spark: SparkSession, folder: Path, stage: dict[str, Any]) -> Stream:
    """Return the stream of a stage `prices` that emits each change, and of a stage after it."""
    stages = [{"name": "prices", "select": {"total": "amount * rate"}, "emit": {"on": "change"}}, stage]
    sinks = [{"kind": "kafka", "topic": stage["name"]}]
    return Stream(spark, parse_case_pipeline({**PIPELINE, "stages": stages, "sinks": sinks}, "case"), folder)


def record_at(offset: int, key: str, timestamp: int) -> CaseRecord:
    return replace(record(offset, key, 1, "usd"), timestamp=timestamp)


def test_changed_table_reopens_no_closed_window(spark: SparkSession, tmp_path: Path) -> None:
    windows = {"window": {"tumbling": "1h"}, "reduce": {"n": "count(*)"}, "emit": {"on": "update"}}
    stream = followed_by(spark, tmp_path, {"name": "hours", **windows})
    stream.priced({"usd": 2}, record_at(0, "a", 1_000), record_at(1, "b", 7_200_000))
    computed = stream.priced({"usd": 3})
    emitted = stream.emissions("hours")
    assert {key: [json.loads(row["text"])["n"] for row in rows] for key, rows in emitted.items()} == {
        "a": [1],
        "b": [1, 2],
    }
    assert computed.counts["hours"]["expired-window-record-drop"] == 1


def test_timer_of_a_joined_value_fires(spark: SparkSession, tmp_path: Path) -> None:
    limit = {"on": "time_limit", "after": "10s", "clock": "stream"}
    stream = followed_by(spark, tmp_path, {"name": "limited", "emit": limit})
    stream.priced({"usd": 2}, record_at(0, "a", 100_000))
    stream.priced({"usd": 3})
    stream.priced({"usd": 3}, record_at(1, "b", 200_000))
    assert stream.totals("limited")["a"] == [3]
