"""Which records are open, replayed, discarded: against a naive model; and what a resolution's file has."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quarantines import Quarantined, quarantined, random_rows, stored_quarantine
from tidegate import quarantine
from tidegate.batch import Outcome, Trigger, plan_batch
from tidegate.errors import SettingsInvalid
from tidegate.ledger import OffsetRange
from tidegate.quarantine import ReplayedRecords, discard_records
from tidegate.quarantine.database import open_database
from tidegate.quarantine.resolve import sorted_by_position
from tidegate.storage.quarantine_files import IDENTITY, QUARANTINE

ALL = quarantine.QuarantineFilter()


def request(rows: Any, is_listed: bool = False) -> ReplayedRecords:
    return ReplayedRecords(rows, "ada", "no use", is_listed)


def opened(world: Quarantined, where: quarantine.QuarantineFilter = ALL) -> Iterator[pa.Table]:
    return quarantine.iter_open(world.app, world.stream, where)


def identities(tables: Any) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in IDENTITY) for table in tables for row in table.to_pylist()]


def discard(world: Quarantined, rows: Any, is_listed: bool = False) -> int:
    world.lease.release()
    count, _ = discard_records(world.app, world.stream, request(rows, is_listed))
    world.lease = world.app.ledger.acquire(world.stream, "test")
    return count


def planned(world: Quarantined, rows: Any, is_listed: bool = False) -> Outcome:
    world.lease.release()
    trigger = Trigger("test", 9_000, now_ms=9_000, replay=request(rows, is_listed))
    return plan_batch(world.app, world.pipeline, trigger)


@pytest.fixture
def world(tmp_path: Path) -> Quarantined:
    """Two batches; in the second two elements of one record, and an emission."""
    made = Quarantined(tmp_path)
    made.batch(1, [quarantined(1, 4), quarantined(1, 2, reason="null_key"), quarantined(1, 3)])
    made.batch(
        2,
        [quarantined(2, 7, part=1), quarantined(2, 7, part=0)],
        [quarantined(2, 8, part=-1, reason="too_large"), quarantined(2, 7, part=None)],
    )
    return made


def test_open_records_equal_a_naive_model(tmp_path: Path) -> None:
    chance = random.Random(7)
    world = Quarantined(tmp_path)
    batches = {seq: random_rows(seq, 60, chance) for seq in (1, 2, 3)}
    for seq, rows in batches.items():
        for row in rows:
            row["part"] = chance.choice((None, 0, 1, -1))
        world.batch(seq, rows[:20], rows[20:])
    model = {tuple(row[name] for name in IDENTITY) for rows in batches.values() for row in rows}
    for _ in range(4):
        chosen = set(chance.sample(sorted(model, key=repr), 15))
        rows = [
            row
            for rows in batches.values()
            for row in rows
            if tuple(row[name] for name in IDENTITY) in chosen
        ]
        chance.shuffle(rows)
        again = pa.Table.from_pylist(rows, QUARANTINE)
        assert discard(world, lambda again=again: iter([again, again.slice(3)])) == 15
        model -= chosen
        assert set(identities(opened(world))) == model
    statuses = quarantine.count_by_status(world.app, world.stream, ALL)
    assert statuses[quarantine.Status.OPEN] == len(identities(opened(world)))
    assert statuses[quarantine.Status.DISCARDED] == 180 - statuses[quarantine.Status.OPEN]


def test_replay_plan_names_input_by_position(
    world: Quarantined,
) -> None:
    plan = planned(world, lambda: opened(world)).plan
    assert plan is not None
    assert plan.replay is not None
    assert plan.ranges == (OffsetRange("events", 0, 2, 2),)
    assert (plan.span, plan.most_records) == (0, 6)
    assert world.app.ledger.plan(world.stream, 3) == plan
    [file] = world.app.manifest(world.stream, plan.replay).files_of("quarantine")
    [resolution] = world.app.ledger.resolutions(world.stream)
    assert (resolution.seq, resolution.first_batch, resolution.last_batch) == (3, 1, 2)
    assert (resolution.decided_by, resolution.manifest.file_rows) == ("ada", 6)
    rows = stored_quarantine(world.app, world.stream)  # only what batches put there
    assert (len(rows), file.rows) == (7, 6)
    records = world.app.records(plan, world.pipeline).slices(timed=True, cores=2)
    blocks = [block for slice_ in records for block in slice_.blocks()]
    assert [(list(block.offsets), list(block.parts or ())) for block in blocks] == [
        ([2, 3, 4, 7, 7, 7], [None, None, None, 0, 1, None])
    ]


def test_planned_or_emitted_records_are_not_replayed(world: Quarantined) -> None:
    assert "left out: 1 that a stage emitted" in planned(world, lambda: opened(world)).note
    world.lease = world.app.ledger.acquire(world.stream, "test")
    world.lease.drop_plan()
    assert len(identities(opened(world))) == 7, "a plan that is dropped has resolved nothing"
    assert discard(world, lambda: opened(world)) == 7
    outcome = planned(world, lambda: quarantine.iter_quarantine(world.app, world.stream))
    assert outcome.plan is None
    assert "left out: 7 replayed or discarded before" in outcome.note


def test_resolution_names_existing_records_once(world: Quarantined) -> None:
    [first, *_] = opened(world)
    with pytest.raises(SettingsInvalid, match=r"events/0/[234] is there twice"):
        discard(world, lambda: iter([first, first]), is_listed=True)
    other = pa.Table.from_pylist([quarantined(1, 99)], QUARANTINE)
    with pytest.raises(SettingsInvalid, match="events/0/99 was not put into quarantine by batch 1"):
        discard(world, lambda: iter([first, other]), is_listed=True)
    strange = pa.Table.from_pylist([quarantined(1, 2, topic="others")], QUARANTINE)
    assert discard(world, lambda: iter([strange])) == 0
    assert world.app.ledger.resolutions(world.stream) == []
    assert len(identities(opened(world))) == 7


def test_record_of_an_unread_partition_is_refused(tmp_path: Path) -> None:
    world = Quarantined(tmp_path)
    world.batch(1, [quarantined(1, 2, topic="others")])
    with pytest.raises(SettingsInvalid, match=r"has never read others\[0\]"):
        planned(world, lambda: opened(world))
    assert world.app.ledger.open_plan(world.stream) is None
    assert not world.app.ledger.failing_streams(), "the stream itself can go on"


def test_replay_applies_no_clock_over_unread_records(world: Quarantined) -> None:
    plan = planned(world, lambda: opened(world)).plan
    assert plan is not None
    assert plan.clocks_after == plan.clocks


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_export_has_the_timestamp_of_kafka(world: Quarantined, ending: str) -> None:
    world.batch(3, [quarantined(3, 9, timestamp=5, recorded=7)])
    path = world.folder / f"a{ending}"
    quarantine.export_quarantine(world.app, world.stream, path, quarantine.QuarantineFilter(offset=9))
    assert [table["timestamp"].to_pylist() for table in quarantine.iter_exported(path)] == [[7]]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_an_export_comes_back_as_it_was(world: Quarantined, ending: str) -> None:
    path = world.folder / f"a{ending}"
    world.batch(3, random_rows(3, 200, random.Random(3)))
    assert quarantine.export_quarantine(world.app, world.stream, path) == 207
    back = pa.concat_tables(quarantine.iter_exported(path))
    whole = stored_quarantine(world.app, world.stream)
    names = [name for name in QUARANTINE.names if name != "reason"]

    def rows(stored: list[dict[str, Any]]) -> list[str]:
        listed = [{name: row[name] for name in names} for row in stored]
        return sorted(repr(row | {"headers": row["headers"] or None}) for row in listed)

    assert rows(back.to_pylist()) == rows(whole)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"offset": "x"}, "invalid literal"),
        ({"value": {"a": 1}}, "`value` is no text"),
        ({"value": "%", "value_encoding": "base64"}, "no base64"),
        ({"value_encoding": "latin-1"}, "latin-1"),
        ({"headers": [{}]}, "it has no 'key'"),
    ],
)
def test_invalid_exported_line_is_named(world: Quarantined, change: dict[str, Any], why: str) -> None:
    path = world.folder / "a.jsonl"
    quarantine.export_quarantine(world.app, world.stream, path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], json.dumps(json.loads(lines[1]) | change)]))
    with pytest.raises(SettingsInvalid, match=rf"Line 2 of .*{why}"):
        list(quarantine.iter_exported(path))


POSITIONS = st.tuples(
    st.sampled_from("ab"),
    st.integers(0, 2),
    st.integers(0, 9),
    st.sampled_from((None, 0, 1)),
    st.integers(1, 3),
)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(POSITIONS, min_size=1, max_size=12), max_size=6), st.integers(1, 5), st.integers(1, 9)
)
def test_rows_are_sorted_by_position_whatever_memory_has(
    tables: list[list[tuple[Any, ...]]], block_rows: int, block_bytes: int
) -> None:
    rows = [
        pa.Table.from_pylist(
            [
                quarantined(seq, offset, topic=topic, partition=partition, part=part)
                for topic, partition, offset, part, seq in table
            ],
            QUARANTINE,
        )
        for table in tables
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidegate.quarantine.resolve._BLOCK_ROWS", block_rows)
        patched.setattr("tidegate.quarantine.resolve._BLOCK_BYTES", block_bytes)
        with open_database() as database:
            sorted_identities = identities(sorted_by_position(database, rows))
    expected = [position for table in tables for position in table]
    assert sorted_identities == sorted(
        expected, key=lambda row: tuple(2**31 if part is None else part for part in row)
    )


@pytest.mark.parametrize("name", ["key", "value", "headers", "timestamp", "part"])
def test_exported_table_must_keep_its_columns(world: Quarantined, name: str) -> None:
    path = world.folder / "a.parquet"
    quarantine.export_quarantine(world.app, world.stream, path)
    pq.write_table(pq.read_table(path).drop_columns([name]), path)
    with pytest.raises(SettingsInvalid, match=f"lacks the columns {name}"):
        list(quarantine.iter_exported(path))


def test_emission_of_a_table_stays_open(tmp_path: Path) -> None:
    world = Quarantined(tmp_path)
    emission = quarantined(1, 1, topic="#rates.current", part=-1, reason="too_large")
    world.batch(1, [quarantined(1, 2), emission])
    outcome = planned(world, lambda: opened(world))
    assert outcome.plan is not None
    assert outcome.plan.most_records == 1
    assert "left out: 1 that a stage emitted" in outcome.note
