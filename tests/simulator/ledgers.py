"""Worlds in which ledgers are restored or mixed up: `python -m tests.simulator --world ledgers`.

Two generations run and are promoted as in `generations`. Now and then all processes end and the ledger is
restored from a backup; another ledger is used on the same lake, or on another lake with the same sinks; the
clocks of machines are behind; a generation is dropped. Whatever happens: a stream halts with a typed error,
or goes on; and each sink has a beginning of what one ledger's uninterrupted run sends, each record once and
in order.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from tests.simulator.airflow import no_session
from tests.simulator.app import Places
from tests.simulator.broker import Record
from tests.simulator.checks import as_record, by_key, require
from tests.simulator.compute import Lake
from tests.simulator.emissions import Emission, difference
from tests.simulator.generations import PIPELINE, Generations
from tests.simulator.ledger import Store
from tests.simulator.simulate import HORIZON_SECONDS, Result, run_scenario
from tests.simulator.world import Crashed, Process, Violation, World
from tidegate.batch import Outcome, Trigger, run_batch
from tidegate.errors import Fenced, Halted, LedgerMismatch, Transient
from tidegate.generations import drop_generation
from tidegate.ledger import Span, Stream
from tidegate.sinks.port import shard_name

_CLOCKS_BEHIND = (100.0, 4_000.0, 40 * 86_400.0)


@dataclass(frozen=True)
class History:
    """The commits of one ledger, and the lake that it has used."""

    store: Store
    lake: Lake

    def expected(self, stage: str, generations: Sequence[int]) -> list[Emission]:
        """Return what a sink gets of these generations, whole and in order."""
        return [row for batch in self.batches(stage, generations) for row in batch]

    def batches(self, stage: str, generations: Sequence[int] = (1, 2)) -> list[list[Emission]]:
        """Return what a sink gets of each batch of these generations, in order."""
        spans = list(self.store.charge(PIPELINE).spans()) or [Span(1, range(1, 2**62), False)]
        own = [span for span in spans if span.generation in generations]
        return [batch for span in own for batch in self._batches(span, stage)]

    def _batches(self, span: Span, stage: str) -> Iterator[list[Emission]]:
        stream = Stream(PIPELINE, span.generation)
        tables = self.store.streams[stream]
        if tables.head is not None and tables.head.dropped:
            tables = self.store.dropped[stream]
        commits = tables.commits
        for seq in sorted(commits):
            if seq in span.seqs:
                yield self.lake.outbox.get((stage, commits[seq].name), [])


class Ledgers(Generations):
    """Two generations, and what is done to their ledger: all of it drawn from the seed."""

    has_endpoints = False
    """An endpoint cannot tell what another ledger has sent: its progress is in the ledger alone."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._mishaps = random.Random(f"ledgers {world.seed}")
        self.places.broker.watch = lambda *_: None
        self._histories: list[History] = []
        self._other_places: list[Places] = []
        self._backup: tuple[Any, Any] | None = None
        self._halted: set[int] = set()
        self._behind: dict[str, float] = {}
        self._are_clocks_wrong = self._mishaps.random() < 0.4
        self.places.store.now = self._now

    def run(self) -> Counter[str]:
        """Run the whole scenario. Raises Violation."""
        if self._mishaps.random() < 0.6:
            self.world.at(self._soon(), self._back_up)
            self.world.at(self._soon() + HORIZON_SECONDS / 3, self._restore)
        if self._mishaps.random() < 0.4:
            self._use_another_ledger()
        if self._mishaps.random() < 0.5:
            at = self._mishaps.uniform(20.0, 1.5 * HORIZON_SECONDS)
            self._start("drop", self._drop, at)
        return super().run()

    def _open(self) -> None:
        """Open both ledgers unless they have separate lakes: then both have one generation, and a sink's
        progress is of one generation.
        """
        if all(other.lake is self.places.lake for other in self._other_places):
            super()._open()

    def _run(self, generation: int, trigger: Trigger) -> Outcome:
        """A restored ledger may not know the second generation: nobody runs that one unknown."""
        if generation == 2 and not self.places.store.promotions[PIPELINE]:
            raise Halted("the ledger does not have the generation")
        return super()._run(generation, trigger)

    def _start(self, name: str, work: Any, delay: float, then: Any = lambda: None, tries: int = 4) -> Process:
        """Start a process with fewer tries: most halts here last."""
        return super()._start(name, work, delay, then, tries)

    def _soon(self) -> float:
        return self.world.now + self._mishaps.random() * HORIZON_SECONDS

    def _now(self) -> float:
        """The clock of the machine that the running process is on."""
        process = self.world.current
        if not self._are_clocks_wrong or process is None or self.world.quiet:
            return self.world.now
        if process.name not in self._behind:
            is_wrong = self._mishaps.random() < 0.2
            self._behind[process.name] = self._mishaps.choice(_CLOCKS_BEHIND) if is_wrong else 0.0
            self.world.counts["clocks behind"] += is_wrong
        return self.world.now - self._behind[process.name]

    # what happens to ledgers

    def _back_up(self) -> None:
        store = self.places.store
        self._backup = copy.deepcopy((dict(store.streams), dict(store.promotions)))

    def _restore(self) -> None:
        """Restore the backup after all processes have ended; their pending writes to the ledger never
        arrive.
        """
        if self._backup is None or self.world.quiet:
            return
        for process in self.world.processes:
            process.dead, process.wakes_at = True, self.world.now
        self.world.late = [message for message in self.world.late if not message[0].startswith("ledger.")]
        lost = copy.copy(self.places.store)
        lost.streams, lost.promotions = copy.copy(lost.streams), copy.copy(lost.promotions)
        lost.dropped = copy.copy(lost.dropped)
        self._histories.append(History(lost, self.places.lake))
        streams, promotions = self._backup
        store, self._backup = self.places.store, None
        self.world.counts["ledgers restored"] += 1
        self.world.counts["batches lost by a restore"] += _batches(lost.streams) > _batches(streams)
        store.streams = copy.copy(lost.streams)
        store.streams.clear()
        store.streams.update(streams)
        store.promotions = copy.copy(lost.promotions)
        store.promotions.clear()
        store.promotions.update(promotions)

    def _use_another_ledger(self) -> None:
        """Somebody sets TIDEGATE_LEDGER to another database, and perhaps TIDEGATE_LAKE to another place."""
        other = copy.copy(self.places)
        store = self.places.store
        other.store = Store(store.now, store.read, store.write, identity="another")
        if self._mishaps.random() < 0.6:
            other.lake = Lake()
        self._other_places.append(other)
        for number in range(self._mishaps.randint(1, 3)):
            now_ms = round(self.world.now * 1000)
            trigger = Trigger(f"other-{number}", now_ms, None, now_ms)
            self._start(
                f"other-{number}",
                lambda trigger=trigger: self._run_with(other, trigger),
                self._soon() - self.world.now,
            )  # type: ignore[misc]

    def _run_with(self, places: Places, trigger: Trigger) -> Any:
        try:
            return run_batch(places.app(), self.pipelines[1], trigger, no_session)
        except LedgerMismatch:
            self.world.counts["another ledger halted"] += 1
            raise

    def _drop(self) -> None:
        """Somebody gives up the generation that is not in charge."""
        app = self.places.app()
        charge = app.ledger.charge(PIPELINE)
        if charge.generation is None or len(charge.promotions) < 2:
            raise Halted("nothing was promoted yet")
        drop_generation(app, Stream(PIPELINE, 3 - charge.generation), "drop")
        self.world.counts["generations dropped"] += 1

    # the quiet end

    def _quiet_run(self, generation: int) -> bool:
        """Also True where the stream has halted with a typed error, or is dropped."""
        self._runs += 1
        now_ms = round(self.world.now * 1000)
        trigger, ended = Trigger(f"final-{self._runs}", now_ms, None, now_ms), []
        self.world.start(trigger.run_id, lambda: self._run(generation, trigger), ended.append, 130.0)
        self.world.run()
        error = ended[0].error
        if self._is_dropped(generation):
            return True
        if isinstance(error, Halted):
            self._halted.add(generation)
            return True
        if (
            isinstance(error, Fenced) and self._other_places
        ):  # the other ledger began with a sink, and sent nothing
            self._halted.add(generation)
            return True
        if isinstance(error, (Transient, Crashed)):
            return False
        if error is not None:
            raise Violation(f"the end failed: {error!r}")
        return bool(ended[0].result.plan is None)

    def _is_dropped(self, generation: int) -> bool:
        row = self.places.store.streams[Stream(PIPELINE, generation)].head
        return row is not None and row.dropped

    def _check(self) -> Counter[str]:
        now = History(self.places.store, self.places.lake)
        other_histories = [History(other.store, other.lake) for other in self._other_places]
        own = [*self._histories, now]
        halted = self._halted
        if not self._histories and not self._other_places:
            require(not halted, f"generations {halted} have halted, and nothing was wrong with the ledger")
        self.world.counts["halted"] += bool(halted)
        self.world.counts["went on after a restore"] += bool(self._histories) and not halted
        for history in (*own, *other_histories):
            _check_instants(history.store)
        for sink in self.pipelines[1].sinks:
            stage = self.pipelines[1].stage_of(sink).name
            if sink.messages is not None:
                histories = [history.batches(stage) for history in (*own, *other_histories)]
                self._check_beginning(sink.messages.target, histories, bool(halted))
                continue
            for generation in (1, 2):
                rows = self.places.shelf.table(shard_name(Stream(PIPELINE, generation), sink.name)).rows
                expected = [history.expected(stage, (generation,)) for history in (*own, *other_histories)]
                is_one = any(rows == rows_expected[: len(rows)] for rows_expected in expected)
                require(is_one, f"{sink.name} of {generation}: {difference(rows, expected[-1])}")
                whole = now.expected(stage, (generation,))
                require(bool(halted) or rows == whole, f"{sink.name}: {difference(rows, whole)}")
        return Counter({"publication fenced": self.places.broker.fenced})

    def _check_beginning(self, topic: str, histories: list[list[list[Emission]]], may_be_short: bool) -> None:
        """A topic has a beginning of what one ledger sends; all of it where nothing has halted."""
        logs = self.places.broker.topics[topic]
        logged = [[record for _, record in log.committed(0, log.end)] for log in logs]
        fitting = [batches for batches in histories if _is_beginning(logged, batches)]
        require(bool(fitting), f"{topic} has what no ledger alone would send: {logged}")
        sizes = [sum(map(len, batches)) for batches in fitting]
        require(may_be_short or sum(map(len, logged)) in sizes, f"{topic} lacks records")


def _is_beginning(logged: list[list[Record]], batches: list[list[Emission]]) -> bool:
    """Return whether the partitions have the batches in order: all of them whole, but the last.

    Of the last batch they have the first records of each key: shards are sent side by side.
    """
    before_is_whole = True
    for batch in batches:
        parts = _in_partitions(batch, len(logged))
        sent = [log[: len(part)] for log, part in zip(logged, parts, strict=True)]
        logged = [log[len(part) :] for log, part in zip(logged, parts, strict=True)]
        if any(sent) and not before_is_whole:
            return False
        if not all(map(_is_beginning_by_key, sent, parts)):
            return False
        before_is_whole = before_is_whole and list(map(len, sent)) == list(map(len, parts))
    return not any(logged)


def _is_beginning_by_key(sent: list[Record], part: list[Record]) -> bool:
    of_keys = by_key(part)
    return all(records == of_keys.get(key, [])[: len(records)] for key, records in by_key(sent).items())


def _in_partitions(rows: Sequence[Emission], count: int) -> list[list[Record]]:
    partitions: list[list[Record]] = [[] for _ in range(count)]
    for record in map(as_record, rows):
        partitions[crc32(record.key) % count].append(record)
    return partitions


def _check_instants(store: Store) -> None:
    """The instants of batches never go back, whatever the clocks do."""
    for stream, tables in store.streams.items():
        instants = [tables.committed_at[seq] for seq in sorted(tables.committed_at)]
        require(instants == sorted(instants), f"the batches of {stream} were committed at {instants}")


def _batches(streams: Any) -> int:
    return sum(len(tables.commits) for tables in streams.values())


def simulate(seed: int) -> Result:
    """Run a seed. Call it within `simulated()`."""
    return run_scenario(seed, Ledgers)
