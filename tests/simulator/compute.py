"""Replace Spark by a tiny pure computation, and the tables that it writes.

Values go out on change, with a running count per key, the batch's clock and the one that its partition had
before, so that every emission of a key is another one. With two stages, the second lets every other change
through. What the first one refuses counts, and is no candidate: it does not go out, and is not remembered.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any
from zlib import crc32

import pyarrow as pa

from tests.simulator import grammar
from tests.simulator.broker import Broker, Log
from tests.simulator.emissions import Decided, Emission, Read, State
from tests.simulator.lookups import NOTHING, DeltaTables, LookedUp, Rows, decide_joined
from tests.simulator.replays import Unusable, is_bad, is_refused, replayed
from tests.simulator.tree import decide_tree, is_tree
from tests.simulator.world import Violation, World
from tidegate import kernel
from tidegate.errors import BrokerUnavailable, LakeDamaged, LakeUnavailable, OffsetsLost
from tidegate.ledger import Attempt, ManifestRef, Plan, Stream
from tidegate.model.pipeline import Pipeline
from tidegate.sinks.outbox import Outbox
from tidegate.spark.computation import Before, Computed
from tidegate.spark.lookups import DeltaVersion, PinnedTable
from tidegate.storage import LedgerMark, Store
from tidegate.storage.manifest import DataFile, Manifest, manifest_of
from tidegate.storage.quarantine_files import QUARANTINE

MALFORMED = "malformed"
FIRST, SECOND = "changes", "every_other"

_START_SECONDS = 2.0
"""From the last look at Kafka until Spark reads: it has to start."""

Logs = Mapping[str, Sequence[Log]]
"""Topic -> the logs of its partitions."""


def decide(plan: Plan, records: Iterable[Read], before: State, looked_up: LookedUp = NOTHING) -> Decided:
    """A batch, from its records, the state that it starts from, and the tables that it looks up."""
    if is_tree(plan):
        return decide_tree(plan, records, before)
    if looked_up.rows:
        return decide_joined(plan, records, before, looked_up)
    return drain(plan, before) if plan.drain else _decide(plan, records, before)


def drain(plan: Plan, before: State) -> Decided:
    """Emit what the second stage suppresses."""
    state, drained = {}, []
    for key, (value, count, changes) in sorted(before.items()):
        if changes % 2:
            state[key] = (value, count, changes + 1)
            drained.append(Emission(key, f"{value}, drained at {plan.clock_ms}", plan.clock_ms, "drain"))
    return Decided(state, {FIRST: [], SECOND: drained})


def _decide(plan: Plan, records: Iterable[Read], before: State) -> Decided:
    state: State = {}
    emissions: dict[str, list[Emission]] = {FIRST: [], SECOND: []}
    unusable, refused = [], []
    for topic, partition, offset, record in records:
        if is_bad(record):
            unusable.append((topic, partition, offset, record))
            continue
        key, value = record.key.decode(), (record.value or b"").decode()
        last, count, changes = state.get(key) or before.get(key, (None, 0, 0))
        if is_refused(record):
            state[key] = (last, count + 1, changes)
            refused.append((topic, partition, offset, record))
            continue
        changed = value != last
        state[key] = (value, count + 1, changes + changed)
        if not changed:
            continue
        time = f"at {plan.clock_ms}, after {plan.clocks[topic, partition]}"
        payload = f"{value}, record {count + 1}, {time}"
        emission = Emission(key, payload, record.timestamp_ms, f"{topic}/{partition}/{offset}")
        emissions[FIRST].append(emission)
        if not (changes + 1) % 2:
            emissions[SECOND].append(emission)
    for stage_emissions in emissions.values():
        stage_emissions.sort(key=lambda emission: emission.key)  # stable: a key's own stay in order
    return Decided(state, emissions, unusable, refused)


def read(logs: Logs, plan: Plan, settled: bool = False) -> Iterator[Read]:
    """Yield the records of the planned ranges, as Spark reads them from the topics' logs, whichever topic
    has them now.

    `settled` also yields those deleted since.
    """
    for offset_range in plan.ranges:
        log = logs[offset_range.topic][offset_range.partition]
        if log.stable_end < offset_range.end and offset_range.span:
            raise BrokerUnavailable(
                f"{offset_range.topic}[{offset_range.partition}] has nothing up to {offset_range.end}"
            )
        if log.start > offset_range.start and offset_range.span and not settled:
            raise OffsetsLost(
                f"{offset_range.topic}[{offset_range.partition}] starts at {log.start}", "Accept the gap."
            )
        for offset, record in log.committed(offset_range.start, offset_range.end):
            yield offset_range.topic, offset_range.partition, offset, record


@dataclass
class Lake:
    """Rows by attempt: they are there as soon as they are written. State has one file, named after it.

    `marks` is stream -> batch -> its mark, `promotions` pipeline -> promotion -> its mark.
    """

    state: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    outbox: dict[tuple[str, str], list[Emission]] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    unusable: dict[str, list[Unusable]] = field(default_factory=dict)
    resolved: dict[str, list[Unusable]] = field(default_factory=dict)
    marks: dict[Stream, dict[int, LedgerMark]] = field(default_factory=lambda: defaultdict(dict))
    promotions: dict[str, dict[int, LedgerMark]] = field(default_factory=lambda: defaultdict(dict))
    removed: set[str] = field(default_factory=set)
    delta: DeltaTables = field(default_factory=DeltaTables)

    def came_in(self, logs: Logs, plan: Plan, settled: bool = False) -> Iterator[Read]:
        """A batch's input: of the input's logs, or what was in quarantine."""
        if plan.replay is None:
            return read(logs, plan, settled)
        return replayed(self.resolved[plan.replay.name])

    def looked_up_rows(self, table: PinnedTable) -> Rows:
        """Read a table as the plan has pinned it."""
        if isinstance(table, DeltaVersion):
            return self.delta.rows(table.path, table.version)
        return column_of(self.state_of([file.path for file in table.files]))

    def write_manifest(self, manifest: Manifest) -> ManifestRef:
        """Keep a manifest in place of `App.write_manifest`."""
        self.manifests[manifest.name] = manifest
        return ManifestRef(manifest.name, 1, manifest.name, manifest.rows, manifest.bytes)

    def manifest(self, reference: ManifestRef) -> Manifest:
        """Return a manifest in place of `App.manifest`."""
        if reference.name in self.removed:
            raise LakeDamaged(f"the lake lacks the manifest of {reference.name}")
        if reference.name not in self.manifests:
            raise Violation(f"the manifest of {reference.name} is read, and was not written")
        return self.manifests[reference.name]

    def remove(self, stream: Stream) -> int:
        """Remove a dropped stream's files. Its outboxes stay, for checks."""
        names = {name for name, plan in self.plans.items() if plan.stream == stream}
        self.removed |= names
        return len(names)

    def snapshot(self, name: str, seq: int, attempts: Iterable[ManifestRef]) -> ManifestRef:
        """The state in these manifests as one."""
        self.state[name] = list(self.state_of([attempt.name for attempt in attempts]).items())
        return self.write_manifest(_manifest(name, seq, len(self.state[name])))

    def state_of(self, attempts: Sequence[str]) -> State:
        """The state that these attempts left, the newest last."""
        state: State = {}
        for attempt in attempts:
            state.update(self.state.get(attempt, ()))
        return state


def column_of(state: State) -> Rows:
    """Return the values of a state as the rows of a table."""
    return {key: value for key, (value, _, _) in state.items() if value is not None}


@dataclass(frozen=True)
class SimMarks:
    """The marks of one stream, in place of `storage.layout.Marks`."""

    world: World
    marks: dict[int, LedgerMark]

    def newest(self) -> LedgerMark | None:
        def act() -> LedgerMark | None:
            return self.marks[max(self.marks)] if self.marks else None

        return self.world.effect("marks.read", act, LakeUnavailable)

    def put(self, mark: LedgerMark) -> None:
        self.world.effect("marks.put", lambda: self.marks.setdefault(mark.number, mark), LakeUnavailable)
        for number in sorted(self.marks):
            if 0 < number < mark.number - 1:
                self.world.effect("marks.remove", partial(self.marks.pop, number, None), LakeUnavailable)


def compute(
    world: World, broker: Broker, lake: Lake, plan: Plan, pipeline: Pipeline, before: Before, attempt: str
) -> Computed:
    """Read, decide, and write in several effects, in place of `spark.batch.compute_batch`."""

    names = [file.path for file in before.state.get(FIRST, ())]

    def job() -> Decided:
        lake.plans[attempt] = plan
        return decide(plan, lake.came_in(broker.topics, plan), lake.state_of(names), looked_up)

    grammar.require_conditions(pipeline)
    world.sleep(_START_SECONDS)
    rows = {
        name: world.effect("lookup.read", partial(lake.looked_up_rows, table), LakeUnavailable)
        for name, table in before.lookups.items()
    }
    looked_up = LookedUp(rows, before.changed_tables)
    decided = world.effect("spark.read", job)
    changed = list(decided.state.items())
    for some in (changed[:1], changed[1:]):
        world.effect("spark.write", lambda some=some: lake.state.setdefault(attempt, []).extend(some))
    if decided.unusable or decided.refused:
        put = [Unusable(plan.seq, unusable) for unusable in decided.unusable]
        put += [Unusable(plan.seq, refused, is_value=True) for refused in decided.refused]
        world.effect("spark.write", lambda: lake.unusable.setdefault(attempt, put))
    counts = {"": kernel.Counts(read=plan.most_records, quarantined=len(decided.unusable))}
    for stage in pipeline.outlets:
        emitted = decided.emissions.get(stage.name, [])
        for part in (emitted[:1], emitted[1:]):
            if part:
                table = (stage.name, attempt)
                world.effect(
                    "spark.write",
                    lambda table=table, part=part: lake.outbox.setdefault(table, []).extend(part),
                )
        totals = decided.totals.get(stage.name, {})
        counts[stage.name] = kernel.Counts(emitted=len(emitted), used=len(changed), **totals)
    return Computed(counts, {}, _manifest(attempt, plan.seq, len(changed)))


def reuse(world: World, lake: Lake, plan: Plan, stored: Attempt, attempt: str) -> Computed:
    """Take state and emissions from the batch that a plan reuses, in place of computing them."""
    rows = list(lake.state.get(stored.name, ()))
    lake.plans[attempt] = plan
    for some in (rows[:1], rows[1:]):
        world.effect("lake.write", lambda some=some: lake.state.setdefault(attempt, []).extend(some))
    for stage, name in [place for place in lake.outbox if place[1] == stored.name]:
        emitted = lake.outbox[stage, name]
        for part in (emitted[:1], emitted[1:]):
            world.effect(
                "lake.write",
                lambda stage=stage, part=part: lake.outbox.setdefault((stage, attempt), []).extend(part),
            )
    return Computed(stored.counts, stored.times, _manifest(attempt, plan.seq, len(rows)))


def folded_state(app: Any, origin: Stream, seq: int, stream: Stream, name: str) -> Iterator[DataFile]:
    """Fold a state for another generation, in place of `generations.lifecycle._folded_state`."""
    world, lake = app.places.world, app.places.lake
    names = [manifest.name for manifest in app.ledger.state_manifests(origin, seq)]
    rows = list(lake.state_of(names).items())
    for some in (rows[:1], rows[1:]):
        world.effect("lake.write", lambda some=some: lake.state.setdefault(name, []).extend(some))
    yield from _manifest(name, 1, len(rows)).files


def _manifest(name: str, seq: int, rows: int) -> Manifest:
    files = [DataFile("state", FIRST, name, rows, rows, "", 1, "")] if rows else []
    return manifest_of(name, seq, files)


_TYPES = {"timestamp": pa.int64(), "window_start": pa.int64(), "window_end": pa.int64()}


@dataclass(frozen=True)
class Batch:
    """The part of an Arrow record batch that the sinks use; the fake sinks take its rows."""

    rows: Sequence[Emission]
    names: Sequence[str]

    @property
    def columns(self) -> list[pa.Array]:
        values = dict(zip(Emission._fields, zip(*self.rows, strict=True), strict=True))
        return [_column(name, values[name]) for name in self.names]

    def column(self, name: str) -> pa.Array:
        """Return a column as an HTTP sink gets it: values are JSON."""
        values = tuple(getattr(row, name) for row in self.rows)
        if name == "payload":
            values = tuple(value if value is None else json.dumps(value) for value in values)
        return _column(name, values)


# An outbox is read when it is checked, and once for each try to send it.
@lru_cache(maxsize=1000)
def _column(name: str, values: tuple[Any, ...]) -> pa.Array:
    return pa.array(values, _TYPES.get(name, pa.string()))


@dataclass(frozen=True)
class SimOutbox(Outbox):
    """An outbox in memory."""

    world: World = field(kw_only=True)
    rows: list[Emission] = field(kw_only=True)

    @property
    def emitted(self) -> int:
        return len(self.rows)

    @property
    def shards(self) -> int:
        """Every second attempt with several keys is large enough for shards."""
        return min(3, len(self._keys)) if self._keys and crc32(self.attempt.encode()) % 2 else 1

    def cut(self, number: int) -> list[Outbox]:
        self.world.counts["outboxes cut into shards"] += number > 1
        shards: list[list[Emission]] = [[] for _ in range(number)]
        for row in self.rows:
            shards[self._keys.index(row.key) % number].append(row)
        return [replace(self, rows=rows) for rows in shards]

    @property
    def _keys(self) -> list[str]:
        return sorted({row.key for row in self.rows})

    def batches(self, columns: Sequence[str], skip: int = 0) -> Iterator[Any]:
        rows = self.world.effect("outbox.read", lambda: self.rows[skip:])
        if rows:
            yield Batch(rows, columns)

    def outside(self, column: str, earliest_ms: int | None, latest_ms: int | None) -> tuple[str, int] | None:
        return self.world.effect("outbox.timestamps", lambda: None)


def outbox_of(world: World, lake: Lake, plan: Plan, stage: Any, attempt: Any) -> SimOutbox:
    """Return the outbox of a stage in place of `App.outbox`."""
    emitted = int(attempt.stage_counts(stage.name).get("emitted", 0))
    rows = lake.outbox.get((stage.name, attempt.name), [])
    if len(rows) < emitted:
        raise Violation(f"the outbox of {attempt.name} has {len(rows)} of {emitted} emissions")
    return SimOutbox(plan, stage, attempt.name, Store(""), (), world=world, rows=rows)


@dataclass(frozen=True)
class SimQuarantine(Outbox):
    """The unusable records of a batch in memory, with the columns of the real quarantine."""

    world: World = field(kw_only=True)
    rows: list[Unusable] = field(kw_only=True)

    @property
    def emitted(self) -> int:
        return len(self.rows)

    def batches(self, columns: Sequence[str], skip: int = 0) -> Iterator[pa.RecordBatch]:
        rows = self.world.effect("outbox.read", lambda: self.rows[skip:])
        if rows:
            yield pa.RecordBatch.from_pylist([_quarantined(row) for row in rows], QUARANTINE).select(columns)


def _quarantined(row: Unusable) -> dict[str, Any]:
    topic, partition, offset, record = row.read
    place = {"topic": topic, "partition": partition, "offset": offset, "recorded": record.timestamp_ms}
    return {**place, "key": record.key, "value": record.value, "reason": MALFORMED, "seq": row.seq}


def quarantine_of(world: World, lake: Lake, plan: Plan, attempt: Any) -> SimQuarantine:
    """Return the quarantine in place of `App.quarantined`."""
    rows = lake.unusable.get(attempt.name, [])
    return SimQuarantine(plan, None, attempt.name, Store(""), (), world=world, rows=rows)
