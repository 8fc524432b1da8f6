"""The condition of a stream on the pages: problems first, with cause, remedy and log."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.console.pages import served, set_environment, visible_text
from tests.seeded import Seeded
from tidegate.errors import QualityFailed


@pytest.fixture
def seeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seeded:
    made = Seeded(tmp_path)
    set_environment(monkeypatch, made.environment)
    for name in ("availability", "rate_limited"):
        made.day(made.add_sample(name), 1)
    return made


@pytest.fixture
def client(seeded: Seeded) -> Iterator[TestClient]:
    with served() as client:
        yield client


def names(page: str) -> list[str]:
    """The pipelines of the list, in its order."""
    return re.findall(r"<td><a href=\"/pipelines/([a-z_]+)\">", page)


def test_pipeline_with_problem_is_listed_first(seeded: Seeded, client: TestClient) -> None:
    pipeline = seeded.app.pipeline("rate_limited")
    seeded.fail(pipeline, 2, "validate", QualityFailed("Prices are negative", "Correct the data."))
    page = client.get("/").text
    assert names(page) == ["rate_limited", "availability"]
    # the message can quote records, so that the list has the class of the error only
    assert "halted QualityFailed" in visible_text(page)


def test_cause_comes_with_what_to_do(seeded: Seeded, client: TestClient) -> None:
    pipeline = seeded.app.pipeline("rate_limited")
    seeded.fail(pipeline, 2, "validate", QualityFailed("Prices are negative", "Correct the data."))
    text = visible_text(client.get("/pipelines/rate_limited").text)
    assert (
        "QualityFailed: Prices are negative What to do: Correct the data. Batch 2 · What can be done" in text
    )
    assert text.index("Why it is halted") < text.index("last batch")


def test_pipeline_without_file_is_listed_apart(seeded: Seeded, client: TestClient) -> None:
    (seeded.home / "pipelines" / "rate_limited.yaml").unlink()
    page = client.get("/").text
    assert names(page) == ["availability"]
    apart = page.partition("Without a pipeline file")[2]
    assert "rate_limited" in apart
    assert "tidegate recover PIPELINE --choose forget" in apart
    assert names(client.get("/?only=no-file").text) == ["rate_limited"]


@pytest.mark.parametrize("path", ["/", "/pipelines/availability"])
def test_page_refreshes_only_while_a_run_works(seeded: Seeded, client: TestClient, path: str) -> None:
    seeded.now = time.time()
    assert "data-refresh" not in client.get(path).text.partition("<body")[2]
    lease = seeded.lease(seeded.app.pipeline("availability"))
    assert "data-refresh" in client.get(path).text.partition("<body")[2]
    lease.release()
    assert "data-refresh" not in client.get(path).text.partition("<body")[2]


def test_stray_copies_and_links_trouble_no_stream(seeded: Seeded, client: TestClient) -> None:
    folder = seeded.home / "pipelines"
    (folder / "a copy.yaml").write_text((folder / "availability.yaml").read_text())
    (folder / "nothing.yaml").symlink_to("nowhere.yaml")
    text = visible_text(client.get("/").text)
    assert "invalid file a copy.yaml, line 1: the name of the file" in text
    assert "invalid file nothing.yaml, line 1: cannot be read" in text
    assert "halted" not in visible_text(client.get("/pipelines/availability").text)
    assert "Rename it" in client.get("/pipelines/a_copy_invalid").text


def test_mistaken_defaults_halt_every_pipeline(seeded: Seeded, client: TestClient) -> None:
    (seeded.home / "pipelines" / "defaults.yaml").write_text("airflow: {retries: many}")
    text = visible_text(client.get("/").text)
    assert text.count("halted defaults.yaml, line 1: it has to be a whole number") == 2
    page = visible_text(client.get("/pipelines/availability").text)
    assert "defaults.yaml has mistakes" in page
    assert "halted" in page
