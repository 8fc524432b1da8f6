"""A batch gives the same in every kind of session, and a password of Kafka's is nowhere to be seen.

One module, since what ran in each kind of session is made once for a process of the test run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tidegate
from tests.secured import CANARY
from tests.sessions.conftest import HOSTS, Ran
from tests.sessions.program import PLANTED
from tests.sessions.whole_batch import STAGES

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.long]

ON_A_CLUSTER = ("on_cluster", "connect_on_cluster", "submitted")
"""A driver's own session, a server's, and one by spark-submit for each batch."""
OTHER_KINDS = ("connect", *ON_A_CLUSTER)


def test_compared_batches_cover_every_feature(local: Ran) -> None:
    results = local.results
    changes, closings = (results["published"][f"{name}-world"] for name in ("availability", "closings"))
    assert {partition for partition, *_ in changes} == {0, 1}
    assert len(changes) == 71
    assert len(closings) == 4  # of two regions and two windows each
    before, after = results["state after the first"], results["state"]
    assert [len(state[stage]) for state in (before, after) for stage in STAGES] == [19, 2, 20, 0]
    reasons = Counter(row["reason"].partition(":")[0] for row in results["quarantine"])
    assert reasons == {"malformed": 2, "null_key_column": 30}
    assert [counts["read"] for counts in results["counts"]] == [123, 12]


@pytest.mark.parametrize("kind", OTHER_KINDS)
@pytest.mark.parametrize(
    "what", ["published", "state", "state after the first", "quarantine", "counts", "head"]
)
def test_server_session_equals_a_drivers_own(
    request: pytest.FixtureRequest, local: Ran, kind: str, what: str
) -> None:
    ran: Ran = request.getfixturevalue(kind)
    assert ran.results[what] == local.results[what]


def test_cases_and_simulations_equal_in_server_session(local: Ran, connect: Ran) -> None:
    assert [code for code, _ in local.results["commands"]] == [0, 0]
    assert connect.results["commands"] == local.results["commands"]


@pytest.mark.parametrize("kind", ON_A_CLUSTER)
def test_cluster_workers_compute_without_a_jar(request: pytest.FixtureRequest, kind: str) -> None:
    ran: Ran = request.getfixturevalue(kind)
    assert _hosts(ran.events) == set(HOSTS)
    jars = [
        value
        for event in ran.events
        if event["Event"] == "SparkListenerEnvironmentUpdate"
        for name, value in event["Spark Properties"].items()
        if "jars" in name and value
    ]
    assert not jars


@pytest.mark.parametrize("kind", ["on_cluster", "connect_on_cluster"])
def test_cluster_workers_use_tidegate_from_its_wheel(request: pytest.FixtureRequest, kind: str) -> None:
    ran: Ran = request.getfixturevalue(kind)
    (place,) = ran.results["ran in"]
    assert Path(place).is_relative_to(ran.folder / "python")
    assert not Path(place).is_relative_to(Path(tidegate.__file__).parent)


def _hosts(events: list[dict[str, Any]]) -> set[str]:
    """The addresses at which tasks succeeded, by Spark's event log."""
    ended = [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
    return {event["Task Info"]["Host"] for event in ended if event["Task End Reason"]["Reason"] == "Success"}


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
    "results": lambda folder: _files(folder, "results.json"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "kind",
    ["local", "connect", "on_cluster"],
)
def test_kafka_password_appears_nowhere(request: pytest.FixtureRequest, kind: str, place: str) -> None:
    ran: Ran = request.getfixturevalue(kind)
    texts = list(PLACES[place](ran.folder))
    assert [text for text in texts if PLANTED in text]
    assert not [text for text in texts if CANARY in text]


def test_the_logs_of_both_workers_are_looked_through(on_cluster: Ran) -> None:
    for host in ("127.0.0.2", "127.0.0.3"):
        assert any(
            PLANTED in text or "Finished task" in text
            for text in _files(on_cluster.folder, f"work-{host}/**/std*")
        )
