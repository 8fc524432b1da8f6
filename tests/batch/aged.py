"""A stream whose ledger's clock a test moves, with attempts and snapshots in all states that there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.batch.committed import Committed, Row
from tidegate import inspect, maintenance
from tidegate.kernel.keys import key_hashes
from tidegate.ledger import Attempt, Snapshot
from tidegate.storage import Name, attempt_name, snapshot_name
from tidegate.storage.manifest import Manifest

NOW = 4_000_000_000.0
"""Long after files were written: they are old enough to be removed."""
DAY = 86_400.0
AT_ONCE = timedelta(0)
STAGE = "second"

STATE = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.struct([("m", pa.int32())])),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("live", pa.bool_()),
        ("window_start", pa.int64()),
        ("window_end", pa.int64()),
        ("due_at", pa.int64()),
        ("updated_seq", pa.int64()),
    ]
)


def state_rows(updated: Iterable[tuple[str, int]], live: bool = True) -> pa.Table:
    """Rows of keys, each with the batch that updated it, as state files have them."""
    rows = [
        {"key": key, "value": {"m": seq}, "topic": "events", "partition": 0, "live": live, "updated_seq": seq}
        for key, seq in updated
    ]
    table = pa.Table.from_pylist(rows, STATE)
    return table.add_column(0, "hash", key_hashes(table["key"].combine_chunks())).sort_by("hash")


class Aged(Committed):
    """Each batch changes the state of one key, `k<seq>`, in the stage STAGE."""

    def __init__(
        self, folder: Path, sinks: str = "  - {kind: table}", ledger: str = "", **options: str
    ) -> None:
        super().__init__(folder, sinks, ledger=ledger, **options)
        self.now = NOW
        self.app.ledger._now = lambda: self.now
        self.lake = self.app.lake(self.stream)

    def write(self, name: str, *seqs: int, emitted: Sequence[Row] = (), keys: Sequence[str] = ()) -> Manifest:
        """Files of an attempt or a snapshot, which no ledger knows yet: state of the keys of some batches,
        and of `keys`, which this one has changed."""
        parsed = Name.parse(name)
        seq = parsed.seq if parsed is not None else 0
        changed = [*((f"k{number}", number) for number in seqs), *((key, seq) for key in keys)]
        self.states = {STAGE: state_rows(changed)}
        return self.written(seq, name, {STAGE: emitted})

    def batch(self, seq: int, emitted: Sequence[Row] = (), keys: Sequence[str] = ()) -> str:
        """A committed batch; its attempt's name."""
        lease = self.app.ledger.acquire(self.stream, "test")
        plan = replace(self.planned(seq), run_id=f"run-{seq}")
        lease.add_plan(plan)
        manifest = self.write(attempt_name(seq, lease.lease.epoch), seq, emitted=emitted, keys=keys)
        counts = {"": {"read": 1}, STAGE: {"emitted": len(emitted)}}
        attempt = Attempt(self.stream, seq, self.app.write_manifest(self.stream, manifest), counts)
        lease.add_attempt(attempt)
        lease.commit(plan, attempt)
        lease.release()
        return attempt.name

    def snapshot(self, seq: int, after: int = 0) -> str:
        """The state after a batch in one file, noted on the snapshot of batch `after`; its name."""
        manifest = self.write(snapshot_name(seq), *range(1, seq + 1))
        noted = Snapshot(self.stream, seq, self.app.write_manifest(self.stream, manifest))
        assert self.app.ledger.add_snapshot(noted, after)
        return noted.name

    def clean(
        self, days: float = 0, safe_age: timedelta = timedelta(hours=24), **more: Any
    ) -> maintenance.Cleaned:
        """Clean as it would be done this many days later."""
        self.now += days * DAY
        return maintenance.clean(self.app, self.stream, self.now, safe_age, **more)

    def keys(self, as_of: int | None = None) -> list[str]:
        return list(inspect.read_state(self.app, self.stream, as_of, STAGE)["key"].to_pylist())

    def names(self, kind: str = "state", stage: str = STAGE) -> list[str]:
        """Return the attempts that have files of a kind and a stage."""
        folder = f"{self.lake.base}/{stage}/{kind}".replace("//", "/")
        files = self.lake.store.listed(folder)
        return sorted({file.path.split("/")[-2] for file in files} - {"_delta_log"})
