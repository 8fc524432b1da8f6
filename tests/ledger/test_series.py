"""Metrics of consecutive batches, summed up in the database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded import Seeded
from tidegate.app import App, stream_of
from tidegate.ledger import MetricGroup, Stream

NAMES = {False: ["lag", "seconds.compute"], True: ["emitted", "state-rows"]}


@pytest.fixture
def history(url: str, tmp_path: Path) -> tuple[Seeded, Stream]:
    """Seven batches."""
    made = Seeded(tmp_path, environment={})
    made.environment["TIDEGATE_LEDGER"] = url
    made.app = App.from_environment(made.environment)
    made.app.ledger._now = lambda: made.now
    pipeline = made.add_sample("availability")
    for seq in range(1, 8):
        made.batch(pipeline, seq, {"emitted": float(seq), "state-rows": 10.0 * seq})
    return made, stream_of(pipeline)


def groups(history: tuple[Seeded, Stream], since: float, most: int) -> list[MetricGroup]:
    seeded, stream = history
    return seeded.app.ledger.metric_groups(stream, since, NAMES, most)


def test_groups_sum_up_consecutive_batches(history: tuple[Seeded, Stream]) -> None:
    shown = groups(history, 0, 3)
    stage = "availability"
    assert [(group.first, group.last) for group in shown] == [(1, 3), (4, 6), (7, 7)]
    assert [group.totals[stage, "emitted"] for group in shown] == [6, 15, 7]
    assert [group.greatest[stage, "emitted"] for group in shown] == [3, 6, 7]
    assert [group.newest[stage, "state-rows"] for group in shown] == [30, 60, 70]
    assert all(("", "quality.passed") not in group.totals for group in shown)


def test_group_begins_with_the_commit_before_it(history: tuple[Seeded, Stream]) -> None:
    shown = groups(history, 0, 7)
    assert shown[0].begins_ms is None
    assert [group.begins_ms for group in shown[1:]] == [group.committed_at_ms for group in shown[:-1]]
    (last,) = groups(history, shown[-2].committed_at_ms / 1000, 5)
    assert (last.first, last.begins_ms) == (7, shown[-2].committed_at_ms)


def test_stream_without_recent_batches_has_no_groups(history: tuple[Seeded, Stream]) -> None:
    assert groups(history, history[0].now, 5) == []


def test_values_of_a_metric_are_by_batch(history: tuple[Seeded, Stream]) -> None:
    seeded, stream = history
    assert seeded.app.ledger.metric_values(stream, (3, 5), "lag") == {3: 120.0, 4: 120.0, 5: 120.0}
