"""A batch costs what it did at the beginning, however many there were: queries, rows and records are counted.

The steps, the ledger (a SQLite file) and the Kafka publisher are the real ones; Spark and the broker are the
simulator's. Of the tables for others what they ask of the ledger is counted, not Delta's own work: opening a
table takes longer the more files it has. A counted row is a step of SQLite's virtual machine: it takes some
for each row that it looks at.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import event, func, select

from tests.simulator.app import SETTINGS, Places, SimApp, enter, simulated
from tests.simulator.broker import Record
from tests.simulator.clients import Client, SimAdmin, SimConsumer, SimProducer
from tests.simulator.compute import SimOutbox
from tests.simulator.grammar import parsed
from tests.simulator.simulate import PIPELINES
from tests.simulator.world import World
from tidegate.app import leased
from tidegate.app.tables import catch_up_tables
from tidegate.batch import Trigger, run_batch
from tidegate.kafka import topic_facts
from tidegate.kafka.config import PROGRESS_TOPIC
from tidegate.ledger import Ledger, Snapshot, schema
from tidegate.ledger.database import open_database
from tidegate.maintenance.cleaning import remove_history
from tidegate.storage.tables import TableChange

COMPACTED_EVERY = 10
FIRST, WIDENING = topic_facts.FIRST_WINDOW, topic_facts.WIDENING
SECONDS = 300.0
"""Between two batches."""


@dataclass
class _Table:
    """A Delta table in memory, with its progress and the names of its files."""

    numbers: dict[str, int] = field(default_factory=dict)
    paths: dict[str, int] = field(default_factory=dict)

    def number(self, application: str) -> int:
        return self.numbers.get(application, 0)

    def files(self) -> dict[str, int]:
        return self.paths

    def catch_up(self, next_change: Callable[[Any], TableChange | None]) -> None:
        while (change := next_change(self)) is not None:
            self.numbers |= change.numbers
            self.paths |= {file.path: file.bytes for file in change.added}
            self.paths = {path: size for path, size in self.paths.items() if path not in change.removed}


class _NoThread:
    """A thread that does nothing, in place of the thread that renews a lease."""

    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        pass

    def join(self) -> None:
        pass


class Line:
    """One pipeline in production: batch after batch, compacted and cleaned now and then."""

    def __init__(self, folder: Path) -> None:
        self.keeps_history = False
        self.places = Places(World(0))
        self.places.broker.later = lambda act: act()  # markers come at once, and nobody waits for them
        self.places.world.sleep = lambda _: None  # type: ignore[method-assign]
        for topic in ("input", "output", "others"):
            self.places.broker.create(topic, 2)
        self.pipeline = parsed(PIPELINES[2], "simulated.yaml")
        self.engine = open_database(f"sqlite:///{folder / 'ledger.db'}")
        self.ledger = Ledger(self.engine, lambda: self.places.world.now)
        self.app = SimApp(SETTINGS, self.ledger, self.places)
        self.places.gate = lambda _: True
        self.seq = 0
        self.tables: defaultdict[tuple[str, str], _Table] = defaultdict(_Table)
        enter(self.places)

    def batch(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """A few records, and the run that reads them. `progress` is told each step."""
        self.seq += 1
        self.places.world.now += SECONDS
        now_ms = round(self.places.world.now * 1000)
        for partition in range(2):
            records = [Record(f"k{key}".encode(), f"{self.seq}".encode(), now_ms - 1) for key in range(3)]
            self.places.broker.log(("input", partition)).append(records)
        outcome = run_batch(
            self.app, self.pipeline, Trigger(f"run-{self.seq}", now_ms), _no_session, progress
        )
        assert outcome.plan is not None
        assert outcome.plan.seq == self.seq

    def maintain(self) -> None:
        """Fold the state, give up what lies before, and remove what nothing needs: `tidegate compact`.

        With time travel without end, it only folds.
        """
        stream, name = self.places.stream, f"snapshot-{self.seq}"
        folded = self.places.lake.snapshot(name, self.seq, self.ledger.state_manifests(stream))
        newest = max((made.seq for made in self.ledger.snapshots(stream)), default=0)
        assert self.ledger.add_snapshot(Snapshot(stream, self.seq, folded), newest)
        if self.keeps_history:
            return
        with leased(self.app, stream, "maintenance") as lease:
            lease.give_up(self.seq)
            lease.release()
        remove_history(self.app, stream, self.places.world.now, timedelta(0))

    def rows(self) -> dict[str, int]:
        """Return the number of rows of each table of the ledger."""
        with self.engine.connect() as connection:
            return {
                name: connection.execute(select(func.count()).select_from(table)).scalar_one()
                for name, table in schema.metadata.tables.items()
            }


def _no_session() -> Any:
    raise AssertionError("the simulated compute step needs no Spark")


class Costs:
    """The requests to the ledger and to Kafka while `counting`."""

    def __init__(self, line: Line) -> None:
        self.counts: Counter[str] = Counter()
        self.line = line
        self._consumed, self._asked = SimConsumer.consume, Client._ask

    def measure(self, batches: int) -> Counter[str]:
        """Run so many batches; what they cost together."""
        before, connections = self.counts, []
        self.counts = Counter()

        def statement(connection: Any, *_: Any) -> None:
            self.counts["statements"] += 1
            driver = connection.connection.driver_connection
            if driver not in connections:
                connections.append(driver)
                driver.set_progress_handler(self._step, 1)

        event.listen(self.line.engine, "before_cursor_execute", statement)
        with patch.object(SimConsumer, "consume", self._consume()), patch.object(Client, "_ask", self._ask()):
            for _ in range(batches):
                self.line.batch()
        event.remove(self.line.engine, "before_cursor_execute", statement)
        for driver in connections:
            driver.set_progress_handler(None, 1)
        before, self.counts = self.counts, before
        return before

    def _step(self) -> None:
        self.counts["steps of the ledger's database"] += 1

    def _consume(self) -> Callable[..., Any]:
        def consume(consumer: SimConsumer, most: int, timeout: float) -> Any:
            consumed = self._consumed(consumer, most, timeout)
            self.counts["progress records"] += sum(record.error() is None for record in consumed)
            return consumed

        return consume

    def _ask(self) -> Callable[..., Any]:
        def ask(client: Client, name: str, act: Callable[[], Any]) -> Any:
            self.counts["requests to Kafka"] += 1
            return self._asked(client, name, act)

        return ask


class Asked:
    """The requests of one batch by step: connections and questions to Kafka's logs, clients that send and
    read, the ledger's reads and writes (a transaction each) and their statements.
    """

    def __init__(self, line: Line) -> None:
        self.by_step: dict[str, Counter[str]] = {}
        self._step: Counter[str] = Counter()
        opened, asked = Client.__init__, Client._ask

        def open_(client: Client, *rest: Any) -> None:
            self._step[_CLIENTS[type(client)]] += 1
            opened(client, *rest)

        def ask(client: Client, name: str, act: Callable[[], Any]) -> Any:
            self._step["questions"] += isinstance(client, SimAdmin)
            return asked(client, name, act)

        event.listen(line.engine, "before_cursor_execute", self._count)
        with patch.object(Client, "__init__", open_), patch.object(Client, "_ask", ask):
            line.batch(self._begin)
        event.remove(line.engine, "before_cursor_execute", self._count)

    def _begin(self, step: str) -> None:
        self._step = self.by_step[step] = Counter()

    def _count(self, _: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("BEGIN"):
            self._step["writes" if "IMMEDIATE" in statement else "reads"] += 1
        elif not statement.startswith("PRAGMA"):
            self._step["statements"] += 1


_CLIENTS = {SimAdmin: "connections", SimProducer: "producers", SimConsumer: "consumers"}


def test_small_batch_asks_kafka_over_one_connection(line: Line) -> None:
    """Count the requests of a pipeline with two topics as sinks and a quality suite."""
    for _ in range(3):
        line.batch()
    asked = Asked(line).by_step
    columns = ("connections", "questions", "reads", "writes")
    assert {step: tuple(counts[name] for name in columns) for step, counts in asked.items()} == {
        # for each topic: is it there, and from which timestamp on does it take records
        "plan": (1, 9, 18, 3),
        "compute": (1, 5, 8, 6),
        "validate": (1, 10, 7, 4),
        "commit": (1, 2, 5, 3),
        # for each sink: in which offsets its progress may be
        "publish": (1, 10, 32, 5),
    }
    assert sum(counts["statements"] for counts in asked.values()) < 180
    assert (asked["publish"]["producers"], asked["publish"]["consumers"]) == (2, 2)  # one for each sink


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    threading = SimpleNamespace(Event=lambda: SimpleNamespace(set=lambda: None), Thread=_NoThread)
    with (
        simulated(),
        patch("tidegate.app.lease.threading", threading),
        patch.object(topic_facts, "FIRST_WINDOW", FIRST),
        patch.object(topic_facts, "WIDENING", WIDENING),
        patch("tidegate.batch.publish.catch_up_tables", catch_up_tables),
        patch.object(SimOutbox, "shards", 1),  # or batches would differ by whether they are large
        patch("tidegate.app.tables.MOST_WITHOUT_FILES", 1),  # or batches would differ by when it was told
        ExitStack() as stack,
    ):
        line = Line(tmp_path)
        stack.enter_context(
            patch("tidegate.app.tables.shared_table", lambda _, __, kind, stage: line.tables[kind, stage])
        )
        event.listen(line.engine, "connect", lambda driver, _: driver.execute("PRAGMA synchronous=OFF"))
        line.engine.dispose()  # nothing of this is to survive a loss of power
        yield line
    line.engine.dispose()


def cost_in_the_beginning_and_at_the_end(line: Line, batches: int) -> list[Counter[str]]:
    """Return the costs of COMPACTED_EVERY batches at the beginning and at the end."""
    costs, measured = Costs(line), []
    for begun in range(0, batches, COMPACTED_EVERY):
        if begun in (4 * COMPACTED_EVERY, batches - COMPACTED_EVERY):
            measured.append(costs.measure(COMPACTED_EVERY))
        else:
            for _ in range(COMPACTED_EVERY):
                line.batch()
        line.maintain()
    return measured


@pytest.mark.heavy
def test_batch_cost_is_constant_with_full_history(line: Line) -> None:
    line.keeps_history = True
    beginning, end = cost_in_the_beginning_and_at_the_end(line, 60)
    assert end == beginning
    assert line.tables["state", "changes"].numbers == {"simulated/1": 60, "simulated/1/snapshots": 50}
    assert line.rows()["tidegate_plans"] == 60
    assert line.rows()["tidegate_snapshots"] == 60 // COMPACTED_EVERY


@pytest.mark.heavy
@pytest.mark.parametrize("batches", [60, pytest.param(2000, marks=pytest.mark.long)])
def test_batch_cost_is_constant_over_time(line: Line, batches: int) -> None:
    beginning, end = cost_in_the_beginning_and_at_the_end(line, batches)
    assert end == beginning
    assert beginning["statements"] > 20 * COMPACTED_EVERY
    assert beginning["steps of the ledger's database"] > beginning["statements"]
    assert 0 < beginning["progress records"] <= FIRST * COMPACTED_EVERY * 2
    progress = [log.end for log in line.places.broker.topics[PROGRESS_TOPIC]]
    assert sum(progress) >= 2 * batches
    rows = line.rows()
    assert rows["tidegate_commits"] == rows["tidegate_runs"] == batches
    assert rows["tidegate_plans"] <= 2 * COMPACTED_EVERY
    assert rows["tidegate_snapshots"] == 1
