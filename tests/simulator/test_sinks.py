"""The tables and the receiver in memory are as the real ones: the same publications have the same results."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pyarrow as pa

from tests.attempts import FIRST, committed
from tests.simulator import sinks
from tests.simulator.compute import Batch
from tests.simulator.emissions import Emission
from tests.simulator.receivers import Receiver
from tests.simulator.sinks import Shelf, SimSqlPublisher
from tests.simulator.world import World
from tests.sinks.http.receiver import Endpoint
from tests.sinks.sql.sink import Sink, emission
from tests.sinks.table.appending import append
from tidegate.errors import TidegateError
from tidegate.sinks.table.sink import Appender

PUBLICATIONS = 60


def _outcome(publish: Callable[[], Any]) -> Any:
    try:
        return publish()
    except TidegateError as error:
        return type(error)


def test_a_database_takes_and_refuses_the_same_batches(tmp_path: Path) -> None:
    dice, real = random.Random(1), Sink(f"sqlite:///{tmp_path / 'sink.db'}")
    sim = SimSqlPublisher(Shelf(World(1)), "sql", committed())
    table, batches = sim.shelf.table("sql"), []
    for number in range(PUBLICATIONS):
        seq = max(1, table.progress + dice.choice((-1, 0, 1, 1, 2)))
        last = max(0, min(table.progress + dice.choice((-1, 0, 0, 0, 1)), seq))
        keys = [f"{number}.{index}" for index in range(dice.randint(1, 3))]
        rows = [Emission(key, "", 1, "") for key in keys]
        sent = _outcome(lambda: real.publish(seq, [emission(key, 1) for key in keys], last))  # noqa: B023
        batches.append(sent)
        assert _outcome(lambda: sim.publish(seq, "first", [Batch(rows, ())], last)) == sent  # noqa: B023
    assert [key for key, _ in real.values()] == [row.key for row in table.rows]
    assert len(set(map(str, batches))) >= 5  # all sizes, none, and both errors


def test_delta_table_accepts_and_skips_equal_batches(tmp_path: Path) -> None:
    dice, path, shelf = random.Random(1), str(tmp_path / "table"), Shelf(World(1))
    for number in range(PUBLICATIONS // 4):
        seq = max(1, shelf.table("me").progress + dice.choice((-1, 0, 1, 2)))
        last = max(0, min(shelf.table("me").progress + dice.choice((-1, 0, 0, 1)), seq))
        batch = pa.RecordBatch.from_pydict({"key": [f"{number}"]})
        rows = pa.RecordBatchReader.from_batches(batch.schema, [batch])
        attempt = dice.choice((FIRST, FIRST, FIRST, "of another ledger"))
        outcome = _outcome(lambda: append(path, "me", seq, rows, last, attempt))  # noqa: B023
        row, appender = Emission(f"{number}", "", 1, ""), Appender(path, "me", committed(attempt))
        actual = _outcome(lambda: sinks.append_batch(shelf, appender, seq, attempt, [row], last))  # noqa: B023
        assert actual == outcome
    assert _keys(path) == sorted(row.key for row in shelf.table("me").rows)


def _keys(path: str) -> list[str]:
    from deltalake import DeltaTable

    keys: list[str] = DeltaTable(path).to_pyarrow_table()["key"].to_pylist()
    return sorted(keys)


def test_receiver_of_the_page_uses_the_same_requests(tmp_path: Path) -> None:
    dice, sim = random.Random(1), Receiver(World(1))
    sim.world.quiet = True
    deletion = {"key": "a", "value": None, "timestamp": 2}
    bodies = [json.dumps([{"key": str(n), "value": n, "timestamp": 1}, deletion]) for n in range(9)]
    with Endpoint(tmp_path).running() as real, httpx.Client(trust_env=False) as client:
        for number in [dice.randrange(9) for _ in range(PUBLICATIONS // 2)]:
            key, body = f"simulated/1/{number}/1/digest", bodies[number].encode()
            answer = client.post(f"{real.url}/hooks", content=body, headers={"idempotency-key": key})
            assert sim.answer(key, body).status_code == answer.status_code
        used = [(key, json.loads(value)) for key, value in real.emissions()]
    assert used == [(row.key, row.payload) for row in sim.used]
    assert len(sim.bodies) == len({row.key for row in sim.used}) - 1
