"""The newest emissions of a stage, all of them or those of a key, for a page: few files are opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.app.outboxes import StoredOutboxes
from tidegate.app.root import App, batch_named, needed_by
from tidegate.inspect.read import erased_in, planned_stage
from tidegate.kernel.json_text import encoder
from tidegate.kernel.keys import key_hash
from tidegate.ledger import Stream
from tidegate.ledger.report import HistoryEntry, batch_history
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage
from tidegate.storage import Store
from tidegate.storage.datafile import data_errors, first_rows, open_data
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import AT, KEY, REASON, SOURCE, TIMESTAMP, VALUE, WINDOW

MOST_BATCHES = 200
"""The most batches that are searched while somebody waits for a page."""
MOST_CHARACTERS = 300
_HASH_COLUMN = 0
"""The place of the hash, which is the first column of an outbox."""
_COLUMNS = (KEY, *WINDOW, VALUE, REASON, TIMESTAMP, AT, SOURCE)


@dataclass(frozen=True)
class Emission:
    """An emission of a committed batch.

    Args:
        value: JSON text of at most MOST_CHARACTERS characters; None for a deletion.
        at_ms: When it happened, by the stage's clock.
        source: The positions of the records that it comes from, oldest first.
        sinks: The sinks of the stage that have the batch.
    """

    seq: int
    key: str
    window: tuple[int, int] | None
    value: str | None
    reason: str
    timestamp_ms: int
    at_ms: int
    source: str
    sinks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Emissions:
    """The newest emissions, those of the newest batch first; a key's own are the newest first, too.

    Args:
        searched: The number of batches that were searched.
        before: Older emissions are in batches before this one; None if there are no older batches.
        expired: The emissions of batches up to this one are no longer kept; 0 if all are.
        erased: The batch that erased the key, before which nothing is left of it; 0 if none did.
    """

    rows: Sequence[Emission]
    searched: int
    before: int | None
    expired: int = 0
    erased: int = 0


def newest_emissions(
    app: App,
    stream: Stream,
    stage: str,
    key: str | None = None,
    before: int | None = None,
    most: int = 50,
    is_withheld: bool | None = None,
) -> Emissions:
    """Return emissions of the newest batches, of as many batches as have `most` emissions together.

    Args:
        stage: A stage that has a sink: emissions of others are not stored.
        key: Only its emissions, all of each batch; None for the first emissions of each batch.
        before: Only those of batches before this one; None for all.
        is_withheld: Only those that are withheld (True), or that go out (False); None for both.

    Raises LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    planned = planned_stage(app, stream, stage)
    # files of a bounded stage are sorted by the hash of the topic-partition: any of them may have the key
    hash_ = key_hash(key) if key and planned and kernel_stage(*planned).bound is None else None
    elsewhere = sinks_elsewhere(*planned) if planned else frozenset()
    expired = StoredOutboxes(app, stream).expired
    history = batch_history(app.ledger, stream, before, MOST_BATCHES + 1)
    entries = [entry for entry in history if entry.seq > expired]
    charge = app.ledger.charge(stream.pipeline)
    rows: list[Emission] = []
    searched = 0
    for entry in entries[:MOST_BATCHES]:
        if len(rows) >= most:
            break
        searched += 1
        # Before any file is opened: the ledger alone says which batches go out.
        if is_withheld in (None, not charge.goes_out(stream.generation, entry.seq)):
            emissions = _of_batch(app, entry, stage, key, hash_, most - len(rows))
            published = entry.report.published if entry.report else ()
            sinks = tuple(name for name in published if name not in elsewhere)
            rows += [replace(emission, sinks=sinks) for emission in emissions]
    older = entries[searched].seq + 1 if searched < len(entries) else None
    return Emissions(rows, searched, older, expired, erased_in(app, stream, key) if key else 0)


def _of_batch(
    app: App, entry: HistoryEntry, stage: str, key: str | None, hash_: int | None, most: int
) -> list[Emission]:
    emitted = entry.report.stages.get(stage, {}).get("emitted", 0) if entry.report is not None else 0
    # The ledger says which batches have emitted something, so the manifests of others are not read.
    if entry.report is None or entry.committed_at_ms is None or not emitted:
        return []
    assert entry.manifest is not None, "a committed batch has an attempt"
    with needed_by(batch_named(entry.stream, entry.seq)):
        files = app.manifest(entry.stream, entry.manifest).files_of("outbox", stage)
        store = app.lake(entry.stream).store
        if key is not None:
            return emissions_of_key(store, files, entry.seq, key, hash_)
        read = first_rows(store, files, _COLUMNS, most)
        return [emission for rows in read for emission in _emissions(entry.seq, rows)]


def sinks_elsewhere(pipeline: Pipeline, stage: Stage) -> frozenset[str]:
    """Return the sinks that get nothing of a stage: those of other stages, and the topic of dead letters.

    A sink of an older pipeline file is not among them: a batch that it has may be of this stage.
    """
    own = {sink.name for sink in pipeline.sinks_of(stage)}
    return frozenset(sink.name for sink in pipeline.outputs) - own


def emissions_of_key(
    store: Store, files: Sequence[DataFile], seq: int, key: str, hash_: int | None
) -> list[Emission]:
    """Return the emissions of a key in an outbox, the newest first, without their sinks. Raises LakeDamaged,
    LakeUnavailable.

    Args:
        files: The files of the outbox of a stage in batch `seq`.
        hash_: The hash of the key, by which files are sorted; None: they are not.
    """
    read = _rows_of_key(store, files, key, hash_)
    return [emission for rows in read for emission in _emissions(seq, rows)]


def _rows_of_key(store: Store, files: Sequence[DataFile], key: str, hash_: int | None) -> Iterator[pa.Table]:
    """Yield the emissions of a key, the newest first.

    Args:
        hash_: The hash of the key, by which files are sorted; None: they are not.
    """
    for file in reversed(files):
        if not may_have(file, hash_):
            continue
        with open_data(store, file) as parquet, data_errors(store, file):
            groups = [group for group in range(parquet.num_row_groups) if _may_have(parquet, group, hash_)]
            rows = parquet.read_row_groups(groups, columns=list(_COLUMNS))
            rows = rows.filter(pc.equal(rows[KEY], key))
            yield rows.take(pa.array(range(rows.num_rows)[::-1], pa.int64()))


def may_have(file: DataFile, hash_: int | None) -> bool:
    """Return whether a file may have a hash, by its bounds; True if the hash is None."""
    return _is_within(hash_, file.least_hash, file.most_hash)


def _may_have(parquet: pq.ParquetFile, group: int, hash_: int | None) -> bool:
    """Return whether a row group may have a hash, by its statistics."""
    statistics = parquet.metadata.row_group(group).column(_HASH_COLUMN).statistics
    has_bounds = statistics is not None and statistics.has_min_max
    return not has_bounds or _is_within(hash_, statistics.min, statistics.max)


def _is_within(hash_: int | None, least: int | None, most: int | None) -> bool:
    """Return whether a hash is between two others; True if one of the three is unknown."""
    return hash_ is None or least is None or most is None or least <= hash_ <= most


def _emissions(seq: int, rows: pa.RecordBatch | pa.Table) -> Iterator[Emission]:
    texts = short_texts(rows[VALUE])
    for row, value in zip(rows.drop_columns([VALUE]).to_pylist(), texts, strict=True):
        start, end = (row[name] for name in WINDOW)
        yield Emission(
            seq=seq,
            key=row[KEY],
            window=None if start is None else (start, end),
            value=value,
            reason=row[REASON],
            timestamp_ms=row[TIMESTAMP],
            at_ms=row[AT],
            source=row[SOURCE] or "",
        )


def short_texts(values: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Return values as JSON text of at most MOST_CHARACTERS characters; None for null."""
    text_of = encoder(values.type)
    texts = (None if value is None else text_of(value) for value in values.to_pylist())
    return [
        text if text is None or len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"
        for text in texts
    ]
