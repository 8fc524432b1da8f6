"""A batch that puts much into quarantine is told of, or stops before anything of it is visible."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.quarantines import Quarantined, quarantined
from tidegate.errors import QuarantineExceeded
from tidegate.ledger import Attempt, ManifestRef, Plan
from tidegate.protocol.quarantine_rule import Alert, apply_quarantine_rule
from tidegate.spec import compile_pipeline, load_pipeline

REPLAY = ManifestRef("resolution", 1, "digest", 3, 1)


@pytest.fixture
def world(tmp_path: Path) -> Quarantined:
    """A batch of 100 records, of which 3 are in quarantine."""
    made = Quarantined(tmp_path)
    made.batch(1, [quarantined(1, 1), quarantined(1, 2), quarantined(1, 3, reason="null_key")])
    return made


def apply(
    world: Quarantined, rule: str, replay: ManifestRef | None = None, alert: Alert | None = None
) -> float | None:
    """The metric that is noted."""
    text, *_ = world.file.read_text().partition("\nquarantine:")
    world.file.write_text(f"{text}\nquarantine: {rule}\n")
    plan, attempt = world.app.ledger.plan(world.stream, 1), world.app.ledger.attempt(world.stream, 1)
    assert isinstance(plan, Plan)
    assert isinstance(attempt, Attempt)
    counted = replace(attempt, counts={"": {"read": 90, "exploded": 10, "quarantined": 3}})
    planned = replace(plan, spec_compiled=compile_pipeline(load_pipeline(world.file)), replay=replay)
    apply_quarantine_rule(world.app, world.held, planned, counted, alert)
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
    assert "raise `quarantine.stop`" in caught.value.fix


def test_a_replay_is_not_asked(world: Quarantined) -> None:
    assert apply(world, "{stop: {count: 0}}", REPLAY) is None


@pytest.mark.parametrize("rule", ["{alert: {count: 2}}", "{alert: {count: 2}, stop: {count: 2}}"])
def test_who_asks_for_it_is_told_once_of_a_batch_however_often_it_is_tried(
    world: Quarantined, rule: str
) -> None:
    told: list[str] = []
    for _ in range(3):
        with suppress(QuarantineExceeded):
            apply(world, rule, alert=told.append)
    expected = "3 of 100 records of batch 1 of visitors/1 cannot be used: malformed 2, null_key 1"
    assert told == [expected]


def test_nobody_is_told_of_a_batch_within_the_bound(world: Quarantined) -> None:
    apply(world, "{alert: {count: 3}}", alert=lambda cause: pytest.fail(cause))
