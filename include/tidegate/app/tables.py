"""Bring the tables for other engines up to the head. This needs no lease.

State and outbox of each stage are a table, in the format that TIDEGATE_TABLES names. The table's log has the
progress: the number of a batch is in the same commit as its files, and a snapshot's with the snapshot's
files. A table that lacks batches gets them from the next process that publishes or cleans.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from tidegate.app.lease import claim_folder
from tidegate.app.outboxes import StoredOutboxes
from tidegate.app.root import App
from tidegate.errors import SINK_IS_AHEAD, Fenced
from tidegate.ledger import Attempt, ManifestRef, Plan, Snapshot, Stream
from tidegate.model.kernel_stages import state_stages
from tidegate.model.pipeline import Pipeline
from tidegate.settings import Settings
from tidegate.storage import DataFile, Manifest, Name
from tidegate.storage.datafile import verify
from tidegate.storage.delta_tables import DeltaFormat
from tidegate.storage.manifest import Kind
from tidegate.storage.tables import SharedTable, TableChange, TableFormat, TableVersion

MOST_WITHOUT_FILES = 16
"""After so many batches without files for a table, the table gets only the number of the last one. Without a
limit, every later process would read the manifests of all of these batches again."""


def batches_of(stream: Stream) -> str:
    """Return the application whose number in a table is the last batch whose files the table has."""
    return str(stream)


def snapshots_of(stream: Stream) -> str:
    """Return the application whose number is the last snapshot to which the table was rearranged."""
    return f"{stream}/snapshots"


def expired_in(stream: Stream) -> str:
    """Return the application whose number is the last batch whose outbox the table has lost."""
    return f"{stream}/expired"


def catch_up_tables(app: App, stream: Stream, pipelines: Sequence[Pipeline]) -> None:
    """Bring the tables of all stages of these pipelines, which planned the stream, up to the head.

    Raises Fenced if a table is ahead of the ledger; LakeDamaged if a table was not made by tidegate;
    LedgerMismatch, SchemaChanged, LakeUnavailable, LedgerUnavailable.
    """
    # Halts a ledger that was restored from a backup: its next batches are not those of the tables.
    claim_folder(app, stream)
    batches = _Batches(app, stream)
    for kind, stage in _tables_of(pipelines):
        table = shared_table(app, stream, kind, stage)
        table.catch_up(_Changes(batches, kind, stage).after)


def replace_files(
    app: App, stream: Stream, pipelines: Sequence[Pipeline], number: int, files: Mapping[str, DataFile | None]
) -> None:
    """Let the tables name rewritten files in place of the former ones, once for each erasure.

    Readers that follow a table's changes skip them: no row is new. Raises as `catch_up_tables`.

    Args:
        app: the app.
        stream: the stream, whose tables are up to the head.
        pipelines: the pipelines that planned it.
        number: the number of the erasure.
        files: path of a former file -> the file in its place; None: none of its rows is left.
    """
    application = f"{stream}/erasures"
    for kind, stage in _tables_of(pipelines):

        def replaced(table: TableVersion) -> TableChange | None:
            if table.number(application) >= number:
                return None
            former = {path: size for path, size in table.files().items() if path in files}
            added = tuple(file for path in former if (file := files[path]) is not None)
            return TableChange({application: number}, added, former, is_rearranged=True)

        table = shared_table(app, stream, kind, stage)
        table.catch_up(replaced)
        # Earlier versions name files that the erasure deletes.
        table.expire(application, number, 0)


def remove_tables_ahead(app: App, stream: Stream, pipelines: Sequence[Pipeline]) -> list[str]:
    """Remove the logs of the tables that are ahead of the ledger, and return their folders.

    `catch_up_tables` creates them again from the files that the ledger has. Raises as `check_tables`.
    """
    head, removed = app.ledger.head(stream).seq, []
    for kind, stage in _tables_of(pipelines):
        table = shared_table(app, stream, kind, stage)
        if table.number(batches_of(stream)) > head:
            table.remove()
            removed.append(table.folder)
    return removed


def expire_tables(app: App, stream: Stream, pipelines: Sequence[Pipeline], oldest: int, until: float) -> None:
    """Remove versions of the tables that name files of state before batch `oldest`, or of outboxes that have
    expired, which nobody reads, and files of their logs that no version needs and that are older than `until`
    (epoch seconds).
    """
    limit = app.ledger.expired(stream, "outbox")
    for kind, stage in _tables_of(pipelines):
        table = shared_table(app, stream, kind, stage)
        if kind == "outbox":
            table.expire(expired_in(stream), limit.seq if limit.at <= until else 0, until)
        else:
            table.expire(snapshots_of(stream), oldest, until)


def drop_tables(app: App, stream: Stream) -> None:
    """Forget the tables of a stream whose files are removed. Raises the catalog's errors."""
    table_format(app.settings).drop(app.lake(stream))


def check_tables(app: App, stream: Stream, pipeline: Pipeline) -> None:
    """Raise LakeDamaged if the folder of a stream's table has a table that tidegate did not make, and what
    keeps it from asking.
    """
    for kind, stage in _tables_of([pipeline]):
        shared_table(app, stream, kind, stage).check()


def check_columns(app: App, plan: Plan, pipeline: Pipeline, attempt: Attempt) -> None:
    """Raise SchemaChanged if a table cannot take the columns of an attempt: after the commit it would stay
    behind.
    """
    if not app.ledger.is_edited(plan.stream):
        return  # all batches have had these columns
    manifest = app.manifest(plan.stream, attempt.manifest)
    for kind, stage in _tables_of([pipeline]):
        if files := manifest.files_of(kind, stage):
            shared_table(app, plan.stream, kind, stage).check(files)


def shared_table(app: App, stream: Stream, kind: Kind, stage: str) -> SharedTable:
    """Return the table of a stage's state, or of its outbox."""
    return table_format(app.settings).table(app.lake(stream), kind, stage)


def table_format(settings: Settings) -> TableFormat:
    """Return the format of tables for other engines. Raises SettingsInvalid."""
    if settings.tables is None:
        return DeltaFormat()
    from tidegate.iceberg.catalog import CatalogConfig  # late: most users do not install PyIceberg
    from tidegate.iceberg.tables import IcebergFormat

    text = settings.iceberg(settings.tables.name)
    return IcebergFormat(CatalogConfig.parse(text, settings.tables.variable))


def _tables_of(pipelines: Iterable[Pipeline]) -> Iterator[tuple[Kind, str]]:
    pipelines = list(pipelines)
    for stage in state_stages(pipelines):
        yield "state", stage
    for stage in dict.fromkeys(stage for pipeline in pipelines for stage in pipeline.published_stages):
        yield "outbox", stage


class _Batches:
    """The committed batches and snapshots of a stream, loaded when a table needs them. Each manifest is read
    once.
    """

    def __init__(self, app: App, stream: Stream) -> None:
        self.stream = stream
        self.store = app.lake(stream).store
        self._app = app
        self._manifests: dict[str, Manifest] = {}
        self._snapshots: dict[int, list[Snapshot]] = {}
        self._start = 0
        self._batches: list[tuple[int, ManifestRef]] | None = None

    def after(self, seq: int) -> list[tuple[int, ManifestRef]]:
        """Return (seq, manifest) of the batches after batch `seq`, which a table already has.

        Raises Fenced if the ledger has not committed batch `seq`: a newer ledger has written to the table.
        """
        if self._batches is None or not self._start <= seq <= self._start + len(self._batches):
            self._start, self._batches = seq, self._app.ledger.committed(self.stream, seq)
            head = self._app.ledger.head(self.stream).seq
            if seq > head:
                raise Fenced(
                    f"{self.stream} is at batch {head}, but batch {seq} is in its tables already",
                    f"{SINK_IS_AHEAD}.",
                )
        return self._batches[seq - self._start :]

    def snapshots(self, seq: int) -> list[Snapshot]:
        """Return the snapshots that matter to a table at batch `seq`: see `LedgerReader.newest_snapshots`."""
        if seq not in self._snapshots:
            self._snapshots[seq] = self._app.ledger.newest_snapshots(self.stream, seq)
        return self._snapshots[seq]

    @cached_property
    def given_up(self) -> frozenset[int]:
        """The batches that a sink never got completely."""
        return frozenset(row.seq for row in self._app.ledger.given_up(self.stream))

    @cached_property
    def expired(self) -> int:
        """The last batch whose outboxes have expired; 0 if none have."""
        return StoredOutboxes(self._app, self.stream).expired

    def facts(self, seq: int, attempt: str) -> dict[str, str]:
        """Return what the log of a table says about a batch. `offsets`: topic-partition -> end offset."""
        plan = self._app.ledger.plan(self.stream, seq)
        ranges = plan.ranges if plan is not None else ()  # the ledger keeps no plan of an old batch
        offsets = json.dumps({f"{read.topic}-{read.partition}": read.end for read in ranges})
        return {"stream": str(self.stream), "seq": str(seq), "attempt": attempt, "offsets": offsets}

    def manifest(self, reference: ManifestRef) -> Manifest:
        """Return the manifest of a batch or a snapshot."""
        if reference.name not in self._manifests:
            self._manifests[reference.name] = self._app.manifest(self.stream, reference)
        return self._manifests[reference.name]


def _batch_of(path: str) -> int:
    """Return the batch of a file in the folder of an attempt."""
    name = Name.parse(path.split("/")[-2])
    assert name is not None, "outboxes are in the folders of attempts"
    return name.seq


@dataclass(frozen=True)
class _Changes:
    """The changes that one table lacks. Only state has snapshots."""

    batches: _Batches
    kind: Kind
    stage: str

    def after(self, table: TableVersion) -> TableChange | None:
        """Return the next change of the table in its present version; None if it is up to date.

        Batches come first, one by one, then the newest snapshot, which already contains their rows. But a
        table that is behind given-up state goes to the newest snapshot at once, since files of the batches
        before may be removed.
        """
        batch = self._batch(table)
        snapshots = self.batches.snapshots(batch) if self.kind == "state" else []
        newest = snapshots[-1] if snapshots else None
        is_given_up = any(snapshot.given_up_at is not None and batch < snapshot.seq for snapshot in snapshots)
        if newest is not None and is_given_up:
            return self._rearranged(table, newest)
        change = self._without_expired(table) or self._of_next_batch(table)
        if change is None and newest is not None and table.number(self._snapshots) < newest.seq:
            return self._rearranged(table, newest)
        return change

    def _without_expired(self, table: TableVersion) -> TableChange | None:
        """Return the change that removes the files of outboxes that have expired; None if the table has
        none.
        """
        expired = self.batches.expired
        if self.kind != "outbox" or table.number(expired_in(self.batches.stream)) >= expired:
            return None
        removed = {path: size for path, size in table.files().items() if _batch_of(path) <= expired}
        # No row is new, so readers that follow the table's changes skip this one.
        return TableChange({expired_in(self.batches.stream): expired}, (), removed, bool(removed))

    def _of_next_batch(self, table: TableVersion) -> TableChange | None:
        """Return the files of the next batch that has any; or only a number, if many batches have none."""
        batches = self.batches.after(self._batch(table))
        for seq, reference in batches:
            if files := self._files(reference):
                facts = partial(self.batches.facts, seq, reference.name)
                return TableChange({self._application: seq}, files, batch=facts)
        if len(batches) < MOST_WITHOUT_FILES:
            return None
        return TableChange({self._application: batches[-1][0]})

    def _rearranged(self, table: TableVersion, snapshot: Snapshot) -> TableChange:
        """Return the change to the files of the snapshot and of the batches after it: the same rows in other
        files.
        """
        batch = self._batch(table)
        end = max(batch, snapshot.seq)
        later = [reference for seq, reference in self.batches.after(snapshot.seq) if seq <= end]
        files = [file for reference in (snapshot.manifest, *later) for file in self._files(reference)]
        paths, existing = {file.path for file in files}, table.files()
        return TableChange(
            {self._snapshots: snapshot.seq} | ({self._application: end} if batch < end else {}),
            tuple(file for file in files if file.path not in existing),
            {path: size for path, size in existing.items() if path not in paths},
            is_rearranged=batch == end,
        )

    @property
    def _application(self) -> str:
        return batches_of(self.batches.stream)

    @property
    def _snapshots(self) -> str:
        return snapshots_of(self.batches.stream)

    def _batch(self, table: TableVersion) -> int:
        return table.number(self._application)

    def _files(self, reference: ManifestRef) -> tuple[DataFile, ...]:
        """Return the files of a batch or a snapshot, without outboxes that have expired, and without the lost
        files of one that was given up.
        """
        manifest = self.batches.manifest(reference)
        if self.kind == "outbox" and manifest.seq <= self.batches.expired:
            return ()
        files = manifest.files_of(self.kind, self.stage)
        if self.kind == "outbox" and manifest.seq in self.batches.given_up:
            return tuple(file for file in files if not verify(self.batches.store, [file]))
        return files
