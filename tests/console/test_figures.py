"""Figures of the charts equal the metrics in the ledger and the counts of `tidegate status`."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from statistics import mean

import pytest
from click.testing import CliRunner

from tests.console.pages import served, set_environment
from tests.seeded import Seeded
from tidegate.app import stream_of
from tidegate.batch.freshness import P50, P95
from tidegate.batch_counts import LATE
from tidegate.cli import cli
from tidegate.cli.commands import status
from tidegate.console.formatting import number, seconds, size
from tidegate.inspect.series import ChartRange, Point, series
from tidegate.ledger.report import STEPS
from tidegate.model.pipeline import Pipeline

STAGE = "availability"


@pytest.fixture
def seeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seeded:
    seeded = Seeded(tmp_path, now=time.time() - 3_000)
    set_environment(monkeypatch, seeded.environment)
    return seeded


def add_batches(seeded: Seeded, batches: int) -> Pipeline:
    """Add batches whose metrics all differ."""
    pipeline = seeded.add_sample("availability")
    for seq in range(1, batches + 1):
        seeded.metrics = {"read": 1_000.0, "age_seconds": 40.0 + seq * 7 % 11, P50: 0.5 + seq, P95: 2.0 + seq}
        seeded.metrics["lag"] = 100.0 + seq * 13 % 17
        fates = {"used": 1_000.0 - seq % 7, "quarantined": float(seq % 3), LATE: float(seq % 5)}
        seeded.batch(pipeline, seq, {**fates, "emitted": 300.0 + seq, "state-rows": 4_000.0 + seq})
    return pipeline


def test_point_of_several_batches_sums_up_their_metrics(
    seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = 7
    stream = stream_of(add_batches(seeded, batches))
    monkeypatch.setattr(sys.modules[series.__module__], "MOST_POINTS", 4)
    shown = series(seeded.app, stream, ChartRange.DAY, round(seeded.now * 1000))
    assert [place.first for place in shown.points] == list(range(1, batches + 1, 2))
    for point in shown.points:
        metrics = [seeded.app.ledger.metrics(stream, seq) for seq in range(point.first, point.last + 1)]
        assert_equals_metrics(point, metrics)


def assert_equals_metrics(point: Point, metrics: list[dict[tuple[str, str], float]]) -> None:
    def values(name: str, stage: str = "") -> list[float]:
        return [batch[stage, name] for batch in metrics]

    assert (point.lag, point.records) == (max(values("lag")), sum(values("read")))
    assert point.freshness == (max(values(P50)), max(values(P95)))
    assert point.ages is not None
    assert min(values("age_seconds")) <= point.ages[0] <= point.ages[1] <= max(values("age_seconds"))
    assert (point.emissions, point.late, point.quarantined) == tuple(
        sum(values(name, STAGE)) for name in ("emitted", LATE, "quarantined")
    )
    assert (point.state_rows, point.state_bytes) == tuple(
        values(name, STAGE)[-1] for name in ("state-rows", "state-bytes")
    )
    assert point.seconds == {step: pytest.approx(mean(values(f"seconds.{step}"))) for step in STEPS}


def test_table_of_figures_equals_status_and_metrics(seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(add_batches(seeded, 3))
    monkeypatch.setattr(status, "_lag", lambda *_: "BrokerUnavailable")  # the lag now is not a batch's
    (row,) = json.loads(CliRunner().invoke(cli, ["status", "--json"]).stdout)
    metrics = seeded.app.ledger.metrics(stream, 3)
    with served() as client:
        page = client.get("/pipelines/availability/charts?range=hour").text
    table = page[page.index("<details") :]
    names = [re.sub(r"<.*?>", "", name) for name in re.findall(r"<th scope=\"col\".*?</th>", table)]
    cells = re.findall(r"<t[dh](?: scope=\"row\"| class=\"n\")?>(.*?)</t[dh]>", table.partition("<tbody>")[2])
    newest = dict(zip(names, (re.sub(r"<.*?>", "", cell) for cell in cells), strict=False))
    assert newest["batches"] == number(row["batch"]) == "3"
    assert newest["records"] == number(row["records"]) == number(metrics["", "read"])
    assert newest["emissions"] == number(row["emitted"]) == number(metrics[STAGE, "emitted"])
    assert newest["late"] == number(row["late"]) == number(metrics[STAGE, LATE])
    assert newest["lag"] == number(metrics["", "lag"])
    assert newest["state rows"] == number(metrics[STAGE, "state-rows"])
    assert newest["state bytes"] == size(metrics[STAGE, "state-bytes"])
    assert newest["compute, s"] == seconds(metrics["", "seconds.compute"])
