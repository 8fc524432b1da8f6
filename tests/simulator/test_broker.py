"""Transactions of the Kafka in memory: who is fenced, what is seen, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka.errors import InvalidProducerEpochError, ProducerFencedError

from tests.simulator.broker import Broker, Record

AT = ("topic", 0)
RECORD = Record(b"k", b"v", 0)


class Events:
    """Delayed events, which happen when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[Callable[[], None]] = []

    def happen(self) -> None:
        while self.due:
            self.due.pop(0)()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def broker(events: Events) -> Broker:
    broker = Broker(lambda: events.now, events.due.append)
    broker.create("topic", 1)
    return broker


def begun(broker: Broker, name: str = "p") -> int:
    """The epoch of a producer that has a record in an open transaction."""
    epoch = broker.init_producer(name)
    assert epoch is not None
    assert broker.append(name, epoch, 1, 60.0, AT, [RECORD])
    return epoch


def seen(broker: Broker) -> int:
    return len(list(broker.log(AT).committed(0, broker.log(AT).end)))


def test_an_open_transaction_is_not_seen(broker: Broker) -> None:
    begun(broker)
    assert (seen(broker), broker.log(AT).stable_end, broker.log(AT).end) == (0, 0, 1)


def test_committed_record_is_visible_after_its_marker(broker: Broker, events: Events) -> None:
    broker.commit("p", begun(broker), 1)
    before = seen(broker)
    events.happen()
    assert (before, seen(broker)) == (0, 1)


def test_open_transaction_hides_later_commits(broker: Broker, events: Events) -> None:
    begun(broker, "other")
    broker.commit("p", begun(broker), 1)
    events.happen()
    assert seen(broker) == 0


def test_new_producer_aborts_and_fences_the_older(broker: Broker, events: Events) -> None:
    old = begun(broker)
    assert broker.init_producer("p") is None
    events.happen()
    assert broker.init_producer("p") is not None
    with pytest.raises(ProducerFencedError):
        broker.commit("p", old, 1)
    assert (seen(broker), broker.log(AT).stable_end) == (0, broker.log(AT).end)


def test_new_producer_completes_a_decided_commit(broker: Broker, events: Events) -> None:
    broker.commit("p", begun(broker), 1)
    assert broker.init_producer("p") is None
    events.happen()
    assert (broker.init_producer("p"), seen(broker)) == (1, 1)


def test_the_timeout_aborts_and_fences(broker: Broker, events: Events) -> None:
    epoch = begun(broker)
    events.now = 60.0
    broker.expire()
    events.happen()
    with pytest.raises(ProducerFencedError):
        broker.append("p", epoch, 1, 60.0, AT, [RECORD])
    assert seen(broker) == 0


def test_next_transaction_waits_for_earlier_markers(broker: Broker, events: Events) -> None:
    epoch = begun(broker)
    broker.commit("p", epoch, 1)
    assert not broker.append("p", epoch, 2, 60.0, AT, [RECORD])
    events.happen()
    assert broker.append("p", epoch, 2, 60.0, AT, [RECORD])


def test_late_record_of_ended_transaction_is_refused(broker: Broker, events: Events) -> None:
    epoch = begun(broker)
    broker.commit("p", epoch, 1)
    events.happen()
    broker.append("p", epoch, 2, 60.0, AT, [RECORD])
    with pytest.raises(InvalidProducerEpochError):
        broker.append("p", epoch, 1, 60.0, AT, [RECORD])


def test_compacted_log_keeps_newest_record_per_key(broker: Broker) -> None:
    log = broker.log(AT)
    log.append([RECORD, Record(b"other", b"1", 0), RECORD, RECORD._replace(value=b"newest")])
    assert log.compact(3) == 1
    assert [(offset, record.key) for offset, record in log.committed(0, log.end)] == [
        (1, b"other"),
        (2, b"k"),
        (3, b"k"),
    ]


def test_aborted_record_replaces_nothing_in_compaction(broker: Broker, events: Events) -> None:
    broker.log(AT).append([RECORD])
    begun(broker)
    assert broker.log(AT).compact(2) == 0
    broker.init_producer("p")
    events.happen()
    assert broker.log(AT).compact(3) == 1
    assert seen(broker) == 1
