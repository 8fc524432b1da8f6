"""A password among Kafka's settings is nowhere to be seen, in whichever session a batch runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.secured import CANARY
from tests.sessions.conftest import Ran
from tests.sessions.program import PLANTED

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def _files(folder: Path, *patterns: str) -> Iterator[str]:
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            if path.is_file():
                yield path.read_bytes().decode(errors="replace")


def _lake(folder: Path) -> Iterator[str]:
    """Its files as they are, and the rows of those that are compressed."""
    yield from _files(folder, "world/lake/**/*")
    for path in sorted(folder.glob("world/lake/**/*.parquet")):
        yield repr(pq.read_table(path, partitioning=None).to_pylist())


PLACES: dict[str, Callable[[Path], Iterable[str]]] = {
    "event log": lambda folder: _files(folder, "events/**/*"),
    "pages": lambda folder: _files(folder, "pages/page-*"),
    "answers": lambda folder: _files(folder, "pages/answer-*"),
    "plans": lambda folder: _files(folder, "explained.txt"),
    "driver's log": lambda folder: _files(folder, "driver.log", "logs/spark.log"),
    "all logs": lambda folder: _files(folder, "*.log", "logs/*.log", "work-*/**/std*"),
    "ledger": lambda folder: _files(folder, "world/ledger.db*"),
    "lake": _lake,
    "errors": lambda folder: _files(folder, "errors.txt"),
    "what is told": lambda folder: _files(folder, "told.json"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "kind",
    [pytest.param("local"), pytest.param("connect"), pytest.param("on_cluster", marks=pytest.mark.long)],
)
def test_a_password_of_kafka_is_nowhere_where_a_planted_word_is(
    request: pytest.FixtureRequest, kind: str, place: str
) -> None:
    ran: Ran = request.getfixturevalue(kind)
    texts = list(PLACES[place](ran.folder))
    assert [text for text in texts if PLANTED in text]
    assert not [text for text in texts if CANARY in text]


@pytest.mark.long
def test_the_logs_of_both_workers_are_looked_through(on_cluster: Ran) -> None:
    for host in ("127.0.0.2", "127.0.0.3"):
        assert any(
            PLANTED in text or "Finished task" in text
            for text in _files(on_cluster.folder, f"work-{host}/**/std*")
        )
