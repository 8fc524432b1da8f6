"""The demo's first input and its own account of what must come out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import SetupFailed
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.demo.events import PRODUCTS, STORES, WAVES, Event, stock_events
from tidegate_dev.demo.expected import expected_availability
from tidegate_dev.demo.run import _locked_demo, run_demo
from tidegate_dev.demo.topics import create_topics
from tidegate_dev.stack import environment

KEY = b'{"storeId":"s","id":1}'


def stock(quantity: int) -> Event:
    return Event(KEY, b'{"storeId": "s", "id": 1, "quantity": %d}' % quantity, 0, 0)


def test_the_same_seed_gives_the_same_events() -> None:
    assert list(stock_events(1)) == list(stock_events(1))
    assert list(stock_events(1)) != list(stock_events(1, seed=7))


def test_the_first_wave_has_every_kind_of_event() -> None:
    events = list(stock_events(0))
    assert len(events) == WAVES[0]
    assert len({event.key for event in events if event.key}) == STORES * PRODUCTS
    assert any(event.key is None for event in events)
    assert any(event.value is None for event in events)
    assert any(event.value == b"{not json" for event in events)


def test_quantities_and_a_deletion_give_expected_values() -> None:
    tombstone = Event(KEY, None, 0, 0)
    broken = Event(KEY, b"{not json", 0, 0)
    events = [stock(10), stock(5), broken, stock(0), tombstone, tombstone, stock(3)]
    available = [
        None if value is None else value["isAvailable"]
        for value in expected_availability(events)[KEY.decode()]
    ]
    assert available == [True, False, None, True]


@pytest.mark.broker
def test_topics_are_created_once(broker: KafkaBroker) -> None:
    create_topics(broker.bootstrap_servers)
    assert create_topics(broker.bootstrap_servers) == set()


def test_sql_sinks_default_to_a_home_database(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_SQL", raising=False)
    assert environment(home, home, "x:1")["TIDEGATE_SQL"] == f"sqlite:///{home}/sink.db"
    monkeypatch.setenv("TIDEGATE_SQL", "postgresql+psycopg://somewhere/sink")
    assert environment(home, home, "x:1")["TIDEGATE_SQL"] == "postgresql+psycopg://somewhere/sink"


def test_second_demo_leaves_the_first_alone(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    with _locked_demo(tmp_path), pytest.raises(SetupFailed, match="Another demo runs"):
        run_demo(tmp_path, tmp_path, print)
    assert (tmp_path / "demo").is_dir()
