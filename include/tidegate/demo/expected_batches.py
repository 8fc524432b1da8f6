"""What the demo must put into the table `visitor_batches`, computed by a plain loop of its own.

What goes out by time depends on the clocks of the batches, so these come from the plans in the ledger, with
the offsets that each batch read. Nothing else is shared with the engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.demo.events import Event
from tidegate.demo.expected import History
from tidegate.ledger import Plan

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
        """Let out what waits, if there are enough or a minute has passed."""
        if self.waiting and (len(self.waiting) >= COUNT or self.first_ms + AFTER_MS <= time_ms):
            self.batches.append({"batch": seq, "events": self.waiting})
            self.waiting = []


def expected_batches(events: Iterable[Event], plans: Sequence[Plan]) -> History:
    """Customer -> the batches of its visits, each with the engine's batch that lets it out.

    What still waits at the end comes last, with the batch null. `events` in the order they were sent in.
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
            times[range_.partition] = time_ms if range_.is_cut else max(time_ms, plan.clock_ms)
        for customer in customers.values():
            customer.flush(plan.seq, times[customer.partition])
    return {name: listed(customer.batches, customer.waiting) for name, customer in sorted(customers.items())}


def listed(batches: Sequence[Any], waiting: Sequence[Any]) -> list[Any]:
    """A customer's batches, and what waits."""
    return [*batches, {"batch": None, "events": list(waiting)}] if waiting else list(batches)


def faults(history: History, events: Iterable[Event]) -> list[str]:
    """What is wrong with the batches, whatever the clocks were: events not there once, or too many."""
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
        [f"the visits of {len(wrong)} customers are not each there once, in order: {wrong[:3]}"]
        if wrong
        else []
    )
    return [*problems, f"a batch has {large} events"] if large > COUNT else problems


def _logs(events: Iterable[Event]) -> dict[int, list[Event]]:
    """Partition -> its records; the place in the list is the offset."""
    logs: dict[int, list[Event]] = {}
    for event in events:
        logs.setdefault(event.partition, []).append(event)
    return logs


def _take(customers: dict[str, _Customer], event: Event, seq: int, time_ms: int) -> int:
    """One event, and what it lets out; gives the partition's time after it."""
    usable = _usable(event)
    if usable is None:
        return time_ms
    name, visit = usable
    customer = customers.setdefault(name, _Customer(event.partition))
    customer.flush(seq, time_ms)  # what was due before it came goes without it
    customer.add(visit, event.timestamp_ms)
    time_ms = max(time_ms, event.timestamp_ms)
    customer.flush(seq, time_ms)
    return time_ms


def _usable(event: Event) -> tuple[str, Any] | None:
    """(customer, visit) of an event that the pipeline can read."""
    try:
        value = json.loads(event.value or b"")
    except ValueError:
        return None
    customer = value.get("customerId")
    if not isinstance(customer, int):
        return None
    return str(customer), {"visitorId": value["visitorId"], "action": value["action"]}
