"""Batches of which a part is reused have the files, counts and times of batches that are computed whole."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.examples import share
from tests.spark.played import Played
from tidegate.errors import PipelineInvalid
from tidegate.generations.recompute import stage_work
from tidegate.model.pipeline import Pipeline
from tidegate.storage.unchanged import changed_stages
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = {"topics": ["in"], "format": "json", "columns": "id bigint, city string, n int", "key": ["id"]}
REDUCES: list[dict[str, Any]] = [
    {"select": {"{out}": "{city}", "n": "n"}},
    {"select": {"{out}": "upper({city})", "n": "n + 1"}},
    {"reduce": {"{out}": "last({city})", "n": "max(n)"}},
    {"reduce": {"{out}": "max({city})", "n": "sum(n)"}},
]
"""Each emits a column of texts, under a name of its own, and a number."""
EMITS: list[dict[str, Any]] = [
    {"on": "update"},
    {"on": "change"},
    {"on": "time_limit", "after": "3s", "clock": "stream"},
    {"on": "time_limit", "after": "3s", "clock": "run"},
    {"on": "time_limit", "after": "3s", "clock": "stream", "buffer": {"max_records": 2}},
    {"on": "interval", "every": "2s", "clock": "run"},
]
WINDOWED = {"window": {"tumbling": "5s", "grace": "2s"}, "emit": {"on": "window_close", "clock": "run"}}


def _stage(dice: random.Random, name: str, before: Sequence[str]) -> dict[str, Any]:
    input_ = dice.choice(before)
    city = "city" if input_ == "source" else f"city_{input_}"
    text = json.dumps(dice.choice(REDUCES)).replace("{out}", f"city_{name}").replace("{city}", city)
    stage = {"name": name, "from": input_, **json.loads(text), "emit": dice.choice(EMITS)}
    if dice.random() < 0.3:
        stage |= WINDOWED
    if input_ != "source" and dice.random() < 0.5:
        stage["key"] = [city]
    return stage


def _pipeline(stages: Sequence[Mapping[str, Any]], published: Sequence[str]) -> Pipeline:
    sinks = [{"kind": "table", "path": f"out/{name}", "stage": name} for name in published]
    written = {"pipeline": "tree", "source": SOURCE, "stages": stages, "sinks": sinks}
    return parse_case_pipeline(written, "case")


def _stages(dice: random.Random) -> list[dict[str, Any]]:
    """Draw a tree of two or three stages."""
    stages: list[dict[str, Any]] = []
    for number in range(dice.choice((2, 3))):
        before = ["source", *(stage["name"] for stage in stages[-1:])]
        stages.append(_stage(dice, f"s{number}", before if number else ["source"]))
    return stages


def _edited(dice: random.Random, stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Change the last stage, add a stage at the end, remove the last stage, or leave all as they are."""
    edit = dice.choice(("change", "add", "add", "remove", "sinks"))
    if edit == "change":
        return [*stages[:-1], {**_stage(dice, stages[-1]["name"], [stages[-1]["from"]])}]
    if edit == "add":
        return [*stages, _stage(dice, "added", [stage["name"] for stage in stages])]
    return list(stages[:-1]) if edit == "remove" and len(stages) > 2 else list(stages)


def _batches(dice: random.Random) -> list[tuple[list[CaseRecord], int | None]]:
    """Draw records of one or two partitions, some late, some deletions, some unusable, and their cuts."""
    batches: list[tuple[list[CaseRecord], int | None]] = [([], None)]
    now, offsets, partitions = 10_000, [0, 0], dice.choice((1, 2))
    for _ in range(dice.randint(4, 14)):
        now += dice.choice((0, 1, 500, 2_000, 6_000))
        id_ = dice.randint(1, 4)
        partition = id_ % partitions
        city = dice.choice(("rome", "oslo", None))
        value = json.dumps({"id": id_, "city": city, "n": dice.randint(0, 5)}).encode()
        payload = dice.choice((value, value, value, value, None, b"?"))
        timestamp = now - dice.choice((0, 0, 0, 1_500, 9_000))
        record = CaseRecord(str(id_), payload, timestamp, "in", partition, offsets[partition])
        offsets[partition] += 1
        batches[-1][0].append(record)
        if dice.random() < 0.35:
            batches[-1] = (batches[-1][0], dice.choice((None, now, now + 3_000)))
            batches.append(([], None))
    return batches


def _some(dice: random.Random, stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Draw the stages that have a sink."""
    names = [stage["name"] for stage in stages]
    return dice.choice((names, dice.sample(names, dice.randint(1, len(names)))))


def _play(spark: SparkSession, pipeline: Pipeline, batches: Any, root: Path) -> Played:
    played = Played(spark, pipeline, root)
    played.clocks = {("in", 0): -1, ("in", 1): -1}
    for records, clock in batches:
        played.batch(records, clock)
    return played


def _results(played: Played, seq: int) -> dict[str, Any]:
    """Return the rows of a batch's files, its counts and times."""
    computed = played.batches[seq]
    rows = {
        (kind, stage): pa.Table.from_pylist(_rows(played, seq, kind, stage)).to_pylist()
        for kind in ("state", "outbox", "quarantine")
        for stage in ({stage.name for stage in played.pipeline.stages} if kind != "quarantine" else {""})
    }
    counts = {
        stage: {name: number for name, number in counted.items() if number}
        for stage, counted in computed.counts.items()
    }
    return {"rows": rows, "counts": counts, "times": computed.times}


def _rows(played: Played, seq: int, kind: Any, stage: str) -> list[dict[str, Any]]:
    batch = Played(played.spark, played.pipeline, played.root)
    batch.batches = [played.batches[seq]]
    return sorted(batch.rows(kind, stage), key=repr)


def difference(spark: SparkSession, seed: int, folder: Path) -> str | None:
    """Return how batches that reuse a part differ from computed ones; None if they are equal, or if the edit
    of the seed lets nothing be reused.
    """
    dice = random.Random(seed)
    stages, batches = _stages(dice), _batches(dice)
    edited = _edited(dice, stages)
    try:
        before, after = _pipeline(stages, _some(dice, stages)), _pipeline(edited, _some(dice, edited))
    except PipelineInvalid:
        return None
    reused = _reused(before, after)
    differing = _differing(spark, before, after, batches, folder) if reused else None
    return f"{differing}, with {reused} reused, of {stages} edited to {edited}" if differing else None


def _reused(before: Pipeline, after: Pipeline) -> list[str]:
    """Return the stages that are taken from the batches of the pipeline before."""
    unstored = {stage.name: "" for stage in after.stages if stage.name not in before.published_stages}
    work = stage_work(after, changed_stages(before, after), unstored)
    return [part.stage for part in work if part.is_reused]


def _differing(
    spark: SparkSession, before: Pipeline, after: Pipeline, batches: Any, folder: Path
) -> str | None:
    """Return how batches that reuse a part differ from computed ones."""
    origin = _play(spark, before, batches, folder / "origin")
    whole = _play(spark, after, batches, folder / "whole")
    partial = Played(spark, after, folder / "partial")
    partial.reuse(origin, _reused(before, after))
    for seq in range(len(batches)):
        expected, actual = _results(whole, seq), _results(partial, seq)
        for part in expected:
            if expected[part] != actual[part]:
                return f"{part} of batch {seq}: {actual[part]}, not {expected[part]}"
    return None


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("seed", range(share(40)))
def test_reused_batches_equal_computed_ones(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    assert difference(spark, seed, tmp_path) is None


LEFT = {"name": "left", "from": "source", "filter": "n < 4", "select": {"n": "n"}, "emit": {"on": "update"}}
RIGHT = {"name": "right", "from": "source", "filter": "n > 1", "select": {"m": "n"}, "emit": {"on": "update"}}
JOINED = {"name": "joined", "join": {"left": "left", "right": "right", "kind": "outer", "within": "3s"}}
COUNTED = {
    "name": "counted",
    "reduce": {"n": "count(left.n)", "m": "count(right.m)"},
    "emit": {"on": "update"},
}


@pytest.mark.sample(3, of="a naive model beside Spark")
@pytest.mark.spark
@pytest.mark.parametrize(
    ("before", "after", "reused"),
    [
        ([LEFT, RIGHT], [LEFT, RIGHT, JOINED], ["left", "right"]),
        ([LEFT, RIGHT, JOINED], [LEFT, RIGHT, JOINED, COUNTED], ["left", "right", "joined"]),
    ],
    ids=["new join", "new stage behind a join"],
)
def test_parts_of_a_join_are_reused(
    spark: SparkSession, tmp_path: Path, before: Any, after: Any, reused: list[str]
) -> None:
    old, new = (_pipeline(stages, [stage["name"] for stage in stages]) for stages in (before, after))
    assert _reused(old, new) == reused
    ids, at = (1, 2, 1, 2, 1, 2, 1, 1, 2), (0, 100, 900, 1_000, 1_000, 4_000, 4_100, 9_000, 9_000)
    records = [
        CaseRecord(
            str(id_), json.dumps({"id": id_, "n": number % 6}).encode(), 10_000 + time, "in", id_ % 2, number
        )
        for number, (id_, time) in enumerate(zip(ids, at, strict=True))
    ]
    batches = [(records[:4], None), (records[4:7], 15_000), (records[7:], 30_000)]
    assert _differing(spark, old, new, batches, tmp_path) is None
