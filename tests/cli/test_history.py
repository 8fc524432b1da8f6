"""tidegate history: the batches of a pipeline for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_commands import tidegate
from tests.seeded import Seeded
from tidegate.errors import QualityFailed


@pytest.fixture
def seeded(tmp_path: Path) -> Seeded:
    """Three batches, and a fourth that failed."""
    made = Seeded(tmp_path)
    pipeline = made.add_sample("availability")
    made.day(pipeline, 3)
    made.fail(pipeline, 4, "validate", QualityFailed("Too many nulls", "Correct the data."))
    return made


def shown(seeded: Seeded, *arguments: str) -> str:
    done = tidegate(seeded.home, "history", "availability", *arguments, **seeded.environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
def test_history_is_newest_first_with_failures(seeded: Seeded) -> None:
    title, head, *rows = shown(seeded).splitlines()
    assert title.strip() == "Batches of availability/1; seconds: plan, compute, validate, commit, publish"
    assert head.split()[-2:] == ["seconds", "failed"]
    assert [row.split()[0] for row in rows] == ["4", "3", "2", "1"]
    assert "validate: QualityFailed" in rows[0]
    assert "2026-01-01T00:10:30Z" in rows[1]
    assert "1000" in rows[1]


@pytest.mark.process
def test_programs_get_epoch_ms_counts_and_seconds(seeded: Seeded) -> None:
    failed, newest, *_ = json.loads(shown(seeded, "--json"))
    assert (failed["batch"], failed["committed_at_ms"]) == (4, None)
    assert failed["failure"]["fix"] == "Correct the data."
    assert newest["committed_at_ms"] - newest["planned_at_ms"] == 30_000
    assert newest["counts"]["emitted"] + newest["suppressed"] == newest["counts"]["read"] == 1000
    assert set(newest["seconds"]) == {"plan", "compute", "validate", "commit", "publish"}
    assert newest["passed_quality"] is True
    assert newest["failure"] is None


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "batches"),
    [(("--limit", "2"), [4, 3]), (("--before", "3"), [2, 1]), (("--limit", "0"), [4, 3, 2, 1])],
)
def test_so_many_are_shown_as_are_asked_for(
    seeded: Seeded, arguments: tuple[str, ...], batches: list[int]
) -> None:
    rows: list[dict[str, Any]] = json.loads(shown(seeded, *arguments, "--json"))
    assert [row["batch"] for row in rows] == batches


@pytest.mark.process
def test_a_pipeline_without_batches_says_so(seeded: Seeded) -> None:
    seeded.add_sample("quiet_users")
    done = tidegate(seeded.home, "history", "quiet_users", **seeded.environment)
    assert done.stdout.strip() == "No batch of quiet_users/1 was planned yet."
