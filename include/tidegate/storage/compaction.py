"""Fold changelogs into sorted runs, and newer runs into older ones, by size.

A snapshot is a manifest of runs. Each run is sorted, and has the newest row of each entry in the files that
it was folded from. Only newer runs are folded: an older run stays as it is, and the new snapshot names it
again, while it has more rows than all newer runs together. So there are few runs, and each time that a row is
written again, it goes to a run at least twice as large (decision 21).

Files are written once, and nothing counts before the ledger has the snapshot's manifest: a compaction is
either whole or has no effect, whatever runs at the same time.

Cleaning removes the files of a stream that nobody will ever read. Manifests say which files are read: those
of committed batches, and of snapshots that state can still be read through. A file that no manifest names may
belong to a batch in flight; therefore the ledger decides whether the file's name can ever count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import groupby

import pyarrow as pa

from tidegate.failpoints import failpoint
from tidegate.kernel.decision import live_rows_suffice
from tidegate.kernel.rows import with_column
from tidegate.kernel.stage import Stage
from tidegate.storage.datafile import ROW_GROUP_ROWS, RowWriter, stored_schema
from tidegate.storage.evolution import batch_of, declared_aliases
from tidegate.storage.manifest import DataFile, Manifest, is_manifest, manifest_of
from tidegate.storage.schema import UPDATED_SEQ
from tidegate.storage.state import StateReader
from tidegate.storage.store import Listed, Store

MOST_CHANGELOGS = 32
"""If there are more changelogs since the last snapshot, a batch opens too many files to find its state."""
ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True)
class FoldRule:
    """The rule by which a stage's rows are folded.

    `by_place`: an entry belongs to a topic-partition, as in a bounded stage. `live_rows_suffice`: rows that
    are not live may be left out if nothing older is read.
    """

    by_place: bool
    live_rows_suffice: bool

    @classmethod
    def for_stages(cls, logics: Sequence[Stage]) -> FoldRule:
        """Return the rule for rows that one stage wrote in the form that it had in each of these
        pipelines.
        """
        # A stage may have changed between batches: rows of all its forms must survive, so the strictest rule
        # wins.
        bounded = any(logic.bound is not None for logic in logics)
        return cls(bounded, all(live_rows_suffice(logic) for logic in logics))


@dataclass(frozen=True)
class Run:
    """The files of one stage that one attempt or compaction wrote under the name `name`."""

    name: str
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """The number of rows in all files together."""
        return sum(file.rows for file in self.files)


def is_due(snapshot: Manifest | None, changelogs: Sequence[Manifest]) -> bool:
    """Return whether the changelogs since a snapshot are many, or have as many rows as the snapshot."""
    changed = sum(file.rows for changelog in changelogs for file in changelog.files if file.kind == "state")
    folded = snapshot.rows if snapshot is not None else 0
    return len(changelogs) > MOST_CHANGELOGS or changed >= max(folded, ROW_GROUP_ROWS)


@dataclass(frozen=True)
class SnapshotTarget:
    """The snapshot to write: the state after batch `seq`.

    `folder` returns the folder for the files of a stage, whose last part is `name`.
    """

    name: str
    seq: int
    folder: Callable[[str], str]


def compact(
    store: Store, target: SnapshotTarget, files: Iterable[DataFile], rules: Mapping[str, FoldRule]
) -> Manifest:
    """Fold the state in `files`, of the last snapshot and the changelogs since, and return the new manifest.

    The caller writes the manifest and notes it in the ledger; before that nothing counts. Raises LakeDamaged
    if a file is missing or changed, LakeUnavailable if the store fails.

    Args:
        store: the store of the lake.
        target: the name, batch and folders of the snapshot.
        files: data files of any kind; all but state is ignored.
        rules: stage -> its rule, for each stage that has state files.
    """
    by_stage: dict[str, list[DataFile]] = {}
    for file in files:
        if file.kind == "state":
            by_stage.setdefault(file.stage, []).append(file)
    folded = [
        file
        for stage, stage_files in by_stage.items()
        for file in _compacted(store, target.folder(stage), stage_files, rules[stage])
    ]
    return manifest_of(target.name, target.seq, folded)


def _compacted(store: Store, folder: str, files: Sequence[DataFile], rule: FoldRule) -> list[DataFile]:
    runs = runs_by_age(files)
    older = len(runs) - newest_runs_to_fold(runs)
    untouched = [file for run in runs[:older] for file in run.files]
    folded = [file for run in runs[older:] for file in run.files]
    # A single run gains nothing from another fold, unless it is the oldest one: then dead rows can be
    # dropped.
    if older == len(runs) - 1 and not (rule.live_rows_suffice and older == 0):
        return untouched + folded
    return [*untouched, *fold(store, folder, folded, rule, is_whole=older == 0)]


def runs_by_age(files: Iterable[DataFile]) -> list[Run]:
    """Return a stage's files by the attempt or compaction that wrote them, the oldest first."""

    def name_of(file: DataFile) -> str:
        return file.path.split("/")[-2]

    by_name = groupby(sorted(files, key=name_of), name_of)
    runs = [Run(name, tuple(group)) for name, group in by_name]
    return sorted(runs, key=lambda run: batch_of(run.files[0]))


def newest_runs_to_fold(runs: Sequence[Run]) -> int:
    """Return how many of the newest runs are folded into one, at least 1; `runs` begins with the oldest.

    A run is folded together with all newer ones if it has no more rows than the newer ones together, or than
    a row group has. So each run that stays has more rows than all newer ones.

    Example: runs of 1,000,000, 50,000 and 60,000 rows give 2.
    """
    number = 1
    rows = runs[-1].rows
    for older, run in enumerate(reversed(runs[:-1]), start=2):
        if run.rows <= max(rows, ROW_GROUP_ROWS):
            number = older
        rows += run.rows
    return number


def fold(
    store: Store,
    folder: str,
    files: Sequence[DataFile],
    rule: FoldRule,
    is_whole: bool,
    change: Callable[[pa.Table], pa.Table] | None = None,
) -> tuple[DataFile, ...]:
    """Write the newest row of each entry in these files of one stage into new files of `folder`.

    Memory has a row group of each file at a time. Raises LakeDamaged, LakeUnavailable, and SchemaChanged if a
    column has two types of which neither is wider.

    Args:
        store: the store of the lake.
        folder: the folder for the new files, `00000.parquet` and so on.
        files: state files of one stage, the oldest first.
        rule: the stage's rule.
        is_whole: nothing older is read beside the new files, so that rows which are not live may be dropped.
        change: changes or leaves out rows of each table, such as `of_batch`; None: rows stay as they are.
    """
    with failpoint("compact.read"):
        schema = stored_schema(store, files)
    folded: list[DataFile] = []
    # A key column of whole numbers may have been widened: the newest file has its type of today.
    key_types = next((file.key_types for file in reversed(files) if file.key_types is not None), None)
    # The new files replace these, so they must declare all that these declared.
    aliases = declared_aliases(files).text
    with StateReader(store, files, schema, by_place=rule.by_place) as state:
        scanned = state.scan(live_only=is_whole and rule.live_rows_suffice)
        rows = scanned if change is None else filter(len, map(change, scanned))
        while part := next(rows, None):
            writer = RowWriter(store, f"{folder}/{len(folded):05d}.parquet", "state", files[0].stage)
            with failpoint("compact.write"), writer:
                written = _write(writer, part)
                while written < ROWS_PER_FILE and (part := next(rows, None)):
                    written += _write(writer, part)
            assert writer.file is not None, "no table is without rows"
            folded.append(replace(writer.file, key_types=key_types, aliases=aliases))
    return tuple(folded)


def of_batch(rows: pa.Table, seq: int) -> pa.Table:
    """Return state rows with `updated_seq` set to `seq`, as if batch `seq` had written them."""
    column = pa.repeat(pa.scalar(seq, pa.int64()), rows.num_rows)
    return with_column(rows, UPDATED_SEQ, column)


def _write(writer: RowWriter, rows: pa.Table) -> int:
    for batch in rows.to_batches(max_chunksize=ROW_GROUP_ROWS):
        writer.write(batch)
    number: int = rows.num_rows
    return number


class Standing(Enum):
    """The state of an attempt, a snapshot or a resolution in the ledger, by its name."""

    DEAD = auto()
    """It does not count, and never will: the ledger would refuse it, or nobody reads through it any more."""
    PENDING = auto()
    """It may count later: a batch or a compaction is at work."""
    COMMITTED = auto()
    """All files that its manifest names are read."""
    SUPERSEDED = auto()
    """A batch whose outbox and quarantine are read; its state is read only through newer snapshots."""
    READ_WHOLE = auto()
    """All files under its name are read."""


def unread_files(
    files: Iterable[Listed],
    standing: Callable[[str], Standing | None],
    manifest: Callable[[str], Manifest],
    snapshots: Sequence[Manifest],
    until: float,
) -> Iterator[Listed]:
    """Yield those of `files`, a listing of the stream's folder, that nobody will ever read.

    Ask the ledger after you made the listing: then the ledger has everything in the listing that counts.

    Args:
        files: the listing.
        standing: returns the standing of a name; None if tidegate did not give the name.
        manifest: returns what is read of a committed or superseded batch.
        snapshots: the snapshots through which state is read.
        until: epoch seconds. Files that were changed later are left alone, as are files in a folder without a
            name of tidegate.
    """
    needed = {file.path for snapshot in snapshots for file in snapshot.files}
    reading = {snapshot.name for snapshot in snapshots}
    named_paths: dict[str, Collection[str]] = {}
    for file in files:
        folder, _, base_name = file.path.rpartition("/")
        name = folder.rpartition("/")[-1]
        if file.path in needed or file.changed_at > until:
            continue
        status = standing(name)
        if status is Standing.DEAD:
            yield file
        if status in (Standing.COMMITTED, Standing.SUPERSEDED):
            # a manifest is read only for a batch that has files in the listing, and once
            if name not in named_paths:
                named_paths[name] = () if name in reading else _named_files(manifest(name), status)
            # The manifest itself stays, although it does not name itself: readers need it.
            if not is_manifest(base_name) and file.path not in named_paths[name]:
                yield file


def _named_files(manifest: Manifest, standing: Standing) -> frozenset[str]:
    """Return the paths of the files that are read through a batch's manifest."""
    state_too = standing is Standing.COMMITTED
    return frozenset(file.path for file in manifest.files if state_too or file.kind != "state")


def remove(store: Store, files: Iterable[Listed]) -> None:
    """Delete files; a file that does not exist is removed already. Raises LakeUnavailable if the
    store fails.
    """
    for file in files:
        with failpoint("maintenance.delete"):
            store.delete(file.path)
