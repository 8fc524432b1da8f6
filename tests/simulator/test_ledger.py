"""The ledger in memory is the real one: the same operations have the same results and errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import pytest

from tests.examples import share
from tests.manifests import manifest_ref
from tests.simulator.ledger import Checks, SimLeased, SimLedger, Store
from tidegate.errors import QualityFailed, TidegateError
from tidegate.ledger import (
    Attempt,
    CommittedBatch,
    LeasedLedger,
    Ledger,
    OffsetRange,
    Plan,
    Promotion,
    QualityResult,
    Resolution,
    Run,
    SinkProgress,
    Snapshot,
    Stream,
)
from tidegate.ledger.database import open_database

SEQUENCES = share(60)
OPERATIONS = 40
HOLDERS = ("r1", "r2", "r3")
SEQS = range(5)


@dataclass
class Both:
    """One stream in both ledgers, and the leases taken on it: pairs of a real one and one in memory. Beside
    it another generation, with leases of its own.
    """

    real: Any
    sim: Any
    stream: Stream
    dice: random.Random
    clock: list[float]
    leases: list[tuple[Any, Any]] = field(default_factory=list)
    attempted: set[tuple[int, int]] = field(default_factory=set)
    leases_beside: list[tuple[Any, Any]] = field(default_factory=list)
    resolving: random.Random = field(default_factory=lambda: random.Random(1))
    sending: random.Random = field(default_factory=lambda: random.Random(2))

    @property
    def beside(self) -> Stream:
        return Stream(self.stream.pipeline, self.stream.generation + 1)

    def same(self, ask: Callable[[Any], Any], leases: tuple[Any, Any] | None = None) -> Any:
        """Ask both; the answers, or the errors, must be equal."""
        real, sim = leases or (self.real, self.sim)
        (outcome, answer), (sim_outcome, sim_answer) = _outcome(ask, real), _outcome(ask, sim)
        assert sim_outcome == outcome
        return answer, sim_answer

    def step(self) -> None:
        if not self.leases or self.dice.random() < 0.2:
            self._acquire()
        elif self.dice.random() < 0.1:
            self._compact()
        elif self.dice.random() < 0.1:
            self._remove_history()
        elif self.dice.random() < 0.1:
            self._generations()
        elif self.dice.random() < 0.1:
            self.clock[0] += self.dice.choice((1.0, 60.0, 120.0, 121.0, -90.0))
        else:
            lease = self.dice.choice(self.leases[-3:])
            self.same(self._write(lease), leases=lease)
        self.same(self._read())
        if self.leases and self.resolving.random() < 0.05:  # dice of its own: the rest is as it was
            discarded = self._resolution(None)
            self.same(lambda lease: lease.add_resolution(discarded), leases=self.leases[-1])
        if self.leases and self.resolving.random() < 0.05:
            self._add_quality()
        if self.leases and self.sending.random() < 0.05:
            self._send()

    def _acquire(self) -> None:
        holder = self.dice.choice(HOLDERS)
        real, sim = self.same(lambda ledger: ledger.acquire(self.stream, holder))
        if real is not None:
            assert sim.lease == real.lease
            self.leases.append((real, sim))

    def _generations(self) -> None:
        """Another generation is made, worked on, promoted, or one of both dropped."""
        kind = self.dice.random()
        if kind < 0.2:
            self.same(lambda ledger: ledger.open_generation(self.beside, 1))
        elif kind < 0.45 or not self.leases_beside:
            holder = self.dice.choice(HOLDERS)
            real, sim = self.same(lambda ledger: ledger.acquire(self.beside, holder))
            if real is not None:
                self.leases_beside.append((real, sim))
        elif kind < 0.97:
            sides = [self.leases, self.leases_beside]
            self._promote(*(self.dice.choice(side[-2:]) for side in self.dice.sample(sides, 2)))
        else:
            self.same(
                lambda lease: lease.drop(), leases=self.dice.choice((self.leases, self.leases_beside))[-1]
            )

    def _promote(self, taking: tuple[Any, Any], replaced: tuple[Any, Any]) -> None:
        dice, stream, other = self.dice, taking[1].stream, replaced[1].stream
        number = len(self.sim.charge(stream.pipeline).promotions) + (dice.random() < 0.7)
        last = self.sim.head(other).seq if dice.random() < 0.7 else dice.choice(SEQS)
        net = None
        if dice.random() < 0.3:
            plan = replace(self._plan(self.sim.head(stream).seq + 1), stream=stream)
            net = plan, Attempt(stream, plan.seq, manifest_ref(f"net-{number}-{plan.seq}"), {})
        promotion = Promotion(
            *(stream.pipeline, number, stream.generation, dice.choice(SEQS) + 1, last, net is not None),
            run_id=f"promote-{number if dice.random() < 0.9 else 2}",
        )
        self.same(lambda lease: lease.promote(promotion, replaced[1].lease, net), leases=taking)

    def _compact(self) -> None:
        """Note a snapshot, mostly on the newest one; anybody may."""
        head, made = self.sim.head(self.stream).seq, self.sim.snapshots(self.stream)
        after = made[-1].seq if made and self.dice.random() < 0.7 else self.dice.choice(SEQS)
        seq = head if self.dice.random() < 0.7 else self.dice.choice(SEQS) + 1
        snapshot = Snapshot(self.stream, seq, manifest_ref(f"snapshot{seq}-{self.dice.randint(1, 3)}"))
        self.same(lambda ledger: ledger.add_snapshot(snapshot, after))

    def _remove_history(self) -> None:
        """Mostly after the state before the newest snapshot was given up."""
        newest = max((made.seq for made in self.sim.snapshots(self.stream)), default=0)
        if self.dice.random() < 0.7:
            self.same(lambda lease: lease.give_up(newest), leases=self.leases[-1])
        before, most = self.dice.choice(SEQS) + 3, self.dice.randint(1, 3)
        self.same(lambda ledger: ledger.remove_batches(self.stream, before, most))

    def _write(self, lease: tuple[Any, Any]) -> Callable[[Any], Any]:
        dice, seq = self.dice, self.dice.choice(SEQS) + 1
        if dice.random() < 0.6:  # what a step would do next
            seq = self.sim.head(self.stream).seq + 1
        manifest = manifest_ref(f"a{dice.randint(1, 3)}-{seq}")
        attempt = Attempt(self.stream, seq, manifest, {"s": {"emitted": seq}})

        def published(lease: Any) -> None:
            lease.add_publication(seq, f"sink{seq % 2}", seq % 3)

        writes: list[Callable[[Any], Any]] = [
            lambda lease: lease.renew(),
            lambda lease: lease.release(),
            lambda lease: lease.add_run(Run(dice_run, None, "nothing"), clocks),
            lambda lease: lease.set_validated(attempt, passed),
            lambda lease: lease.drop_plan(),
            lambda lease: lease.give_up(seq),
            lambda lease: lease.expire("quarantine", seq),
            lambda lease: lease.expire("outbox", seq),
            lambda lease: lease.accept_gap([OffsetRange("t", seq % 2, 0, seq)]),
            published,
            lambda lease: lease.set_sink_identity(f"sink{seq % 2}", f"id{seq}"),
            lambda lease: lease.note_failure(seq, step, QualityFailed(f"what {seq}", "fix")),
            lambda lease: lease.set_metrics(seq, "s", {"m": float(seq), f"n{seq}": 1.0}),
        ]
        step = ("start", "plan", "compute", "tables")[seq % 4]
        dice_run, passed = f"r{dice.randint(1, 6)}", dice.random() < 0.7
        clocks = {("t", 0): seq, ("u", seq % 2): 100} if dice.random() < 0.5 else None
        plan = self._plan(seq)
        replayed = self._resolution(seq) if self.resolving.random() < 0.3 else None
        likely = [lambda lease: lease.add_plan(plan, replayed), lambda lease: lease.commit(plan, attempt)]
        likely += [published] if dice.random() < 0.5 else []
        if (lease[0].lease.epoch, seq) not in self.attempted:  # of one epoch's own tries, none is the newest
            likely.append(self._add_attempt(lease, attempt))
        return dice.choice(likely if dice.random() < 0.6 else writes)

    def _add_quality(self) -> None:
        seq = self.sim.head(self.stream).seq + 1
        try_number = max((result.try_number for result in self.sim.quality(self.stream, seq)), default=0) + 1
        names = QualityResult.__dataclass_fields__
        result = QualityResult(**dict.fromkeys(names, "a") | {"column_names": (), "failing": ()})
        numbers = {"try_number": try_number, "check_number": 1, "expectation": 1, "passed": False}
        floats = dict.fromkeys(("evaluated_rows", "unexpected_rows", "unexpected_share", "error", "page"))
        noted = replace(result, **numbers, **floats)
        self.same(lambda lease: lease.add_quality(seq, [noted]), leases=self.leases[-1])
        self.same(lambda ledger: ledger.quality(self.stream, seq))

    def _send(self) -> None:
        """A request to an endpoint is acknowledged, by a process whose lease may be over."""
        dice, seq = self.sending, self.sim.head(self.stream).seq
        progress = SinkProgress(seq, f"a{seq}", dice.randint(1, 3), dice.randint(1, 9), done=seq % 2 == 1)
        lease = dice.choice(self.leases[-2:])
        self.same(lambda lease: lease.set_sink_progress("sink0", progress), leases=lease)
        self.same(lambda ledger: ledger.sink_progress(self.stream, "sink0"))

    def _resolution(self, seq: int | None) -> Resolution:
        number = max((made.number for made in self.sim.resolutions(self.stream)), default=0) + 1
        by = ("ada", f"why {number}")
        return Resolution(self.stream, number, seq, manifest_ref(f"resolution{number}"), 1, 2, *by)

    def _add_attempt(self, lease: tuple[Any, Any], attempt: Attempt) -> Callable[[Any], Any]:
        def add(ledger: Any) -> None:
            self.attempted.add((lease[0].lease.epoch, attempt.seq))
            ledger.add_attempt(attempt)

        return add

    def _plan(self, seq: int) -> Plan:
        stored = self.sim.plan(self.stream, seq)
        if stored is not None and self.dice.random() < 0.7:
            return stored  # type: ignore[no-any-return]
        end = self.dice.randint(0, 9)
        ranges = (
            OffsetRange("t", 0, 0, end, end or None),
            OffsetRange("u", seq % 2, 0, seq, is_cut=end % 2 == 1),
        )
        clocks = self.sim.head(self.stream).clocks_of(
            (offset_range.topic, offset_range.partition) for offset_range in ranges
        )
        run_id = f"p{self.dice.randint(1, 30)}"
        return Plan(
            self.stream,
            seq,
            run_id,
            100 - end,
            end,
            ranges,
            {"t": f"id{end}"},
            f"text{end % 3}",
            f"form{end % 2}",
            clocks=clocks,
        )

    def _read(self) -> Callable[[Any], Any]:
        of_batch = reads_of_batch(self.stream, self.dice.choice(SEQS), self.dice.randint(1, 6))
        return self.dice.choice([*reads_of_stream(self.stream), *of_batch])


def reads_of_stream(stream: Stream) -> list[Callable[[Any], Any]]:
    """Every question there is about a stream as it is now."""
    return [
        lambda ledger: ledger.head(stream),
        lambda ledger: _without_identity(ledger.committed_batch(stream)),
        lambda ledger: ledger.lease_holder(stream),
        lambda ledger: ledger.stream_statuses([stream]),
        lambda ledger: ledger.open_plan(stream),
        lambda ledger: ledger.times(stream),
        lambda ledger: ledger.state_manifests(stream),
        lambda ledger: (ledger.snapshots(stream), ledger.known_names(stream)),
        lambda ledger: ledger.expired(stream, "quarantine"),
        lambda ledger: ledger.expired(stream, "outbox"),
        lambda ledger: ledger.first_needed(stream, 3),
        lambda ledger: (ledger.planned_specs(stream), ledger.is_edited(stream), ledger.open_lookups()),
        lambda ledger: stream in ledger.streams(),
        lambda ledger: [(made, made.manifest) for made in ledger.resolutions(stream)],
        lambda ledger: ledger.newest_publication(stream),
        lambda ledger: ledger.sink_progress(stream, "sink0"),
        lambda ledger: (ledger.charge(stream.pipeline), ledger.is_dropped(stream), ledger.origin(stream)),
    ]


def reads_of_batch(stream: Stream, seq: int, number: int) -> list[Callable[[Any], Any]]:
    """Every question there is about a batch and a run."""
    return [
        lambda ledger: _without_identity(ledger.committed_batch(stream, seq)),
        lambda ledger: ledger.plan(stream, seq),
        lambda ledger: (ledger.run(stream, f"r{number}"), ledger.run(stream, f"p{number}")),
        lambda ledger: ledger.attempt(stream, seq),
        lambda ledger: (ledger.committed(stream), ledger.committed(stream, seq)),
        lambda ledger: ledger.state_manifests(stream, seq),
        lambda ledger: ledger.newest_snapshots(stream, seq),
        lambda ledger: ledger.head_at(stream, 1000.0 + 20.0 * seq),
        lambda ledger: ledger.failure(stream, seq),
        lambda ledger: ledger.publications(stream, seq),
        lambda ledger: ledger.last_published(stream, f"sink{seq % 2}{'#1' * (number % 2)}"),
        lambda ledger: ledger.removable_batches(stream, number),
        lambda ledger: ledger.sink_identity(stream, f"sink{seq % 2}"),
        lambda ledger: ledger.publishers(f"id{number}"),
        lambda ledger: ledger.metrics(stream, seq),
    ]


def _without_identity(batch: CommittedBatch | None) -> tuple[int, str] | None:
    """Return what two ledgers must agree on."""
    return None if batch is None else (batch.seq, batch.attempt)


def _outcome(ask: Callable[[Any], Any], ledger: Any) -> tuple[Any, Any]:
    """Return a form of the answer that can be compared, and the answer itself."""
    try:
        answer = ask(ledger)
    except TidegateError as error:
        return type(error), None
    return ("a lease" if hasattr(answer, "lease") else answer), answer


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Both]:
    """A stream for each sequence, in one database."""
    clock = [1000.0]
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.db'}"
    real = Ledger(open_database(url), lambda: clock[0])
    sim = SimLedger(Store(lambda: clock[0]))
    return lambda seed: Both(real, sim, Stream(f"p{seed}", 1), random.Random(seed), clock)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_both_ledgers_answer_alike(both: Callable[[int], Both], seed: int) -> None:
    streams = both(seed)
    for _ in range(OPERATIONS):
        streams.step()
    of_batches = [ask for seq in SEQS for ask in reads_of_batch(streams.stream, seq, seq)]
    for ask in [*reads_of_stream(streams.stream), *of_batches]:
        streams.same(ask)


@pytest.mark.heavy
def test_the_sequences_commit_fence_and_drop(both: Callable[[int], Both]) -> None:
    """Or they would show little."""
    seqs = []
    for seed in range(1000, 1015):
        streams = both(seed)
        for _ in range(OPERATIONS):
            streams.step()
        seqs.append(streams.sim.head(streams.stream).seq)
    assert max(seqs) >= 3


CHECKS = [name for name in vars(Checks) if not name.startswith("_")]


@pytest.mark.sample(3)
@pytest.mark.heavy
@pytest.mark.parametrize(
    "number",
    [
        # half a minute until a sequence meets it; the others take a second or two
        pytest.param(number, id=name, marks=[pytest.mark.long] if name == "sinks_at_removal" else [])
        for number, name in enumerate(CHECKS)
    ],
)
def test_ledger_without_a_check_is_detected(both: Callable[[int], Both], number: int) -> None:
    seeds = range(2000 + 1000 * number, 3000 + 1000 * number)
    with patch.object(Checks, CHECKS[number], False), pytest.raises(AssertionError):
        _run_all([both(seed) for seed in seeds])


def _run_all(sequences: list[Both]) -> None:
    for streams in sequences:
        for _ in range(OPERATIONS):
            streams.step()


FOR_PAGES_AND_EVENTS = {
    "batches",
    "charges",
    "current_batches",
    "failing_streams",
    "metric_groups",
    "metric_values",
    "newest_commits",
    "planned_versions",
    "is_stored",
    "now",
    "published_after",
    "sinks_of",
}
"""Questions of pages and of maintenance: no step of a batch asks them."""

OF_RECOVERY = {
    *("add_recovery", "end_recovery", "recoveries", "add_promotions", "dropped_streams"),
    *("decide", "send_again", "end_sending_again", "give_up_publication", "forget"),
}
"""What only a person does, by `tidegate recover`: see `tests/recovery`."""

OF_ERASURE = {
    *("erasures", "begin_erasure", "point_to_rewritten", "remove_samples", "forget_keys"),
    *("end_erasure", "overwrite_removed_rows"),
}
"""What only `tidegate erase` does: see `tests/erasure`."""


def test_both_have_the_same_methods() -> None:
    for real, sim in ((Ledger, SimLedger), (LeasedLedger, SimLeased)):
        public = (
            {name for name in dir(real) if not name.startswith("_")}
            - {"open", "open_for_reading"}
            - FOR_PAGES_AND_EVENTS
            - OF_RECOVERY
            - OF_ERASURE
        )
        assert public <= {*dir(sim), "lease", "stream"}
