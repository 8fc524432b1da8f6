"""The page of results: what it says follows from the saved rows, and from nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.measure import Usage
from benchmarks.programs import Run
from benchmarks.results import GROWTHS, is_met, load_rows, plots, render, save_rows, write_page
from benchmarks.svg import Axis, Point, Series, line_plot, short
from benchmarks.table import ENTRIES
from benchmarks.turns import Row, Turn, row_object

_SVG = "{http://www.w3.org/2000/svg}"


def _row(name: str, bound: float | None = None, ours: float = 2.0, theirs: float = 4.0) -> dict[str, Any]:
    """Three rounds, the second a second slower for both."""
    seconds = [
        (program, number, base + number % 2) for number in (0, 1, 2) for program, base in _bases(ours, theirs)
    ]
    turns = [Turn(program, number, Run(Usage(took, 1.0, 3 << 20, 1))) for program, number, took in seconds]
    row = Row(f"title of {name}", ("tidegate run", "peer"), tuple(turns))
    return {"name": name, "bound": bound, "machine": "2 cores", **row_object(row)}


def _bases(ours: float, theirs: float) -> list[tuple[str, float]]:
    return [("tidegate run", ours), ("peer", theirs)]


def _line(page: str, name: str) -> list[str]:
    (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_line_has_medians_spreads_ratio_and_memory() -> None:
    page = render([_row("3m")], [], "")
    assert _line(page, "3m") == [
        "`3m`",
        "title of 3m",
        "3",
        "tidegate run",
        "2.00 / 2.00 / 3.00",
        "peer",
        "4.00 / 4.00 / 5.00",
        "0.50 (0.50 to 0.60)",
        "",
        "",
        "3",
    ]


@pytest.mark.parametrize(("bound", "met"), [(0.5, True), (0.49, False), (None, None)])
def test_bound_applies_to_the_ratio_of_medians(bound: float | None, met: bool | None) -> None:
    row = _row("3m", bound)
    assert is_met(row) is met
    cells = {True: ["≤ 0.5", "yes"], False: ["≤ 0.49", "**no**"], None: ["", ""]}
    assert _line(render([row], [], ""), "3m")[8:10] == cells[met]


def test_missing_measurement_is_not_on_the_page() -> None:
    page = render([_row("3m")], [], "")
    assert [name for name in ENTRIES if f"`{name}`" in page] == ["3m"]
    assert "How cost grows" not in page


def test_page_names_machines_plots_and_peer_limits() -> None:
    page = render([_row("3m"), _row("10m")], ["plots/events.svg"], "## What a peer cannot do\n")
    assert page.count("2 cores") == 1
    assert "![plots/events.svg](plots/events.svg)" in page
    assert page.endswith("## What a peer cannot do\n")


def test_repeated_row_replaces_its_last_measurement(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    save_rows(path, [_row("3m"), _row("10m")])
    save_rows(path, [_row("3m", ours=1.0), _row("3m", ours=1.5)])
    medians = [(row["name"], row["results"]["tidegate run"]["seconds"]["median"]) for row in load_rows(path)]
    assert medians == [("3m", 1.0), ("3m", 1.5), ("10m", 2.0)]


def test_page_and_plots_name_each_other(tmp_path: Path) -> None:
    write_page([_row("1m"), _row("3m", ours=6.0)], tmp_path / "RESULTS.md")
    page = (tmp_path / "RESULTS.md").read_text()
    links = re.findall(r"!\[[^]]*\]\(([^)]*)\)", page)
    assert links == ["plots/events.svg"]
    assert (tmp_path / links[0]).exists()
    assert "What a peer cannot do at all" in page


def test_every_plotted_point_is_a_table_row() -> None:
    rows = {row for growth in GROWTHS.values() for line in growth.lines.values() for _, row, _ in line}
    assert rows <= ENTRIES.keys()


def test_points_go_from_left_to_right() -> None:
    for growth in GROWTHS.values():
        for line in growth.lines.values():
            xs = [x for x, _, _ in line]
            assert xs == sorted(set(xs))


def test_only_lines_of_two_points_are_drawn() -> None:
    assert plots([_row("1m")]) == {}
    assert list(plots([_row("1m"), _row("3m")])) == ["events"]


def test_plot_is_xml_with_marks_and_spreads() -> None:
    root = ElementTree.fromstring(plots([_row("1m"), _row("3m"), _row("10m")])["events"])
    assert root.tag == f"{_SVG}svg"
    assert len(root.findall(f"{_SVG}polyline")) == 2
    assert len(root.findall(f"{_SVG}circle")) == 6
    names = {text.text for text in root.findall(f"{_SVG}text")}
    assert {"tidegate run", "Kafka Streams", "1 M", "3 M", "10 M"} < names


def test_more_seconds_are_higher_more_events_right() -> None:
    line = Series("<a & b>", (Point(1, 1, 2, 3), Point(10, 3, 4, 5)))
    root = ElementTree.fromstring(line_plot("title", "x", "y", [line]))
    first, second = root.findall(f"{_SVG}circle")
    assert float(first.attrib["cx"]) < float(second.attrib["cx"])
    assert float(first.attrib["cy"]) > float(second.attrib["cy"])
    assert "<a & b>" in {text.text for text in root.findall(f"{_SVG}text")}


def test_an_axis_is_logarithmic() -> None:
    axis = Axis(1, 100, 0, 200)
    assert [axis.place(value) for value in (1, 10, 100)] == pytest.approx([0, 100, 200])
    assert axis.ticks() == [1, 2, 5, 10, 20, 50, 100]


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (32, "32"), (100_000, "100 k"), (3_000_000, "3 M"), (1e8, "100 M")]
)
def test_numbers_at_axes_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_saved_rows_are_json_that_programs_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    save_rows(path, [_row("3m", 0.5)])
    (row,) = json.loads(path.read_text())["rows"]
    assert row["results"]["peer"]["ratio_of_medians"] == 1.0
    assert len(row["turns"]) == 6
