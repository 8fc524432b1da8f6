"""The instant that a batch started by hand takes as now."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from tidegate.batch.trigger import Trigger
from tidegate.cli.batch import trigger_now
from tidegate.cli.options import RunOptions
from tidegate.errors import TriggerInvalid
from tidegate.ledger.stream_condition import CLOCK_AHEAD_MS

NOW_MS = 1_767_225_600_000


def naive(at: datetime) -> datetime:
    """Return an instant as click parses it: in UTC, without a zone."""
    return at.replace(tzinfo=None)


def test_until_is_the_clock() -> None:
    until = naive(datetime(2026, 1, 31, tzinfo=timezone.utc))
    trigger = trigger_now("r", RunOptions(until=until))
    assert trigger.clock_ms == trigger.interval_end_ms == 1_769_817_600_000


def test_until_in_the_future_leaves_now() -> None:
    trigger = trigger_now("r", RunOptions(until=naive(datetime.now(timezone.utc) + timedelta(days=3))))
    assert trigger.clock_ms == trigger.now_ms


def test_a_given_clock_wins_over_until() -> None:
    clock, until = datetime(2026, 1, 31, 1), datetime(2026, 1, 31)
    assert trigger_now("r", RunOptions(clock, until)).clock_ms == 1_769_817_600_000 + 3_600_000


def test_a_drain_without_clock_uses_now() -> None:
    trigger = trigger_now("r", RunOptions(), drain=True)
    assert trigger.clock_ms == trigger.now_ms


@pytest.mark.parametrize("ahead_ms", [CLOCK_AHEAD_MS + 1, 36 * 365 * 86_400_000])
def test_a_clock_ahead_of_now_is_refused(ahead_ms: int) -> None:
    trigger = Trigger("r", NOW_MS + ahead_ms, now_ms=NOW_MS)
    with pytest.raises(TriggerInvalid, match="later than now, 2026-01-01T00:00:00"):
        trigger.check_clock()


@pytest.mark.parametrize(
    "trigger",
    [
        Trigger("r", NOW_MS + CLOCK_AHEAD_MS, now_ms=NOW_MS),
        Trigger("r", NOW_MS - 86_400_000, now_ms=NOW_MS),
        Trigger("r", NOW_MS + 86_400_000, now_ms=NOW_MS, any_clock=True),
    ],
)
def test_clock_near_now_or_forced_is_accepted(trigger: Trigger) -> None:
    trigger.check_clock()
