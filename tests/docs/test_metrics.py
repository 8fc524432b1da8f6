"""Metrics: what docs/monitoring.md lists is what there is, and the Grafana dashboard shows all of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "monitoring.md").read_text()
SECTION = PAGE.partition("## Metrics\n")[2].partition("\n## ")[0]
DASHBOARD = json.loads((REPOSITORY / "docs" / "grafana-dashboard.json").read_text())
DOCUMENTED = {
    name
    for cell in re.findall(r"^\| (`.*?) \|", SECTION, flags=re.MULTILINE)
    for name in re.findall(r"`(.+?)`", cell)
}
MADE = ("seconds.", "-avg", "-max", "-min")
"""Beginning and ends of names that are put together: `seconds.<step>`, `<count>-avg`."""


def prometheus_name(metric: str) -> str:
    """Return a metric's name as statsd_exporter and OpenTelemetry's exporter write it, with Airflow's
    prefix.
    """
    return (
        "airflow_tidegate_"
        + re.sub(r"[^a-zA-Z0-9_]", "_", metric.replace("<reason>", ""))
        + (".+" if "<reason>" in metric else "")
    )


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def test_dashboard_shows_exactly_the_page_metrics() -> None:
    written = "\n".join(text for panel in DASHBOARD["panels"] for text in expressions(panel))
    shown = set(re.findall(r"airflow_tidegate_[a-z0-9_]+(?:\.\+)?", written))
    assert shown == {prometheus_name(metric) for metric in DOCUMENTED}
    assert len(shown) > 40


def test_dashboard_panels_differ_and_filter_by_pipeline() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    assert all('pipeline=~"$pipeline"' in text for panel in panels for text in expressions(panel))
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)


@pytest.mark.parametrize("metric", sorted(DOCUMENTED))
def test_every_metric_of_the_page_is_counted_somewhere(metric: str) -> None:
    name = metric.replace("<reason>", "")
    for part in MADE:
        name = name.removesuffix(part) if part.startswith("-") else name.removeprefix(part)
    sources = [*(REPOSITORY / "include" / "tidegate").rglob("*.py")]
    sources += (REPOSITORY / "plugins" / "tidegate_airflow").glob("*.py")
    assert any(re.search(rf'"{re.escape(name)}[".]', path.read_text()) for path in sources)
