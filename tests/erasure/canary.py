"""A pipeline with a canary: a key and a value whose bytes must be nowhere after an erasure."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.batch.committed import Committed, Row
from tests.quarantines import quarantined
from tidegate.erasure import erase, plan_erasure, requested_keys
from tidegate.kernel.keys import key_hashes
from tidegate.ledger import Erasure
from tidegate.storage.quarantine_files import QUARANTINE

KEY, VALUE = "canary-4711", 1_122_334_455
"""The bytes of the value, as text, are in messages and texts."""
SINKS = """\
  - {kind: sql, table: newest, mode: upsert}
  - {kind: sql, table: every, mode: append}
  - {kind: table, stage: first}
"""


class Canary(Committed):
    """Three batches that have the canary in outboxes, state and quarantine, in an attempt that died, and in
    what a publisher left that died.
    """

    def __init__(self, folder: Path, sinks: str = SINKS, ledger: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.sinks = sinks
        super().__init__(folder, sinks, f"sqlite:///{folder}/sink.db", ledger=ledger)

    def fill(self) -> None:
        """Decide and publish the batches."""
        for seq, rows in enumerate(([(KEY, VALUE), ("a", 1)], [("b", 2)], [(KEY, VALUE), ("a", 3)]), 1):
            self.states = {stage: state_rows(rows, seq) for stage in ("first", "second")}
            self.decide(seq, rows)
        own = quarantined(3, 1, key=KEY.encode(), value=str(VALUE).encode())
        in_value = f'{{"customerId": "{KEY}", "n": {VALUE}}}'.encode()
        records = [own, quarantined(3, 2, key=None, value=in_value), quarantined(3, 3, key=None)]
        self.add_file(3, "quarantine", "", pa.Table.from_pylist(records, QUARANTINE))
        self.written(4, "0000000004-000001-00000dea", {"second": [(KEY, VALUE)]})
        leave_uncommitted(Path(self.app.lake(self.stream).table_sink(None)))

    def decide(self, seq: int, rows: Sequence[Row]) -> None:
        """Commit a batch with an outbox of both stages, and publish it."""
        counts = {"state-rows": len({key for key, _ in rows})}
        self.commit(seq, {"first": rows, "second": rows}, **counts)
        self.lease.release()
        self.publish(seq)

    def erase(self, *keys: str) -> list[Erasure]:
        """Erase keys, or go on with an erasure, as the command does."""
        requested = requested_keys(self.app, "visitors", None, keys or (KEY,))
        return erase(self.app, plan_erasure(self.app, "visitors", requested), "tester", lambda _: None)

    def copied(self, folder: Path) -> Canary:
        """Copy all files to another folder, which is created."""
        shutil.copytree(self.folder, folder)
        copy = Canary(folder, self.sinks)
        copy.lease.release()
        return copy


def leave_uncommitted(table: Path) -> Path:
    """Leave what a dead publisher leaves in a Delta table's folder: a file with the canary that no version
    names, another one that is half written, and a draft of an entry of the log. Return the first file.
    """
    written = next(path for path in table.glob("*.parquet") if KEY in pq.read_table(path)["key"].to_pylist())
    left = Path(shutil.copy(written, table / "part-00001-dead.zstd.parquet"))
    (table / "part-00002-dead.zstd.parquet#1").write_bytes(written.read_bytes()[:-8])
    shutil.copy(max((table / "_delta_log").glob("*.json")), table / "_delta_log" / "_commit_dead.json.tmp")
    return left


def state_rows(rows: Sequence[Row], seq: int) -> pa.Table:
    """State rows of one stage, sorted by hash."""
    keys = pa.array([key for key, _ in rows], pa.string())
    count = len(rows)
    nothing = pa.nulls(count, pa.int64())
    columns = {
        "hash": key_hashes(keys),
        "key": keys,
        "value": pa.array([{"n": value} for _, value in rows], pa.struct([("n", pa.int32())])),
        "topic": pa.repeat("events", count),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array(range(count), pa.int64()),
        **dict.fromkeys(("window_start", "window_end", "due_at"), nothing),
        "pending": pa.repeat(pa.scalar(0, pa.int64()), count),
        "live": pa.repeat(True, count),
        "updated_seq": pa.repeat(pa.scalar(seq, pa.int64()), count),
    }
    return pa.table(columns).sort_by("hash")


def traces_of(folder: Path, texts: Sequence[str] = (KEY, str(VALUE))) -> dict[str, list[str]]:
    """Return text -> the files below a folder that have its bytes, in Parquet files also compressed."""
    traces: dict[str, list[str]] = {text: [] for text in texts}
    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        contents = b"\n".join(_contents(path))
        for text in texts:
            if text.encode() in contents:
                traces[text].append(str(path.relative_to(folder)))
    return traces


def _contents(path: Path) -> Iterator[bytes]:
    yield path.read_bytes()
    if path.suffix == ".parquet":
        yield str(pq.read_table(path, partitioning=None).to_pylist()).encode()
