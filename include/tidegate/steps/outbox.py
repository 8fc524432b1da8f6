"""A batch's outbox, read in the one order that every publication of it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate import core
from tidegate.errors import Halted
from tidegate.failpoints import failpoint
from tidegate.lake import Lake, attempt_files
from tidegate.lake.reader import lake_errors
from tidegate.ledger import Attempt, Plan
from tidegate.spec import Stage

CHUNK_ROWS = 10_000
_ORDER = ("key", "ordinal")


@dataclass(frozen=True)
class Outbox:
    """What a stage emitted in one batch for its sinks: how many emissions, and the files that they are in.

    `attempt` is the name of the computation that they are of.
    """

    plan: Plan
    stage: Stage
    attempt: str
    emitted: int
    files: tuple[str, ...]

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """The types of those of `columns` that it has."""
        with lake_errors(self.files[0]):
            found = pq.read_schema(self.files[0])
        return pa.schema([found.field(name) for name in columns if name in found.names])

    def batches(self, columns: Sequence[str], skip: int = 0) -> Iterator[pa.RecordBatch]:
        """The emissions from the `skip`-th on, at most CHUNK_ROWS at a time, always in the same order.

        Files come by name, rows by key and ordinal; as they are mostly stored so, a file is read as a whole
        only where they are not.
        """
        for file in self.files:
            with lake_errors(file):
                with failpoint("outbox.read"):
                    rows = pq.read_metadata(file).num_rows
                if skip < rows:
                    yield from rows_from(_in_order(file, columns), skip)
                skip = max(0, skip - rows)

    def outside(self, earliest_ms: int | None, latest_ms: int | None) -> tuple[str, int] | None:
        """Key and timestamp (epoch ms) of an emission that is not between two instants; None: no bound.

        Costs a look at the files' statistics where there is none.
        """
        bounds = []
        if earliest_ms is not None:
            bounds.append(pc.field("timestamp") < earliest_ms)
        if latest_ms is not None:
            bounds.append(pc.field("timestamp") > latest_ms)
        if not bounds:
            return None
        for file in self.files:
            with lake_errors(file), failpoint("outbox.timestamps"):
                rows = pq.read_table(
                    file, columns=["key", "timestamp"], filters=reduce(or_, bounds), partitioning=None
                )
            if rows.num_rows:
                return rows["key"][0].as_py(), rows["timestamp"][0].as_py()
        return None


def open_outbox(lake: Lake, plan: Plan, stage: Stage, attempt: Attempt) -> Outbox:
    """The outbox of a stage in one attempt. Raises Halted when its files are gone."""
    emitted = core.outgoing(attempt.stage_counts(stage.name))
    files = None
    if emitted:
        with failpoint("outbox.open"):
            files = attempt_files(lake.outbox(stage.name), [attempt.name])
    if emitted and files is None:
        raise Halted(
            f"The outbox of batch {plan.seq} of {plan.stream} is gone: {emitted} emissions of {stage.name}",
            "Restore the lake and run again, or raise `generation` to start over.",
        )
    return Outbox(plan, stage, attempt.name, emitted, files.paths if files else ())


def _in_order(file: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if _is_sorted(file):
        stored = pq.ParquetFile(file).iter_batches(CHUNK_ROWS, columns=list(columns))
        yield from (batch.select(list(columns)) for batch in stored)
        return
    wanted = list(dict.fromkeys((*_ORDER, *columns)))
    rows = pq.read_table(file, columns=wanted).sort_by([(name, "ascending") for name in _ORDER])
    yield from rows.select(list(columns)).to_batches(max_chunksize=CHUNK_ROWS)


def _is_sorted(file: str) -> bool:
    """Whether rows are stored by key and ordinal. Reads these two columns, a chunk at a time."""
    last: list[pa.RecordBatch] = []
    for batch in pq.ParquetFile(file).iter_batches(CHUNK_ROWS, columns=list(_ORDER)):
        rows = pa.Table.from_batches([*last, batch]).combine_chunks()
        before, after = rows.slice(0, rows.num_rows - 1), rows.slice(1)
        in_key = pc.less_equal(before["ordinal"], after["ordinal"])
        rises = pc.less(before["key"], after["key"])
        stays = pc.and_(pc.equal(before["key"], after["key"]), in_key)
        if not pc.all(pc.or_(rises, stays), min_count=0).as_py():
            return False
        last = [batch.slice(batch.num_rows - 1)]
    return True


def rows_from(batches: Iterator[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    """The rows from the `skip`-th on."""
    for batch in batches:
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)
