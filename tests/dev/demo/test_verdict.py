"""What the demo says at its end, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import cli
from tidegate.inspect import BatchReport
from tidegate.ledger import OffsetRange, Plan
from tidegate_dev.demo.run import _USER_SETTINGS, DemoResult, DemoRun, SampleResult, verdict
from tidegate_dev.demo.samples import AVAILABILITY, SAMPLES, VISITOR_BATCHES, Proof, Sample

BATCH = {"batch": 1, "events": [{"visitorId": "v", "action": "buy"}]}
WAITING = {"batch": None, "events": [{"visitorId": "w", "action": "view"}]}


def result(sample: Sample, proof: Proof) -> SampleResult:
    plan = Plan(sample.stream, 1, "r", 0, 0, (OffsetRange(sample.topic, 0, 0, 2),), {}, "", "")
    counts = {"read": 2.0, "used": 2.0, "emitted": 1.0, "emitted.elapsed": 1.0}
    stages = {"batches": counts | {"suppression-buffer-records": 1.0}}
    return SampleResult(sample, (DemoRun(BatchReport(plan, counts, {}, {"sql:x": 1}, stages), 3.0),), proof)


def run(monkeypatch: pytest.MonkeyPatch, *samples: SampleResult, json_wanted: bool = False) -> Result:
    """The command, when the line has given these."""
    monkeypatch.setattr("tidegate_dev.demo.run.run_demo", lambda *_: DemoResult(samples))
    return CliRunner().invoke(cli, ["demo", *(["--json"] if json_wanted else [])])


def test_both_samples_show_batches_and_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    same = {"7": [BATCH, WAITING]}
    done = run(monkeypatch, *(result(sample, Proof(same, same)) for sample in SAMPLES))
    assert done.exit_code == 0
    assert done.stdout.count("EQUAL") == len(SAMPLES)
    assert "emitted: elapsed" in done.stdout
    assert "stock" in done.stdout
    assert "visits" in done.stdout


def test_difference_in_one_sample_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    good = result(AVAILABILITY, Proof({"k": [True]}, {"k": [True]}))
    bad = result(VISITOR_BATCHES, Proof({"7": [BATCH]}, {"7": [BATCH, WAITING]}))
    done = run(monkeypatch, good, bad)
    assert done.exit_code == 1
    assert "DIFFERENT: 1 keys differ, the first is 7" in done.stdout
    as_json = run(monkeypatch, good, bad, json_wanted=True)
    assert as_json.exit_code == 1
    assert [(load["pipeline"], load["equal"]) for load in json.loads(as_json.stdout)] == [
        ("availability", True),
        ("visitor_batches", False),
    ]


def test_fault_is_a_difference_despite_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    same = {"7": [BATCH]}
    done = run(monkeypatch, result(VISITOR_BATCHES, Proof(same, same, ("a batch has 101 events",))))
    assert done.exit_code == 1
    assert "DIFFERENT: a batch has 101 events" in done.stdout


def test_table_verdict_counts_rows_events_and_waiting() -> None:
    same: dict[str, list[Any]] = {"7": [BATCH, WAITING], "8": [BATCH]}
    text = verdict(result(VISITOR_BATCHES, Proof(same, same)))
    assert text.startswith(
        "the SQL table has 2 events of 2 customers in 2 rows, at most 1 in a row, and 1 events"
    )


def test_demo_leaves_the_users_ledger_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEGATE_LEDGER", f"sqlite:///{tmp_path}/own.db")
    same = {"7": [BATCH]}
    assert run(monkeypatch, result(VISITOR_BATCHES, Proof(same, same))).exit_code == 0
    assert not (tmp_path / "own.db").exists()
    assert {"TIDEGATE_DATA_DOCS", "TIDEGATE_TABLES"} <= set(_USER_SETTINGS)
