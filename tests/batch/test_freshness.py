"""How old emissions are when they go out: measured, stored, and reported if `freshness` allows less."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.committed import Committed
from tidegate.batch import stale_publication
from tidegate.batch.freshness import ALERT, P50, P95, EmissionAges
from tidegate.model.schedule import FreshnessRule

SINKS = "  - {kind: sql, table: seconds}\n  - {kind: sql, table: firsts, stage: first}"
ROWS = [("1", 11), ("2", 12)]
NOW_MS = 400_000
"""When batches are published: what they emit has a timestamp of some milliseconds after the epoch."""


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.batch.publish.current_ms", lambda: NOW_MS)


def published(folder: Path, rule: str, rows: Any = ROWS) -> tuple[Committed, dict[str, float]]:
    """A batch that was published under a rule, and its metrics of freshness."""
    made = Committed(folder, f"{SINKS}\n{rule}", f"sqlite:///{folder}/sink.db")
    made.commit(1, {"first": rows, "second": rows})
    made.publish(1)
    metrics = made.app.ledger.metrics(made.stream, 1)
    return made, {name: value for (_, name), value in metrics.items() if name.startswith("freshness")}


def cause(made: Committed) -> str | None:
    plan = made.app.ledger.plan(made.stream, 1)
    assert plan is not None
    return stale_publication(made.app.ledger, plan)


def test_batch_beyond_the_bound_alerts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made, metrics = published(tmp_path, "freshness: {p95: 5m}")
    assert metrics == {P50: 400, P95: 400, ALERT: 1}
    sentence = cause(made)
    assert sentence is not None
    assert "batch 1 of visitors/1 were out within 400.0 s, and `freshness` allows 300.0 s" in sentence
    assert sentence in caplog.text


def test_batch_within_the_bound_only_has_metrics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made, metrics = published(tmp_path, "freshness: {p95: 400s}")
    assert metrics == {P50: 400, P95: 400, ALERT: 0}
    assert cause(made) is None
    assert "freshness" not in caplog.text


def test_pipeline_without_a_rule_measures_nothing(tmp_path: Path) -> None:
    made, metrics = published(tmp_path, "")
    assert (metrics, cause(made)) == ({}, None)


def test_batch_without_emissions_has_no_age(tmp_path: Path) -> None:
    made, metrics = published(tmp_path, "freshness: {p95: 5m}", rows=[])
    assert (metrics, cause(made)) == ({}, None)


def test_batch_that_is_out_already_keeps_its_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, metrics = published(tmp_path, "freshness: {p95: 5m}")
    monkeypatch.setattr("tidegate.batch.publish.current_ms", lambda: 2 * NOW_MS)
    made.publish(1)
    assert made.app.ledger.metrics(made.stream, 1)["", P95] == metrics[P95]


@given(st.lists(st.integers(-10_000, 2_000_000), min_size=1, max_size=200))
def test_percentiles_are_those_of_numpy(timestamps: list[int]) -> None:
    steps = [timestamp * 100 for timestamp in timestamps]
    rows = pa.record_batch({"timestamp": pa.array(steps, pa.int64())})
    ages = EmissionAges(FreshnessRule(p95="5m"))
    outbox: Any = SimpleNamespace(batches=lambda columns: [rows.slice(0, 1), rows.slice(1)])
    ages.add(outbox)
    now_ms = 100_000_000
    expected = [max(0, now_ms - step) / 1000 for step in steps]
    metrics = ages.metrics_at(now_ms)
    for name, percentile in ((P50, 50), (P95, 95)):
        assert metrics[name] == np.percentile(expected, percentile, method="inverted_cdf")
    assert metrics[ALERT] == float(metrics[P95] > 300)
