"""Records in quarantine come in again, fixed, as a batch of their own; on real Kafka and real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.world import NOW_MS, World, key_of, stock_event
from tidegate import quarantine
from tidegate.batch import Outcome
from tidegate.quarantine import ReplayedRecords
from tidegate_dev.demo.topics import committed_records, read_published

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def replay(world: World, rows: Any = None, **trigger: Any) -> Outcome:
    """Replay all open records, or these rows, through all steps."""

    def opened() -> Iterator[pa.Table]:
        return quarantine.iter_open(world.app, world.stream, quarantine.QuarantineFilter())

    request = ReplayedRecords(rows or opened, "ada", "a bad release", rows is not None)
    return world.run(replay=request, **trigger)


def edited(world: World, path: Path, **values: Any) -> Any:
    """Export the open records, change values by offset, and read them back."""
    quarantine.export_quarantine(world.app, world.stream, path, overwrite=True, open_only=True)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        record["value"] = values.get(f"at_{record['offset']}", record["value"])
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return lambda: quarantine.iter_exported(path)


def test_replayed_record_is_new_and_drops_none_later(world: World) -> None:
    event = stock_event(7)
    world.send(stock_event(10), {**event, "value": b"{oops"}, {**event, "value": b"{worse"}, stock_event(0))
    world.run()
    assert world.published() == {key_of(): [True, False]}

    fixed = edited(world, world.folder / "a.jsonl", at_1='{"storeId": "s1", "id": 1, "quantity": 7}')
    outcome = replay(world, fixed, clock_ms=NOW_MS + 3_600_000)
    assert outcome.plan is not None
    assert outcome.plan.clock_ms == NOW_MS, "what was not read yet has met no later clock"
    assert world.published() == {key_of(): [True, False, True]}, "newer than what was out already"
    counts = world.counts(2)
    assert (counts["read"], counts["used"], counts["quarantined"]) == (2, 1, 1)
    [*_, sent] = committed_records(world.servers, world.sink)
    chain = f"{world.source}.replay-2/0/1;{world.source}/0/1".encode()
    assert dict(sent.headers)["tidegate-source"] == chain

    world.stock(0)
    world.run()
    assert world.published() == {key_of(): [True, False, True, False]}
    assert [
        event.what for event in quarantine.record_history(world.app, world.stream, world.source, 0, 1)
    ] == [
        "quarantined",
        "replayed",
    ]
    second = replay(world)
    assert second.plan is not None
    assert second.plan.most_records == 1, "what is unusable again is open again"
    events = quarantine.record_history(world.app, world.stream, world.source, 0, 2)
    assert [(event.what, event.batch, event.by) for event in events] == [
        ("quarantined", 1, None),
        ("replayed", 2, "ada"),
        ("quarantined", 2, None),
        ("replayed", 4, "ada"),
        ("quarantined", 4, None),
    ]
    assert world.published() == {key_of(): [True, False, True, False]}


def test_only_unusable_element_is_replayed(
    world: World,
) -> None:
    """A count of exploded records by root, whose sources repeat themselves."""
    source = {"columns": "robots array<string>", "explode": "robots", "key": ["robots"]}
    counts = {"name": "counts", "reduce": {"n": "count(*)"}, "emit": {"on": "update"}}
    world.write({**source, "deduplicate": "root"}, counts)
    record = {"value": {"robots": ["r1", None, "r2"]}, "headers": [("tidegate-source", b"plant/0/5")]}
    world.send(record)
    world.run()
    replay(world, edited(world, world.folder / "a.jsonl", at_0='{"robots": ["r1", "r1", "r2", "r3"]}'))
    assert counted(world) == {"r1": [1, 2], "r2": [1]}

    world.send(record, record | {"headers": [("tidegate-source", b"plant/0/6")]})
    world.run()
    assert counted(world) == {"r1": [1, 2, 3], "r2": [1, 2]}
    assert world.counts(3)["deduplicated"] == 2, "of plant/0/5, though it came after the replay"


@pytest.mark.long
def test_command_edits_replays_and_reports(world: World) -> None:
    text = {"storeId": "s1", "id": 1, "quantity": "7"}
    world.send({**stock_event(7), "value": text}, {**stock_event(7), "value": b"{oops"})
    world.run()
    lease = world.app.ledger.acquire(world.stream, "run-1")
    lease.release()
    call = "from tidegate.cli import main; main()"
    command = [sys.executable, "-c", call, "quarantine", "replay", "availability"]
    edit = "json_merge_patch(value, {'quantity': CAST(value->>'quantity' AS BIGINT)})"
    options = ["--set", edit, "--by", "ada"]
    environment = {**os.environ, **world.environment}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        asked = [*command, *options, *more]
        return subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)

    refused = run()
    assert refused.returncode == 2
    assert f"does not fit {world.source}/0/1: its value is no JSON" in refused.stderr
    path = world.folder / "one.jsonl"
    quarantine.export_quarantine(world.app, world.stream, path)
    lines = [line for line in path.read_text().splitlines() if json.loads(line)["offset"] == 0]
    path.write_text("\n".join(lines))
    done = run("--from", str(path))
    assert done.returncode == 0, done.stderr
    assert "Batch 2: replays 1 record of quarantine: 1 used, 0 in quarantine again, 1 emitted." in done.stdout
    assert world.published() == {key_of(): [True]}
    again = run("--from", str(path), "--json")
    assert json.loads(again.stdout)["note"].endswith("(left out: 1 replayed or discarded before)")


def counted(world: World) -> dict[str, list[int]]:
    """Key -> its counts, in order."""
    published = read_published(world.servers, world.sink)
    return {key: [value["n"] for value in values] for key, values in published.items()}


def test_sequenced_replay_keeps_its_place_in_order(world: World) -> None:
    """One that a later change has overtaken has no effect; one that is the newest goes out."""
    source = {"columns": "id bigint, version bigint, n int", "key": ["id"]}
    rows = {"name": "rows", "select": {"n": "n"}, "emit": {"on": "update"}}
    world.write({**source, "sequence": {"columns": ["version"]}}, rows)
    world.send(
        {"value": {"id": 1, "version": 1, "n": 1}},
        {"value": b"{oops"},
        {"value": {"id": 1, "version": None, "n": 9}},
        {"value": {"id": 1, "version": 3, "n": 3}},
    )
    world.run()
    corrected = {
        "at_1": '{"id": 1, "version": 2, "n": 2}',
        "at_2": '{"id": 1, "version": 4, "n": 4}',
    }
    replay(world, edited(world, world.folder / "a.jsonl", **corrected))
    values = [
        json.loads(record.value or b"{}")["n"] for record in committed_records(world.servers, world.sink)
    ]
    assert values == [1, 3, 4]
    counts = world.counts(2)
    assert (counts["read"], counts["used"], counts["deduplicated"]) == (2, 1, 1)
