"""What the built-in expectations know about a batch, beside the values that it emits; and their types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate import kernel
from tidegate.batch_counts import LATE as LATE_RECORDS
from tidegate.batch_counts import came_in, in_all_stages, outgoing
from tidegate.storage import DataFile, Store
from tidegate.storage.datafile import data_errors, leaf_numbers, open_data, stored_schema
from tidegate.storage.schema import HASH, Hashes
from tidegate.storage.state import StateReader

Bounds = tuple[int, int]
"""The least hash and the largest, both included."""
# Great Expectations creates the expectations from a suite, and passes them nothing of ours
_FACTS: ContextVar[StageFacts | None] = ContextVar("tidegate_stage_facts", default=None)
KEYS = "expect_keys_to_not_be_null"
NEIGHBOURS = "expect_equal_neighbours_to_be_absent"
FINALS = "expect_one_final_per_window_and_key"
COUNTS = "expect_counts_to_add_up"
LATE = "expect_late_share_to_be_at_most"
QUARANTINED = "expect_quarantined_share_to_be_at_most"
EMITTED = "expect_emitted_share_to_be_as_before"
BUILTIN_TYPES = (KEYS, NEIGHBOURS, FINALS, COUNTS, LATE, QUARANTINED, EMITTED)
HISTORY_BATCHES = 20
"""The number of earlier batches that the emitted share is compared with, unless a suite sets `batches`."""
OUTBOXES_BEFORE = 1
"""The number of earlier outboxes in which a final is searched, unless a suite sets `batches`."""


@dataclass(frozen=True)
class BatchCounts:
    """The fates of a batch's records, and the emissions of one stage. All are numbers of records, after
    `explode`.

    Args:
        came_in: All records that were read.
        used: Records that a stage used.
        quarantined: Records of the sources that are in quarantine.
        deduplicated: Records that were dropped as duplicates.
        removed: Records that a filter removed.
        late: Records of the sources that were too late for each of their windows.
        emitted: Emissions of the stage.
        outgoing: Those emissions that sinks get.
        explodes: Whether one record can become no records; such a record is used, but counted nowhere.
        quarantined_in_stages: Records, and emissions of the stage before, that any stage has put into
            quarantine since it could not use them.
        late_in_stages: Records and emissions that were late in any stage.
    """

    came_in: int
    used: int
    quarantined: int
    deduplicated: int
    late: int
    emitted: int
    outgoing: int
    explodes: bool = False
    removed: int = 0
    quarantined_in_stages: int = 0
    late_in_stages: int = 0

    @property
    def accounted(self) -> int:
        """The number of records that have a fate."""
        return self.used + self.removed + self.quarantined + self.deduplicated + self.late

    def share(self, records: int) -> float:
        """Return a number of records divided by all that were read.

        It is 0 if nothing was read, and more than 1 for many emissions.

        Example: of 200 records that were read, `share(50)` is 0.25.
        """
        return records / self.came_in if self.came_in else 0.0


def batch_counts(counts: Mapping[str, Mapping[str, float]], stage: str, explodes: bool) -> BatchCounts:
    """Build the counts of a batch from those in the ledger.

    Args:
        counts: stage -> metric -> number; the stage "" stands for the batch.
        stage: The stage whose emissions are counted.
        explodes: Whether the source has `explode`.
    """
    whole, emitted = (counts.get(name, {}) for name in ("", stage))
    return BatchCounts(
        came_in=came_in(whole),
        used=int(whole.get("used", 0)),
        quarantined=int(whole.get("quarantined", 0)),
        deduplicated=int(whole.get("deduplicated", 0)),
        late=int(whole.get(LATE_RECORDS, 0)),
        emitted=int(emitted.get("emitted", 0)),
        outgoing=outgoing(emitted),
        explodes=explodes,
        removed=int(whole.get("removed", 0)),
        quarantined_in_stages=in_all_stages(counts, "quarantined"),
        late_in_stages=in_all_stages(counts, LATE_RECORDS),
    )


@dataclass(frozen=True)
class StageFacts:
    """A batch as its built-in expectations see it, for one stage. Plain data, which can be pickled.

    Args:
        logic: The stage as the kernel has it.
        outbox: The files of the stage's emissions.
        history: The counts of earlier committed batches, the newest first.
        outboxes_before: The outbox files of earlier batches, the newest first.
        state_before: The stage's state before the batch; None if it is not available.
        lacks_erased: Whether an erasure since the batch can have removed rows of the outbox.
    """

    logic: kernel.Stage
    counts: BatchCounts
    store: Store
    outbox: tuple[DataFile, ...] = ()
    history: tuple[BatchCounts, ...] = ()
    outboxes_before: tuple[tuple[DataFile, ...], ...] = ()
    state_before: tuple[DataFile, ...] | None = None
    lacks_erased: bool = False

    def emissions(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the batch's emissions, deletions included, a row group at a time.

        The emissions of a key follow each other in the order in which they happened.

        Raises LakeDamaged if a file is missing or changed, LakeUnavailable if the store does not answer.
        """
        return row_groups(self.store, self.outbox, columns)

    def emissions_before(self, batches: int, columns: Sequence[str], hashes: Bounds) -> Iterator[pa.Table]:
        """Yield emissions of so many earlier batches: at least those whose hashes are within the bounds.

        Raises LakeDamaged if a file is missing or changed, LakeUnavailable if the store does not answer.
        """
        files = [file for outbox in self.outboxes_before[:batches] for file in outbox]
        return row_groups(self.store, files, columns, hashes)

    def newest_state(self, hashes: Hashes) -> pa.Table:
        """Return the newest state row, before the batch, of each entry that has one of these hashes.

        Args:
            hashes: Sorted and distinct.

        Raises LakeDamaged if a file is missing or changed, LakeUnavailable if the store does not answer.
        """
        files = self.state_before or ()
        schema = stored_schema(self.store, files)
        if not len(hashes) or not files:
            return schema.empty_table()
        # state files are sorted by hash, so only the part between the bounds is read
        bounds = int(hashes[0]), int(hashes[-1])
        with StateReader(self.store, files, schema, first_hash=bounds[0]) as state:
            return state.take(hashes, bounds[1])


def row_groups(
    store: Store, files: Sequence[DataFile], columns: Sequence[str], hashes: Bounds | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of some files, a row group at a time.

    Args:
        columns: Read only these columns.
        hashes: Skip row groups without a hash within these bounds; None reads all.

    Raises LakeDamaged if a file is missing or changed, LakeUnavailable if the store does not answer.
    """
    for file in files:
        # The manifest has each file's bounds, so a file without these hashes is not opened.
        if hashes is not None and not _overlap((file.least_hash, file.most_hash), hashes):
            continue
        with open_data(store, file) as parquet:
            hash_leaf = leaf_numbers(parquet)[HASH]
            for group in range(parquet.num_row_groups):
                if hashes is not None and not _overlap(_group_bounds(parquet, group, hash_leaf), hashes):
                    continue
                with data_errors(store, file):
                    rows = parquet.read_row_group(group, columns=list(columns))
                yield rows


def _group_bounds(parquet: pq.ParquetFile, group: int, leaf: int) -> tuple[int | None, int | None]:
    statistics = parquet.metadata.row_group(group).column(leaf).statistics
    return (None, None) if statistics is None else (statistics.min, statistics.max)


def _overlap(bounds: tuple[int | None, int | None], other: Bounds) -> bool:
    """Return whether two ranges of hashes overlap. A bound that is None excludes nothing."""
    least, most = bounds
    return least is None or most is None or (least <= other[1] and other[0] <= most)


@contextmanager
def provide_facts(facts: StageFacts | None) -> Iterator[None]:
    """Let the built-in expectations that are evaluated inside of the `with` block read these facts.

    Example::

        with provide_facts(facts):
            evaluate(suite, rows, {})
    """
    token = _FACTS.set(facts)
    try:
        yield
    finally:
        _FACTS.reset(token)


def current_facts() -> StageFacts | None:
    """Return the facts that `provide_facts` has set; None outside of it, such as in a notebook."""
    return _FACTS.get()


@dataclass(frozen=True)
class Needs:
    """The facts about a batch that the built-in expectations of a suite need.

    Args:
        is_any: Whether the suite has built-in expectations at all.
        history: The number of earlier batches whose counts they need.
        outboxes: The number of earlier outboxes that they read.
        has_state: Whether they read the state before the batch.
    """

    is_any: bool = False
    history: int = 0
    outboxes: int = 0
    has_state: bool = False


def needs_of(expectations: Iterable[Mapping[str, Any]]) -> Needs:
    """Return what the expectations of a suite need: objects of the file, with `type` and `kwargs`.

    Example::

        needs_of([{"type": FINALS, "kwargs": {"batches": 3}}]).outboxes  # 3
    """
    needs = Needs()
    for expectation in expectations:
        type_, kwargs = expectation.get("type"), expectation.get("kwargs") or {}
        needs = Needs(
            needs.is_any or type_ in BUILTIN_TYPES,
            max(needs.history, _number(kwargs, "batches", HISTORY_BATCHES) if type_ == EMITTED else 0),
            max(needs.outboxes, _number(kwargs, "batches", OUTBOXES_BEFORE) if type_ == FINALS else 0),
            needs.has_state or (type_ == NEIGHBOURS and kwargs.get("with_state", True) is not False),
        )
    return needs


def _number(kwargs: Mapping[str, Any], name: str, default: int) -> int:
    """Return a number of a suite; 0 for any other value, which its expectation refuses when it is
    evaluated.
    """
    value = kwargs.get(name, default)
    return value if isinstance(value, int) and value > 0 else 0
