"""Data Docs in a bucket, which workers write and the web server reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.quality.suite_for_tests import NEGATIVE, audit_of, place_of
from tests.storage.s3_server import BUCKET, S3Server, s3_of_this_process
from tidegate.errors import LakeUnavailable
from tidegate.quality import site
from tidegate.quality.gate import check
from tidegate.quality.site import publish_page, read_page
from tidegate.quality.verdict import Verdict

ROOT = f"s3://{BUCKET}/data docs"
DAY = date(2026, 1, 31)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_of_this_process(tmp_path / "s3", monkeypatch, attempts=2) as running:
        yield running


def text(path: str) -> str:
    content = read_page(ROOT, path)
    assert content is not None, path
    return content.decode()


def test_check_leaves_page_results_and_indexes_in_bucket(server: S3Server, tmp_path: Path) -> None:
    verdict = check(audit_of(tmp_path, NEGATIVE, place=replace(place_of(tmp_path), root=ROOT)))
    assert verdict.page == "levels/g1/2026-01-31/000000007.1.quantities.1.stopped.html"
    assert "-2" in text(verdict.page)
    assert '"outcome": "stopped"' in text(verdict.page.replace(".html", ".json"))
    assert "000000007.1.quantities.1.stopped.html" in text("levels/g1/2026-01-31/index.html")
    assert "2026-01-31/index.html" in text("levels/g1/index.html")
    assert text("static/style.css")
    assert read_page(ROOT, "levels/g1/2026-01-31/000000008.1.quantities.1.passed.html") is None


def test_the_oldest_days_go_there_too(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "MOST_DAYS", 2)
    pages = []
    for number in range(3):
        place = place_of(tmp_path, number + 1, day=DAY + timedelta(days=number))
        pages.append(publish_page(replace(place, root=ROOT), "s", Verdict("s"), f"page {number}"))
    assert [read_page(ROOT, page) for page in pages] == [None, b"page 1", b"page 2"]
    assert "2026-01-31" not in text("levels/g1/index.html")


def test_unanswering_bucket_is_transient(server: S3Server, tmp_path: Path) -> None:
    server.fault("fail", "PUT", ".html", times=100)
    with pytest.raises(LakeUnavailable):
        publish_page(replace(place_of(tmp_path), root=ROOT), "s", Verdict("s"), "page")
