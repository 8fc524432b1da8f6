"""Quarantine in memory: what a batch cannot use, and what is decided of it, as `quarantine.resolve` has it.

A record whose value begins with `bad` cannot be used. Who replays it corrects all, or some and leaves the
others as they are, which are put into quarantine again. A value that begins with `refused` breaks an
expectation of the first stage: its record is used, and the value is in quarantine in place of going out. It
can be discarded, and never be replayed, for its record has counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pyarrow as pa

from tests.simulator.broker import Record
from tidegate.formats import EMISSION
from tidegate.ledger import Resolution
from tidegate.quarantine import ReplayedRecords
from tidegate.quarantine.resolve import Skipped
from tidegate.storage.manifest import DataFile, Manifest

BAD, CORRECTED, REFUSED = b"bad", b"corrected", b"refused"
ALL, SOME = "all", "some"
"""How many of the records somebody corrects, or discards."""

Read = tuple[str, int, int, Record]
Identity = tuple[str, int, int, int]
"""Topic, partition, offset, and the batch that put it into quarantine."""


@dataclass(frozen=True)
class Unusable:
    """A record in quarantine of batch `seq`; `is_value`: what a stage has made of it, and refuses."""

    seq: int
    read: Read
    is_value: bool = False

    @property
    def identity(self) -> Identity:
        topic, partition, offset, _ = self.read
        return topic, partition, offset, self.seq


def is_bad(record: Record) -> bool:
    """Whether a record cannot be used."""
    return (record.value or b"").startswith(BAD)


def is_refused(record: Record) -> bool:
    """Whether its value is not what a suite expects."""
    return (record.value or b"").startswith(REFUSED)


def request(how_many: str) -> ReplayedRecords:
    """Return a request to replay; the fake below reads the number of records from its reason."""
    return ReplayedRecords(lambda: iter(()), "somebody", how_many)


def written_resolution(
    app: Any, lease: Any, request: ReplayedRecords, seq: int | None, unfit: Any = None
) -> tuple[Resolution | None, Skipped]:
    """Resolve what is open at this instant, in place of `quarantine.resolve.written_resolution`."""
    places, stream = app.places, lease.stream
    lake, world = places.lake, places.world
    resolutions = lease.resolutions(stream)
    resolved = {row.identity for made in resolutions for row in lake.resolved[made.manifest.name]}
    unusable = [row for _, ref in lease.committed(stream) for row in lake.unusable.get(ref.name, ())]
    rows = [row for row in unusable if row.identity not in resolved]
    if seq is None and request.reason == SOME:
        rows = [row for row in rows if _is_chosen(row)]
    if unfit is not None and rows:
        rows = [
            row for row, skipped in zip(rows, unfit(_table(rows)).to_pylist(), strict=True) if not skipped
        ]
    if not rows:
        return None, Skipped(len(unusable))
    number = max((made.number for made in resolutions), default=0) + 1
    places.attempts += 1
    name = f"resolution-{number}-{places.attempts}"
    chosen = [row if seq is None else _corrected(row, request.reason) for row in rows]
    world.effect("lake.write", lambda: lake.resolved.__setitem__(name, chosen))
    file = DataFile("quarantine", "", name, len(chosen), len(chosen), "", 1, "")
    manifest = app.write_manifest(stream, Manifest(name, seq or 0, (file,)))
    seqs = sorted(row.seq for row in rows)
    by = request.decided_by, request.reason
    return Resolution(stream, number, seq, manifest, seqs[0], seqs[-1], *by), Skipped()


def _table(rows: Sequence[Unusable]) -> pa.Table:
    """Return the columns of quarantine that decide whether a record can be replayed."""
    return pa.table(
        {
            "topic": pa.array([row.read[0] for row in rows], pa.string()),
            "partition": pa.array([row.read[1] for row in rows], pa.int32()),
            "reason": pa.array(["expectation: 1" if row.is_value else "malformed: 1" for row in rows]),
            "part": pa.array([EMISSION if row.is_value else None for row in rows], pa.int32()),
        }
    )


def _is_chosen(row: Unusable) -> bool:
    return crc32(repr(row.identity).encode()) % 2 == 0


def _corrected(row: Unusable, how_many: str) -> Unusable:
    if row.is_value or (how_many == SOME and not _is_chosen(row)):
        return row
    topic, partition, offset, record = row.read
    value = (record.value or b"").replace(BAD, CORRECTED)
    return Unusable(row.seq, (topic, partition, offset, record._replace(value=value)))


def replayed(rows: Sequence[Unusable]) -> Iterator[Read]:
    """A batch's input, in the order of positions."""
    return (row.read for row in sorted(rows, key=lambda row: row.identity))


class Model:
    """The fate of each record of the input, batch by batch, without the ledger."""

    def __init__(self) -> None:
        self.used: Counter[tuple[str, int, int]] = Counter()
        self._open: set[Identity] = set()
        self._refused: set[Identity] = set()
        self.decided: Counter[Identity] = Counter()
        self.discarded: set[tuple[str, int, int]] = set()

    def apply(
        self, seq: int, came_in: Sequence[Read], quarantined: Sequence[Read], refused: Sequence[Read]
    ) -> None:
        """A batch, of what came into it; `refused`: the records whose values do not go out."""
        self._refused |= {(*read[:3], seq) for read in refused}
        unusable = {read[:3] for read in quarantined}
        self.used.update(read[:3] for read in came_in if read[:3] not in unusable)
        self._open |= {(*position, seq) for position in unusable}

    def resolve(self, rows: Sequence[Unusable], by_replay: bool) -> None:
        """Records that are decided of."""
        for row in rows:
            self.decided[row.identity] += 1
            self._open.discard(row.identity)
            if not by_replay and row.identity not in self._refused:
                self.discarded.add(row.identity[:3])

    def wrong(self, records: set[tuple[str, int, int]], is_over: bool) -> str:
        """Describe the records that are lost or used twice, of all that were read, or return an empty text.
        With `is_over`, all records must be decided.
        """
        twice = {position: times for position, times in (self.used + Counter()).items() if times > 1}
        again = {identity: times for identity, times in self.decided.items() if times > 1}
        both = self.discarded & set(self.used)
        undecided = {identity[:3] for identity in self._open}
        lost = records - set(self.used) - self.discarded - undecided
        mistakes = {
            "used twice": twice,
            "decided of twice": again,
            "used and discarded": both,
            "lost": lost,
            "left open": self._open if is_over else (),
        }
        return "; ".join(f"{what}: {sorted(which)}" for what, which in mistakes.items() if which)
