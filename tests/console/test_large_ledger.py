"""Pages of a large ledger: their queries do not grow with it, and each page comes within a second."""

from __future__ import annotations

import re
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, event, update

from tests.console.pages import served, set_environment
from tests.console.shop import pages
from tests.postgres import PostgresServer
from tests.seeded import Seeded, emission, unusable
from tidegate.errors import QualityFailed
from tidegate.ledger import schema
from tidegate.ledger.report import STEPS
from tidegate.ledger.rows import in_stream
from tidegate.settings import DEFAULT_PAGE_WAIT

PIPELINES, BATCHES, LONGEST = 500, 100_000, 10_000
"""Pipelines and batches of the ledger, and the batches of the pipeline with the most."""
COUNTS = {"used": 99.0, "emitted": 2.0, "state-rows": 40.0}
METRICS = {
    **{("", name): 1.0 for name in ("read", "lag", "age_seconds", *(f"seconds.{step}" for step in STEPS))},
    **{
        ("availability", name): 1.0
        for name in ("used", "emitted", "quarantined", "state-rows", "state-bytes")
    },
}
SHOWS_LAG = re.compile(r"(/|/pipelines/\w+)(\?.*)?")
"""Pages that wait for Kafka, beside what they compute."""
LARGE = (
    "/?page=20",
    "/?only=failing",
    "/?q=shop_4",
    "/pipelines/shop_000",
    "/pipelines/shop_000/batches/2",
    "/pipelines/shop_001?before=5000",
    "/pipelines/shop_001/batches/9999",
    *(f"/pipelines/shop_001/charts?range={span}" for span in ("hour", "day", "week", "month")),
    "/pipelines/shop_001/emissions",
    "/pipelines/shop_001/generations",
    "/pipelines/shop_001/graph",
    "/pipelines/shop_002/keys?key=s1",
)
"""Pages of a large ledger that the routes alone do not show."""


def add_batches(seeded: Seeded, seqs: range) -> None:
    """Batches of a pipeline, each with emissions and a record in quarantine."""
    pipeline = seeded.add_sample("availability")
    for seq in seqs:
        odd = unusable(1000 * seq - 1, b"odd", seq=seq)
        seeded.batch(pipeline, seq, COUNTS, [odd], outbox=[emission("s<1>", seq), emission(f"s{seq}", 1)])


def named(text: str, name: str) -> str:
    """Return the pipeline file of `availability` with another name."""
    return text.replace("pipeline: availability", f"pipeline: {name}")


def add_pipelines(seeded: Seeded, numbers: range, batches: int = 1, longest: int = 0) -> None:
    """Pipelines with so many batches each, shop_001 with `longest`; the next batch of every tenth has
    failed.
    """
    for number in numbers:
        name = f"shop_{number:03d}"
        pipeline = seeded.add_sample("availability", name, partial(named, name=name))
        seeded.add_history(pipeline, max(batches, longest if number == 1 else 0), METRICS)
        if number % 10 == 0:
            seeded.fail(pipeline, batches + 1, "validate", QualityFailed("Too many nulls", "Correct them."))


def spread_commits(seeded: Seeded) -> None:
    """Let a pipeline have committed a batch every five minutes until now."""
    with seeded.app.ledger._engine.begin() as connection:
        for stream in seeded.app.ledger.streams():
            last = seeded.app.ledger.head(stream).seq
            at = time.time() - 300.0 * (last - schema.commits.c.seq)
            own = in_stream(schema.commits, stream)
            connection.execute(update(schema.commits).where(own).values(committed_at=at))


@contextmanager
def counted() -> Iterator[list[tuple[str, Any]]]:
    """Collect the statements that any engine executes, with their parameters."""
    statements: list[tuple[str, Any]] = []

    def note(*call: object) -> None:
        statements.append((str(call[2]), call[3]))

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


def test_pages_read_batches_by_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded = Seeded(tmp_path, now=time.time() - 40_000)
    set_environment(monkeypatch, seeded.environment)
    add_batches(seeded, range(1, 4))
    add_pipelines(seeded, range(3))
    with served() as client, counted() as statements:
        for path in pages():
            client.get(path)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        scans = {
            (step, text)
            for text, parameters in set(statements)
            for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters)
            if re.match(r"SCAN tidegate_(plans|attempts|commits|metrics|publications)", step)
        }
    assert statements
    assert scans == set()


OF_ONE_PIPELINE = ("", "/batches/2", "/graph", "/emissions", "/generations", "/actions")
"""The pages of a pipeline but for charts, which have all batches of their range, and keys, which have all
batches since the last compaction.
"""


def test_rows_of_pages_do_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded = Seeded(tmp_path, now=time.time() - 40_000)
    set_environment(monkeypatch, seeded.environment)
    add_pipelines(seeded, range(1, 3), batches=300, longest=900)
    with served() as client, closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        read = {
            page: [rows_of_page(client, connection, f"/pipelines/shop_{n:03d}{page}") for n in (2, 1)]
            for page in OF_ONE_PIPELINE
        }
    assert {page: rows for page, rows in read.items() if not 0 < rows[1] <= rows[0]} == {}


def rows_of_page(client: TestClient, connection: sqlite3.Connection, path: str) -> int:
    """Return the number of rows that a page reads from the ledger."""
    with counted() as statements:
        assert client.get(path).status_code == 200
    queries = [statement for statement in statements if statement[0].startswith("SELECT")]
    return sum(len(connection.execute(*query).fetchall()) for query in queries)


@pytest.fixture(params=["sqlite", "postgresql"])
def large(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestClient]:
    """The pages of a ledger with 500 pipelines and 100,000 batches, whose broker never answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        environment = {"TIDEGATE_KAFKA": f"127.0.0.1:{silent.getsockname()[1]}"}
        if request.param == "postgresql":
            postgres: PostgresServer = request.getfixturevalue("postgres")
            environment["TIDEGATE_LEDGER"] = postgres.new_database()
        seeded = Seeded(tmp_path, now=time.time() - 3_600, environment=environment)
        set_environment(monkeypatch, seeded.environment)
        add_batches(seeded, range(1, 11))
        add_pipelines(seeded, range(PIPELINES - 1), (BATCHES - LONGEST) // (PIPELINES - 2), LONGEST)
        spread_commits(seeded)
        with served() as client:
            yield client


@pytest.mark.long
def test_page_of_large_ledger_comes_within_a_second(large: TestClient) -> None:
    # a check waits for the broker, and says so; a page with the records of a key asks it for them
    paths = [path for path in (*pages(), *LARGE) if "/check" not in path and "records=" not in path]
    seconds = {path: took(large, path) for path in paths}
    for path, second in seconds.items():
        print(f"{second:6.3f} s of a processor: {path}")
    waits = {path: DEFAULT_PAGE_WAIT.total_seconds() if SHOWS_LAG.fullmatch(path) else 0.0 for path in paths}
    assert {path: second for path, second in seconds.items() if second + waits[path] > 1} == {}


def took(client: TestClient, path: str) -> float:
    """Return the median of a processor's seconds for a page, which other tests do not lengthen; the first
    opening reads the pipeline files.
    """
    answer = client.get(path)
    assert answer.status_code == 200, f"{path} is no page of this ledger: {answer.status_code}"
    times = []
    for _ in range(3):
        begin = time.process_time()
        client.get(path)
        times.append(time.process_time() - begin)
    return median(times)
