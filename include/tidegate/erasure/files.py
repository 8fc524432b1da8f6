"""Rewrite the files of a stream without the rows of erased keys.

A file is never changed: another file takes its place, in the same folder, and new manifests name it. Nothing
counts before the ledger has the new manifests, all in one transaction.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.app.outboxes import StoredOutboxes
from tidegate.app.root import App
from tidegate.erasure.keys import ErasedKeys
from tidegate.failpoints import failpoint
from tidegate.ledger import ManifestRef, Rewritten, Stream
from tidegate.ledger.facts import salted
from tidegate.maintenance.cleaning import oldest_readable
from tidegate.model.kernel_stages import DEDUPLICATION
from tidegate.storage import DataFile, Manifest, Store
from tidegate.storage.datafile import data_errors, open_data, rewritten
from tidegate.storage.manifest import manifest_file, manifest_of
from tidegate.storage.schema import KEY, KEY_COLUMNS, SEQ, UPDATED_SEQ

_BATCH_COLUMNS = {"state": UPDATED_SEQ, "outbox": SEQ, "quarantine": SEQ}
"""The column with the batch that wrote a row, by kind."""


@dataclass(frozen=True)
class ReadManifest:
    """A manifest that readers use. `files` are those of its files that they read."""

    reference: ManifestRef
    manifest: Manifest
    files: tuple[DataFile, ...]


def read_manifests_of(app: App, stream: Stream) -> Iterator[ReadManifest]:
    """Yield the manifests of all batches, snapshots and resolutions that readers use.

    State that is given up, and quarantine and outboxes that are expired, are not read any more. Raises
    LakeDamaged, LakeUnavailable.
    """
    names = app.ledger.known_names(stream)
    oldest = oldest_readable(names.snapshots, math.inf)
    unread = {"state": oldest} | {kind: limit.seq for kind, limit in names.expired.items()}
    for seq, reference in names.committed.items():
        manifest = app.manifest(stream, reference)
        kinds = {kind for kind, last in unread.items() if seq > last}
        yield ReadManifest(reference, manifest, tuple(file for file in manifest.files if file.kind in kinds))
    whole = [snapshot.manifest for snapshot in names.snapshots if snapshot.seq >= oldest]
    resolutions = names.resolutions.values()
    whole += [
        made.manifest for made in resolutions if max(made.last_batch, made.seq or 0) > unread["quarantine"]
    ]
    for reference in whole:
        manifest = app.manifest(stream, reference)
        yield ReadManifest(reference, manifest, manifest.files)


def key_columns_in(file: DataFile, schema: pa.Schema) -> Sequence[str] | None:
    """Return the columns that the keys in a file are made of; None if the file does not say it."""
    if file.kind == "state":
        return None if file.key_types is None else list(json.loads(file.key_types))
    return [column.name for column in schema.field(KEY_COLUMNS).type]


def kept_schema(app: App, stream: Stream, stage: str) -> pa.Schema | None:
    """Return the columns of the newest outbox of a stage that is kept; None if none is.

    Raises LakeDamaged, LakeUnavailable.
    """
    store = app.lake(stream).store
    for _, reference in reversed(app.ledger.committed(stream, StoredOutboxes(app, stream).expired)):
        for file in app.manifest(stream, reference).files_of("outbox", stage):
            with open_data(store, file) as parquet:
                return parquet.schema_arrow.remove_metadata()
    return None


def rows_of_keys(file: DataFile, keys: ErasedKeys, rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows are of the keys. Raises nothing: what cannot be known is not of them."""
    return pc.fill_null(_are_of_keys(file, keys, rows), False)


def _are_of_keys(file: DataFile, keys: ErasedKeys, rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows are of the keys; null for a record whose key cannot be known."""
    if file.kind == "quarantine":
        records = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
        return pa.chunked_array([pa.array([keys.is_in_record(*record) for record in records], pa.bool_())])
    return keys.mask(key_columns_in(file, rows.schema), rows[KEY], file.stage == DEDUPLICATION)


def columns_to_compare(file: DataFile, schema: pa.Schema) -> list[str]:
    """Return the columns that `rows_of_keys` reads, and that with the batch."""
    compared = {"state": [KEY], "outbox": [KEY, KEY_COLUMNS], "quarantine": ["key", "value"]}[file.kind]
    return [name for name in (*compared, _BATCH_COLUMNS[file.kind]) if name in schema.names]


@dataclass
class Survey:
    """The rows of some keys in the files of a stream.

    Args:
        rows: kind and stage -> number of rows.
        files: kind and stage -> number of files with such rows.
        unmatched: kind and stage of files whose keys do not contain the erased ones -> the columns of their
            keys.
        batches: the batches that wrote the rows.
        entries: the distinct keys.
        unknown: records in quarantine whose key cannot be known.
    """

    rows: Counter[tuple[str, str]] = field(default_factory=Counter)
    files: Counter[tuple[str, str]] = field(default_factory=Counter)
    unmatched: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    batches: set[int] = field(default_factory=set)
    entries: set[str] = field(default_factory=set)
    unknown: int = 0

    def add(self, store: Store, file: DataFile, keys: ErasedKeys) -> bool:
        """Look for rows of the keys in a file. Returns whether it has any.

        Raises LakeDamaged, LakeUnavailable.
        """
        place = (file.kind, file.stage)
        number = 0
        with open_data(store, file) as parquet:
            if file.kind != "quarantine":
                columns = key_columns_in(file, parquet.schema_arrow)
                if not keys.may_match(columns):
                    self.unmatched[place] = tuple(columns or ())
                    return False
            for rows in _row_groups(store, file, parquet, columns_to_compare(file, parquet.schema_arrow)):
                number += self._add_rows(file, keys, rows)
        self.rows[place] += number
        self.files[place] += bool(number)
        return bool(number)

    def _add_rows(self, file: DataFile, keys: ErasedKeys, rows: pa.Table) -> int:
        mask = _are_of_keys(file, keys, rows)
        matching = rows.filter(mask)  # a null is left out
        self.batches.update(filter(None, pc.unique(matching[_BATCH_COLUMNS[file.kind]]).to_pylist()))
        self.unknown += mask.null_count
        if file.kind != "quarantine":
            self.entries.update(pc.unique(matching[KEY]).to_pylist())
        number: int = matching.num_rows
        return number


def survey(app: App, stream: Stream, keys: ErasedKeys) -> Survey:
    """Return where a stream has rows of the keys. Writes nothing. Raises LakeDamaged, LakeUnavailable."""
    survey, store = Survey(), app.lake(stream).store
    for file in _distinct_files(read_manifests_of(app, stream)):
        survey.add(store, file, keys)
    return survey


def rewrite(app: App, stream: Stream, number: int, keys: ErasedKeys, salt: str) -> Rewritten:
    """Write files without the rows of the keys, and the manifests that name them.

    Readers do not find these before the ledger has them. Raises LakeDamaged, LakeUnavailable.
    """
    store, survey = app.lake(stream).store, Survey()
    manifests = list(read_manifests_of(app, stream))
    replaced: dict[str, DataFile | None] = {}
    files: list[dict[str, str]] = []
    for file in _distinct_files(manifests):
        if survey.add(store, file, keys):
            replaced[file.path] = written = _without_keys(store, file, keys, number)
            files.append(_listed(file.kind, file.stage, file, written))
    references = {}
    for read in manifests:
        if any(file.path in replaced for file in read.files):
            references[read.reference.name] = reference = _write_manifest(app, stream, read, replaced)
            files.append(_manifests_listed(app, stream, read.reference, reference))
    rows = Counter[str]()
    for (kind, _), count in survey.rows.items():
        rows[kind] += count
    entries = tuple(sorted(salted(salt, entry) for entry in survey.entries - {*keys.texts}))
    return Rewritten(references, dict(rows), tuple(files), tuple(sorted(survey.batches)), entries)


def _distinct_files(manifests: Iterable[ReadManifest]) -> Iterator[DataFile]:
    """Yield each file once: a snapshot names files of attempts, too."""
    paths: set[str] = set()
    for read in manifests:
        for file in read.files:
            if file.path not in paths:
                paths.add(file.path)
                yield file


def _row_groups(
    store: Store, file: DataFile, parquet: pq.ParquetFile, columns: Sequence[str] | None
) -> Iterator[pa.Table]:
    for group in range(parquet.num_row_groups):
        with data_errors(store, file):
            yield parquet.read_row_group(group, columns=columns)


def _without_keys(store: Store, file: DataFile, keys: ErasedKeys, number: int) -> DataFile | None:
    """Write the other rows of a file into another one beside it; None if there are none."""
    stem = file.path.removesuffix(".parquet").partition(".erased-")[0]
    path = f"{stem}.erased-{number}-{uuid4().hex[:8]}.parquet"

    def remaining(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.invert(rows_of_keys(file, keys, rows)))

    with failpoint("erase.rewrite"):
        return rewritten(store, file, path, remaining)


def _write_manifest(
    app: App, stream: Stream, read: ReadManifest, replaced: dict[str, DataFile | None]
) -> ManifestRef:
    files = (replaced.get(file.path, file) for file in read.manifest.files)
    manifest = manifest_of(
        read.manifest.name, read.manifest.seq, [file for file in files if file is not None]
    )
    return app.write_manifest(stream, manifest)


def _listed(kind: str, stage: str, before: DataFile, after: DataFile | None) -> dict[str, str]:
    paths = {"before": before.path, "digest_before": before.digest}
    now = (
        {"after": "", "digest_after": ""}
        if after is None
        else {"after": after.path, "digest_after": after.digest}
    )
    return {"kind": kind, "stage": stage} | paths | now


def _manifests_listed(app: App, stream: Stream, before: ManifestRef, after: ManifestRef) -> dict[str, str]:
    folder = app.lake(stream).manifests(before.name)
    return {
        "kind": "manifest",
        "stage": "",
        "before": f"{folder}/{manifest_file(before.digest)}",
        "digest_before": before.digest,
        "after": f"{folder}/{manifest_file(after.digest)}",
        "digest_after": after.digest,
    }
