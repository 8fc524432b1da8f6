"""Tables for others are brought up to the head, from wherever they are. It needs no lease.

State and outbox of each stage are a Delta table, whose log says how far it is: with each batch's files goes
the batch's number, and with a snapshot's that of the batch that it was made after. Who comes next, a
publication or a cleaning, applies what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tidegate.app.owner import claim_folder
from tidegate.app.root import App
from tidegate.errors import SINK_IS_AHEAD, Fenced
from tidegate.lake import DataFile, Lake, Manifest
from tidegate.lake.manifest import Kind
from tidegate.lake.outbox import SHARED_COLUMNS
from tidegate.lake.schema import STATE_COLUMNS
from tidegate.lake.tables import SharedTable, TableChange, TableVersion
from tidegate.lake.verify import verify
from tidegate.ledger import ManifestRef, Snapshot, Stream
from tidegate.spec import Pipeline
from tidegate.spec.kernel import state_stages

MOST_WITHOUT_FILES = 16
"""So many batches in a row may have no files for a table before it is told of them: who comes next would
have to read all of their manifests again."""


def batches_of(stream: Stream) -> str:
    """The application whose number in a table is that of the last batch whose files it has."""
    return str(stream)


def snapshots_of(stream: Stream) -> str:
    """The application whose number is that of the last snapshot that the table was rearranged to."""
    return f"{stream}/snapshots"


def catch_up_tables(app: App, stream: Stream, pipelines: Sequence[Pipeline]) -> None:
    """Bring the tables of all stages of these pipelines, which planned the stream, up to the head.

    Raises Fenced when a table is further than the ledger; LakeDamaged when one is none of this tidegate's;
    LedgerMismatch, SchemaChanged, LakeUnavailable, LedgerUnavailable.
    """
    claim_folder(app, stream)
    batches = _Batches(app, stream)
    for kind, stage in _tables_of(pipelines):
        table = shared_table(app.lake(stream), kind, stage)
        table.catch_up(_Changes(batches, kind, stage).after)


def remove_tables_ahead(app: App, stream: Stream, pipelines: Sequence[Pipeline]) -> list[str]:
    """Remove the logs of the tables that are further than the ledger, and return their folders.

    `catch_up_tables` makes them anew from the files that the ledger knows. Raises as `check_tables`.
    """
    lake, head, removed = app.lake(stream), app.ledger.head(stream).seq, []
    for kind, stage in _tables_of(pipelines):
        table = shared_table(lake, kind, stage)
        if table.number(batches_of(stream)) > head:
            table.remove_log()
            removed.append(table.folder)
    return removed


def check_tables(app: App, stream: Stream, pipeline: Pipeline) -> None:
    """Raises LakeDamaged when other tables lie where those of a stream have their place; LakeUnavailable."""
    for kind, stage in _tables_of([pipeline]):
        shared_table(app.lake(stream), kind, stage).check()


def shared_table(lake: Lake, kind: Kind, stage: str) -> SharedTable:
    """The table of a stage's state, or of its outbox."""
    columns = STATE_COLUMNS if kind == "state" else SHARED_COLUMNS
    return SharedTable(lake.store, lake.table(kind, stage), columns)


def _tables_of(pipelines: Iterable[Pipeline]) -> Iterator[tuple[Kind, str]]:
    pipelines = list(pipelines)
    for stage in state_stages(pipelines):
        yield "state", stage
    for stage in dict.fromkeys(stage for pipeline in pipelines for stage in pipeline.published_stages):
        yield "outbox", stage


class _Batches:
    """The committed batches and the snapshots of a stream, asked for when a table needs them.

    Each manifest is read once.
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
        """(seq, manifest) of those after batch `seq`, which somebody says is committed. Raises Fenced."""
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
        """What a table that is at batch `seq` has to know of: see `LedgerReader.newest_snapshots`."""
        if seq not in self._snapshots:
            self._snapshots[seq] = self._app.ledger.newest_snapshots(self.stream, seq)
        return self._snapshots[seq]

    @cached_property
    def given_up(self) -> frozenset[int]:
        """The batches of which a sink never got all."""
        return frozenset(row.seq for row in self._app.ledger.given_up(self.stream))

    def manifest(self, known: ManifestRef) -> Manifest:
        """A batch's or a snapshot's files."""
        if known.name not in self._manifests:
            self._manifests[known.name] = self._app.manifest(self.stream, known)
        return self._manifests[known.name]


@dataclass(frozen=True)
class _Changes:
    """What one table lacks. Only state has snapshots."""

    batches: _Batches
    kind: Kind
    stage: str

    def after(self, table: TableVersion) -> TableChange | None:
        """The next change of the table as it is.

        Batch by batch, and then the newest snapshot: a batch's files would be in it already. Only a table
        that is behind state that was given up, of which files may be removed, goes there at once.
        """
        batch = self._batch(table)
        snapshots = self.batches.snapshots(batch) if self.kind == "state" else []
        newest = snapshots[-1] if snapshots else None
        is_given_up = any(each.given_up_at is not None and batch < each.seq for each in snapshots)
        if newest is not None and is_given_up:
            return self._rearranged(table, newest)
        change = self._of_next_batch(table)
        if change is None and newest is not None and table.number(self._snapshots) < newest.seq:
            return self._rearranged(table, newest)
        return change

    def _of_next_batch(self, table: TableVersion) -> TableChange | None:
        """The files of the next batch that has any; or only a number, where many have none."""
        batches = self.batches.after(self._batch(table))
        for seq, known in batches:
            if files := self._files(known):
                return TableChange({self._application: seq}, files)
        if len(batches) < MOST_WITHOUT_FILES:
            return None
        return TableChange({self._application: batches[-1][0]})

    def _rearranged(self, table: TableVersion, snapshot: Snapshot) -> TableChange:
        """The same rows in other files: those of the snapshot and of the batches after it, and no others."""
        batch = self._batch(table)
        end = max(batch, snapshot.seq)
        later = [known for seq, known in self.batches.after(snapshot.seq) if seq <= end]
        files = [file for known in (snapshot.manifest, *later) for file in self._files(known)]
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

    def _files(self, known: ManifestRef) -> tuple[DataFile, ...]:
        """The files of a batch or a snapshot, without what is lost of an outbox that was given up."""
        manifest = self.batches.manifest(known)
        files = manifest.files_of(self.kind, self.stage)
        if self.kind == "outbox" and manifest.seq in self.batches.given_up:
            return tuple(file for file in files if not verify(self.batches.store, [file]))
        return files
