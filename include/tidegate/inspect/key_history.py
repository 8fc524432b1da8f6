"""The history of a key in the batches that it concerned: state before and after, emissions, and records in
quarantine.

It comes from the lake alone, without Kafka: from changelogs, outboxes and quarantine. A record that changed
nothing is in none of them; `inspect.explain` reads it from Kafka.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow.compute as pc

from tidegate import kernel
from tidegate.app.root import App, aliases_of, batch_named, needed_by, state_after, state_named
from tidegate.inspect.emissions import (
    MOST_CHARACTERS,
    Emission,
    emissions_of_key,
    may_have,
    short_texts,
    sinks_elsewhere,
)
from tidegate.inspect.read import erased_in, planned_stage, require_not_erased
from tidegate.kernel.keys import key_hash
from tidegate.ledger import EXPIRING, Commit, Expiring, Stream
from tidegate.ledger.batches import oldest_readable
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage
from tidegate.storage.evolution import Aliases
from tidegate.storage.manifest import DataFile, Manifest
from tidegate.storage.quarantine_files import RowBounds, row_groups
from tidegate.storage.schema import PLACE
from tidegate.storage.state import read_key

MOST_BATCHES = 200
"""The most batches that are searched while somebody waits for a page."""
MOST_SECONDS = 0.8
"""A search that takes longer stops, and says how far it got: files can be in a slow store."""
MOST_UNSORTED_ROWS = 200_000
"""The most rows of a batch that are searched for a key by which they are not sorted."""
Entries = tuple[Mapping[str, Any], ...]
"""The entries of a key in a stage, as `TraceEvent.previous` has them, and with `text`: its value."""


@dataclass(frozen=True)
class StageEvents:
    """The events of a key in a stage and batch.

    Args:
        before: The entries that the batch changed, as they were before it.
        after: The same entries after it; a removed entry is missing.
        changed: Whether the batch changed an entry.
        sources: The positions of the records that changed them last.
        emissions: In the order in which they were emitted.
    """

    stage: str
    before: Entries = ()
    after: Entries = ()
    changed: bool = False
    sources: tuple[str, ...] = ()
    emissions: tuple[Emission, ...] = ()


@dataclass(frozen=True)
class QuarantinedRecord:
    """A record in quarantine whose Kafka key is the key's text.

    Args:
        source: Its position.
        value: Text of a bounded length; None for null.
    """

    source: str
    timestamp_ms: int | None
    reason: str
    value: str | None


@dataclass(frozen=True)
class KeyBatch:
    """A batch that concerned a key: `stages` has an element for each stage of the pipeline."""

    seq: int
    committed_at_ms: int
    stages: tuple[StageEvents, ...]
    quarantined: tuple[QuarantinedRecord, ...]


@dataclass(frozen=True)
class KeyHistory:
    """The batches that concerned a key, newest first.

    Args:
        searched: The number of batches that were searched.
        first: The oldest batch that was searched; 0 if none was.
        before: Older batches come before this one; None if there are none.
        last_change: The newest older batch that changed the state; None if no older state shows one.
        too_large: The number of batches whose quarantine is too large to be searched.
        expired: The emissions of batches up to this one are no longer kept; 0 if all are.
        erased: The batch that erased the key, before which nothing is left of it; 0 if none did.
    """

    batches: tuple[KeyBatch, ...]
    searched: int
    first: int
    before: int | None
    last_change: int | None
    too_large: int
    expired: int
    erased: int = 0


@dataclass(frozen=True)
class KeyState:
    """The state of a key in a stage.

    Args:
        keys: For a stage that groups the emissions of another one anew: the keys of this stage that have the
            last emissions of the key in that stage.
    """

    stage: str
    entries: Entries
    keys: tuple[str, ...] = ()


def key_states(app: App, stream: Stream, key: str, as_of: int | None = None) -> list[KeyState]:
    """Return the state of a key after batch `as_of` (None: now), for each stage of the newest plan.

    Raises StateGivenUp, KeyErased, LakeDamaged, LakeUnavailable.
    """
    reader = _KeyReader.of_stream(app, stream, key)
    if reader is None:
        return []
    seq = app.ledger.head(stream).seq if as_of is None else as_of
    require_not_erased(app, stream, seq, key)
    rows = reader.state_rows(seq)
    states = {stage: tuple(map(_entry, live_rows(rows[stage]))) for stage in rows}
    stages = {stage.name: stage for stage in reader.pipeline.stages}
    return [
        KeyState(name, entries, _keys_of(stages[name], states.get(stages[name].inputs[0], ())))
        for name, entries in states.items()
    ]


def _keys_of(stage: Stage, entries: Entries) -> tuple[str, ...]:
    """Return the keys under which a stage that regroups has these entries; none if their values do not show
    them.
    """
    if stage.key is None or stage.reads_source:
        return ()
    keys = (_key_in(entry.get("emitted"), tuple(stage.key)) for entry in entries)
    return tuple(dict.fromkeys(key for key in keys if key is not None))


def _key_in(text: str | None, names: Sequence[str]) -> str | None:
    """Return the canonical key of columns of an emitted value, as `kernel.keys`; None if it is not in it."""
    try:
        value = json.loads(text or "null")
    except ValueError:  # a long text is cut, and a digest is no JSON
        return None
    parts = {name: value.get(name) for name in names} if isinstance(value, dict) else {}
    # The text of a number with a fraction depends on its type, which JSON does not have.
    if not parts or any(part is None or isinstance(part, float | dict | list) for part in parts.values()):
        return None
    if len(parts) > 1:
        return json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
    (part,) = parts.values()
    return part if isinstance(part, str) else json.dumps(part)


def readable_states(app: App, stream: Stream) -> range:
    """Return the batches after which the state can be read; empty before the first one."""
    head = app.ledger.head(stream).seq
    return range(max(oldest_readable(app.ledger.snapshots(stream)), 1), head + 1)


def key_history(
    app: App, stream: Stream, key: str, before: int | None = None, most: int = 20
) -> KeyHistory | None:
    """Return the newest batches before `before` that concerned a key, at most `most`; None before the first
    plan.

    At most MOST_BATCHES batches are searched, for about MOST_SECONDS. Raises LakeDamaged, LakeUnavailable.
    """
    reader = _KeyReader.of_stream(app, stream, key)
    if reader is None:
        return None
    commits = app.ledger.newest_commits(stream, before, MOST_BATCHES + 1)
    deadline = time.monotonic() + MOST_SECONDS
    batches: list[_BatchRows] = []
    searched = 0
    for commit in commits[:MOST_BATCHES]:
        if len(batches) >= most or (searched and time.monotonic() > deadline):
            break
        searched += 1
        rows = reader.batch_rows(commit)
        if rows.concern_key:
            batches.append(rows)
    first = commits[searched - 1].seq if searched else 0
    states = reader.state_rows(first - 1) if first - 1 >= reader.oldest_state else {}
    return KeyHistory(
        batches=tuple(_with_states_before(reader.with_sinks(batches), reader.stages, states, reader.bounded)),
        searched=searched,
        first=first,
        before=first if searched < len(commits) else None,
        last_change=max((row["updated_seq"] for rows in states.values() for row in rows), default=None),
        too_large=reader.too_large,
        expired=reader.expired["outbox"],
        erased=erased_in(app, stream, key),
    )


@dataclass(frozen=True)
class _BatchRows:
    """The rows of a batch about a key. `states`: stage -> the state rows that the batch wrote."""

    commit: Commit
    states: Mapping[str, Sequence[Mapping[str, Any]]]
    emissions: Mapping[str, tuple[Emission, ...]]
    quarantined: tuple[QuarantinedRecord, ...]

    @property
    def concern_key(self) -> bool:
        """Whether there is any row."""
        return any(self.states.values()) or any(self.emissions.values()) or bool(self.quarantined)


@dataclass
class _KeyReader:
    """Reads the rows about a key; manifests that several states share are read once."""

    app: App
    stream: Stream
    key: str
    pipeline: Pipeline
    oldest_state: int
    expired: Mapping[Expiring, int]
    too_large: int = 0

    @classmethod
    def of_stream(cls, app: App, stream: Stream, key: str) -> _KeyReader | None:
        """Return a reader; None before the first plan."""
        planned = planned_stage(app, stream, None)
        if planned is None:
            return None
        expired = {kind: app.ledger.expired(stream, kind).seq for kind in EXPIRING}
        oldest_state = oldest_readable(app.ledger.snapshots(stream))
        return cls(app, stream, key, planned[0], oldest_state, expired)

    @cached_property
    def stages(self) -> tuple[str, ...]:
        """The stages of the pipeline, as last planned."""
        return tuple(stage.name for stage in self.pipeline.stages)

    @cached_property
    def bounded(self) -> frozenset[str]:
        """The stages whose files are sorted by topic-partition, and not by key."""
        stages = self.pipeline.stages
        return frozenset(
            stage.name for stage in stages if kernel_stage(self.pipeline, stage).bound is not None
        )

    @cached_property
    def _aliases(self) -> dict[str, Aliases]:
        seq = self.app.ledger.head(self.stream).seq
        return {stage: aliases_of(self.app.ledger, self.stream, seq, stage) for stage in self.stages}

    @cached_property
    def _sinks_elsewhere(self) -> dict[str, frozenset[str]]:
        return {stage.name: sinks_elsewhere(self.pipeline, stage) for stage in self.pipeline.stages}

    def state_rows(self, seq: int) -> dict[str, list[dict[str, Any]]]:
        """Return stage -> the newest row of each entry after a batch, live or not."""
        if seq < 1:
            return {}
        with needed_by(state_named(self.stream, seq)):
            references = self.app.ledger.state_manifests(self.stream, seq)
            files = state_after(self.app, self.stream, references)
            return {stage: self._stored(stage, files.get(stage, ())) for stage in self.stages}

    def batch_rows(self, commit: Commit) -> _BatchRows:
        """Return the rows that a batch has written."""
        with needed_by(batch_named(self.stream, commit.seq)):
            manifest = self.app.manifest(self.stream, commit.manifest)
            return _BatchRows(
                commit,
                {stage: self._changes(manifest, commit.seq, stage) for stage in self.stages},
                {stage: self._emissions(manifest, commit.seq, stage) for stage in self.stages},
                self._quarantined(manifest, commit.seq),
            )

    def _changes(self, manifest: Manifest, seq: int, stage: str) -> list[dict[str, Any]]:
        # A changelog before the oldest state may have been removed.
        files = manifest.files_of("state", stage) if seq > self.oldest_state else ()
        return self._stored(stage, files)

    def _stored(self, stage: str, files: Sequence[DataFile]) -> list[dict[str, Any]]:
        files = [file for file in files if stage in self.bounded or may_have(file, self._hash)]
        if not files:
            return []
        store = self.app.lake(self.stream).store
        rows = read_key(store, files, self.key, stage in self.bounded, self._aliases[stage])
        shown = self._reduce(stage).shown(rows) if "value" in rows.column_names else rows
        texts = short_texts(shown["value" if "value" in rows.column_names else "digest"])
        sides = shown["side"].to_pylist() if "side" in shown.column_names else [None] * rows.num_rows
        last = short_texts(rows["emitted" if "emitted" in rows.column_names else "digest"])
        entries = zip(rows.to_pylist(), texts, last, sides, strict=True)
        return [
            {**row, "text": text, "emitted": emitted, "side": side} for row, text, emitted, side in entries
        ]

    def _reduce(self, stage: str) -> kernel.Reduce:
        return next(made.reduce for made in self.pipeline.stages if made.name == stage)

    def _emissions(self, manifest: Manifest, seq: int, stage: str) -> tuple[Emission, ...]:
        files = manifest.files_of("outbox", stage) if seq > self.expired["outbox"] else ()
        if not files:
            return ()
        hash_ = None if stage in self.bounded else self._hash
        store = self.app.lake(self.stream).store
        newest_first = emissions_of_key(store, files, seq, self.key, hash_)
        return tuple(reversed(newest_first))

    def with_sinks(self, batches: Sequence[_BatchRows]) -> list[_BatchRows]:
        """Return the rows with the sinks that have each emission, by one query for all batches."""
        emitting = [rows.commit.seq for rows in batches if any(rows.emissions.values())]
        published = self.app.ledger.sinks_of(self.stream, emitting) if emitting else {}
        return [
            replace(
                rows,
                emissions={
                    stage: self._sent(emissions, published.get(rows.commit.seq, ()), stage)
                    for stage, emissions in rows.emissions.items()
                },
            )
            for rows in batches
        ]

    def _sent(
        self, emissions: tuple[Emission, ...], published: Sequence[str], stage: str
    ) -> tuple[Emission, ...]:
        sinks = tuple(name for name in published if name not in self._sinks_elsewhere[stage])
        return tuple(replace(emission, sinks=sinks) for emission in emissions)

    @cached_property
    def _hash(self) -> int:
        return key_hash(self.key)

    def _quarantined(self, manifest: Manifest, seq: int) -> tuple[QuarantinedRecord, ...]:
        files = manifest.files_of("quarantine") if seq > self.expired["quarantine"] else ()
        if sum(file.rows for file in files) > MOST_UNSORTED_ROWS:
            self.too_large += 1
            return ()
        return tuple(record for file in files for record in self._quarantined_in(file))

    def _quarantined_in(self, file: DataFile) -> list[QuarantinedRecord]:
        records: list[QuarantinedRecord] = []
        for group in row_groups(self.app.lake(self.stream).store, file, RowBounds()):
            # Values can be long: only row groups with the key are read whole.
            is_own = pc.fill_null(pc.equal(group.read(["key"])["key"], self.key.encode()), False)
            if pc.any(is_own).as_py():
                columns = ("topic", "partition", "offset", "timestamp", "reason", "value")
                records += map(_quarantined_record, group.read(columns).filter(is_own).to_pylist())
        return records


def live_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the state rows of entries that exist."""
    return [row for row in rows if row["live"]]


def _with_states_before(
    newest_first: Sequence[_BatchRows],
    stages: Sequence[str],
    states: Mapping[str, Sequence[Mapping[str, Any]]],
    bounded: Collection[str] = (),
) -> list[KeyBatch]:
    """Return the batches, newest first, with the state before each.

    Args:
        states: Stage -> the rows of the key before the oldest of the batches.
        bounded: Stages whose rows also differ in their topic-partition.
    """
    now = {stage: _by_entry(states.get(stage, ()), stage in bounded) for stage in stages}
    batches = []
    for rows in reversed(newest_first):
        lanes = []
        for stage in stages:
            changes = rows.states.get(stage, ())
            changed = _by_entry(changes, stage in bounded)
            previous = [now[stage][entry] for entry in changed if entry in now[stage]]
            now[stage] |= changed
            lanes.append(
                StageEvents(
                    stage,
                    tuple(map(_entry, live_rows(previous))),
                    tuple(map(_entry, live_rows(changes))),
                    bool(changes),
                    tuple(dict.fromkeys(_source(row) for row in changes if row["topic"] is not None)),
                    rows.emissions.get(stage, ()),
                )
            )
        batches.append(KeyBatch(rows.commit.seq, rows.commit.committed_at_ms, tuple(lanes), rows.quarantined))
    return batches[::-1]


def _by_entry(rows: Sequence[Mapping[str, Any]], by_place: bool) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """Return the rows of a key by their entries."""
    # In a stage that is not bounded the topic-partition is only that of the last record.
    names = ("window_start", "window_end", *(PLACE if by_place else ()))
    return {tuple(row[name] for name in names): row for row in rows}


def _entry(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state row as an entry of `TraceEvent.previous`, with its value as `text`."""
    entry: dict[str, Any] = {"text": row["text"], "seq": row["updated_seq"], "source": _source(row)}
    entry["timestamp_ms"] = row["timestamp"]
    if row.get("side") is not None:
        # Its window is no window of the stage: it begins with the record.
        entry |= {"side": row["side"], "timestamp": row["timestamp"]}
    elif row["window_start"] is not None:
        entry["window"] = (row["window_start"], row["window_end"])
    if row["emitted"] is not None:
        entry["emitted"] = row["emitted"]
    if row["pending"]:
        entry["held"] = row["pending"]
    if row["due_at"] is not None:
        entry["due"] = row["due_at"]
    if row.get("expires_at") is not None:
        entry["expires"] = row["expires_at"]
    return entry


def _source(row: Mapping[str, Any]) -> str:
    return f"{row['topic']}[{row['partition']}] {row['offset']}"


def _quarantined_record(row: Mapping[str, Any]) -> QuarantinedRecord:
    value = row["value"]
    # a character of UTF-8 has at most four bytes
    text = None if value is None else value[: 4 * MOST_CHARACTERS].decode(errors="backslashreplace")
    return QuarantinedRecord(
        _source(row), row["timestamp"], row["reason"], text if text is None else text[:MOST_CHARACTERS]
    )
