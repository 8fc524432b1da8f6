"""Pages of a large ledger: their queries do not grow with it, and each page comes within a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, event, update

from tests.console.pages import served, set_environment
from tests.console.shop import MORE, pages
from tests.postgres import PostgresServer
from tests.seeded import Seeded, emission, unusable
from tidegate.errors import QualityFailed
from tidegate.ledger import schema

PIPELINES, BATCHES = 500, 100_000
COUNTS = {"used": 99.0, "emitted": 2.0, "state-rows": 40.0}


def add_batches(seeded: Seeded, seqs: range) -> None:
    """Batches of a pipeline, each with emissions and a record in quarantine."""
    pipeline = seeded.add_sample("availability")
    for seq in seqs:
        odd = unusable(1000 * seq - 1, b"odd", seq=seq)
        seeded.batch(pipeline, seq, COUNTS, [odd], outbox=[emission("s<1>", seq), emission(f"s{seq}", 1)])


def named(text: str, name: str) -> str:
    """Return the pipeline file of `availability` with another name."""
    return text.replace("pipeline: availability", f"pipeline: {name}")


def add_pipelines(seeded: Seeded, numbers: range, batches: int = 1) -> None:
    """Pipelines with so many batches each; the next batch of every tenth has failed."""
    for number in numbers:
        name = f"shop_{number:03d}"
        pipeline = seeded.add_sample("availability", name, partial(named, name=name))
        seeded.add_history(pipeline, batches)
        if number % 10 == 0:
            seeded.fail(pipeline, batches + 1, "validate", QualityFailed("Too many nulls", "Correct them."))


@contextmanager
def counted() -> Iterator[list[str]]:
    """Collect the statements that any engine executes."""
    statements: list[str] = []

    def note(*call: object) -> None:
        statements.append(str(call[2]))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def queries(client: TestClient, path: str) -> int:
    """Return the number of statements of a page that is opened a second time."""
    client.get(path)
    with counted() as statements:
        client.get(path)
    return len(statements)


def test_queries_of_pages_do_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded = Seeded(tmp_path, now=time.time() - 40_000)
    set_environment(monkeypatch, seeded.environment)
    add_batches(seeded, range(1, 4))
    add_pipelines(seeded, range(2))
    with served() as client:
        before = {path: queries(client, path) for path in pages()}
        add_batches(seeded, range(4, 12))
        add_pipelines(seeded, range(2, 13))
        after = {path: queries(client, path) for path in pages()}
    assert all(before.values())
    assert {path: (before[path], after[path]) for path in after if after[path] > before[path]} == {}


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_page_of_large_ledger_comes_within_a_second(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    environment = {}
    if database == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        environment["TIDEGATE_LEDGER"] = postgres.new_database()
    seeded = Seeded(tmp_path, now=time.time() - 3_600, environment=environment)
    set_environment(monkeypatch, seeded.environment)
    add_batches(seeded, range(1, 11))
    add_pipelines(seeded, range(PIPELINES - 1), BATCHES // PIPELINES)
    with seeded.app.ledger._engine.begin() as connection:  # a commit every five minutes until now
        at = time.time() - 300.0 * (BATCHES // PIPELINES - schema.commits.c.seq)
        connection.execute(update(schema.commits).values(committed_at=at))
    with served() as client:
        seconds = {path: took(client, path) for path in [*pages(), "/pipelines/shop_007", *MORE]}
    for path, second in seconds.items():
        print(f"{database} {second:6.3f} s {path}")
    assert {path: second for path, second in seconds.items() if second > 1} == {}


def took(client: TestClient, path: str) -> float:
    """Return the median of the server's seconds for a page; the first opening reads the pipeline files."""
    client.get(path)
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        client.get(path)
        times.append(time.perf_counter() - begin)
    return median(times)
