"""The two samples that the demo runs: their input, and the proof of their output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from sqlalchemy import create_engine, text

from tidegate.app import App
from tidegate.inspect import read_state
from tidegate.ledger import Plan, Stream
from tidegate_dev.demo.events import WAVES, Event, stock_events
from tidegate_dev.demo.expected import History, expected_availability
from tidegate_dev.demo.expected_batches import expected_batches, faults, listed
from tidegate_dev.demo.topics import STOCK, VISITS, read_published
from tidegate_dev.demo.visits import visit_events, visit_interval

_ROWS = 'SELECT "customerId", batch, cast(events AS text) FROM visitor_batches ORDER BY batch, ordinal'


def read_batches(app: App, stream: Stream) -> History:
    """Return, per customer, the batches in the SQL table, then the visits that wait in the state as batch
    None.

    It has the shape of `expected_batches`, so that both can be compared.
    Raises TidegateError if the state cannot be read.
    """
    engine = create_engine(app.settings.sql_url())
    batches: History = {}
    with engine.connect() as connection:
        for customer, batch, events in connection.execute(text(_ROWS)):
            batches.setdefault(str(customer), []).append({"batch": batch, "events": json.loads(events)})
    engine.dispose()
    state = read_state(app, stream).to_pylist()
    waiting = {row["key"]: row["value"]["events"] for row in state if row["value"]}
    names = sorted(batches.keys() | waiting.keys())
    return {name: listed(batches.get(name, []), waiting.get(name, [])) for name in names}


@dataclass(frozen=True)
class Proof:
    """The output that consumers see, and the expected one: per key, in order.

    `faults` has problems that hold whatever the expected output is, such as a batch with too many events.
    """

    actual: History
    expected: History
    faults: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the output is exactly the expected one, and has no faults."""
        return self.actual == self.expected and not self.faults


@dataclass(frozen=True)
class Sample:
    """A pipeline of the demo.

    Args:
        pipeline: The name of the pipeline, which is also the DAG's.
        topic: The input topic.
        events: Returns the events of a wave (0 or 1).
        prove: Reads the output, and compares it with the expected output for the given plans.
        interval: Returns the data interval of a wave's DAG run. None: the clock is the time of the trigger.
    """

    pipeline: str
    topic: str
    events: Callable[[int], Iterator[Event]]
    prove: Callable[[App, Sequence[Plan]], Proof]
    interval: Callable[[int], tuple[datetime, datetime]] | None = None

    @property
    def stream(self) -> Stream:
        """The stream of the sample's only generation."""
        return Stream(self.pipeline, 1)


def _prove_availability(app: App, plans: Sequence[Plan]) -> Proof:
    published = read_published(app.settings.kafka().servers)
    return Proof(published, expected_availability(_all(stock_events)))


def _prove_batches(app: App, plans: Sequence[Plan]) -> Proof:
    actual = read_batches(app, plans[0].stream)
    expected = expected_batches(_all(visit_events), plans)
    return Proof(actual, expected, tuple(faults(actual, _all(visit_events))))


def _all(events: Callable[[int], Iterator[Event]]) -> Iterator[Event]:
    return chain.from_iterable(map(events, range(len(WAVES))))


AVAILABILITY = Sample("availability", STOCK, stock_events, _prove_availability)
VISITOR_BATCHES = Sample("visitor_batches", VISITS, visit_events, _prove_batches, visit_interval)
SAMPLES = (AVAILABILITY, VISITOR_BATCHES)
