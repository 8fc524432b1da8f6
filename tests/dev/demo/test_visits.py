"""The demo's second input, and its own account of the batches that must come out."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain

from tidegate.ledger import OffsetRange, Plan, Stream
from tidegate_dev.demo.events import BEGIN_MS, PARTITIONS, Event
from tidegate_dev.demo.expected_batches import expected_batches, faults
from tidegate_dev.demo.visits import (
    BUSY_CUSTOMER,
    CLOCKS_MS,
    QUIET_CUSTOMERS,
    SPANS_MS,
    VISIT_WAVES,
    visit_events,
    visit_interval,
)


def visit(number: int, at_s: float, customer: int = 7) -> Event:
    value = {"customerId": customer, "visitorId": str(number), "action": "view"}
    return Event(None, json.dumps(value).encode(), 0, round(at_s * 1000))


def plan(seq: int, start: int, end: int, clock_s: float, partitions: int = 1) -> Plan:
    ranges = tuple(OffsetRange("visits", number, start, end) for number in range(partitions))
    clock_ms = round(clock_s * 1000)
    return Plan(Stream("visitor_batches", 1), seq, f"r{seq}", clock_ms, clock_ms, ranges, {}, "", "")


def flushed(events: list[Event], *plans: Plan, customer: int = 7) -> list[tuple[int | None, list[int]]]:
    """(engine's batch, numbers of the visits) of a customer."""
    batches = expected_batches(events, plans)[str(customer)]
    return [(batch["batch"], [int(event["visitorId"]) for event in batch["events"]]) for batch in batches]


def customers(wave: int) -> Counter[object]:
    values = [visit_event.value or b"" for visit_event in visit_events(wave)]
    usable = [json.loads(value) for value in values if value.startswith(b'{"')]
    return Counter(value.get("customerId") for value in usable)


def test_the_same_seed_gives_the_same_visits() -> None:
    assert list(visit_events(0)) == list(visit_events(0))
    assert list(visit_events(0)) != list(visit_events(0, seed=7))


def test_a_customers_visits_go_to_one_partition() -> None:
    events = chain(visit_events(0), visit_events(1))
    usable = [
        (json.loads(event.value or b""), event) for event in events if (event.value or b"").startswith(b'{"c')
    ]
    assert all(
        record.partition == value["customerId"] % PARTITIONS
        for value, record in usable
        if isinstance(value["customerId"], int)
    )


def test_one_customer_reaches_a_hundred_several_times() -> None:
    assert customers(0)[BUSY_CUSTOMER] > 300


def test_second_run_flushes_customers_by_its_clock() -> None:
    quiet = customers(0).keys() & set(QUIET_CUSTOMERS)
    assert len(quiet) > 300
    assert not customers(1).keys() & set(QUIET_CUSTOMERS)
    newest_ms = max(visit_event.timestamp_ms for visit_event in visit_events(1))
    assert newest_ms < BEGIN_MS + SPANS_MS[0] - 30_000 + 60_000
    assert CLOCKS_MS[1] >= SPANS_MS[0] + 60_000


def test_second_run_starts_where_the_first_ends() -> None:
    (_, first), (second, end) = visit_interval(0), visit_interval(1)
    assert first == second
    assert round(end.timestamp() * 1000) == BEGIN_MS + CLOCKS_MS[1]


def test_hundred_events_flush_at_once_others_later() -> None:
    events = [visit(number, at_s=number / 100) for number in range(101)]
    assert flushed(events, plan(1, 0, 101, clock_s=10), plan(2, 101, 101, clock_s=61)) == [
        (1, list(range(100))),
        (2, [100]),
    ]


def test_event_that_reaches_the_minute_is_included() -> None:
    events = [visit(0, 0), visit(1, 61), visit(2, 62)]
    assert flushed(events, plan(1, 0, 3, clock_s=62)) == [(1, [0, 1]), (None, [2])]


def test_another_customers_event_moves_the_partitions_time_on() -> None:
    events = [visit(0, 0), visit(1, 60, customer=8), visit(2, 1)]
    assert flushed(events, plan(1, 0, 3, clock_s=1)) == [(1, [0]), (None, [2])]


def test_event_older_than_the_clock_flushes_alone() -> None:
    events = [visit(0, 0), visit(1, 1)]
    assert flushed(events, plan(1, 0, 0, clock_s=100), plan(2, 0, 2, clock_s=101)) == [(2, [0]), (2, [1])]


def test_unreadable_visit_does_not_move_time() -> None:
    nobody = Event(None, b'{"visitorId": "1", "action": "view"}', 0, 90_000)
    broken = Event(b"7", b"{not json", 0, 90_000)
    events = [visit(0, 0), nobody, broken, visit(1, 1)]
    assert flushed(events, plan(1, 0, 4, clock_s=1)) == [(None, [0, 1])]


def test_waves_have_no_faults_and_flush_quiet_customers() -> None:
    events = [*visit_events(0), *visit_events(1)]
    ends = [Counter(visit_event.partition for visit_event in visit_events(wave)) for wave in (0, 1)]
    plans = []
    for wave in (0, 1):
        ranges = tuple(
            OffsetRange("visits", p, wave * ends[0][p], ends[0][p] + wave * ends[1][p])
            for p in range(PARTITIONS)
        )
        clock_ms = BEGIN_MS + CLOCKS_MS[wave]
        plans.append(
            Plan(Stream("visitor_batches", 1), wave + 1, "r", clock_ms, clock_ms, ranges, {}, "", "")
        )
    batches = expected_batches(events, plans)
    assert faults(batches, events) == []
    quiet = [batches[str(customer)] for customer in QUIET_CUSTOMERS if str(customer) in batches]
    assert {record["batch"] for batch in quiet for record in batch} == {2}
    assert sum(map(len, ends)) == 2 * PARTITIONS
    assert sum(len(record["events"]) for batch in batches.values() for record in batch) > 0.98 * sum(
        VISIT_WAVES
    )


def test_lost_doubled_and_moved_visits_are_faults() -> None:
    events = [visit(number, number) for number in range(3)]
    good = [{"visitorId": str(number), "action": "view"} for number in range(3)]

    def wrong(*visits: object) -> list[str]:
        return faults({"7": [{"batch": 1, "events": list(visits)}]}, events)

    assert wrong(*good) == []
    for bad in (good[:2], [*good, good[2]], good[::-1], []):
        assert "1 customers" in wrong(*bad)[0]
    many = [visit(number, 0) for number in range(101)]
    assert faults({"7": [{"batch": 1, "events": expected_all(many)}]}, many) == ["a batch has 101 events"]


def expected_all(events: list[Event]) -> list[object]:
    values = [json.loads(event.value or b"") for event in events]
    return [{"visitorId": value["visitorId"], "action": value["action"]} for value in values]
