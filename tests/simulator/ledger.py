"""The ledger in memory: what PostgreSQL does for the real one, one transaction at a time.

`tests/simulator/test_ledger.py` holds it against the real one. A write takes the head's row lock, so one that
is still under way arrives, or is lost, before the next write; a read does not wait for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tidegate.errors import Fenced, Halted, LeaseHeld, SettingsInvalid, TidegateError
from tidegate.ledger import (
    EXPIRING,
    LEASE_SECONDS,
    Attempt,
    Charge,
    Clocks,
    CommittedBatch,
    Expired,
    Expiring,
    Failure,
    GivenUp,
    Head,
    KnownNames,
    LastPlanned,
    Lease,
    ManifestRef,
    OffsetRange,
    Plan,
    PlannedSpec,
    Promotion,
    QualityResult,
    Resolution,
    Run,
    SinkProgress,
    Snapshot,
    Stream,
    StreamStatus,
    Times,
)
from tidegate.ledger.batches import require_kept
from tidegate.ledger.reader import NO_LEASE_SECONDS
from tidegate.ledger.writer import MOST_TRIES

Result = TypeVar("Result")
Effect = Callable[[str, Callable[[], Any]], Any]


@dataclass
class Row:
    """A stream's row of `heads`."""

    epoch: int = 0
    holder: str | None = None
    lease_until: float = 0.0
    seq: int = 0
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    clocks: dict[tuple[str, int], int] = field(default_factory=dict)
    dropped: bool = False
    origin: tuple[Stream, int] | None = None

    def head(self, stream: Stream) -> Head:
        # No write changes these dictionaries, all replace them: so heads can share them.
        return Head(stream, self.seq, self.offsets, self.topic_ids, self.epochs, self.clocks)


@dataclass
class Tables:
    """The rows of one stream in the ledger. `attempts` also have the epoch that added them."""

    head: Row | None = None
    plans: dict[int, Plan] = field(default_factory=dict)
    planned_at: dict[int, float] = field(default_factory=dict)
    specs: set[PlannedSpec] = field(default_factory=set)
    runs: dict[str, Run] = field(default_factory=dict)
    attempts: dict[tuple[int, str], tuple[int, Attempt]] = field(default_factory=dict)
    commits: dict[int, ManifestRef] = field(default_factory=dict)
    committed_at: dict[int, float] = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    publications: dict[tuple[int, str], int] = field(default_factory=dict)
    sinks: dict[str, str] = field(default_factory=dict)
    metrics: dict[tuple[int, str, str], float] = field(default_factory=dict)
    sink_heads: dict[str, int] = field(default_factory=dict)
    sink_progress: dict[str, SinkProgress] = field(default_factory=dict)
    resolutions: dict[int, Resolution] = field(default_factory=dict)
    quality: dict[tuple[int, int, int, int], QualityResult] = field(default_factory=dict)
    expired: dict[Expiring, Expired] = field(default_factory=lambda: dict.fromkeys(EXPIRING, Expired()))


class Checks:
    """The ledger's own checks, each of which a planted bug can leave out."""

    epoch_at_commit = True
    seq_at_commit = True
    epoch_at_writes = True
    epoch_at_release = True
    lease_at_acquire = True
    epoch_rises = True
    one_plan_per_batch = True
    base_of_snapshot = True
    given_up_at_removal = True
    sinks_at_removal = True
    withheld_at_removal = True
    epochs_at_promotion = True
    seq_at_promotion = True
    number_at_promotion = True
    plan_takes_its_resolution_along = True


@dataclass
class Store:
    """The database. `effect` runs a transaction; `watch` gets every transaction that wrote."""

    now: Callable[[], float]
    read: Effect = lambda _, act: act()
    write: Effect = lambda _, act: act()
    watch: Callable[..., None] = lambda *_: None
    checks: type[Checks] = Checks
    identity: str = "simulated"
    streams: dict[Stream, Tables] = field(default_factory=lambda: defaultdict(Tables))
    promotions: dict[str, list[Promotion]] = field(default_factory=lambda: defaultdict(list))
    dropped: dict[Stream, Tables] = field(default_factory=dict)
    """What dropped streams had, for checks: no step can see it."""

    def charge(self, pipeline: str) -> Charge:
        return Charge(tuple(self.promotions[pipeline]))


class SimReader:
    """A reader in place of `ledger.LedgerReader`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def _read(self, name: str, act: Callable[[], Result]) -> Result:
        result: Result = self._store.read(f"ledger.{name}", act)
        return result

    def streams(self) -> list[Stream]:
        def act() -> list[Stream]:
            tables = self._store.streams
            streams = [
                stream
                for stream, tables_of_stream in tables.items()
                if tables_of_stream.head and not tables_of_stream.head.dropped
            ]
            return sorted(streams, key=lambda stream: (stream.pipeline, stream.generation))

        return self._read("streams", act)

    def is_dropped(self, stream: Stream) -> bool:
        def act() -> bool:
            row = self._store.streams[stream].head
            return row is not None and row.dropped

        return self._read("is_dropped", act)

    def origin(self, stream: Stream) -> tuple[Stream, int] | None:
        def act() -> tuple[Stream, int] | None:
            row = self._store.streams[stream].head
            return row.origin if row is not None else None

        return self._read("origin", act)

    def charge(self, pipeline: str) -> Charge:
        return self._read("charge", lambda: self._store.charge(pipeline))

    def head(self, stream: Stream) -> Head:
        def act() -> Head:
            row = self._store.streams[stream].head
            return row.head(stream) if row else Head(stream)

        return self._read("head", act)

    def committed_batch(self, stream: Stream, seq: int | None = None) -> CommittedBatch | None:
        def act() -> CommittedBatch | None:
            tables = self._store.streams[stream]
            number = seq if seq is not None else tables.head.seq if tables.head else 0
            if number and number not in tables.commits:
                return None
            return CommittedBatch(self._store.identity, number, tables.commits[number].name if number else "")

        return self._read("committed_batch", act)

    def lease_holder(self, stream: Stream) -> str | None:
        def act() -> str | None:
            row = self._store.streams[stream].head
            return self._holder(row) if row is not None else None

        return self._read("lease_holder", act)

    def _holder(self, row: Row) -> str | None:
        return row.holder if 0 < row.lease_until - self._store.now() <= NO_LEASE_SECONDS else None

    def stream_statuses(self, streams: Sequence[Stream]) -> list[StreamStatus]:
        def act() -> list[StreamStatus]:
            rows = {stream: self._store.streams[stream].head for stream in streams}
            return [self._status(stream, row) for stream, row in rows.items() if row is not None]

        return self._read("stream_statuses", act)

    def _status(self, stream: Stream, row: Row) -> StreamStatus:
        tables = self._store.streams[stream]
        committed, following = tables.commits.get(row.seq), row.seq + 1
        entry = tables.attempts.get((row.seq, committed.name)) if committed is not None else None
        times = entry[1].times if entry is not None else {}
        read = [at for stage in times.values() for at in stage.values() if at >= 0]
        return StreamStatus(
            head=row.head(stream),
            holder=self._holder(row),
            committed_at=tables.committed_at.get(row.seq),
            newest_ms=max(read, default=None),
            open_seq=following if following in tables.plans else None,
            planned_at=tables.planned_at[following] if following in tables.plans else None,
        )

    def plan(self, stream: Stream, seq: int) -> Plan | None:
        return self._read("plan", lambda: self._store.streams[stream].plans.get(seq))

    def last_planned(self, stream: Stream) -> LastPlanned | None:
        def act() -> LastPlanned | None:
            tables = self._store.streams[stream]
            if not tables.plans:
                return None
            plan = tables.plans[max(tables.plans)]
            return LastPlanned(plan.seq, plan.run_id, tables.planned_at[plan.seq], plan.spec_text)

        return self._read("plan", act)

    def open_plan(self, stream: Stream) -> Plan | None:
        return self.plan(stream, self.head(stream).seq + 1)

    def run(self, stream: Stream, run_id: str) -> Run | None:
        return self._read("run", lambda: self._store.streams[stream].runs.get(run_id))

    def attempt(self, stream: Stream, seq: int) -> Attempt | None:
        def act() -> Attempt | None:
            tables = self._store.streams[stream]
            committed = tables.commits.get(seq)
            if committed is not None:
                entry = tables.attempts.get((seq, committed.name))
                return entry[1] if entry else None
            tries = [attempt for (at, _), attempt in tables.attempts.items() if at == seq]
            return max(tries, key=lambda entry: entry[0])[1] if tries else None

        return self._read("attempt", act)

    def times(self, stream: Stream) -> Times:
        head = self.head(stream)
        attempt = self.attempt(stream, head.seq) if head.seq else None
        return attempt.times if attempt is not None else {}

    def committed(self, stream: Stream, after: int = 0) -> list[tuple[int, ManifestRef]]:
        def act() -> list[tuple[int, ManifestRef]]:
            commits = self._store.streams[stream].commits
            return [(seq, commits[seq]) for seq in sorted(commits) if seq > after]

        return self._read("committed", act)

    def resolutions(self, stream: Stream) -> list[Resolution]:
        def act() -> list[Resolution]:
            return [made for _, made in sorted(self._store.streams[stream].resolutions.items())]

        return self._read("resolutions", act)

    def state_manifests(self, stream: Stream, up_to: int | None = None) -> list[ManifestRef]:
        def act() -> list[ManifestRef]:
            tables, until = self._store.streams[stream], 2**62 if up_to is None else up_to
            snapshots = self._snapshots(stream)
            require_kept(stream, snapshots, until)
            usable = [snapshot for snapshot in snapshots if snapshot.seq <= until][-1:]
            after = usable[0].seq if usable else 0
            attempts = [tables.commits[seq] for seq in sorted(tables.commits) if after < seq <= until]
            return [*(attempt.manifest for attempt in usable), *attempts]

        return self._read("state_manifests", act)

    def _snapshots(self, stream: Stream) -> list[Snapshot]:
        return [snapshot for _, snapshot in sorted(self._store.streams[stream].snapshots.items())]

    def rewrites(self, stream: Stream) -> int:
        return self._read("rewrites", lambda: 0)

    def snapshots(self, stream: Stream) -> list[Snapshot]:
        return self._read("snapshots", lambda: self._snapshots(stream))

    def newest_snapshots(self, stream: Stream, after: int) -> list[Snapshot]:
        def act() -> list[Snapshot]:
            made = self._snapshots(stream)
            given_up = [
                snapshot for snapshot in made if snapshot.given_up_at is not None and snapshot.seq > after
            ]
            return list(dict.fromkeys(given_up[-1:] + made[-1:]))

        return self._read("snapshots", act)

    def head_at(self, stream: Stream, instant: float) -> int:
        def act() -> int:
            times = self._store.streams[stream].committed_at.items()
            return max((seq for seq, at in times if at <= instant), default=0)

        return self._read("head_at", act)

    def open_lookups(self) -> list[Mapping[str, Any]]:
        def act() -> list[Mapping[str, Any]]:
            streams = sorted(self._store.streams, key=lambda stream: (stream.pipeline, stream.generation))
            tables = [self._store.streams[stream] for stream in streams]
            plans = [table.plans.get(table.head.seq + 1) for table in tables if table.head]
            return [plan.lookups for plan in plans if plan]

        return self._read("open_lookups", act)

    def planned_specs(self, stream: Stream) -> list[PlannedSpec]:
        def act() -> list[PlannedSpec]:
            plans = sorted(self._store.streams[stream].plans.items())
            newest = {plan.spec: seq for seq, plan in plans}
            return sorted(newest, key=newest.__getitem__)

        return self._read("planned_specs", act)

    def is_edited(self, stream: Stream) -> bool:
        return self._read("is_edited", lambda: len(self._store.streams[stream].specs) > 1)

    def expired(self, stream: Stream, kind: Expiring) -> Expired:
        return self._read("expired", lambda: self._store.streams[stream].expired[kind])

    def first_needed(self, stream: Stream, before: int) -> int:
        return self._read("first_needed", lambda: self._removable(stream, before)[1])

    def known_names(self, stream: Stream) -> KnownNames:
        def act() -> KnownNames:
            tables = self._store.streams[stream]
            row = tables.head or Row()
            computed = frozenset(name for seq, name in tables.attempts if seq > row.seq)
            snapshots = tuple(self._snapshots(stream))
            resolutions = {made.manifest.name: made for made in tables.resolutions.values()}
            batches = dict(tables.commits), computed, snapshots
            return KnownNames(row.seq, row.epoch, *batches, resolutions, dict(tables.expired))

        return self._read("known_names", act)

    def failure(self, stream: Stream, seq: int) -> Failure | None:
        return self._read("failure", lambda: self._store.streams[stream].failures.get(seq))

    def publications(self, stream: Stream, seq: int) -> dict[str, int]:
        def act() -> dict[str, int]:
            noted = self._store.streams[stream].publications.items()
            return {sink: records for (at, sink), records in noted if at == seq}

        return self._read("publications", act)

    def given_up(self, stream: Stream) -> list[GivenUp]:
        """No simulated person gives anything up."""
        return self._read("given_up", list)

    def newest_publication(self, stream: Stream) -> int:
        return self._read("newest_publication", lambda: self._newest_publication(stream))

    def _newest_publication(self, stream: Stream) -> int:
        return max((seq for seq, _ in self._store.streams[stream].publications), default=0)

    def last_published(self, stream: Stream, sink: str) -> int:
        return self._read("last_published", lambda: self._store.streams[stream].sink_heads.get(sink, 0))

    def sink_progress(self, stream: Stream, sink: str) -> SinkProgress | None:
        return self._read("sink_progress", lambda: self._store.streams[stream].sink_progress.get(sink))

    def removable_batches(self, stream: Stream, before: int) -> int:
        return self._read("removable_batches", lambda: len(self._removable(stream, before)[0]))

    def _removable(self, stream: Stream, before: int) -> tuple[list[int], int]:
        """The batches, oldest first, and before which one they are."""
        tables, checks = self._store.streams[stream], self._store.checks
        given_up = [seq for seq, made in tables.snapshots.items() if made.given_up_at is not None]
        end = min(before, max(given_up, default=0)) if checks.given_up_at_removal else before
        end = min(end, self._first_to_go_out(stream)) if checks.withheld_at_removal else end
        versions = {plan.spec.hash: seq for seq, plan in sorted(tables.plans.items())}
        needed = {*versions.values(), *(tables.sink_heads.values() if checks.sinks_at_removal else ())}
        return [seq for seq in sorted(tables.plans) if seq < end and seq not in needed], end

    def _first_to_go_out(self, stream: Stream) -> int:
        charge = self._store.charge(stream.pipeline)
        if charge.withholds(stream.generation):
            return charge.released(stream.generation) + 1
        if not charge.promotions:
            return 2**62
        return max(self._newest_publication(stream), charge.promotions[-1].first_seq)

    def sink_identity(self, stream: Stream, sink: str) -> str | None:
        return self._read("sink_identity", lambda: self._store.streams[stream].sinks.get(sink))

    def publishers(self, identity: str) -> list[tuple[Stream, str]]:
        def act() -> list[tuple[Stream, str]]:
            rows = ((stream, tables.sinks) for stream, tables in self._store.streams.items())
            rows_of_sink = [
                (stream, sink) for stream, sinks in rows for sink in sinks if sinks[sink] == identity
            ]
            return sorted(rows_of_sink, key=lambda row: (row[0].pipeline, row[0].generation, row[1]))

        return self._read("publishers", act)

    def quality(self, stream: Stream, seq: int) -> list[QualityResult]:
        def act() -> list[QualityResult]:
            noted = sorted(self._store.streams[stream].quality.items())
            return [result for (at, *_), result in noted if at == seq]

        return self._read("quality", act)

    def metrics(self, stream: Stream, seq: int) -> dict[tuple[str, str], float]:
        def act() -> dict[tuple[str, str], float]:
            noted = self._store.streams[stream].metrics.items()
            return {(stage, name): value for (at, stage, name), value in noted if at == seq}

        return self._read("metrics", act)


class SimLedger(SimReader):
    """A ledger in place of `ledger.Ledger`."""

    def acquire(self, stream: Stream, holder: str) -> SimLeased:
        store = self._store

        def act() -> SimLeased:
            tables, now = store.streams[stream], store.now()
            row = tables.head = tables.head or Row()
            if row.dropped:
                raise Halted(f"{stream} was dropped")
            is_over = not now < row.lease_until <= now + NO_LEASE_SECONDS
            free = row.holder in (None, holder) or is_over
            if not free and store.checks.lease_at_acquire:
                raise LeaseHeld(f"{stream} is being worked on by {row.holder}")
            row.epoch += store.checks.epoch_rises or not row.epoch
            row.holder, row.lease_until = holder, now + LEASE_SECONDS
            store.watch("acquire", stream, row.epoch, holder)
            return SimLeased(store, Lease(stream, holder, row.epoch))

        taken: SimLeased = store.write("ledger.acquire", act)
        return taken

    def open_generation(self, stream: Stream, in_charge: int) -> None:
        def act() -> None:
            store, tables = self._store, self._store.streams[stream]
            charge = store.charge(stream.pipeline)
            head = tables.head or Row()
            is_used = bool(head.seq or head.dropped or tables.plans)
            if tables.head is not None and (is_used or charge.generation is not None):
                raise SettingsInvalid(f"{stream} cannot be made")
            if charge.generation not in (None, in_charge):
                raise SettingsInvalid(f"{stream} cannot be made")
            tables.head = head
            if not charge.promotions:
                run_id = f"new__{stream.generation}"
                first = Promotion(stream.pipeline, 1, in_charge, 1, 0, False, run_id, decided_at=store.now())
                store.promotions[stream.pipeline].append(first)

        self._store.write("ledger.open_generation", act)

    def add_snapshot(self, snapshot: Snapshot, after: int, rewrites: int = 0) -> bool:
        del rewrites  # no simulated person erases a key

        def act() -> bool:
            made = self._store.streams[snapshot.stream].snapshots
            stale = max(made, default=0) != after or snapshot.seq <= after
            if stale and self._store.checks.base_of_snapshot:
                return False
            made[snapshot.seq] = replace(snapshot, made_at=self._store.now())
            return True

        noted: bool = self._store.write("ledger.add_snapshot", act)
        return noted

    def remove_batches(self, stream: Stream, before: int, most: int) -> int:
        def act() -> int:
            tables = self._store.streams[stream]
            removable, end = self._removable(stream, before)
            for seq in removable[:most]:
                del tables.plans[seq]
                tables.failures.pop(seq, None)
                for table in (tables.attempts, tables.metrics, tables.publications, tables.quality):
                    for key in [key for key in table if key[0] == seq]:
                        del table[key]  # type: ignore[attr-defined]
            tables.snapshots = {seq: made for seq, made in tables.snapshots.items() if seq >= end}
            return len(removable[:most])

        removed: int = self._store.write("ledger.remove_batches", act)
        return removed


class SimLeased(SimReader):
    """A ledger under a lease, in place of `ledger.LeasedLedger`."""

    def __init__(self, store: Store, lease: Lease) -> None:
        super().__init__(store)
        self.lease = lease
        self.stream = lease.stream

    @property
    def _row(self) -> Row:
        row = self._store.streams[self.stream].head
        assert row is not None, "a lease has a head"
        return row

    def _is_current(self) -> bool:
        return self._row.epoch == self.lease.epoch

    def _lost(self) -> Fenced:
        return Fenced(f"{self.stream} was taken over from {self.lease.holder}, epoch {self.lease.epoch}")

    def _fenced(self, name: str, act: Callable[[Tables], Result], *arguments: Any) -> Result:
        def transaction() -> Result:
            store, row = self._store, self._row
            is_current = row.epoch == self.lease.epoch
            if not is_current and store.checks.epoch_at_writes:
                raise self._lost()
            tables = store.streams[self.stream]
            _went_through(tables, "start")
            result = act(tables)
            if is_current:
                row.lease_until = store.now() + LEASE_SECONDS
            store.watch(name, self.stream, self.lease.epoch, *arguments)
            return result

        result: Result = self._store.write(f"ledger.{name}", transaction)
        return result

    def _insert(self, table: dict[Any, Any], key: Any, row: Any) -> None:
        if key in table:
            raise self._lost()
        table[key] = row

    def renew(self) -> None:
        def act() -> None:
            if not self._is_current():
                raise self._lost()
            self._row.lease_until = self._store.now() + LEASE_SECONDS
            self._store.watch("renew", self.stream, self.lease.epoch)

        self._store.write("ledger.renew", act)

    def release(self) -> None:
        def act() -> None:
            if self._is_current() or not self._store.checks.epoch_at_release:
                self._row.holder, self._row.lease_until = None, 0.0
                self._store.watch("release", self.stream, self.lease.epoch)

        self._store.write("ledger.release", act)

    def add_plan(self, plan: Plan, resolution: Resolution | None = None) -> None:
        def act(tables: Tables) -> None:
            taken = resolution is not None and resolution.number in tables.resolutions
            if plan.run_id in tables.runs or taken:
                raise self._lost()
            if not self._store.checks.one_plan_per_batch:
                tables.plans.pop(plan.seq, None)
            self._insert(tables.plans, plan.seq, plan)
            tables.specs.add(plan.spec)
            _went_through(tables, "plan")
            tables.planned_at[plan.seq] = self._store.now()
            tables.runs[plan.run_id] = Run(plan.run_id, plan.seq)
            if resolution is not None:
                self._resolve(tables, resolution)

        self._fenced("add_plan", act, plan)

    def add_resolution(self, resolution: Resolution) -> None:
        self._fenced("add_resolution", lambda tables: self._resolve(tables, resolution))

    def _resolve(self, tables: Tables, resolution: Resolution) -> None:
        decided = replace(resolution, decided_at=self._store.now())
        self._insert(tables.resolutions, resolution.number, decided)

    def add_run(self, run: Run, clocks: Clocks | None = None) -> None:
        def act(tables: Tables) -> None:
            self._insert(tables.runs, run.run_id, run)
            _went_through(tables, "plan")
            if clocks is not None:
                self._row.clocks = dict(clocks)

        self._fenced("add_run", act, run, clocks)

    def add_attempt(self, attempt: Attempt) -> None:
        def act(tables: Tables) -> None:
            key = (attempt.seq, attempt.name)
            self._insert(tables.attempts, key, (self.lease.epoch, attempt))

        self._fenced("add_attempt", act, attempt)

    def replace_files(self, attempt: Attempt) -> None:
        def act(tables: Tables) -> None:
            key = attempt.seq, attempt.name
            if key in tables.attempts:
                epoch, noted = tables.attempts[key]
                changed = replace(noted, manifest=attempt.manifest, counts=attempt.counts)
                tables.attempts[key] = epoch, changed

        self._fenced("replace_files", act)

    def set_validated(self, attempt: Attempt, passed: bool) -> None:
        def act(tables: Tables) -> None:
            key = attempt.seq, attempt.name
            if key in tables.attempts:
                epoch, noted = tables.attempts[key]
                tables.attempts[key] = epoch, replace(noted, validated=passed)

        self._fenced("set_validated", act)

    def commit(self, plan: Plan, attempt: Attempt) -> None:
        checks = self._store.checks

        def act() -> None:
            if not self._is_current() and checks.epoch_at_commit:
                raise self._lost()
            if self._row.seq != plan.seq - 1 and checks.seq_at_commit:
                raise self._lost()
            self._commit(plan, attempt)

        self._store.write("ledger.commit", act)

    def promote(self, promotion: Promotion, replaced: Lease, net: tuple[Plan, Attempt] | None = None) -> None:
        def act() -> None:
            store, checks = self._store, self._store.checks
            other = store.streams[replaced.stream].head
            assert other is not None, "a lease has a head"
            are_current = self._is_current() and other.epoch == replaced.epoch
            if not are_current and checks.epochs_at_promotion:
                raise self._lost()
            if other.seq != promotion.replaced_seq and checks.seq_at_promotion:
                raise self._lost()
            promotions = store.promotions[promotion.pipeline]
            if promotion.number in {earlier.number for earlier in promotions} and checks.number_at_promotion:
                raise self._lost()
            if promotion.run_id in {earlier.run_id for earlier in promotions}:
                raise self._lost()
            if net is not None:
                self._require_next(net[0])
            for row in (self._row, other):
                row.lease_until = store.now() + LEASE_SECONDS
            if net is not None:
                self._add_decided(*net)
            promotions.append(replace(promotion, decided_at=store.now()))
            promotions.sort(key=lambda promotion: promotion.number)
            store.watch("promote", self.stream, self.lease.epoch, promotion)

        self._store.write("ledger.promote", act)

    def begin_from(self, batch: tuple[Plan, Attempt], origin: Stream, origin_seq: int, rewrites: int) -> None:
        del rewrites  # no simulated person erases a key

        def act(tables: Tables) -> None:
            self._require_next(batch[0])
            self._row.origin = origin, origin_seq
            self._add_decided(*batch)

        self._fenced("begin_from", act)

    def drop(self) -> None:
        def act(tables: Tables) -> None:
            store = self._store
            if store.charge(self.stream.pipeline).generation in (None, self.stream.generation):
                raise Halted(f"{self.stream} publishes")
            row, store.dropped[self.stream] = self._row, tables
            ended = Row(epoch=row.epoch + 1, dropped=True, origin=row.origin, topic_ids=row.topic_ids)
            store.streams[self.stream] = Tables(head=ended, sinks=tables.sinks)

        self._fenced("drop", act)

    def _require_next(self, plan: Plan) -> None:
        tables = self._store.streams[self.stream]
        if plan.seq != self._row.seq + 1 or plan.seq in tables.plans or plan.run_id in tables.runs:
            raise self._lost()

    def _add_decided(self, plan: Plan, attempt: Attempt) -> None:
        tables = self._store.streams[self.stream]
        tables.plans[plan.seq] = plan
        tables.specs.add(plan.spec)
        tables.runs[plan.run_id] = Run(plan.run_id, plan.seq)
        tables.attempts[attempt.seq, attempt.name] = self.lease.epoch, attempt
        self._commit(plan, attempt)

    def _commit(self, plan: Plan, attempt: Attempt) -> None:
        tables, row = self._store.streams[self.stream], self._row
        row.epochs = plan.epochs_after(row.head(self.stream))
        row.seq, row.topic_ids = plan.seq, dict(plan.topic_ids)
        row.offsets = row.offsets | plan.ends
        row.clocks = plan.clocks_after
        tables.commits[plan.seq] = attempt.manifest
        tables.committed_at[plan.seq] = self._instant(tables)
        self._store.watch("commit", self.stream, self.lease.epoch, plan, attempt)

    def _instant(self, tables: Tables) -> float:
        return max([self._store.now(), *tables.committed_at.values()])

    def drop_plan(self) -> int | None:
        def act(tables: Tables) -> int | None:
            seq = self._row.seq + 1
            for table in (tables.attempts, tables.metrics, tables.quality):
                for key in [key for key in table if key[0] == seq]:
                    del table[key]  # type: ignore[attr-defined]
            tables.runs = {name: run for name, run in tables.runs.items() if run.seq != seq}
            tables.failures.pop(seq, None)
            if self._store.checks.plan_takes_its_resolution_along:
                made = tables.resolutions.items()
                tables.resolutions = {
                    number: resolution for number, resolution in made if resolution.seq != seq
                }
            return seq if tables.plans.pop(seq, None) else None

        return self._fenced("drop_plan", act)

    def set_sink_progress(self, sink: str, progress: SinkProgress) -> None:
        def act(tables: Tables) -> None:
            tables.sink_progress[sink] = progress

        self._fenced("set_sink_progress", act, sink, progress)

    def accept_gap(self, skipped: Sequence[OffsetRange]) -> None:
        def act(tables: Tables) -> None:
            note = "accepted as lost: " + ", ".join(
                f"{offset_range.topic}[{offset_range.partition}] {offset_range.start}-{offset_range.end - 1}"
                for offset_range in skipped
            )
            run_id = f"gap__epoch_{self.lease.epoch}"
            self._insert(tables.runs, run_id, Run(run_id, None, note))
            ends = {
                (offset_range.topic, offset_range.partition): offset_range.end for offset_range in skipped
            }
            row = self._row
            row.offsets = row.offsets | ends
            row.epochs = {at: epoch for at, epoch in row.epochs.items() if at not in ends}
            _went_through(tables, "plan")

        self._fenced("accept_gap", act, skipped)

    def give_up(self, seq: int) -> None:
        def act(tables: Tables) -> None:
            snapshot = tables.snapshots.get(seq)
            if snapshot is not None and snapshot.given_up_at is None:
                tables.snapshots[seq] = replace(snapshot, given_up_at=self._instant(tables))

        self._fenced("give_up", act)

    def expire(self, kind: Expiring, seq: int) -> None:
        def act(tables: Tables) -> None:
            tables.expired[kind] = Expired(seq, self._instant(tables))

        self._fenced("expire", act)

    def add_publication(self, seq: int, sink: str, records: int) -> None:
        def act(tables: Tables) -> None:
            tables.publications[seq, sink] = records
            if records:
                tables.sink_heads[sink] = max(seq, tables.sink_heads.get(sink, 0))

        self._fenced("add_publication", act, seq, sink, records)

    def set_sink_identity(self, sink: str, identity: str) -> None:
        self._fenced("set_sink_identity", lambda tables: self._insert(tables.sinks, sink, identity))

    def set_metrics(self, seq: int, stage: str, values: Mapping[str, float]) -> None:
        def act(tables: Tables) -> None:
            tables.metrics |= {(seq, stage, name): value for name, value in values.items()}

        self._fenced("set_metrics", act)

    def add_quality(self, seq: int, results: Sequence[QualityResult]) -> None:
        def act(tables: Tables) -> None:
            for result in results:
                place = (seq, result.try_number, result.check_number, result.expectation)
                self._insert(tables.quality, place, result)
            oldest = results[0].try_number - MOST_TRIES
            for place in [place for place in tables.quality if place[0] == seq and place[1] <= oldest]:
                del tables.quality[place]

        self._fenced("add_quality", act)

    def note_failure(self, seq: int, step: str, error: TidegateError) -> None:
        def act(tables: Tables) -> None:
            at_ms = int(self._store.now() * 1000)
            name = type(error).__name__
            tables.failures[seq] = Failure(self.stream, seq, step, name, error.what, error.fix, at_ms)

        self._fenced("note_failure", act)

    def remove_failure(self, step: str) -> None:
        self._fenced("remove_failure", lambda tables: _went_through(tables, step))


def _went_through(tables: Tables, step: str) -> None:
    if tables.failures:
        stay = {seq: failure for seq, failure in tables.failures.items() if failure.step != step}
        tables.failures = stay
