"""A batch that puts much into quarantine is told of, or stops before anything of it is visible."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.quarantines import Quarantined, quarantined
from tidegate.errors import QuarantineExceeded
from tidegate.ledger import Attempt, ManifestRef, Plan
from tidegate.protocol.quarantine_rule import apply_quarantine_rule
from tidegate.spec import load_pipeline

REPLAY = ManifestRef("resolution", 1, "digest", 3, 1)


@pytest.fixture
def world(tmp_path: Path) -> Quarantined:
    """A batch of 100 records, of which 3 are in quarantine."""
    made = Quarantined(tmp_path)
    made.batch(1, [quarantined(1, 1), quarantined(1, 2), quarantined(1, 3, reason="null_key")])
    return made


def apply(world: Quarantined, rule: str, replay: ManifestRef | None = None) -> float | None:
    """The metric that is noted."""
    world.file.write_text(f"{world.file.read_text()}\nquarantine: {rule}\n")
    plan, attempt = world.app.ledger.plan(world.stream, 1), world.app.ledger.attempt(world.stream, 1)
    assert isinstance(plan, Plan)
    assert isinstance(attempt, Attempt)
    counted = replace(attempt, counts={"": {"read": 90, "exploded": 10, "quarantined": 3}})
    pipeline = load_pipeline(world.file)
    apply_quarantine_rule(world.app, world.held, replace(plan, replay=replay), pipeline, counted)
    return world.app.ledger.metrics(world.stream, 1).get(("", "quarantine.alert"))


def test_beyond_the_bound_the_log_and_a_metric_tell_and_the_batch_goes_on(
    world: Quarantined, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert apply(world, "{alert: {share: 2.9%}, stop: {count: 3}}") == 1
    assert "3 of 100 records of batch 1 of visitors/1 cannot be used: malformed 2, null_key 1" in caplog.text


def test_within_the_bound_only_the_metric_tells(world: Quarantined, caplog: pytest.LogCaptureFixture) -> None:
    assert apply(world, "{alert: {share: 3%, count: 3}}") == 0
    assert caplog.text == ""


def test_beyond_the_other_bound_the_batch_stops(world: Quarantined) -> None:
    with pytest.raises(
        QuarantineExceeded, match=r"`quarantine.stop` allows: malformed 2, null_key 1"
    ) as caught:
        apply(world, "{stop: {count: 2}}")
    assert "--drop-plan" in caught.value.fix


def test_a_replay_is_not_asked(world: Quarantined) -> None:
    assert apply(world, "{stop: {count: 0}}", REPLAY) is None
