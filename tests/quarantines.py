"""A stream with a quarantine: real ledger and lake, files with several row groups, rows in no order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.batch.committed import Committed
from tidegate.app import App
from tidegate.ledger import Stream
from tidegate.storage.datafile import ROW_GROUP_ROWS, read_files
from tidegate.storage.quarantine_files import QUARANTINE

REASONS = (
    *("malformed: Expected `int`, got `str` - at `$.id`", "malformed: it is cut off: here", "null_key"),
    *("key_not_text", "too_large"),
)
HEADERS = [("trace", b"1"), ("trace", b"\xff"), ("empty", None), ("trace", b"1")]


def quarantined(seq: int, offset: int, **more: Any) -> dict[str, Any]:
    """A row of a quarantine."""
    row = {"topic": "events", "partition": 0, "timestamp": offset * 1000, "key": b"k", "value": b"{oops"}
    columns = {"part": None, "recorded": None, "timestamp_type": None, "headers": None, "reason": REASONS[0]}
    return {**row, **columns, "seq": seq, "offset": offset, **more}


def random_rows(seq: int, count: int, chance: random.Random) -> list[dict[str, Any]]:
    """Rows of a batch; some have one position, as elements of one record have."""
    return [
        quarantined(
            seq,
            seq * 1000 + chance.randrange(count * 2),
            topic=chance.choice(("events", "visits")),
            partition=chance.randrange(3),
            timestamp=chance.choice((None, *range(1000, 5000, 250))),
            key=chance.choice((None, b"k", b"\xff\x00", "ключ".encode())),
            value=chance.choice((None, b"", b"{oops", b"\xff{", "\u2028\n".encode())),
            headers=chance.choice((None, HEADERS)),
            reason=chance.choice(REASONS),
        )
        for _ in range(count)
    ]


class Quarantined(Committed):
    """A pipeline whose batches have a quarantine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "  - {kind: sql, table: newest}\n", f"sqlite:///{folder}/sink.db")

    def batch(self, seq: int, *files: Sequence[dict[str, Any]]) -> None:
        """A committed batch with these rows in quarantine, file by file."""
        self.commit(seq, {"second": [("a", seq)]})
        for rows in files:
            self.add_file(seq, "quarantine", "", pa.Table.from_pylist(list(rows), QUARANTINE))

    def large_batch(self, seq: int, groups: int) -> None:
        """A batch with one file of so many full row groups, in the order of offsets."""
        row = quarantined(seq, 0)
        count = groups * ROW_GROUP_ROWS
        columns = {
            name: pa.array([row[name]] * count, QUARANTINE.field(name).type) for name in QUARANTINE.names
        }
        columns["offset"] = pa.array(range(count), pa.int64())
        columns["timestamp"] = columns["offset"]
        self.commit(seq, {"second": [("a", seq)]})
        table = pa.table(columns, schema=QUARANTINE)
        self.add_file(seq, "quarantine", "", table)


def stored_quarantine(app: App, stream: Stream) -> list[dict[str, Any]]:
    """The quarantined records of all batches, by position, whatever the ledger says of them."""
    store, rows = app.lake(stream).store, list[dict[str, Any]]()
    for _, manifest in app.ledger.committed(stream):
        rows += read_files(store, app.manifest(stream, manifest).files_of("quarantine")).to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
