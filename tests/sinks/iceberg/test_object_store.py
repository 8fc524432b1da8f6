"""An Iceberg sink whose tables are in an object store, by the properties of its connection alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.generations.two_generations import NEW, OLD, Beside
from tests.sinks.iceberg.lakehouse import APPEND, UPSERT, Lakehouse
from tests.sinks.iceberg.test_erase import KEY, erase_key, shown_in
from tests.storage.s3_server import BUCKET, S3Server, s3_server
from tidegate import failpoints
from tidegate.batch import check_progress, validate_batch
from tidegate.errors import SinkRefused, SinkUnavailable, TidegateError

pytestmark = pytest.mark.process
REPOSITORY = Path(__file__).parents[3]
Rows = list[tuple[str, int | None, int]]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that the environment says nothing of."""
    with s3_server(tmp_path / "s3") as running:
        for name in running.environment():
            monkeypatch.delenv(name, raising=False)
        yield running


def properties_for(server: S3Server, folder: Path, **overrides: str) -> dict[str, str]:
    """Return the properties of a catalog whose warehouse is on the server."""
    login = {"s3.access-key-id": "someone", "s3.secret-access-key": "canary-secret"}
    place = {"s3.endpoint": server.url, "s3.region": "eu-north-1"}
    catalog = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"s3://{BUCKET}/tables"}
    return {**catalog, **place, **login, **overrides}


class StoredLakehouse(Lakehouse):
    """A stream whose table is on the server."""

    def __init__(self, server: S3Server, folder: Path, sinks: str = APPEND, **overrides: str) -> None:
        folder.mkdir(exist_ok=True)
        self.read_by = properties_for(server, folder, **overrides)
        super().__init__(folder, sinks, properties=json.dumps(self.read_by))

    @property
    def catalog(self) -> SqlCatalog:
        return SqlCatalog("default", **self.read_by)

    def rows(self) -> Rows:
        """Return key, value and batch of each row, as PyIceberg reads them."""
        read = self.table.scan().to_arrow().to_pylist()
        return sorted(((row["key"], row["n"], row["seq"]) for row in read), key=str)


def objects(server: S3Server) -> list[Path]:
    return [file for file in (server.folder / BUCKET / "tables").rglob("*") if file.is_file()]


@pytest.mark.parametrize(
    ("sinks", "expected"),
    [(APPEND, [("a", 1, 1), ("a", 2, 2), ("b", 1, 1), ("b", None, 2)]), (UPSERT, [("a", 2, 2)])],
)
@pytest.mark.sample(1)
def test_object_store_gets_each_batch_once(
    server: S3Server, tmp_path: Path, sinks: str, expected: Rows
) -> None:
    stream = StoredLakehouse(server, tmp_path / "home", sinks)
    stream.decide(1, ("a", 1), ("b", 1))
    stream.decide(2, ("a", 2), ("b", None))
    stream.publish(2)
    assert stream.rows() == expected
    assert [seq for seq, _ in stream.marks()] == [1, 2]
    assert objects(server)
    check_progress(stream.app, stream.stream)


def test_environment_of_the_lake_is_used_without_properties(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"s3://{BUCKET}/tables"
    stream = Lakehouse(tmp_path, properties=json.dumps({"uri": uri, "warehouse": warehouse}))
    stream.decide(1, ("a", 1))
    assert objects(server)


@pytest.mark.parametrize("kind", ["lose", "fail"])
@pytest.mark.parametrize("path", ["/metadata/", "/data/"])
@pytest.mark.sample(1)
def test_repeated_request_changes_nothing(server: S3Server, tmp_path: Path, kind: str, path: str) -> None:
    stream = StoredLakehouse(server, tmp_path / "home")
    stream.decide(1, ("a", 1))
    fault = server.fault(kind, "PUT", path)  # type: ignore[arg-type]
    with suppress(TidegateError):
        stream.decide(2, ("a", 2))
    stream.publish(2)
    assert fault.met == 1
    assert stream.rows() == [("a", 1, 1), ("a", 2, 2)]


@pytest.mark.parametrize("kill", ["kill", "kill_after"])
@pytest.mark.parametrize("point", ["iceberg.create", "iceberg.write", "iceberg.commit"])
@pytest.mark.sample(1)
def test_killed_publisher_leaves_each_row_once(
    server: S3Server, tmp_path: Path, point: str, kill: str
) -> None:
    stream = StoredLakehouse(server, tmp_path / "home", UPSERT)
    stream.commit(1, {"first": [("a", 1), ("b", 2), ("a", 3)]})
    environment = {**os.environ, **stream.environment, "TIDEGATE_FAILPOINTS": f"{point}={kill}"}
    command = [sys.executable, "-m", "tests.sinks.publishing"]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL
    stream.publish(1)
    assert stream.rows() == [("a", 3, 1), ("b", 2, 1)]


@pytest.mark.parametrize("point", ["", "iceberg.erase", "iceberg.commit", "iceberg.remove"])
@pytest.mark.sample(1)
def test_no_object_shows_an_erased_key(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    stream = StoredLakehouse(server, tmp_path / "home")
    stream.decide(1, (KEY, 1), ("a", 1))
    stream.decide(2, (KEY, 2), ("b", 2))
    assert len(shown_in(objects(server))) > 2
    if point:
        monkeypatch.setattr("tidegate.failpoints._hits", Counter())
        monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{point}=lose")
        with suppress(failpoints.ReplyLost, TidegateError):
            erase_key(stream)
        assert failpoints._hits[point]
        monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    erase_key(stream)
    assert shown_in(objects(server)) == []
    assert stream.rows() == [("a", 1, 1), ("b", 2, 2)]
    stream.decide(4, (KEY, 4))
    assert (KEY, 4, 4) in stream.rows()


def test_promotion_appends_each_batch_once(server: S3Server, tmp_path: Path) -> None:
    properties = properties_for(server, tmp_path)
    sinks = "  - {kind: iceberg, table: shop.seconds}"
    beside = Beside(tmp_path / "home", sinks, iceberg=json.dumps(properties))
    beside.fill()

    def rows() -> list[tuple[str, int, str, int]]:
        read = SqlCatalog("default", **properties).load_table("shop.seconds").scan().to_arrow().to_pylist()
        return sorted((row["stream"], row["seq"], row["key"], row["m"]) for row in read)

    assert rows() == OLD
    beside.promote(beside.new)
    assert rows() == [*OLD, *NEW]
    beside.rollback()
    beside.decide(beside.old, 3, [("a", 3)])
    assert rows() == [*OLD, ("visitors/1", 3, "a", 3), *NEW]


def test_missing_bucket_is_refused_before_the_decision(server: S3Server, tmp_path: Path) -> None:
    stream = StoredLakehouse(server, tmp_path / "home", warehouse="s3://nowhere/tables")
    (sink,) = stream.app.sinks(stream.stream, stream.pipeline)
    with pytest.raises(SinkRefused, match=r"no bucket nowhere.*\n?.*`warehouse` of TIDEGATE_ICEBERG"):
        sink.check_target()
    plan = stream.compute(1, {"first": [("a", 1)]})
    with pytest.raises(SinkRefused, match="no bucket nowhere"):
        validate_batch(stream.app, plan, "test")


def test_bucket_that_is_gone_later_is_refused(server: S3Server, tmp_path: Path) -> None:
    stream = StoredLakehouse(server, tmp_path / "home", warehouse="s3://nowhere/tables")
    with pytest.raises(SinkRefused, match=r"NO_SUCH_BUCKET.*Create the bucket"):
        stream.decide(1, ("a", 1))
    (server.folder / "nowhere").mkdir()
    stream.publish(1)
    assert stream.rows() == [("a", 1, 1)]


@pytest.mark.parametrize("method", ["HEAD", "GET", "PUT"])
@pytest.mark.sample(1)
def test_refused_login_says_what_to_correct(server: S3Server, tmp_path: Path, method: str) -> None:
    stream = StoredLakehouse(server, tmp_path / "home")
    stream.decide(1, ("a", 1))
    server.fault("deny", method, "", times=1000)
    with pytest.raises(SinkRefused, match=r"refuses a request.*Correct `s3\.access-key-id`") as error:
        stream.decide(2, ("a", 2))
    assert "canary-secret" not in str(error.value)
    server.faults.clear()
    stream.publish(2)
    assert stream.rows() == [("a", 1, 1), ("a", 2, 2)]


def test_store_that_is_down_is_asked_again(server: S3Server, tmp_path: Path) -> None:
    stream = StoredLakehouse(server, tmp_path / "home")
    stream.decide(1, ("a", 1))
    server.fault("fail", "GET", "", times=1000)
    with pytest.raises(SinkUnavailable, match="the store of its tables, fails"):
        stream.decide(2, ("a", 2))
    server.faults.clear()
    stream.publish(2)
    assert stream.rows() == [("a", 1, 1), ("a", 2, 2)]


def test_table_in_a_pipelines_folder_is_refused(server: S3Server, tmp_path: Path) -> None:
    stream = StoredLakehouse(server, tmp_path / "home", warehouse=f"s3a://{BUCKET}/lake/visitors")
    (sink,) = stream.app.sinks(stream.stream, stream.pipeline)
    lake = replace(sink.context.lake, root=f"s3://{BUCKET}/lake")
    sink.context = replace(sink.context, lake=lake)
    with pytest.raises(SinkRefused, match="overlap"):
        sink.check_settings()
