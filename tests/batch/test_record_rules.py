"""A batch with much quarantine alerts, or stops before any of it is visible."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.quarantines import Quarantined, quarantined
from tidegate.batch.record_rules import Alert, apply_record_rules
from tidegate.cli.batch import report_rows
from tidegate.errors import LateExceeded, QuarantineExceeded
from tidegate.ledger import Attempt, ManifestRef, Plan
from tidegate.ledger.report import BatchReport, batch_report
from tidegate.model.compiled import compile_pipeline
from tidegate.yaml.load import load_pipeline

COUNTS = {
    "": {"read": 90, "exploded": 10, "used": 90, "quarantined": 3, "expired-window-record-drop": 7},
    "first": {"used": 90, "quarantined": 3, "expired-window-record-drop": 7},
}
REPLAY = ManifestRef("resolution", 1, "digest", 3, 1)


@pytest.fixture
def world(tmp_path: Path) -> Quarantined:
    """A batch of 100 records, of which 3 are in quarantine."""
    made = Quarantined(tmp_path)
    made.batch(1, [quarantined(1, 1), quarantined(1, 2), quarantined(1, 3, reason="null_key")])
    return made


def apply(
    world: Quarantined,
    rule: str,
    replay: ManifestRef | None = None,
    alert: Alert | None = None,
    name: str = "quarantine",
) -> float | None:
    """The metric that is noted."""
    text, *_ = world.file.read_text().partition("\nquarantine:")
    text, *_ = text.partition("\nlate:")
    world.file.write_text(f"{text}\n{name}: {rule}\n")
    plan, attempt = world.app.ledger.plan(world.stream, 1), world.app.ledger.attempt(world.stream, 1)
    assert isinstance(plan, Plan)
    assert isinstance(attempt, Attempt)
    counted = replace(attempt, counts=COUNTS)
    planned = replace(plan, spec_compiled=compile_pipeline(load_pipeline(world.file)), replay=replay)
    apply_record_rules(world.app, world.lease, planned, counted, alert)
    return world.app.ledger.metrics(world.stream, 1).get(("", f"{name}.alert"))


def test_alert_bound_logs_and_counts_but_continues(
    world: Quarantined, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert apply(world, "{alert: {share: 2.9%}, stop: {count: 3}}") == 1
    assert (
        "Batch 1 of visitors/1 got 100 records and put 3 into quarantine: malformed 2, null_key 1"
        in caplog.text
    )
    assert "more than `quarantine.alert` allows" in caplog.text


def test_within_the_bound_only_the_metric_tells(world: Quarantined, caplog: pytest.LogCaptureFixture) -> None:
    assert apply(world, "{alert: {share: 3%, count: 3}}") == 0
    assert "WARNING" not in caplog.text


def test_beyond_the_other_bound_the_batch_stops(world: Quarantined) -> None:
    with pytest.raises(
        QuarantineExceeded, match=r"malformed 2, null_key 1, which is more than `quarantine.stop` allows"
    ) as caught:
        apply(world, "{stop: {count: 2}}")
    assert "raise `quarantine.stop`" in caught.value.fix


def test_a_replay_is_not_asked(world: Quarantined) -> None:
    assert apply(world, "{stop: {count: 0}}", REPLAY) is None


@pytest.mark.parametrize("rule", ["{alert: {count: 2}}", "{alert: {count: 2}, stop: {count: 2}}"])
def test_alert_reaches_the_callback_once_per_batch(world: Quarantined, rule: str) -> None:
    alerts: list[str] = []
    for _ in range(3):
        with suppress(QuarantineExceeded):
            apply(world, rule, alert=alerts.append)
    expected = "Batch 1 of visitors/1 got 100 records and put 3 into quarantine: malformed 2, null_key 1"
    assert alerts == [expected]


def test_batch_within_the_bound_alerts_nobody(world: Quarantined) -> None:
    apply(world, "{alert: {count: 3}}", alert=lambda cause: pytest.fail(cause))


def test_late_alert_reaches_log_metric_and_callback(
    world: Quarantined, caplog: pytest.LogCaptureFixture
) -> None:
    alerts: list[str] = []
    with caplog.at_level(logging.WARNING):
        assert apply(world, "{alert: {share: 6.9%}, stop: {count: 7}}", alert=alerts.append, name="late") == 1
    message = "Batch 1 of visitors/1 got 100 records, and 7 were late and dropped"
    assert f"{message}, which is more than `late.alert` allows" in caplog.text
    assert alerts == [message]
    assert apply(world, "{alert: {count: 7}}", name="late") == 0
    assert apply(world, "{stop: {count: 0}}", REPLAY, name="late") == 0, "a replay is not asked"


def test_late_stop_bound_fails_the_batch(world: Quarantined) -> None:
    with pytest.raises(LateExceeded, match=r"100 records, and 7 .* more than `late.stop` allows") as caught:
        apply(world, "{stop: {share: 5%}}", name="late")
    assert "raise `late.stop`" in caught.value.fix


def test_late_records_in_quarantine_count_for_both_bounds(
    world: Quarantined, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"late-quarantined": 7}
    kept_late = {stage: counts | more for stage, counts in COUNTS.items()}
    monkeypatch.setattr(f"{__name__}.COUNTS", kept_late)
    alerts: list[str] = []
    apply(world, "{alert: {count: 7}}", alert=alerts.append)
    apply(world, "{alert: {count: 6}}", alert=alerts.append, name="late")
    expected = "Batch 1 of visitors/1 got 100 records and put 10 into quarantine: malformed 2, null_key 1"
    assert alerts == [expected, "Batch 1 of visitors/1 got 100 records, and 7 were late"]


def test_later_stages_count_for_both_bounds(world: Quarantined, monkeypatch: pytest.MonkeyPatch) -> None:
    second = {
        "used": 10,
        "quarantined": 4,
        "expired-window-record-drop": 2,
        "refused": 1,
        "emitted-too-large": 5,
    }
    late = {"emitted-refused-row": 6}
    monkeypatch.setattr(
        f"{__name__}.COUNTS", COUNTS | {"second": second, "second.late": late, "source:fields": {"x": 9}}
    )
    alerts: list[str] = []
    apply(world, "{alert: {count: 18}}", alert=alerts.append)
    apply(world, "{alert: {count: 8}}", alert=alerts.append, name="late")
    begin = "Batch 1 of visitors/1 got 100 records"
    assert alerts == [
        f"{begin} and put 19 into quarantine: malformed 2, null_key 1",
        f"{begin}, and 9 were late and dropped",
    ]


def test_reasons_are_counted_without_any_bound(world: Quarantined) -> None:
    apply(world, "{alert: {share: 1%}}", name="late")
    report = batch_report(world.app.ledger, world.stream, 1)
    assert report is not None
    assert report.reasons == {"malformed": 2, "null_key": 1}


def test_batch_without_usable_records_always_warns(
    world: Quarantined, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: dict[str, float] = {"used": 0, "quarantined": 3}
    useless = {"": {"read": 3} | nothing, "first": nothing}
    monkeypatch.setattr(f"{__name__}.COUNTS", useless)
    with caplog.at_level(logging.WARNING):
        apply(world, "{stop: {count: 9}}", name="late")
    assert (
        "No record of batch 1 of visitors/1 could be used: 3 came in, 3 in quarantine (malformed 2"
        in caplog.text
    )


def test_stage_that_can_use_nothing_warns(
    world: Quarantined, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.COUNTS", COUNTS | {"second": {"used": 0, "quarantined": 90}})
    with caplog.at_level(logging.WARNING):
        apply(world, "{stop: {count: 99}}", name="late")
    assert (
        "The stage second could use nothing of batch 1 of visitors/1: 93 in quarantine (malformed"
        in caplog.text
    )


def test_fates_of_a_report_add_up_to_input(world: Quarantined) -> None:
    plan = world.app.ledger.plan(world.stream, 1)
    assert plan is not None
    counts = {"read": 8, "exploded": 4, "used": 5, "quarantined": 1, "deduplicated": 2}
    more = {
        "expired-window-record-drop": 1,
        "nothing-to-explode": 2,
        "tombstones-ignored": 1,
        "tombstones": 3,
    }
    report = BatchReport(plan, counts | more, {}, {})
    assert sum(report.fates.values()) == report.came_in == 12
    assert (report.late, report.other) == (1, 5)
    rows = [(row[""], row["value"]) for row in report_rows(report)]
    assert rows[:9] == [
        ("records read", "8"),
        ("more by explode", "4"),
        ("used", "5"),
        ("of these, tombstones", "3"),
        ("quarantined", "1"),
        ("deduplicated", "2"),
        ("late, and dropped", "1"),
        ("without an element to explode", "2"),
        ("tombstones that repeat", "1"),
    ]


def test_misspelt_column_warns_with_column_and_field(
    world: Quarantined, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    typo = {"source:columns": {"id": 9, "quantty": 0}, "source:fields": {"": 9, "quantity": 9}}
    monkeypatch.setattr(f"{__name__}.COUNTS", COUNTS | typo)
    with caplog.at_level(logging.WARNING):
        apply(world, "{stop: {count: 9}}", name="late")
    assert "no record of `source` has a value of the declared columns: quantty. Fields" in caplog.text
    assert "not declared, in 9 sampled records: quantity" in caplog.text
    caplog.clear()
    rare = {"source:columns": {"id": 9, "note": 0}, "source:fields": {"": 9}}
    monkeypatch.setattr(f"{__name__}.COUNTS", COUNTS | rare)
    with caplog.at_level(logging.WARNING):
        apply(world, "{stop: {count: 9}}", name="late")
    assert "note" not in caplog.text, "a column that this batch happens to lack is no warning"
