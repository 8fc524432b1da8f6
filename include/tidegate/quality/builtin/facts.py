"""What the built-in expectations know of a batch beside the values that go out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate import core
from tidegate.lake import DataFile, Store
from tidegate.lake.datafile import data_errors, open_data, stored_schema
from tidegate.lake.schema import HASH, Hashes
from tidegate.lake.state import StateReader

Bounds = tuple[int, int]
"""The least hash and the largest, both included."""


@dataclass(frozen=True)
class BatchCounts:
    """What became of a batch's records, and how many emissions of one stage there were; all are numbers of
    records, after `explode`.

    `came_in` is all that was read; `used`, `quarantined`, `deduplicated` and `late` (too late for each of
    its windows) are what became of it. `emitted`: what the stage emitted; `outgoing`: what of it sinks get.
    `explodes`: a record may have become none, which is used, and counted nowhere.
    """

    came_in: int
    used: int
    quarantined: int
    deduplicated: int
    late: int
    emitted: int
    outgoing: int
    explodes: bool = False

    @property
    def accounted(self) -> int:
        """Records whose fate is known."""
        return self.used + self.quarantined + self.deduplicated + self.late

    def share(self, records: int) -> float:
        """Of all that came in, from 0 to 1 (emissions may be more); 0 where nothing came in."""
        return records / self.came_in if self.came_in else 0.0


def batch_counts(
    counts: Mapping[str, Mapping[str, float]], first: str, stage: str, explodes: bool
) -> BatchCounts:
    """Of a batch's counts as the ledger has them: stage -> metric -> number; the stage "" is the batch.

    `first`: the stage that gets the source's records. `stage`: whose emissions are looked at.
    """
    whole, used, emitted = (counts.get(name, {}) for name in ("", first, stage))
    return BatchCounts(
        came_in=int(whole.get("read", 0) + whole.get("exploded", 0)),
        used=int(used.get("used", 0)),
        quarantined=int(whole.get("quarantined", 0)),
        deduplicated=int(whole.get("deduplicated", 0)),
        late=int(whole.get("expired-window-record-drop", 0)),
        emitted=int(emitted.get("emitted", 0)),
        outgoing=core.outgoing(emitted),
        explodes=explodes,
    )


@dataclass(frozen=True)
class StageFacts:
    """A batch as its built-in expectations see it, for one stage. Plain data, which can be pickled.

    `logic`: the stage as the kernel has it. `history`: the counts of committed batches before, the newest
    first. `outbox`: the files of its emissions; `outboxes_before`: those of batches before, the newest first.
    `state_before`: the stage's state before the batch; None: it is not to be had.
    """

    logic: core.Stage
    counts: BatchCounts
    store: Store
    outbox: tuple[DataFile, ...] = ()
    history: tuple[BatchCounts, ...] = ()
    outboxes_before: tuple[tuple[DataFile, ...], ...] = ()
    state_before: tuple[DataFile, ...] | None = None

    def emissions(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The batch's emissions, deletions too, a row group at a time: a key's in the order in which they
        happened, and one after the other. Raises LakeDamaged, LakeUnavailable.
        """
        return row_groups(self.store, self.outbox, columns)

    def emissions_before(self, batches: int, columns: Sequence[str], hashes: Bounds) -> Iterator[pa.Table]:
        """Emissions of so many batches before: at least those with hashes within the bounds.

        Raises LakeDamaged, LakeUnavailable.
        """
        files = [file for outbox in self.outboxes_before[:batches] for file in outbox]
        return row_groups(self.store, files, columns, hashes)

    def newest_state(self, hashes: Hashes) -> pa.Table:
        """Of the state before the batch the newest row of each entry with one of these hashes, which are
        sorted and distinct. Raises LakeDamaged, LakeUnavailable.
        """
        files = self.state_before or ()
        schema = stored_schema(self.store, files)
        if not len(hashes) or not files:
            return schema.empty_table()
        bounds = int(hashes[0]), int(hashes[-1])
        with StateReader(self.store, files, schema, first_hash=bounds[0]) as state:
            return state.take(hashes, bounds[1])


def row_groups(
    store: Store, files: Sequence[DataFile], columns: Sequence[str], hashes: Bounds | None = None
) -> Iterator[pa.Table]:
    """The rows of some files, a row group at a time; `hashes`: at least those with hashes within the bounds.

    Raises LakeDamaged, LakeUnavailable.
    """
    for file in files:
        if hashes is not None and not _overlap((file.least_hash, file.most_hash), hashes):
            continue
        with open_data(store, file) as parquet:
            for group in range(parquet.num_row_groups):
                if hashes is not None and not _overlap(_group_bounds(parquet, group), hashes):
                    continue
                with data_errors(store, file):
                    rows = parquet.read_row_group(group, columns=list(columns))
                yield rows


def _group_bounds(parquet: pq.ParquetFile, group: int) -> tuple[int | None, int | None]:
    paths = [parquet.schema.column(leaf).path for leaf in range(parquet.metadata.num_columns)]
    statistics = parquet.metadata.row_group(group).column(paths.index(HASH)).statistics
    return (None, None) if statistics is None else (statistics.min, statistics.max)


def _overlap(one: tuple[int | None, int | None], other: Bounds) -> bool:
    """Whether two ranges of hashes have one in common; bounds that are not known exclude nothing."""
    least, most = one
    return least is None or most is None or (least <= other[1] and other[0] <= most)


_FACTS: ContextVar[StageFacts | None] = ContextVar("tidegate_stage_facts", default=None)


@contextmanager
def known_facts(facts: StageFacts | None) -> Iterator[None]:
    """Let the built-in expectations that are evaluated inside know a batch."""
    token = _FACTS.set(facts)
    try:
        yield
    finally:
        _FACTS.reset(token)


def facts_of_batch() -> StageFacts | None:
    """What `known_facts` has given; None: nothing is known, as where a suite is evaluated elsewhere."""
    return _FACTS.get()
