"""The page of charts: its figures are the metrics, and it can be read without looking at a drawing."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from tests.seeded import Seeded
from tidegate.app import stream_of
from tidegate.console.formatting import number
from tidegate.console.pages.charts import Axis, Line, Moment, plot, plots_of
from tidegate.inspect.series import ChartRange, Series, series

PAGE = "/pipelines/availability/charts"


def shown(seeded: Seeded, span: ChartRange = ChartRange.HOUR) -> Series:
    return series(seeded.app, stream_of(seeded.app.pipeline("availability")), span, round(seeded.now * 1000))


def test_figures_of_a_batch_equal_its_metrics(recent: Seeded) -> None:
    stream = stream_of(recent.app.pipeline("availability"))
    for point in shown(recent).points:
        metrics = recent.app.ledger.metrics(stream, point.last)
        stage = "availability"
        assert (point.first, point.lag) == (point.last, metrics["", "lag"])
        assert (point.emissions, point.state_rows) == (
            metrics[stage, "emitted"],
            metrics[stage, "state-rows"],
        )
        assert point.state_bytes == metrics[stage, "state-bytes"]
        assert point.seconds == {
            name.removeprefix("seconds."): value
            for (_, name), value in metrics.items()
            if name.startswith("seconds.")
        }
        assert point.quarantined == metrics.get((stage, "quarantined"), 0)


def test_rates_are_counts_by_time_between_commits(recent: Seeded) -> None:
    first, second, third = shown(recent).points
    assert first.emissions_per_second is None
    seconds = (third.at_ms - second.at_ms) / 1000
    assert third.emissions_per_second == pytest.approx(100 / seconds)


def test_span_leaves_out_older_batches(recent: Seeded) -> None:
    assert len(shown(recent, ChartRange.DAY).points) == 3
    recent.now += 3_600
    assert (shown(recent).points, len(shown(recent, ChartRange.DAY).points)) == ((), 3)


def test_page_shows_each_range_and_its_table(pages: TestClient) -> None:
    for span in ChartRange:
        page = pages.get(PAGE, params={"range": span.label}).text
        assert f'aria-current="true">last {span.label}' in page
        charts = re.findall(r'<svg [^>]*role="img" aria-label="[^"]+"', page)
        assert len(charts) == page.count("<svg") > 0
        assert "batch 3, " in page
        assert len(re.findall(r'<th scope="row">', page)) == 3


def test_range_of_another_name_is_refused(pages: TestClient) -> None:
    assert pages.get(PAGE, params={"range": "year"}).status_code == 422


def test_page_without_recent_batches_says_so(recent: Seeded, pages: TestClient) -> None:
    recent.add_sample("quiet_users")
    assert "No batch was committed in the last day" in pages.get("/pipelines/quiet_users/charts").text


def test_charts_describe_themselves_in_words(recent: Seeded) -> None:
    lag = plots_of(shown(recent))[0]
    assert lag.description.startswith("Lag, in offsets. lag: 120 at the end, 120 to 120.")
    assert all(": lag 120" in hit.text for hit in lag.hits)


def test_line_without_a_value_has_a_gap() -> None:
    moments = [Moment(place / 3, f"batch {place}") for place in range(4)]
    drawn = plot("Lag", moments, [Line("lag", "s1", [1, None, 2, 4])], Axis("", ""), number)
    assert drawn is not None
    assert drawn.paths[0][1].count("M") == 2
    assert [hit.text for hit in drawn.hits][1] == "batch 1: lag -"


def test_bars_stand_on_each_other_and_stay_apart() -> None:
    moments = [Moment(place, f"batch {place}") for place in (0.1, 0.11, 0.9)]
    lines = [Line("plan", "s1", [1, 1, 1]), Line("compute", "s2", [3, 3, 3])]
    drawn = plot("Seconds", moments, lines, Axis("", ""), number, bars=True)
    assert drawn is not None
    below, above = drawn.bars[0], drawn.bars[1]
    assert above.y + above.height == pytest.approx(below.y)
    assert drawn.bars[0].x + drawn.bars[0].width <= drawn.bars[2].x


def test_chart_without_values_is_left_out() -> None:
    assert plot("Lag", [Moment(0.5, "batch 1")], [Line("lag", "s1", [None])], Axis("", ""), number) is None
