"""Data Docs that cost what is added to them."""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path
from time import perf_counter

import pytest

from tests.quality.suite_for_tests import place_of
from tidegate.quality.site import PageName, publish_page, read_page
from tidegate.quality.suite import Severity
from tidegate.quality.verdict import ExpectationResult, Verdict

DAY = date(2026, 1, 31)
FAILED = ExpectationResult(1, "expect_column_to_exist", ("n",), Severity.CRITICAL, False)


def publish(folder: Path, seq: int, day: date = DAY, *results: ExpectationResult) -> str:
    return publish_page(place_of(folder, seq, day=day), "a.b", Verdict("a.b", results), f"page of {seq}")


def links(folder: Path, path: str) -> list[str]:
    return re.findall(r'<td><a href="(.*?)">', (folder / "docs" / path).read_text())


def test_indexes_lead_to_each_page_the_newest_first(tmp_path: Path) -> None:
    publish(tmp_path, 9)
    publish(tmp_path, 10, DAY, FAILED)
    publish(tmp_path, 11, DAY + timedelta(days=1))
    assert links(tmp_path, "index.html") == ["levels/g1/index.html"]
    assert links(tmp_path, "levels/g1/index.html") == ["2026-02-01/index.html", "2026-01-31/index.html"]
    assert links(tmp_path, "levels/g1/2026-01-31/index.html") == [
        "000000010.1.a.b.1.stopped.html",
        "000000009.1.a.b.1.passed.html",
    ]


def test_page_is_written_once_beside_earlier_ones(tmp_path: Path) -> None:
    first = tmp_path / "docs" / publish(tmp_path, 1)
    written = first.stat().st_mtime_ns
    for seq in range(2, 9):
        publish(tmp_path, seq)
    assert (first.stat().st_mtime_ns, first.read_text()) == (written, "page of 1")


@pytest.mark.heavy
def test_cost_of_a_page_is_constant(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "levels" / "g1"
    for day in range(347):
        made = folder / (DAY - timedelta(days=day + 1)).isoformat()
        made.mkdir(parents=True)
        (made / "index.html").touch()
        first = made / "page"
        first.touch()
        for number in range(288):
            (made / f"{PageName(day * 288 + number, 1, 'a', 1, 'passed')}.html").hardlink_to(first)
    began = perf_counter()
    publish(tmp_path, 100_001)
    assert perf_counter() - began < 1
    assert len(links(tmp_path, "levels/g1/index.html")) == 348


def test_oldest_days_are_removed_for_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.quality.site.MOST_DAYS", 2)
    for number in range(4):
        publish(tmp_path, number + 1, DAY + timedelta(days=number))
    assert links(tmp_path, "levels/g1/index.html") == ["2026-02-03/index.html", "2026-02-02/index.html"]
    days = sorted(path.name for path in (tmp_path / "docs" / "levels" / "g1").iterdir() if path.is_dir())
    assert days == ["2026-02-02", "2026-02-03"]


def test_a_page_can_be_read_by_its_path(tmp_path: Path) -> None:
    path = publish(tmp_path, 1)
    assert read_page(str(tmp_path / "docs"), path) == b"page of 1"
    assert read_page(str(tmp_path / "docs"), "static/style.css")


@pytest.mark.parametrize(
    "path",
    [
        *("../secret.html", "levels/g1/../../../secret.html", "levels/g1/..%2fsecret.html", "/etc/passwd"),
        *(
            "levels/g1/2026-01-31/../index.html",
            "static/../levels/g1/index.html",
            "levels/g1/.hidden.html",
            "",
        ),
        *("levels/g1/index.html\n", "levels/g1/2026-01-31//index.html", "levels\\g1\\index.html"),
    ],
)
def test_no_path_leads_out_of_them(tmp_path: Path, path: str) -> None:
    publish(tmp_path, 1)
    (tmp_path / "secret.html").write_text("secret")
    assert read_page(str(tmp_path / "docs"), path) is None


@pytest.mark.parametrize(
    "name", [PageName(7, 1, "a.b.1", 2, "passed"), PageName(10**9, 12, "x", 1, "stopped")]
)
def test_a_name_says_what_the_page_is(name: PageName) -> None:
    assert PageName.parse(str(name)) == name


def test_other_files_are_no_pages() -> None:
    assert [PageName.parse(stem) for stem in ("index", "", "a.b.c.d.e", "1.2.a.b.passed")] == [None] * 4
