"""Compute a batch of which another generation has decided a part: its stages are read and not computed.

Their tasks take the place of the kernel's: they write the state that the other generation has stored of the
batch, and pass on its emissions, in the order that they had, to sinks and to the stages behind. No record is
read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tidegate import kernel
from tidegate.batch_counts import is_of_source
from tidegate.errors import CountMismatch
from tidegate.failpoints import failpoint
from tidegate.kernel.ordering import whole_groups
from tidegate.kernel.rows import RECORDED, fill
from tidegate.ledger.records import Times
from tidegate.spark.computation import Computation, Computed, PlannedBatch
from tidegate.spark.kernel_task import Forwarding, KernelTask, Output, UnmergedTask
from tidegate.spark.outbox import COUNTED
from tidegate.spark.shuffle import HashRange, Report
from tidegate.spark.source import RecordSlice
from tidegate.spark.steps import KernelPass, KeyTypes, ports_of
from tidegate.spark.written import WrittenOutput, WrittenTask
from tidegate.storage.datafile import data_errors, open_data
from tidegate.storage.manifest import DataFile, Kind, Manifest
from tidegate.storage.quarantine_files import POSITION, last_hops
from tidegate.storage.schema import (
    AT,
    HASH,
    KEY,
    ORDINAL,
    PART,
    REASON,
    SOURCE,
    TIMESTAMP,
    TURN,
    VALUE,
    WINDOW,
)
from tidegate.storage.store import Store

_EMISSION = (HASH, KEY, ORDINAL, REASON, VALUE, *WINDOW, TIMESTAMP, AT, TURN, PART, SOURCE)


@dataclass(frozen=True)
class StoredBatch:
    """A batch as another generation has decided it.

    Args:
        store: the store of the lake.
        manifest: the files.
        counts: stage -> its counts; "" is the whole batch.
        times: stage -> its times after the batch.
        stages: the stages that are not computed again.
    """

    store: Store
    manifest: Manifest
    counts: Mapping[str, Mapping[str, float]]
    times: Times
    stages: tuple[str, ...]


@dataclass(frozen=True)
class StoredRows:
    """The files of one stage in such a batch. It can be pickled."""

    store: Store
    state: tuple[DataFile, ...] = ()
    outbox: tuple[DataFile, ...] = ()
    quarantine: tuple[DataFile, ...] = ()

    def rows(self, files: Sequence[DataFile], hashes: HashRange | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files, in order; of a range of hashes if one is given.

        Raises LakeDamaged, LakeUnavailable.
        """
        for file in files:
            if hashes is not None and not _overlaps(file, hashes):
                continue
            with open_data(self.store, file) as parquet:
                for group in range(parquet.num_row_groups):
                    with failpoint("reused.read"), data_errors(self.store, file):
                        table = parquet.read_row_group(group)
                    if hashes is not None:
                        table = table.filter(_within(table[HASH], hashes))
                    yield from table.combine_chunks().to_batches()


def _overlaps(file: DataFile, hashes: HashRange) -> bool:
    if file.least_hash is None or file.most_hash is None:
        return True
    return file.least_hash <= hashes.last and file.most_hash >= hashes.first


def _within(column: pa.ChunkedArray, hashes: HashRange) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(column, hashes.first), pc.less_equal(column, hashes.last))


class NoRecords:
    """The `RecordSource` of a batch that reads none."""

    def slices(self, timed: bool, cores: int) -> list[RecordSlice]:
        """Return no slices."""
        del timed, cores
        return []


@dataclass(frozen=True)
class StoredTask(KernelTask):
    """A `PassTask` in place of the kernel's: it takes what the stage has decided from files."""

    output: WrittenOutput
    stored: StoredRows

    def run(self, slot: int, reports: Sequence[Report], rows: Iterable[pa.RecordBatch]) -> Output:
        """Write and forward the stored rows of a slot. Rows that come from the level before are ignored."""
        del reports, rows
        hashes = self.slots.range(slot)
        with self.output.open(slot) as output:
            self._copy(output, "state", self.stored.rows(self.stored.state, hashes))
            if slot == 0:  # records in quarantine may have no key
                self._copy(output, "quarantine", self.stored.rows(self.stored.quarantine))
            counts = kernel.Counts()
            for emissions in self._emissions(hashes):
                counts["emitted"] += emissions.num_rows
                counts["emitted-tombstones"] += emissions.column(VALUE).null_count
                yield from output.put(emissions)
            yield from output.put(self._filled(kernel.COUNTS, {"counts": pa.array([counts.to_json()])}, 1))
        return output.reports()

    @staticmethod
    def _copy(output: WrittenTask, kind: Kind, rows: Iterable[pa.RecordBatch]) -> None:
        for part in rows:
            output.copy(kind, part)

    def _emissions(self, hashes: HashRange) -> Iterator[pa.RecordBatch]:
        """Yield the emissions as the kernel has made them, ranked; those of a key in one batch."""
        stored = map(self._emission, self.stored.rows(self.stored.outbox, hashes))
        for emissions in whole_groups(stored, (HASH, KEY)):
            if emissions.num_rows:
                yield kernel.ranked(emissions, self.logic.bound is not None)

    def _emission(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: rows.column(name) for name in (*_EMISSION, RECORDED) if name in rows.schema.names}
        hops = last_hops(columns.pop(SOURCE))
        columns |= {name: pc.struct_field(hops, name) for name in (*POSITION, "source")}
        return self._filled(kernel.EMISSION, columns, rows.num_rows)

    def _filled(self, kind: int, columns: dict[str, pa.Array], number: int) -> pa.RecordBatch:
        return fill(kernel.output_schema(self.logic, self.rows), kind, columns, number)

    def before_merge(self, schema: pa.Schema) -> StoredTask:
        """Return the task that forwards to a merge. It writes the emissions itself: they are merged."""
        forwarding = Forwarding(schema, self.number, (self.number,))
        return replace(self, output=self.output.before_merge(forwarding, written=True))

    @property
    def merging(self) -> UnmergedTask:
        """The task that gets the emissions of `before_merge`."""
        return UnmergedTask(self.output.forwarding)


class ReusingComputation(Computation):
    """The computation of a batch whose unchanged stages are read from another generation's files."""

    def __init__(self, spark: SparkSession, batch: PlannedBatch, stored: StoredBatch) -> None:
        super().__init__(spark, batch)
        self._stored = stored
        filters = [pass_.name for pass_ in self._passes if pass_.is_filter]
        self._reused: Collection[str] = (*filters, *stored.stages)

    def computed(self, attempt: str) -> Computed:
        """Compute the other stages, and return the results of all of them."""
        return self.outcome(attempt, self.run(NoRecords(), attempt))

    def outcome(self, attempt: str, reports: Sequence[Report]) -> Computed:
        """Return the counts, of which those of reused stages are the other generation's, and the files.

        Raises CountMismatch if the outbox of a stage lacks emissions.
        """
        computed, stored = super().outcome(attempt, reports), self._stored
        counts = dict(computed.counts)
        for name in self._reused:
            counted = counts[name]
            self._require_complete(name, counted)
            # A sink that the stage did not have before may refuse some of them.
            refused = {metric: counted[metric] for metric in COUNTED.values() if counted[metric]}
            counts[name] = _counts({**stored.counts.get(name, {}), **refused})
        # The fates of records, and the counts of columns: the other generation has read the records.
        of_source = {
            name: _counts(part) for name, part in stored.counts.items() if (not name or is_of_source(name))
        }
        stored_times = {name: stored.times[name] for name in self._reused if name in stored.times}
        return replace(computed, counts={**counts, **of_source}, times={**computed.times, **stored_times})

    def _require_complete(self, name: str, counted: kernel.Counts) -> None:
        emitted = self._stored.counts.get(name, {}).get("emitted", 0)
        if self._needs_emissions(name) and counted["emitted"] != emitted:
            raise CountMismatch(
                f"The outbox of {name} has {counted['emitted']} of the {int(emitted)} emissions of batch "
                f"{self._plan.seq}",
                "Run again; if it stays, make a generation that begins empty: `tidegate generation new`.",
            )

    def _needs_emissions(self, name: str) -> bool:
        """Return whether a sink, a check, or a stage that is computed takes the emissions of a stage."""
        readers = [pass_.name for pass_ in self._passes if name in pass_.inputs]
        is_read = any(reader not in self._reused for reader in readers)
        return is_read or name in self._pipeline.published_stages

    def _task(
        self, pass_: KernelPass, keys: KeyTypes, rows: pa.Schema, forwarding: Forwarding, attempt: str
    ) -> KernelTask:
        task = super()._task(pass_, keys, rows, self._to_computed(pass_, forwarding), attempt)
        if pass_.name not in self._reused:
            return task
        assert isinstance(task.output, WrittenOutput), "this computation writes"
        fields = (task.name, task.number, task.logic, task.batch, task.sources, task.rows, task.slots)
        return StoredTask(*fields, task.state, task.output, self._rows_of(pass_.name))

    def _to_computed(self, pass_: KernelPass, forwarding: Forwarding) -> Forwarding:
        """Return the forwarding without readers that are not computed."""
        depth = next(depth for depth, level in enumerate(self._levels) if pass_ in level)
        following = self._levels[depth + 1] if depth + 1 < len(self._levels) else []
        ports = ports_of(following, self._levels[depth])
        readers = [
            place for place in forwarding.readers if following[ports[place].reader].name not in self._reused
        ]
        return replace(forwarding, readers=tuple(readers))

    def _rows_of(self, name: str) -> StoredRows:
        """Return the files of a reused pass. The first one has the quarantine, which all stages share."""
        manifest = self._stored.manifest
        return StoredRows(
            self._stored.store,
            manifest.files_of("state", name),
            manifest.files_of("outbox", name) if self._needs_emissions(name) else (),
            manifest.files_of("quarantine") if name == self._passes[0].name else (),
        )


def _counts(counts: Mapping[str, float]) -> kernel.Counts:
    return kernel.Counts({name: int(number) for name, number in counts.items()})
