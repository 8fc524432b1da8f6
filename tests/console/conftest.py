"""A ledger near now with three batches, and the pages of it without Airflow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.console.pages import served, set_environment
from tests.seeded import Seeded, emission, unusable


@pytest.fixture
def recent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seeded:
    """Three batches of the last half hour; s<1> is emitted by the second and third, and in quarantine."""
    made = Seeded(tmp_path, now=time.time() - 1_800)
    set_environment(monkeypatch, made.environment)
    pipeline = made.add_sample("availability")
    counts = {"used": 999.0, "emitted": 100.0, "state-rows": 40.0}
    made.batch(pipeline, 1, counts, outbox=[emission("s2", 1)])
    made.batch(pipeline, 2, counts, outbox=[emission("s<1>", 7, reason="new"), emission("s2", 2)])
    odd = {**unusable(2001, b"odd <b>", seq=3), "key": b"s<1>"}
    made.batch(
        pipeline, 3, {**counts, "quarantined": 1.0}, [odd], outbox=[emission("s<1>", None, 0, "deleted")]
    )
    return made


@pytest.fixture
def pages(recent: Seeded) -> Iterator[TestClient]:
    """The pages of these batches."""
    with served() as client:
        yield client
