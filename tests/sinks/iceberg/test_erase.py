"""An erasure of a key from an Iceberg table: no file of the table shows it afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sinks.iceberg.lakehouse import APPEND, NAME, UPSERT, Lakehouse
from tidegate import failpoints
from tidegate.erasure import erase, plan_erasure, requested_keys
from tidegate.errors import SinkRefused, TidegateError

KEY = "canary-4711"
POINTS = ["iceberg.erase", "iceberg.commit", "iceberg.remove", "iceberg.flush"]


def erase_key(stream: Lakehouse) -> None:
    """Erase the key, or go on with the erasure, as the command does."""
    requested = requested_keys(stream.app, "visitors", None, [KEY])
    erase(stream.app, plan_erasure(stream.app, "visitors", requested), "tester", lambda _: None)


def filled(folder: Path, sinks: str) -> Lakehouse:
    stream = Lakehouse(folder, sinks)
    stream.decide(1, (KEY, 1), ("a", 1))
    stream.decide(2, ("b", 2))
    stream.decide(3, (KEY, 3), ("a", 3))
    return stream


def traces(stream: Lakehouse) -> list[str]:
    """Return the files below the warehouse that show the key, decompressed."""
    folder = Path(stream.warehouse.removeprefix("file://"))
    return shown_in(file for file in folder.rglob("*") if file.is_file())


def shown_in(files: Iterable[Path]) -> list[str]:
    """Return the names of the files that show the key."""
    return [file.name for file in files if any(KEY in text for text in _contents(file))]


def _contents(file: Path) -> Iterator[str]:
    if file.suffix == ".parquet":
        yield str(pq.read_table(file).to_pylist())
    elif file.suffix == ".avro":
        with file.open("rb") as stream:
            yield str(list(fastavro.reader(stream)))
    else:
        yield file.read_text(errors="replace")


@pytest.mark.parametrize(("sinks", "rows"), [(APPEND, 3), (UPSERT, 2)])
def test_no_file_shows_an_erased_key(tmp_path: Path, sinks: str, rows: int) -> None:
    stream = filled(tmp_path, sinks)
    assert len(traces(stream)) > 2
    erase_key(stream)
    assert traces(stream) == []
    assert [key for key, *_ in stream.rows()] == ["a", "a", "b"][-rows:]
    stream.decide(5, (KEY, 5))
    assert (KEY, 5, 5) in stream.rows()


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.sample(2)
def test_failed_erasure_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, action: str
) -> None:
    stream = filled(tmp_path, APPEND)
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{point}={action}")
    with suppress(failpoints.FailpointRaised, TidegateError):
        erase_key(stream)
    assert failpoints._hits[point]
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    erase_key(stream)
    assert (traces(stream), len(stream.rows())) == ([], 3)


def test_rows_of_another_pipeline_stay(tmp_path: Path) -> None:
    stream = filled(tmp_path, APPEND)
    table = stream.table
    rows = table.scan(limit=1).to_arrow()
    other = rows.set_column(rows.column_names.index("stream"), "stream", [["visitors_b/1"]])
    table.append(other.set_column(0, "key", [[KEY]]))
    erase_key(stream)
    assert [key for key, *_ in stream.rows()] == ["a", "a", "b", KEY]


def test_tags_prevent_an_erasure(tmp_path: Path) -> None:
    stream = filled(tmp_path, APPEND)
    snapshot = stream.table.current_snapshot()
    stream.table.manage_snapshots().create_tag(snapshot.snapshot_id, "audit").commit()
    with pytest.raises(SinkRefused, match=r"branches or tags.*audit"):
        erase_key(stream)
    stream.table.manage_snapshots().remove_tag("audit").commit()
    erase_key(stream)
    assert traces(stream) == []


@pytest.mark.parametrize("ends", ["erasure", "restart"])
def test_rows_without_a_stream_stay(tmp_path: Path, ends: str) -> None:
    stream = Lakehouse(tmp_path, APPEND)
    stream.catalog.create_namespace("shop")
    columns = pa.schema([("key", pa.string()), ("n", pa.int32())])
    table = stream.catalog.create_table(NAME, columns, location=f"{stream.warehouse}/shop/visitors")
    table.append(pa.table({"key": ["theirs"], "n": pa.array([9], pa.int32())}))
    stream.decide(1, (KEY, 1))
    stream.decide(2, ("b", 2))
    table = stream.table
    table.overwrite(table.scan().to_arrow())  # another program compacts it into one file
    if ends == "erasure":
        erase_key(stream)
    else:
        (sink,) = stream.app.sinks(stream.stream, stream.pipeline)
        sink.restart_after(stream.app.ledger.acquire(stream.stream, "test"), 1)
    assert ("theirs", 9, None) in stream.rows()
    assert len(stream.rows()) == 2
