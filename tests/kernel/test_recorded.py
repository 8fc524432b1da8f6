"""Kafka's timestamp of the record that triggers an emission, by records and on columns."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.kernel.rows_for_tests import INPUT, key_hash
from tidegate import kernel
from tidegate.model.kernel_stages import kernel_stage
from tidegate.yaml.load import parse_case_pipeline

SOURCE = {"topics": ["in"], "format": "json", "columns": "n bigint"}
LATEST: dict[str, Any] = {"select": {"n": "n"}, "reduce": "latest"}
SUM: dict[str, Any] = {"reduce": {"sum": "sum(n)"}}
STAGES: dict[str, dict[str, Any]] = {
    "change": LATEST | {"emit": {"on": "change"}},
    "update": LATEST | {"emit": {"on": "update"}},
    "sums": SUM | {"emit": {"on": "update"}},
    "time_limit": LATEST | {"emit": {"on": "time_limit", "after": "5ms", "clock": "stream"}},
    "interval": LATEST | {"emit": {"on": "interval", "every": "7ms", "clock": "stream"}},
    "quiet": LATEST | {"emit": {"on": "quiet", "after": "4ms", "clock": "stream"}},
    "full": LATEST
    | {
        "emit": {
            "on": "time_limit",
            "after": "9ms",
            "clock": "stream",
            "buffer": {"max_records": 1, "when_full": "emit_early"},
        }
    },
    "threshold": {
        "select": {"n": "n"},
        "reduce": "collect",
        "emit": {"on": "threshold", "count": 3, "after": "9ms", "clock": "stream"},
    },
    "windows": SUM | {"window": {"tumbling": "8ms"}, "emit": {"on": "window_close", "clock": "stream"}},
    "sessions": SUM | {"window": {"session": "3ms"}, "emit": {"on": "update"}},
    "spaced": LATEST | {"emit": {"on": "change", "at_most_every": "6ms", "clock": "stream"}},
    "living": LATEST
    | {"ttl": {"after": "9ms", "emit": "deletion"}, "emit": {"on": "change", "clock": "stream"}},
}
BY_RECORD = {"new", "changed", "deleted", "update", "count", "merged", "emit_early"}
KAFKAS = 1_000_000


def stage_of(stage: dict[str, Any]) -> kernel.Stage:
    written = {"pipeline": "case", "source": SOURCE, "stages": [{"name": "s", **stage}]}
    pipeline = parse_case_pipeline(written, "case")
    return kernel_stage(pipeline, pipeline.stages[0])


def rows_of(random: Random, stage: kernel.Stage) -> pa.RecordBatch:
    """Records of two keys in one partition; Kafka has their offsets as timestamps."""
    value = pa.struct([("sum" if stage.reduce.takes_nulls is False else "n", pa.int64())])
    if stage.reduce.lists_events:
        value = pa.struct([("n", pa.int64())])
    schema = kernel.input_schema(
        value,
        stage.reduce.accumulator_type(value),
        stage.reduce.output_type(value),
        INPUT,
        recorded=True,
    )
    rows, time = [], 0
    for offset in range(40):
        timestamp, key = max(0, time + random.randint(-3, 4)), random.choice("ab")
        row = {"kind": kernel.RECORD, "key": key, "updated_seq": 0, "topic": "in", "partition": 0}
        row |= {"offset": offset, "turn": offset, "part": 0, "timestamp": timestamp, "time": time}
        row |= {"passes": True, "value": {value[0].name: random.randint(0, 2)}}
        rows.append(row | {"hash": 0 if stage.bound else key_hash(key), "recorded": KAFKAS + offset})
        time = max(time, timestamp)
    batch = pa.RecordBatch.from_pylist(rows, schema)
    by = [(name, "ascending") for name in kernel.order(stage)]
    return batch.sort_by(by)


def emissions(stage: kernel.Stage, rows: pa.RecordBatch, trace: bool) -> list[dict[str, Any]]:
    end = max(map(max, zip(rows["time"].to_pylist(), rows["timestamp"].to_pylist(), strict=True)))
    batch = kernel.Batch(times={("in", 0): end}, trace=trace)
    emitted = [
        row
        for decided in kernel.decide(stage, [rows], batch)
        for row in decided.to_pylist()
        if row["kind"] == kernel.EMISSION
    ]
    return sorted(emitted, key=lambda row: (row["key"], row["ordinal"]))


@pytest.mark.parametrize("name", STAGES)
def test_emission_has_its_records_kafka_timestamp(name: str) -> None:
    stage = stage_of(STAGES[name])
    number = 0
    for seed in range(20):
        rows = rows_of(Random(seed), stage)
        time_with = {row["recorded"]: max(row["time"], row["timestamp"]) for row in rows.to_pylist()}
        on_columns, by_record = (emissions(stage, rows, trace) for trace in (False, True))
        assert on_columns == by_record
        for row in by_record:
            number += 1
            if row["reason"] in BY_RECORD:
                assert time_with[row["recorded"]] == row["at"], row
            elif row["recorded"] < KAFKAS:
                assert row["recorded"] == row["at"], row
            else:  # the timer was due when the record set it
                assert row["recorded"] - KAFKAS == row["offset"], row
    assert number


def test_plain_record_gives_its_own_timestamp() -> None:
    stage = stage_of(STAGES["update"])
    rows = rows_of(Random(1), stage)
    emitted = emissions(stage, rows, trace=False)
    assert {row["offset"]: row["recorded"] for row in emitted} == {
        offset: KAFKAS + offset for offset in range(40)
    }


def test_without_the_column_emissions_lack_it() -> None:
    stage = stage_of(STAGES["update"])
    rows = rows_of(Random(1), stage).drop_columns(["recorded"])
    assert all("recorded" not in row for row in emissions(stage, rows, trace=False))
