"""Flink 2.3 computed the histories of `flink.jsonl` (see `generate.py`), and tidegate computes the same.

Where tidegate differs by decision (docs/windows.md), less is compared:

- A cumulating window emits only if its result differs from that of the shorter one; in Flink each one emits.
  A window with `early` emits its final result also if it equals the last early one; Flink's SQL leaves it
  out, and its `ContinuousEventTimeTrigger` repeats early results, too. So repetitions are removed: from
  Flink's results, and from those of windows with `early`.
- With `every`, early results do not wait for `grace`, and the first record of a window waits for the next
  multiple. In Flink they wait for the watermark, and its trigger makes up for multiples that are over.
  So if records are out of order (`final`), only the final results of `early: {every: …}` are compared.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.spark.case_parts import Emitted
from tidegate.spark.case_run import CaseRun
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

History = Mapping[str, Any]
LINES = Path(__file__).with_name("flink.jsonl").read_text().splitlines()
HISTORIES: list[History] = [json.loads(line, parse_float=Decimal) for line in LINES]
RETRACTION = [history for history in HISTORIES if history["kind"] == "retraction"]
WINDOWED = {
    "-".join(map(str, settings)): list(histories)
    for settings, histories in groupby(
        (history for history in HISTORIES if history["kind"] != "retraction"),
        lambda history: [history[name] for name in ("kind", "size", "every", "grace") if name in history],
    )
}
AGGREGATES = {
    "rows": "count(*)",
    "counted": "count(q)",
    "total": "sum(q)",
    "least": "min(q)",
    "most": "max(q)",
    "mean": "avg(q)",
    "kinds": "count(distinct q)",
}


def outcomes(
    spark: SparkSession, columns: str, key: str, stages: Sequence[Any], inputs: Sequence[Sequence[CaseRecord]]
) -> list[list[Emitted]]:
    """Return what goes out if all histories are read together, each from its partition: whole, and cut."""
    source = {"topics": ["in"], "format": "json", "columns": columns, "key": [key]}
    pipeline = parse_case_pipeline({"pipeline": "p", "source": source, "stages": list(stages)}, "p.yaml")
    dice = random.Random(1)
    partitions = [number for number, records in enumerate(inputs) for _ in records]
    dice.shuffle(partitions)
    waiting = [iter(records) for records in inputs]
    log = [next(waiting[partition]) for partition in partitions]
    runs = CaseRun(spark, pipeline, log).run_all([[], sorted(dice.sample(range(1, len(log)), 40))])
    assert [run.error for run in runs] == [None, None]
    return [run.emissions for run in runs]


# windows


def stage_of(kind: str, size: int, grace: int, every: int = 0) -> dict[str, Any]:
    """Return the stage that computes what Flink computed."""
    windows = {"cumulating": {"cumulating": f"{size}s", "every": f"{every}s"}}
    early = {"cumulating": {}, "early-change": {"early": {"on": "change"}}}
    return {
        "name": "out",
        "window": {**windows.get(kind, {"tumbling": f"{size}s"}), "grace": f"{grace}s"},
        "reduce": {"total": "sum(x)", "most": "max(x)"},
        "emit": {
            "on": "window_close",
            "clock": "stream",
            **early.get(kind, {"early": {"every": f"{every}s"}}),
        },
    }


def windowed_records(number: int, history: History) -> list[CaseRecord]:
    """Return the records of a history, and one that closes all windows."""
    records = []
    for at, (key, x, second) in enumerate([*history["input"], ["end", 0, 10_000]]):
        payload = json.dumps({"k": f"{number}{key}", "x": x}).encode()
        records.append(CaseRecord(None, payload, 1000 * second, "in", number, at))
    return records


def comparable(kind: str, results: Sequence[list[Any]]) -> list[list[Any]]:
    """Return those results of a key that differ from the one before of the same start, or only final ones.

    Args:
        results: start, end, sum and maximum, in the order in which they were emitted.
    """
    if kind == "final":
        return sorted({start: [start, *result] for start, *result in results}.values())
    values: dict[int, list[Any]] = {}
    different = []
    for start, end, *value in results:
        if values.get(start) != value:
            different.append([start, end, *value])
        values[start] = value
    return different


@pytest.mark.sample(5)
@pytest.mark.parametrize("settings", WINDOWED)
def test_windows_emit_what_flink_emits(spark: SparkSession, settings: str) -> None:
    histories = WINDOWED[settings]
    stage = stage_of(
        **{name: value for name, value in histories[0].items() if name not in ("input", "output")}
    )
    kind = histories[0]["kind"]
    expected = {
        f"{number}{key}": comparable(kind, results)
        for number, history in enumerate(histories)
        for key, results in history["output"].items()
    }
    inputs = [windowed_records(*numbered) for numbered in enumerate(histories)]
    for emissions in outcomes(spark, "k string, x bigint", "k", [stage], inputs):
        emitted: dict[str, list[list[Any]]] = {}
        for emission in emissions:
            assert emission.window is not None
            span = [at // 1000 for at in emission.window]
            emitted.setdefault(emission.key, []).append([*span, *emission.value.values()])
        assert {
            key: rows if kind == "cumulating" else comparable(kind, rows)
            for key, rows in emitted.items()
            if not key.endswith("end")
        } == expected


# retraction


def stock_records(number: int, history: History) -> list[CaseRecord]:
    records = []
    for at, (name, *row) in enumerate(history["input"]):
        product = f"{number}{name}"
        payload = None
        if row:
            store, quantity = row
            value = {"product": product, "store": store and f"{number}{store}", "q": quantity}
            payload = json.dumps(value).encode()
        records.append(CaseRecord(product, payload, 1000 * at, "in", number, at))
    return records


def test_groups_follow_their_rows_as_in_flink(spark: SparkSession) -> None:
    stages = [
        {"name": "products", "emit": {"on": "change"}},
        {"name": "stores", "key": ["store"], "retract": True, "reduce": AGGREGATES, "emit": {"on": "change"}},
    ]
    expected = {
        (f"{number}{store}", at): values
        for number, history in enumerate(RETRACTION)
        for at, stores in enumerate(history["output"])
        for store, values in stores.items()
    }
    inputs = [stock_records(*numbered) for numbered in enumerate(RETRACTION)]
    for emissions in outcomes(spark, "product string, store string, q bigint", "product", stages, inputs):
        emitted = [((row.key, row.at // 1000), row.value and list(row.value.values())) for row in emissions]
        assert dict(emitted) == expected
        assert len(emitted) == len(expected)
