"""What must hold: at every write to the ledger, and when all is quiet at the end."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any
from zlib import crc32

from tests.simulator import lookups
from tests.simulator.app import Places
from tests.simulator.broker import Record
from tests.simulator.compute import MALFORMED, Logs, column_of, decide, read
from tests.simulator.emissions import INPUT, MORE, Emission, Read, State, difference
from tests.simulator.ledger import SimLedger, Tables
from tests.simulator.lookups import LookedUp
from tests.simulator.receivers import SINK_NAME, check_received
from tests.simulator.replays import Model
from tests.simulator.sinks import Table
from tests.simulator.tree import happened, is_tree, overdue
from tests.simulator.world import Violation
from tidegate.batch import noted_batches, run_of_batch
from tidegate.kafka.config import PROGRESS_TOPIC
from tidegate.kafka.progress import Progress
from tidegate.ledger import LEASE_SECONDS, Attempt, Clocks, OffsetRange, Plan, Run, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.quarantine_rules import DeadLetterTopic
from tidegate.sinks.port import shard_name


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)


@dataclass
class Watch:
    """Follows the ledger's writes with a memory of its own, and finds the one that should not have been."""

    places: Places
    epoch: int = 0
    holder: str | None = None
    until: float = 0.0
    seq: int = 0
    passed: set[str] = field(default_factory=set)
    plans: dict[int, Plan] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    clocks: dict[tuple[str, int], int] = field(default_factory=dict)
    """Topic and partition -> the latest clock that was applied to it, epoch ms."""
    skipped_clocks: dict[int, dict[tuple[str, int], int]] = field(default_factory=dict)
    """Seq -> the same, of runs without a batch that came before it."""
    clock_of: Callable[[str], int] = lambda _: -1
    """The clock of the run of this id."""
    backfills: set[str] = field(default_factory=set)
    """The ids of a backfill's runs."""
    replays: set[str] = field(default_factory=set)
    """The ids of runs that replay: they apply no clock."""
    skipped: dict[tuple[str, int, int], int] = field(default_factory=dict)
    logs: dict[int, Logs] = field(default_factory=dict)
    """Seq -> the logs of all that pipelines read when the batch was planned."""
    check_turn: Callable[[str], None] = lambda _: None
    """Raises Violation when the run of this id plans, and an earlier interval's run is still at work."""
    planned: list[Callable[[Plan], None]] = field(default_factory=list)
    """Functions that get each plan."""

    def __call__(self, name: str, stream: Stream, epoch: int, *arguments: Any) -> None:
        now = self.places.store.now()
        if name == "acquire":
            self._acquired(epoch, arguments[0], now)
        elif name == "release":
            require(epoch == self.epoch, "a stale holder released the lease of its successor")
            self.holder = None
        else:
            require(epoch == self.epoch, f"a stale epoch wrote: {name}")
            if name != "commit":  # the one write that does not renew the lease
                self.until = now + LEASE_SECONDS
            if check := getattr(self, f"_{name}", None):
                check(*arguments)

    def published(self, producer: str, records: Iterator[Record]) -> None:
        """A transaction was committed: of what is decided, and of nothing else."""
        for record in records:
            if record.key == producer.encode():  # a progress record
                seq = _seq_of(record.value or b"")
                require(seq <= self.seq, f"{producer} published batch {seq}, but the head is {self.seq}")

    def appended(self, shard: str, seq: int) -> None:
        """Rows came into a table: of what is decided, and of nothing else."""
        require(seq <= self.seq, f"{shard} published batch {seq}, but the head is {self.seq}")

    def _acquired(self, epoch: int, holder: str, now: float) -> None:
        require(epoch > self.epoch, "the epoch did not rise")
        free = self.holder in (None, holder) or self.until <= now
        self.places.world.counts["lease expired"] += self.holder not in (None, holder)
        require(free, f"{holder} took the lease of {self.holder}, which is alive")
        self.epoch, self.holder, self.until = epoch, holder, now + LEASE_SECONDS

    def _add_plan(self, plan: Plan) -> None:
        require(plan.seq == self.seq + 1, f"batch {plan.seq} was planned after batch {self.seq}")
        require(plan.seq not in self.plans, f"batch {plan.seq} was planned again")
        self._add_run(Run(plan.run_id, plan.seq))
        self.check_turn(plan.run_id)
        self.plans[plan.seq] = plan
        topics = self.places.broker.topics
        self.logs[plan.seq] = {name: topics[name] for name in (INPUT, MORE) if name in topics}
        for hear in tuple(self.planned):
            hear(plan)

    def _add_run(self, run: Run, clocks: Clocks | None = None) -> None:
        """Add the outcome of a run, which never changes unless its batch was dropped.

        A run without a batch has applied the same clock.
        """
        done = self.plans.get(self.runs.get(run.run_id, 0))
        require(done is None or done.seq > self.seq, f"{run.run_id} had a batch, and came to {run} then")
        if run.seq is not None:
            self.runs[run.run_id] = run.seq
        elif self.seq and run.run_id not in self.replays:
            self._apply_without_batch(run.run_id, clocks or {})

    def _drop_plan(self) -> None:
        self.runs = {run_id: seq for run_id, seq in self.runs.items() if seq <= self.seq}
        self.places.world.counts["plans dropped"] += self.plans.pop(self.seq + 1, None) is not None

    def _accept_gap(self, skipped: Sequence[OffsetRange]) -> None:
        for offset_range in skipped:
            start = self.places.broker.log((offset_range.topic, offset_range.partition)).start
            require(
                offset_range.end <= start,
                f"{offset_range} was accepted as lost, but the log is there from {start} on",
            )
            self.skipped[offset_range.topic, offset_range.partition, offset_range.start] = offset_range.end
            self.places.world.counts["gaps accepted"] += 1

    def _add_attempt(self, attempt: Attempt) -> None:
        plan = self.places.lake.plans[attempt.name]
        require(attempt.seq > self.seq, f"{attempt.name} was computed after its batch was decided")
        require(plan == self.plans.get(attempt.seq), f"{attempt.name} was not computed as it is planned")

    def _commit(self, plan: Plan, attempt: Attempt) -> None:
        require(plan.seq == self.seq + 1, f"the head moved from {self.seq} to {plan.seq}")
        require(plan == self.plans[plan.seq], f"batch {plan.seq} was not committed as it was planned")
        computed = self.places.lake.plans[attempt.name]
        require(computed == plan, f"{attempt.name} was computed from another plan than is committed")
        require(attempt.name in self.passed, f"{attempt.name} was committed without having passed the gate")
        self._apply_clock(plan)
        self.seq = plan.seq

    def check_covered(self, run_id: str) -> None:
        """A run that has succeeded has read its interval, as its first own plan has it, and nothing after it.

        It ends before where it finds nothing to read, such as behind an open transaction; and where it comes
        again so late that its newest plan is removed, since later runs have read on.
        """
        ledger = SimLedger(self.places.store)
        noted = noted_batches(ledger, self.places.stream, run_id)
        self.places.world.counts["runs of several batches"] += len(noted) > 1
        plans = [self.plans.get(run.seq or 0) for run in noted]
        own = [plan for plan, run in zip(plans, noted, strict=True) if plan and plan.run_id == run.run_id]
        interval = own[0].interval_ends if own else None
        if interval is None:
            return
        for plan in own:
            beyond = [
                offset_range
                for offset_range in plan.ranges
                if offset_range.span and offset_range.end > _end_of(interval, offset_range)
            ]
            require(not beyond, f"{plan.run_id} has read up to {beyond}, and its interval ends at {interval}")
        unread = {at: end for at, end in interval.items() if own[-1].ends[at] < end}
        is_removed = ledger.plan(self.places.stream, own[-1].seq) is None
        is_at_an_end = plans[-1] is not own[-1] or not own[-1].span or is_removed
        require(is_at_an_end or not unread, f"{run_id} has succeeded, and has not read up to {unread}")

    def _apply_clock(self, plan: Plan) -> None:
        """Require that a backfill has applied no later clock to what it reads of a partition, whichever of
        its runs comes first.
        """
        for partition in plan.ranges:
            at = partition.topic, partition.partition
            is_backwards = partition.span > 0 and plan.clock_ms < self.clocks.get(at, -1)
            is_backfill = run_of_batch(plan.run_id) in self.backfills
            require(not (is_backwards and is_backfill), f"{plan.run_id} went backwards")
            if not partition.is_cut:
                self.clocks[at] = max(self.clocks.get(at, -1), plan.clock_ms)

    def _apply_without_batch(self, run_id: str, clocks: Clocks) -> None:
        """Its clock counts wherever it leaves nothing unread."""
        own = self.clock_of(run_id)
        for at, before in self.clocks.items():
            clock = clocks.get(at)
            require(clock in (before, max(before, own)), f"{run_id} has no batch, and brings {at} to {clock}")
        self.clocks |= clocks
        self.skipped_clocks.setdefault(self.seq + 1, {}).update(clocks)
        self.places.world.counts["intervals without a batch"] += 1

    def _add_publication(self, seq: int, sink: str, records: int) -> None:
        require(seq == self.seq, f"a publication of batch {seq} was noted, but the head is {self.seq}")


@lru_cache(maxsize=1000)
def _seq_of(progress: bytes) -> int:
    seq: int = json.loads(progress)["seq"]
    return seq


def _end_of(interval: Mapping[tuple[str, int], int], partition: OffsetRange) -> int:
    return interval.get((partition.topic, partition.partition), 0)


def check_end(places: Places, watch: Watch, stream: Stream, halted: bool) -> Counter[str]:
    """The whole of it, against one uninterrupted run over the committed plans. Counts what there was.

    `halted`: the stream goes on no more, since what it has read is not what its topic has now.
    """
    tables = places.store.streams[stream]
    plans = _committed_plans(tables, watch)
    _check_logs(places, plans, watch.logs, halted)
    _check_ranges(places, plans, watch.skipped, halted)
    expected = _expected(watch, plans)
    _check_state(watch, tables, expected)
    _check_quarantine(watch, tables, plans, expected.model, halted)
    pipeline = planned_pipeline(plans[-1])
    if pipeline.dead_letters is not None:
        _check_dead_letters(places, tables, pipeline.dead_letters, expected.quarantined)
    for sink in pipeline.sinks:
        stage, shard = sink.stage or expected.last_stage, shard_name(stream, sink.name)
        batches = [batch[stage] for batch in expected.emissions]
        if sink.name == SINK_NAME:
            check_received(places.receiver, batches)
            _check_acknowledged(tables, [len(rows) for rows in batches])
        elif sink.messages is not None:
            check_topic(places, sink.messages.target, [list(map(as_record, rows)) for rows in batches])
            _check_progress(places, tables, shard, [len(batch) for batch in batches])
        else:
            _check_table(places.shelf.table(shard), shard, batches)
        _check_noted(tables, sink.name, [len(rows) for rows in batches])
    records = sum(len(batch[expected.last_stage]) for batch in expected.emissions)
    cut = sum(bool(plan.cut_partitions) for plan in plans)
    return Counter({"batches": len(plans), "published": records, "intervals cut": cut})


@dataclass
class Expected:
    """The results of one uninterrupted run."""

    state: State = field(default_factory=dict)
    emissions: list[dict[str, list[Emission]]] = field(default_factory=list)
    quarantined: list[list[Read]] = field(default_factory=list)
    last_stage: str = ""
    model: Model = field(default_factory=Model)


def _expected(watch: Watch, plans: list[Plan]) -> Expected:
    applied: dict[tuple[str, int], int] = {}
    expected = Expected(last_stage=planned_pipeline(plans[-1]).stages[-1].name)
    for plan in plans:
        applied |= watch.skipped_clocks.get(plan.seq, {})
        late = overdue(expected.state, applied) if is_tree(plan) else []
        require(not late, f"before batch {plan.seq} a clock had passed {late}, and made no batch")
        plan = replace(plan, clocks={at: applied.get(at, -1) for at in plan.ends})
        applied |= {
            at: max(clock, plan.clock_ms)
            for at, clock in plan.clocks.items()
            if at not in plan.cut_partitions
        }
        came_in = list(watch.places.lake.came_in(watch.logs[plan.seq], plan, settled=True))
        decided = decide(plan, came_in, expected.state, looked_up(watch.places, plan))
        expected.model.apply(plan.seq, came_in, decided.unusable, decided.refused)
        watch.places.world.counts["values refused"] += len(decided.refused) > 0
        if is_tree(plan):
            watch.places.world.counts += happened(plan, decided)
        if plan.lookups:
            watch.places.world.counts += lookups.happened(plan, decided)
        expected.state |= decided.state
        expected.emissions.append(decided.emissions)
        expected.quarantined.append([*decided.unusable, *decided.refused])
    return expected


def looked_up(places: Places, plan: Plan) -> LookedUp:
    """Return the rows of the tables as a plan has pinned them; each table may have changed."""
    rows = {}
    for table, pin in plan.lookups.items():
        if "version" in pin:
            rows[table] = places.lake.delta.pinned_rows(table, pin)
            continue
        commits = places.store.streams[Stream(pin["pipeline"], pin["generation"])].commits
        names = [commits[seq].name for seq in sorted(commits) if seq <= pin["seq"]]
        rows[table] = column_of(places.lake.state_of(names))
    return LookedUp(rows, lookups.reacting(plan))


def _committed_plans(tables: Tables, watch: Watch) -> list[Plan]:
    """Also of those that have left the ledger since; the head's, and what a sink has, may not."""
    assert tables.head is not None
    seqs = sorted(tables.commits)
    require(
        seqs == list(range(1, tables.head.seq + 1)), f"committed are {seqs}, the head is {tables.head.seq}"
    )
    require(set(tables.plans) <= set(seqs), "a plan is left that is not committed")
    needed = {tables.head.seq, *tables.sink_heads.values()}
    require(set(tables.plans) >= needed, f"of the batches {needed}, only {set(tables.plans)} are there")
    return [watch.plans[seq] for seq in seqs]


def _check_logs(places: Places, plans: list[Plan], logs: Mapping[int, Logs], halted: bool) -> None:
    """Require that all batches read the same log, which is the topic's unless the stream has halted for
    that.

    A drained batch reads nothing, so it does not matter to it.
    """
    plans = [plan for plan in plans if not plan.drain and plan.replay is None]
    newest = logs[plans[-1].seq]
    for plan in plans:
        require(_is_there(plan, logs[plan.seq], newest), f"batch {plan.seq} is of another log than the last")
    now, topic_id = places.broker.topics, places.broker.ids[INPUT]
    is_same = plans[-1].topic_ids[INPUT] == topic_id and _is_there(plans[-1], newest, now)
    require(
        is_same != halted, f"it has {'halted' if halted else 'gone on'}, and the log is the same: {is_same}"
    )


def _is_there(plan: Plan, logs: Logs, newest: Logs) -> bool:
    """Whether other logs have all that was read up to the end of a batch."""
    return all(
        logs[offset_range.topic][offset_range.partition].entries[: offset_range.end]
        == newest[offset_range.topic][offset_range.partition].entries[: offset_range.end]
        for offset_range in plan.ranges
    )


def _check_ranges(
    places: Places, plans: list[Plan], skipped: Mapping[tuple[str, int, int], int], halted: bool
) -> None:
    """Each partition whole: from its first offset to its end, without overlap, and without a gap that nobody
    has accepted.
    """
    at: dict[tuple[str, int], int] = defaultdict(int)
    cut: frozenset[tuple[str, int]] = frozenset()
    for plan in plans:
        require(
            not (plan.drain or plan.replay) or plan.cut_partitions == cut,
            f"batch {plan.seq} reads nothing, and is at an end",
        )
        cut = plan.cut_partitions
        for offset_range in plan.ranges:
            partition = (offset_range.topic, offset_range.partition)
            if offset_range.start != at[partition]:
                at[partition] = skipped.get((*partition, at[partition]), at[partition])
            require(
                offset_range.start == at[partition],
                f"batch {plan.seq} starts at {offset_range}, not at {at[partition]}",
            )
            at[partition] = offset_range.end
    for partition, end in at.items() if not halted else ():
        end = skipped.get((*partition, end), end)
        require(end == places.broker.log(partition).end, f"{partition} is read up to {end} only")


def _check_state(watch: Watch, tables: Tables, expected: Expected) -> None:
    manifests = SimLedger(watch.places.store).state_manifests(watch.places.stream)
    state = watch.places.lake.state_of([manifest.name for manifest in manifests])
    require(state == expected.state, f"the state is {state}, not {expected.state}")
    changelogs = watch.places.lake.state_of([tables.commits[seq].name for seq in sorted(tables.commits)])
    is_same = changelogs == expected.state
    require(is_same, f"the state by all changelogs is {changelogs}, not {expected.state}")
    counted, used = sum(count for _, count, _ in state.values()), expected.model.used.total()
    require(counted == used, f"the state counts {counted} records, and {used} were used")


def _check_quarantine(watch: Watch, tables: Tables, plans: list[Plan], model: Model, halted: bool) -> None:
    """Require that each record was used once or discarded, and that the ledger has each decision."""
    lake = watch.places.lake
    replays = {plan.seq: plan.replay for plan in plans if plan.replay is not None}
    for plan_replay in replays.values():
        model.resolve(lake.resolved[plan_replay.name], by_replay=True)
    noted = {made.seq: made.manifest for made in tables.resolutions.values() if made.seq is not None}
    require(noted == replays, f"the ledger has the replays {noted}, committed are {replays}")
    for made in tables.resolutions.values():
        if made.seq is None:
            model.resolve(lake.resolved[made.manifest.name], by_replay=False)
    records = {
        came_in[:3]
        for plan in plans
        if plan.replay is None
        for came_in in read(watch.logs[plan.seq], plan, settled=True)
    }
    wrong = model.wrong(records, is_over=not halted)
    require(not wrong, wrong)
    watch.places.world.counts["records replayed"] += len(replays) > 0
    watch.places.world.counts["records discarded"] += len(model.discarded) > 0


def _check_noted(tables: Tables, sink: str, counts: list[int]) -> None:
    """The ledger has what each batch has sent, as far as it has the batch."""
    for seq, count in enumerate(counts, 1):
        noted = tables.publications.get((seq, sink))
        require(noted == count or seq not in tables.plans, f"batch {seq}: {noted} of {count} are noted")


def _check_dead_letters(
    places: Places, tables: Tables, topic: DeadLetterTopic, batches: list[list[Read]]
) -> None:
    """Each record that a batch has put into quarantine is there once, with its batch."""
    stream, counts = places.stream, [len(rows) for rows in batches]
    records = [
        record._replace(headers=_letter_headers(place, f"{stream}/{seq}", record.timestamp_ms))
        for seq, rows in enumerate(batches, 1)
        for *place, record in rows
    ]
    check_topic(places, topic.target, [[record] for record in records])
    _check_progress(places, tables, shard_name(stream, topic.name), counts)
    _check_noted(tables, topic.name, counts)
    places.world.counts["dead letters"] += len(records)


def _letter_headers(place: Sequence[Any], batch: str, timestamp_ms: int) -> tuple[tuple[str, bytes], ...]:
    headers = {"reason": MALFORMED, "position": "/".join(map(str, place)), "batch": batch}
    headers["timestamp"] = str(timestamp_ms)
    return tuple((f"tidegate-quarantine-{name}", text.encode()) for name, text in headers.items())


def _check_acknowledged(tables: Tables, emitted: list[int]) -> None:
    """The ledger has what the endpoint has acknowledged of its last batch: all of it."""
    last = max((seq for seq, count in enumerate(emitted, 1) if count), default=0)
    progress = tables.sink_progress.get(SINK_NAME)
    is_whole = progress is None or (progress.done and progress.records == emitted[last - 1])
    seq = progress.seq if progress is not None else 0
    require(is_whole and seq == last, f"{SINK_NAME} is at {progress}, and its last batch is {last}")


def check_topic(places: Places, topic: str, batches: Sequence[Sequence[Record]]) -> None:
    """Byte for byte, and partition by partition: batch after batch, and the records of a key in order."""
    logs = places.broker.topics[topic]
    for number, log in enumerate(logs):
        require(not log.open, f"a transaction is open in {topic}[{number}]")
        actual = [record for _, record in log.committed(0, log.end)]
        parts = [[row for row in batch if crc32(row.key) % len(logs) == number] for batch in batches]
        expected = [record for part in parts for record in part]
        ends = list(accumulate(map(len, parts)))
        by_batch = [actual[start:end] for start, end in pairwise([0, *ends])]
        is_same = len(actual) == len(expected) and list(map(by_key, by_batch)) == list(map(by_key, parts))
        require(is_same, f"{topic}[{number}]: {difference(actual, expected)}")


def by_key(records: Sequence[Record]) -> dict[bytes, list[Record]]:
    """Return the records of each key, in order."""
    keys = {record.key for record in records}
    return {key: [record for record in records if record.key == key] for key in keys}


def _check_table(table: Table, shard: str, batches: list[list[Emission]]) -> None:
    """Row for row, and the progress that belongs to them."""
    expected = [record for batch in batches for record in batch]
    if table.rows != expected:
        raise Violation(f"{shard}: {difference(table.rows, expected)}")
    last = max((seq for seq, batch in enumerate(batches, 1) if batch), default=0)
    require(table.progress == last, f"the progress of {shard} is {table.progress}, not {last}")


def as_record(emission: Emission) -> Record:
    headers = (("tidegate-source", emission.source.encode()),)
    value = emission.payload.encode() if emission.payload is not None else None
    return Record(emission.key.encode(), value, emission.timestamp, headers)


def _check_progress(places: Places, tables: Tables, shard: str, emitted: list[int]) -> None:
    """The last record says what the ledger says."""
    last = max((seq for seq, count in enumerate(emitted, 1) if count), default=0)
    records = [
        record.value
        for log in places.broker.topics.get(PROGRESS_TOPIC, [])
        for _, record in log.committed(0, log.end)
        if record.key == shard.encode()
    ]
    actual = asdict(Progress.parse(records[-1] or b"", shard)) if records else None
    for name in ("round", "shards"):  # how the batch was sent does not matter any more
        (actual or {}).pop(name, None)
    attempt = tables.commits[last].name if last else ""
    expected = {"seq": last, "sent": emitted[last - 1], "done": True, "attempt": attempt} if last else None
    require(actual == expected, f"the progress of {shard} is {actual}, not {expected}")
