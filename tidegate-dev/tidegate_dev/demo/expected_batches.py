"""The rows that the demo must write to the table `visitor_batches`, computed by a plain loop.

Emissions by time depend on the clocks of the batches. The loop takes those, and the offsets that each batch
read, from the plans in the ledger. It shares nothing else with the engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.ledger import Plan
from tidegate_dev.demo.events import Event
from tidegate_dev.demo.expected import History

COUNT = 100
AFTER_MS = 60_000


@dataclass
class _Customer:
    partition: int
    first_ms: int = 0
    waiting: list[Any] = field(default_factory=list)
    batches: list[Any] = field(default_factory=list)

    def add(self, visit: Any, timestamp_ms: int) -> None:
        if not self.waiting:
            self.first_ms = timestamp_ms
        self.waiting.append(visit)

    def flush(self, seq: int | None, time_ms: int) -> None:
        """Emit the waiting visits, if there are `COUNT` of them or the first is a minute old at `time_ms`."""
        if self.waiting and (len(self.waiting) >= COUNT or self.first_ms + AFTER_MS <= time_ms):
            self.batches.append({"batch": seq, "events": self.waiting})
            self.waiting = []


def expected_batches(events: Iterable[Event], plans: Sequence[Plan]) -> History:
    """Return, per customer, the batches of its visits, each with the `seq` of the engine's batch that emits
    it.

    Visits that still wait at the end come last, with None as the batch.

    Args:
        events: All events, in the order in which they were sent.
        plans: The plans of the engine's batches, in order.

    Example: `{"7": [{"batch": 1, "events": [...]}, {"batch": None, "events": [...]}]}`
    """
    logs = _logs(events)
    customers: dict[str, _Customer] = {}
    times: dict[int, int] = {}
    for plan in plans:
        for range_ in plan.ranges:
            time_ms = max(
                times.get(range_.partition, -1), plan.clocks.get((range_.topic, range_.partition), -1)
            )
            for event in logs.get(range_.partition, [])[range_.start : range_.end]:
                time_ms = _take(customers, event, plan.seq, time_ms)
            # A cut range leaves records unread, and their timestamps may lie before the batch's clock.
            times[range_.partition] = time_ms if range_.is_cut else max(time_ms, plan.clock_ms)
        for customer in customers.values():
            customer.flush(plan.seq, times[customer.partition])
    return {name: listed(customer.batches, customer.waiting) for name, customer in sorted(customers.items())}


def listed(batches: Sequence[Any], waiting: Sequence[Any]) -> list[Any]:
    """Return a customer's batches; waiting visits, if there are any, come last as a batch None."""
    return [*batches, {"batch": None, "events": list(waiting)}] if waiting else list(batches)


def faults(history: History, events: Iterable[Event]) -> list[str]:
    """Return the problems of the batches that do not depend on clocks.

    Each usable visit must be in exactly one batch, in the order in which it was sent, and a batch must not
    have more than `COUNT` visits.

    Args:
        history: Customer -> batches, as `expected_batches` returns them.
        events: All events, in the order in which they were sent.
    """
    sent: dict[str, list[Any]] = {}
    for event in events:
        usable = _usable(event)
        if usable is not None:
            sent.setdefault(usable[0], []).append(usable[1])
    got = {
        name: [visit for batch in batches for visit in batch["events"]] for name, batches in history.items()
    }
    wrong = [name for name in sorted(sent.keys() | got.keys()) if sent.get(name) != got.get(name)]
    large = max((len(batch["events"]) for batches in history.values() for batch in batches), default=0)
    problems = (
        [f"the visits of {len(wrong)} customers are missing, repeated or out of order: {wrong[:3]}"]
        if wrong
        else []
    )
    return [*problems, f"a batch has {large} events"] if large > COUNT else problems


def _logs(events: Iterable[Event]) -> dict[int, list[Event]]:
    """Return the records of each partition; the index in the list is the offset."""
    logs: dict[int, list[Event]] = {}
    for event in events:
        logs.setdefault(event.partition, []).append(event)
    return logs


def _take(customers: dict[str, _Customer], event: Event, seq: int, time_ms: int) -> int:
    """Apply one event, and emit what it completes. Returns the partition's stream time after it."""
    usable = _usable(event)
    if usable is None:
        return time_ms
    name, visit = usable
    customer = customers.setdefault(name, _Customer(event.partition))
    customer.flush(seq, time_ms)  # a batch that was due before this visit is emitted without it
    customer.add(visit, event.timestamp_ms)
    time_ms = max(time_ms, event.timestamp_ms)
    customer.flush(seq, time_ms)
    return time_ms


def _usable(event: Event) -> tuple[str, Any] | None:
    """Return (customer, visit) of an event; None if the pipeline cannot read the event."""
    try:
        value = json.loads(event.value or b"")
    except ValueError:
        return None
    customer = value.get("customerId")
    if not isinstance(customer, int):
        return None
    return str(customer), {"visitorId": value["visitorId"], "action": value["action"]}
