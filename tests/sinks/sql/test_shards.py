"""Tasks load the shards of a batch into tables of their own, and one transaction moves all rows."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine

from tests.batch.committed import Committed
from tests.sinks.sql.conftest import new_database
from tests.sinks.sql.sink import MemoryOutbox, Sink, emission, send_pickled
from tidegate.cli import cli
from tidegate.errors import SinkUnavailable, TidegateError
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.kafka.shard import SendTask, send_here
from tidegate.ledger import Stream
from tidegate.sinks.port import shard_name

MODES = ["append", "upsert", "insert_ignore", "history"]
AFTER_COMMIT = "sql.commit=lose@5"
FAULTS = (
    "sql.prepare=lose",
    "sql.drop=raise",
    "sql.drop=lose",
    *(f"sql.load={action}@{hit}" for action in ("raise", "lose") for hit in (1, 2)),
    # the commits of the table, of what is dropped, of two tasks, and of the batch
    *(f"sql.commit={action}@{hit}" for action in ("raise", "lose") for hit in (2, 3, 4)),
    "sql.advance=lose",
    *(f"sql.move={action}@{hit}" for action in ("raise", "lose") for hit in (1, 2)),
    "sql.drop=raise@2",
    "sql.drop=lose@2",
    "sql.count=lose",
    "sql.commit=raise@5",
    AFTER_COMMIT,
)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_database("postgresql, in shards", request, tmp_path)


def publish(sink: Sink, send: Any, *emissions: Any) -> int:
    """Publish the second batch in two shards, which `send` sends."""
    with sink.database() as database:
        outbox: Any = MemoryOutbox(2, "first", sink.value, tuple(enumerate(emissions)))
        return sink.publisher(database).publish_in_shards(outbox, 2, send, 1)


def tables(url: str) -> list[str]:
    """The tables of shards."""
    query = "SELECT relname FROM pg_class WHERE relname LIKE 'tidegate_rows%' AND relkind = 'r'"
    return sorted(row["relname"] for row in Sink(url).query(query))


@pytest.mark.sample(6)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
def test_killed_publisher_in_shards_leaves_all_or_nothing(
    url: str, mode: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(url, mode=mode)
    sink.publish(1, [emission("a", 1), emission("b", 1)])
    before = sink.values()
    batch = [emission("a", 2), emission("b", None), emission("c", 1), emission("c", 2)]
    fired = tmp_path / "fired"
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", fault)
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(fired))
    with pytest.raises((FailpointRaised, ReplyLost, TidegateError)):
        sink.publish(2, batch, 1)
    assert fired.read_text().split() == [fault]
    committed = fault == AFTER_COMMIT
    assert (sink.values() == before) is not committed
    assert sink.publish(2, batch, 1) == (0 if committed else 4)
    expected = [("a", 1), ("b", 1), ("a", 2), ("b", None), ("c", 1), ("c", 2)]
    per_key = {"upsert": [("a", 2), ("c", 2)], "insert_ignore": [("a", 1), ("b", 1), ("c", 1)]}
    assert sink.values() == per_key.get(mode, expected)
    assert tables(url) == []


def test_readers_see_nothing_before_all_is_loaded(url: str) -> None:
    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])

    def send(tasks: Sequence[SendTask]) -> list[int]:
        loaded = send_pickled(tasks)
        assert sink.values() == [("a", 1)]
        assert len(tables(url)) == 2
        return loaded

    assert publish(sink, send, emission("a", 2), emission("b", 2)) == 2
    assert sink.values() == [("a", 1), ("a", 2), ("b", 2)]


@pytest.mark.parametrize("mode", MODES)
def test_repeated_task_loads_its_shard_once(url: str, mode: str) -> None:
    sink = Sink(url, mode=mode)
    sink.publish(1, [emission("a", 1)])

    def twice(tasks: Sequence[SendTask]) -> list[int]:
        send_pickled(tasks)
        return send_pickled(tasks)

    assert publish(sink, twice, emission("a", 2), emission("b", 2)) == 2
    per_key = {"upsert": [("a", 2), ("b", 2)], "insert_ignore": [("a", 1), ("b", 2)]}
    assert sink.values() == per_key.get(mode, [("a", 1), ("a", 2), ("b", 2)])


def test_two_copies_of_a_task_load_once(url: str) -> None:
    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])

    def at_once(tasks: Sequence[SendTask]) -> list[int]:
        """Send each shard twice at the same time, as Spark's speculation does."""
        with ThreadPoolExecutor() as pool:
            copies = [[*pool.map(send_pickled, [[task], [task]])] for task in tasks]
        assert copies == [[[1], [1]], [[1], [1]]]
        return [1, 1]

    assert publish(sink, at_once, emission("a", 2), emission("b", 2)) == 2
    assert sink.values() == [("a", 1), ("a", 2), ("b", 2)]


def test_task_of_an_earlier_try_changes_nothing(url: str) -> None:
    sink, earlier = Sink(url), list[SendTask]()
    sink.publish(1, [emission("a", 1)])

    def die(tasks: Sequence[SendTask]) -> list[int]:
        earlier.extend(tasks)
        raise SinkUnavailable("It dies", "Run again.")

    def send(tasks: Sequence[SendTask]) -> list[int]:
        loaded = send_here(tasks)
        send_here(earlier)
        return loaded

    rows = [emission("a", 2), emission("b", 2)]
    with pytest.raises(SinkUnavailable):
        publish(sink, die, *rows)
    assert publish(sink, send, *rows) == 2
    assert sink.values() == [("a", 1), ("a", 2), ("b", 2)]
    assert tables(url) == []


def test_tables_of_a_dead_publisher_are_dropped(url: str) -> None:
    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])

    def die(tasks: Sequence[SendTask]) -> list[int]:
        send_pickled(tasks)
        raise SinkUnavailable("It dies", "Run again.")

    with pytest.raises(SinkUnavailable):
        publish(sink, die, emission("a", 2), emission("b", 2))
    other = Sink(url, shard="tidegate-others-g1-sql:visitor_batches", stream="others/1")
    other.publish(1, [emission("c", 3)])
    assert len(tables(url)) == 2
    sink.publish(2, [emission("a", 2), emission("b", 2)], 1)
    assert tables(url) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("loss", ["TRUNCATE", "DROP TABLE"])
@pytest.mark.parametrize("mode", MODES)
def test_lost_rows_are_loaded_again(url: str, mode: str, loss: str) -> None:
    """A server that crashes empties tables without a write-ahead log, and another publisher drops them."""
    sink = Sink(url, mode=mode)
    sink.publish(1, [emission("a", 1)])

    def crash(tasks: Sequence[SendTask]) -> list[int]:
        loaded = send_pickled(tasks)
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"{loss} {tables(url)[0]}")
        engine.dispose()
        return loaded

    rows = [emission("a", 2), emission("b", 2)]
    with pytest.raises(SinkUnavailable, match="has lost rows"):
        publish(sink, crash, *rows)
    assert sink.values() == [("a", 1)]
    assert publish(sink, send_pickled, *rows) == 2


def test_giving_up_drops_the_tables_of_shards(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.sinks.outbox.SHARD_EMISSIONS", 1)
    batches = Committed(tmp_path, "  - {kind: sql, table: visitors}", sql=postgres_url)
    batches.outbox_files = 2
    batches.commit(1, {"first": [], "second": [("1", 1), ("2", 2), ("3", 3)]})
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "sql.move=raise@2")
    with pytest.raises(FailpointRaised):
        batches.publish(1)
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    assert len(tables(postgres_url)) == 2
    batches.lease.release()
    arguments = ["recover", "visitors", "--choose", "give-up", "--yes"]
    done = CliRunner().invoke(cli, arguments, env=batches.environment)
    assert done.exit_code == 0, done.output
    assert tables(postgres_url) == []


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_erasure_drops_tables_of_every_generation(postgres_url: str, tmp_path: Path, mode: str) -> None:
    """A generation that was dropped has left tables with rows of the key, which no publisher drops."""
    sinks = f"  - {{kind: sql, table: visitors, mode: {mode}}}"
    batches = Committed(tmp_path, sinks, sql=postgres_url)
    batches.commit(1, {"first": [], "second": [("a", 1), ("b", 2)]})
    batches.lease.release()
    batches.publish(1)

    def die(tasks: Sequence[SendTask]) -> list[int]:
        send_pickled(tasks)
        raise SinkUnavailable("It dies", "Run again.")

    for name in ("visitors", "others"):
        shard = shard_name(Stream(name, 2), "sql:visitors")
        left = Sink(postgres_url, table="tried", shard=shard, stream=f"{name}/2")
        left.publish(1, [])
        with pytest.raises(SinkUnavailable):
            publish(left, die, emission("a", 2), emission("b", 2))
    assert len(tables(postgres_url)) == 4
    done = CliRunner().invoke(cli, ["erase", "visitors", "--key", "a", "--yes"], env=batches.environment)
    assert done.exit_code == 0, done.output
    assert batches.query("SELECT DISTINCT key FROM visitors") == [("b",)]
    assert len(tables(postgres_url)) == 2, "those of another pipeline stay"


def test_schema_of_the_table_gets_its_shards(url: str) -> None:
    sink = Sink(url, table="Reports.visitors")
    sink.query('CREATE SCHEMA "Reports"')

    def die(tasks: Sequence[SendTask]) -> list[int]:
        send_pickled(tasks)
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'Reports'"
        assert len(sink.query(query)) == 3
        raise SinkUnavailable("It dies", "Run again.")

    sink.publish(1, [emission("a", 1)])
    with pytest.raises(SinkUnavailable):
        publish(sink, die, emission("a", 2), emission("b", 2))
    assert publish(sink, send_pickled, emission("a", 2), emission("b", 2)) == 2
    assert tables(url) == []


def test_user_without_the_right_publishes_alone(url: str) -> None:
    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE writer LOGIN PASSWORD 'secret'")
        connection.exec_driver_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.exec_driver_sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO writer")
    engine.dispose()
    as_writer = engine.url.set(username="writer", password="secret").render_as_string(hide_password=False)

    def send(tasks: Sequence[SendTask]) -> list[int]:
        raise AssertionError("no task may be needed")

    assert publish(Sink(as_writer), send, emission("b", 2)) == 1
    assert sink.values() == [("a", 1), ("b", 2)]


TEXTS = ["", '"', '""', "a,b", "\\.", "a\n\\.\nb", "\\N", "NULL", "\t\r\n", "'", "\\x00", "Zoë €", " x "]


@pytest.mark.parametrize("way", ["postgresql, staged", "postgresql, in shards"])
def test_any_text_is_copied_as_it_is(way: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    value = pa.struct([("n", pa.string()), ("m", pa.string())])
    sink = Sink(new_database(way, request, tmp_path), value=value)
    rows = [emission(text, {"n": text, "m": None}) for text in TEXTS]
    sink.publish(1, [*rows, emission("last", {"n": None, "m": ""})])
    stored = [(row["key"], row["n"], row["m"]) for row in sink.rows()]
    assert stored == [*((text, text, None) for text in TEXTS), ("last", None, "")]


def test_task_shows_no_password(url: str) -> None:
    shown: list[str] = []

    def send(tasks: Sequence[SendTask]) -> list[int]:
        shown.append(repr(tasks) + repr(pickle.loads(pickle.dumps(tasks))))
        return send_pickled(tasks)

    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])
    publish(sink, send, emission("a", 2))
    assert "hunter2" in url
    assert "hunter2" not in shown[0]
