"""Two whole batches of a pipeline that uses much of what Spark does for one, and all that came of them.

Two stages, a lookup, windows that the second batch's clock closes, and records that cannot be used. What came
of them has no word of the world that they ran in: that of one session can be compared with that of another.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

import yaml
from tests.quarantines import stored_quarantine
from tests.world import NOW_MS, World
from tidegate import inspect
from tidegate.storage.delta import open_table, storage_options
from tidegate_dev.demo.topics import committed_records

FIRST_CLOCK, SECOND_CLOCK, THIRD_CLOCK = 12_000, 120_000, 240_000
T = NOW_MS - 10_000_000
"""The instant that timestamps and clocks count from; windows begin there."""
STORES, PRODUCTS = 4, 10
STAGES = ("changes", "closings")
Results = dict[str, Any]


def compute(world: World, note: str = "") -> Results:
    """Make both batches, each from plan to publication, and return their results. `note` is part of the
    pipeline's file and of a record.
    """
    closings = f"closings-{world.name}"
    world.create(closings)
    _write_pipeline(world, closings, note)
    _send_first(world, note)
    world.run(clock_ms=T + FIRST_CLOCK)
    _send_second(world)
    world.run(clock_ms=T + SECOND_CLOCK)
    return nameless(world, results_of(world, (world.sink, closings)))


def results_of(world: World, topics: tuple[str, ...]) -> Results:
    """Return what a consumer of the topics reads, and tidegate's reports of the batches."""
    reports = [inspect.batch_report(world.app.ledger, world.stream, seq) for seq in (1, 2)]
    return {
        "published": {topic: _published(world.servers, topic) for topic in topics},
        "appended": _appended(world),
        "state": {
            stage: inspect.read_state(world.app, world.stream, stage=stage).to_pylist() for stage in STAGES
        },
        "state after the first": {
            stage: inspect.read_state(world.app, world.stream, as_of=1, stage=stage).to_pylist()
            for stage in STAGES
        },
        "quarantine": stored_quarantine(world.app, world.stream),
        "counts": [report.counts for report in reports if report is not None],
        "head": sorted(map(repr, world.app.ledger.head(world.stream).offsets.items())),
    }


def _write_pipeline(world: World, closings: str, note: str) -> None:
    stores = f"{world.app.settings.lake}-stores".replace(" ", "-")  # the grammar takes no blanks
    write_deltalake(
        stores,
        pa.table({"store": ["s0", "s1"], "region": ["north", "south"]}),
        storage_options=storage_options(stores),
    )
    changes = {
        "name": "changes",
        "select": {"region": "region", "open": "quantity > 0"},
        "reduce": "latest",
        "emit": {"on": "change"},
    }
    counted = {
        "name": "closings",
        "key": ["region"],
        "reduce": {"changes": "count(*)", "closed": "sum(if(open, 0, 1))"},
        "window": {"tumbling": "10s", "grace": "5s"},
        "emit": {"on": "window_close"},
    }
    pipeline = {
        "pipeline": "availability",
        "source": {
            "topics": [world.source],
            "format": "json",
            "columns": "store string, id bigint, quantity int",
            "key": ["store", "id"],
        },
        "lookup": [{"table": stores, "on": ["store"], "columns": ["region"]}],
        "stages": [changes, counted],
        "sinks": [
            {"kind": "kafka", "topic": world.sink, "stage": "changes", "with_key": True},
            {"kind": "kafka", "topic": closings, "with_key": True},
            {"kind": "table", "path": "out/changes", "stage": "changes", "with_key": True},
        ],
    }
    path = world.folder / "pipelines" / "availability.yaml"
    path.write_text(f"# {note}\n{yaml.safe_dump(pipeline, sort_keys=False)}")


def _send_first(world: World, note: str) -> None:
    """Each product opens and closes; one is deleted; two records cannot be used."""
    events = [
        _event(at, number % STORES, number % PRODUCTS, quantity)
        for at, (number, quantity) in enumerate(
            (number, turn % 2) for turn in range(3) for number in range(40)
        )
    ]
    world.send(
        *events,
        {**_event(9_000, 1, 1, 0), "value": None},
        {**_event(9_001, 0, 0, 0), "value": f"{{no json {note}".encode()},
        {**_event(9_002, 0, 0, 0), "value": b'{"store": "s0", "id": "many", "quantity": 1}'},
    )


def _send_second(world: World) -> None:
    """Some products of two stores: the windows of the other regions are closed by the clock alone."""
    world.send(*(_event(30_000 + number, number % 2, number % PRODUCTS, 5) for number in range(12)))


def third_records() -> list[dict[str, Any]]:
    """Return the records of a third batch: some products close, and the windows of two regions."""
    return [_event(200_000 + number, number % 2, number % PRODUCTS, 0) for number in range(8)]


def _event(at: int, store: int, product: int, quantity: int) -> dict[str, Any]:
    """A record at T and so many tenths of a second."""
    return {
        "value": {"store": f"s{store}", "id": product, "quantity": quantity},
        "key": f'{{"store":"s{store}","id":{product}}}'.encode(),
        "timestamp_ms": T + 100 * at if at < 1_000 else T + at,
        "partition": product // 5,
    }


def _published(servers: str, topic: str) -> list[list[Any]]:
    return [
        [
            *(record.partition, record.timestamp, _text(record.key), _text(record.value)),
            [[name, _text(value)] for name, value in record.headers],
        ]
        for record in committed_records(servers, topic)
    ]


def _appended(world: World) -> list[str]:
    """Return what a reader of the table sink's table reads."""
    table = open_table(f"{world.app.settings.lake}/out/changes").to_pyarrow_table()
    return sorted(map(repr, table.to_pylist()))


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()


def nameless(world: World, results: Results) -> Results:
    """Return the results after a round trip through JSON, without the world's name and folder."""
    text = json.dumps(results, default=repr, sort_keys=True)
    nameless: Results = json.loads(
        text.replace(world.name, "world").replace(str(Path(world.folder)), "folder")
    )
    return nameless
