"""Let Flink compute drawn histories again. It needs Java 17, and an environment of its own with Python 3.11:

    python3.11 -m venv ENV
    ENV/bin/pip install apache-flink==2.3.0
    ENV/bin/python tests/conformance/flink/generate.py

All times are whole seconds: Flink closes a window a millisecond before its end, which is then the end itself.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Row, RowKind, Time, Types
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import ContinuousEventTimeTrigger, TumblingEventTimeWindows
from pyflink.table import Schema, StreamTableEnvironment
from pyflink.table.changelog_mode import ChangelogMode

HISTORIES = Path(__file__).resolve().with_name("flink.jsonl")
NUMBER = 40
"""The histories of each line of `WINDOWS`."""
FAR = 3600
"""A history begins so many seconds after the one before, and so closes the windows of that one."""
WINDOWS: list[dict[str, Any]] = [
    {"kind": "cumulating", "size": 60, "every": 20, "grace": 0},
    {"kind": "cumulating", "size": 60, "every": 20, "grace": 10},
    {"kind": "cumulating", "size": 90, "every": 15, "grace": 25},
    {"kind": "early-change", "size": 60, "grace": 0},
    {"kind": "early-change", "size": 60, "grace": 15},
    {"kind": "early-every", "size": 60, "every": 20, "grace": 0},
    {"kind": "early-every", "size": 90, "every": 30, "grace": 0},
    {"kind": "final", "size": 60, "every": 20, "grace": 0},
    {"kind": "final", "size": 60, "every": 20, "grace": 15},
]
"""`final` is `early-every` with records out of order; the test compares its final results."""
CUMULATING = """
    SELECT k, window_start, window_end, SUM(x), MAX(x)
    FROM TABLE(CUMULATE(TABLE records, DESCRIPTOR(ts), INTERVAL '{every}' SECOND, INTERVAL '{size}' SECOND))
    GROUP BY k, window_start, window_end
"""
EARLY_CHANGE = """
    SELECT k, TUMBLE_START(ts, INTERVAL '{size}' SECOND), TUMBLE_END(ts, INTERVAL '{size}' SECOND),
        SUM(x), MAX(x)
    FROM records GROUP BY k, TUMBLE(ts, INTERVAL '{size}' SECOND)
"""
RETRACTION = """
    SELECT store, COUNT(*), COUNT(q), SUM(q), MIN(q), MAX(q), AVG(CAST(q AS DOUBLE)), COUNT(DISTINCT q)
    FROM stock WHERE store IS NOT NULL GROUP BY store
"""


class Flink:
    """Flink in this process, in which each record advances the watermark at once."""

    def __init__(self) -> None:
        configuration = Configuration()
        for name, value in {
            "parallelism.default": "1",
            "pipeline.auto-watermark-interval": "0 ms",
            "table.local-time-zone": "UTC",
            "table.optimizer.agg-phase-strategy": "ONE_PHASE",
            # In a larger bundle, Python gets the next records before the watermark between them.
            "python.fn-execution.bundle.size": "1",
        }.items():
            configuration.set_string(name, value)
        self.streams = StreamExecutionEnvironment.get_execution_environment(configuration)
        self.tables = StreamTableEnvironment.create(self.streams)

    def rows(self, query: str) -> Iterator[Row]:
        """Yield the changelog of a query without the rows that are taken back."""
        with self.tables.execute_sql(query).collect() as rows:
            yield from (row for row in rows if row.get_row_kind() != RowKind.UPDATE_BEFORE)


# windows


def windowed_records(dice: random.Random, kind: str) -> list[list[Any]]:
    """Return 5 to 40 records: key, value and second. Many values change neither the sum nor the maximum.

    For `early-every`, records are in order, and none is past two multiples at once: PyFlink registers the
    timer of the second one only after the watermark.
    """
    records, now = [], 0
    for _ in range(dice.randint(5, 40)):
        now += dice.choice((0, 1, 2, 5, 10, 10, 10 if kind == "early-every" else 40))
        behind = 0 if kind == "early-every" else dice.choice((0, 0, 0, 1, 5, 10, 15, 30))
        records.append([dice.choice("abc"), dice.choice((0, 0, 1, 2, 5, None)), max(now - behind, 0)])
    return records


def windowed(settings: dict[str, Any], dice: random.Random) -> Iterator[dict[str, Any]]:
    """Yield histories, each with Flink's results of each key: start, end, sum and maximum."""
    inputs = [windowed_records(dice, settings["kind"]) for _ in range(NUMBER)]
    outputs: list[dict[str, list[Any]]] = [{} for _ in range(NUMBER + 1)]
    flink = with_records([*inputs, [["a", 0, 0]]], settings["grace"])
    for key, start, end, *value in JOBS[settings["kind"]](flink, settings):
        number = int(key[:-1])
        span = [seconds(at) - number * FAR for at in (start, end)]
        outputs[number].setdefault(key[-1], []).append([*span, *value])
    for records, output in zip(inputs, outputs, strict=False):
        yield {**settings, "input": records, "output": output}


def with_records(inputs: list[list[list[Any]]], grace: int) -> Flink:
    """Return Flink with the records of all histories, one history after the other, as the table `records`."""
    flink = Flink()
    rows = [
        Row(f"{number}{key}", x, 1000 * (second + number * FAR))
        for number, records in enumerate(inputs)
        for key, x, second in records
    ]
    types = Types.ROW_NAMED(["k", "x", "ms"], [Types.STRING(), Types.LONG(), Types.LONG()])
    schema = (
        Schema.new_builder()
        .column_by_expression("ts", "TO_TIMESTAMP_LTZ(ms, 3)")
        .watermark("ts", f"ts - INTERVAL '{grace}' SECOND")
        .build()
    )
    table = flink.tables.from_data_stream(flink.streams.from_collection(rows, types), schema)
    flink.tables.create_temporary_view("records", table)
    return flink


def seconds(at: datetime | int) -> int:
    return at // 1000 if isinstance(at, int) else int(at.replace(tzinfo=timezone.utc).timestamp())


def cumulating(flink: Flink, settings: dict[str, Any]) -> Iterator[Row]:
    return flink.rows(CUMULATING.format(**settings))


def early_change(flink: Flink, settings: dict[str, Any]) -> Iterator[Row]:
    for name, value in {"enabled": "true", "delay": "0 ms"}.items():
        flink.tables.get_config().set(f"table.exec.emit.early-fire.{name}", value)
    return flink.rows(EARLY_CHANGE.format(**settings))


class SumAndMaximum(ProcessWindowFunction):
    def process(self, key: str, context: Any, rows: Any) -> Iterator[Row]:
        values = [row.x for row in rows if row.x is not None]
        window = context.window()
        yield Row(key, window.start, window.end, *((sum(values), max(values)) if values else (None, None)))


def early_every(flink: Flink, settings: dict[str, Any]) -> Iterator[Row]:
    """Fire at each multiple of `every`, which is one of the window's start as well."""
    windows = (
        flink.tables.to_data_stream(flink.tables.from_path("records"))
        .key_by(lambda row: row.k, Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.seconds(settings["size"])))
        .trigger(ContinuousEventTimeTrigger.of(Time.seconds(settings["every"])))
    )
    types = Types.ROW([Types.STRING(), *[Types.LONG()] * 4])
    with windows.process(SumAndMaximum(), types).execute_and_collect() as rows:
        yield from rows


JOBS = {
    "cumulating": cumulating,
    "early-change": early_change,
    "early-every": early_every,
    "final": early_every,
}


# retraction


def stock_changes(dice: random.Random) -> list[list[Any]]:
    """Return 5 to 25 changes: product, store and quantity. A product alone is deleted."""
    return [
        [product]
        if dice.random() < 0.2
        else [product, dice.choice(("s", "s", "t", "u", None)), dice.choice((0, 1, 1, 2, 7, -3, None))]
        for product in dice.choices("abcde", k=dice.randint(5, 25))
    ]


def retraction(dice: random.Random) -> Iterator[dict[str, Any]]:
    """Yield histories, each with the stores that differ after each change, as Flink has them.

    Flink also emits the row between the old value of a product and the new one. So each beginning of a
    history is a table of its own, of which only the result counts.
    """
    inputs = [stock_changes(dice) for _ in range(2 * NUMBER)]
    flink = Flink()
    beginnings = [
        (f"{number}/{length}/", change)
        for number, changes in enumerate(inputs)
        for length in range(1, len(changes) + 1)
        for change in changes[:length]
    ]
    rows = [stock_row(beginning, *change) for beginning, change in beginnings]
    types = Types.ROW_NAMED(["product", "store", "q"], [Types.STRING(), Types.STRING(), Types.LONG()])
    schema = Schema.new_builder().column("product", "STRING NOT NULL").column("store", "STRING")
    schema = schema.column("q", "BIGINT").primary_key("product").build()
    stream = flink.streams.from_collection(rows, types)
    stock = flink.tables.from_changelog_stream(stream, schema, ChangelogMode.upsert())
    flink.tables.create_temporary_view("stock", stock)
    groups: dict[str, dict[str, Any]] = {beginning: {} for beginning, _ in beginnings}
    for row in flink.rows(RETRACTION):
        beginning, store = row[0][:-1], row[0][-1]
        groups[beginning].pop(store, None)
        if row.get_row_kind() != RowKind.DELETE:
            groups[beginning][store] = list(row)[1:]
    for number, changes in enumerate(inputs):
        states = [{}, *(groups[f"{number}/{length}/"] for length in range(1, len(changes) + 1))]
        output = [
            {store: new.get(store) for store in sorted(old | new) if old.get(store) != new.get(store)}
            for old, new in pairwise(states)
        ]
        yield {"kind": "retraction", "input": changes, "output": output}


def stock_row(beginning: str, product: str, store: str | None = None, *quantity: int | None) -> Row:
    row = Row(beginning + product, store and beginning + store, *(quantity or [None]))
    row.set_row_kind(RowKind.UPDATE_AFTER if quantity else RowKind.DELETE)
    return row


def main() -> None:
    """Write the histories."""
    dice = random.Random(1)
    with HISTORIES.open("w") as file:
        for settings in WINDOWS:
            for history in windowed(settings, dice):
                print(json.dumps(history, separators=(",", ":")), file=file)
        for history in retraction(dice):
            print(json.dumps(history, separators=(",", ":")), file=file)


if __name__ == "__main__":
    main()
