"""Worlds with two generations: `python -m tests.simulator --world generations`.

Both run beside each other; now and then one of them is promoted, by its whole stream or by net differences,
and somebody goes back. Whatever crashes, sleeps or is lost: a topic has the batches of one generation after
the other, as the promotions say, each record once and in order.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from tests.simulator import grammar, tree
from tests.simulator.airflow import _bearable, no_session
from tests.simulator.app import Places
from tests.simulator.broker import Record
from tests.simulator.checks import as_record, check_topic, require
from tests.simulator.emissions import INPUT, MORE, Emission, difference
from tests.simulator.receivers import SINK_NAME, check_received, with_endpoint
from tests.simulator.simulate import HORIZON_SECONDS, PIPELINES, Result, run_scenario
from tests.simulator.world import Crashed, Process, Violation, World
from tidegate.batch import Outcome, Trigger, run_batch
from tidegate.errors import Halted, LeaseHeld, SettingsInvalid, SinkRefused, Transient
from tidegate.generations import open_generation, promote, rollback
from tidegate.kafka.config import PROGRESS_TOPIC
from tidegate.ledger import Span, Stream
from tidegate.sinks.port import shard_name

PIPELINE = "simulated"
_TRIES = 12
_BEARABLE = (Halted, SettingsInvalid, SinkRefused)
"""What a promotion may be refused with: nothing has caught up yet, nothing was in charge before, or an
endpoint refuses a request for now.
"""


class Generations:
    """Two generations, who runs them, and who promotes: all of it drawn from the seed."""

    has_endpoints: ClassVar[bool] = True
    """Whether some of the pipelines have an HTTP sink."""
    share_of_trees: ClassVar[float] = 0.2

    def __init__(self, world: World) -> None:
        self.world, self.dice = world, world.dice
        self.places = Places(world)
        text = self.dice.choice(PIPELINES)
        # dice of its own: it changes nothing in the other worlds
        self._growing = random.Random(f"tree {world.seed}")
        self._is_tree = self._growing.random() < self.share_of_trees
        if self._is_tree:
            text = tree.PIPELINE.format(limit=self._growing.choice(("", ", max_records: 6")))
            world.counts["trees of stages over two sources"] += 1
        if self.has_endpoints:
            text = with_endpoint(text, world.seed)
        start = ", start: latest" if self._is_tree else "\n  start: latest"
        later = text.replace("format: string", f"format: string{start}")
        second = (later if self.dice.random() < 0.3 else text).replace("generation: 1", "generation: 2")
        self.pipelines = {
            number: grammar.parsed(text, f"{number}.yaml") for number, text in ((1, text), (2, second))
        }
        if self.dice.random() < 0.8:  # else who plans for one generation finishes what the other has decided
            self.places.files = {str(number): pipeline for number, pipeline in self.pipelines.items()}
        self.places.broker.watch = self._published
        self.places.receiver.watch = self._received
        for topic in (INPUT, *([MORE] if self._is_tree else []), "output", "others"):
            self.places.broker.create(topic, 2)
        self.places.broker.create(PROGRESS_TOPIC, self.dice.randint(1, 2))
        self._runs = 0
        world.on_pause = self._paused
        self._works: dict[int, Callable[[], None]] = {}

    def run(self) -> Counter[str]:
        """Run the whole scenario. Raises Violation."""
        for number in range(self.dice.randint(3, 10)):
            self.world.at(self._some_time(), lambda number=number: self._append(number))  # type: ignore[misc]
        self._append(-1)
        self._lane(1, self.dice.randint(2, 5), 0.0)
        self._start("new", self._open, self.dice.uniform(3.0, 30.0), then=self._opened)
        self.world.run()
        self._end()
        return self._check()

    def _some_time(self) -> float:
        return self.world.now + self.dice.random() * HORIZON_SECONDS

    def _append(self, number: int) -> None:
        partition = self.dice.randrange(2)
        records = [
            Record(
                f"{self.dice.choice('abc')}{partition}".encode(),
                self.dice.choice((f"{number}.{index}", "same")).encode(),
                round((self.world.now + self.dice.uniform(-5, 5)) * 1000),
            )
            for index in range(self.dice.randint(1, 3))
        ]
        topic = MORE if self._is_tree and self._growing.random() < 0.4 else INPUT
        self.places.broker.log((topic, partition)).append(records)

    # who does what

    def _open(self) -> None:
        if self.places.app().ledger.charge(PIPELINE).generation is None:
            open_generation(self.places.app(), self.pipelines[2])

    def _opened(self) -> None:
        if not self.places.store.promotions[PIPELINE]:
            return
        self._lane(2, self.dice.randint(2, 5), 0.0)
        at = 0.0
        for number in range(self.dice.randint(1, 4)):
            at += self.dice.choice((2.0, 20.0, 60.0))
            self._start(f"promote-{number}", self._promotion(f"promote-{number}"), at)

    def _promotion(self, run_id: str) -> Callable[[], Any]:
        is_net, may_go_back = self.dice.random() < 0.4, self.dice.random() < 0.5
        # A tree sends events, too, whose net differences no value of a key shows.
        is_net = is_net and not self._is_tree
        catches_up = self.dice.random() < 0.8

        def promote_or_roll_back() -> Any:
            app = self.places.app()
            charge = app.ledger.charge(PIPELINE)
            goes_back = may_go_back and charge.previous is not None
            stream = Stream(PIPELINE, 3 - (charge.generation or 1))
            decided = charge.promotion_of(run_id)
            if decided is not None:
                stream, goes_back = decided.stream, decided.is_rollback  # what is left of it goes out
            elif catches_up:
                self._runs += 1
                now_ms = round(self.world.now * 1000)
                self._run(stream.generation, Trigger(f"run-{self._runs}", now_ms, None, now_ms))
            if goes_back:
                return rollback(app, PIPELINE, run_id, is_net)
            return promote(app, stream, run_id, is_net)

        return promote_or_roll_back

    def _lane(self, generation: int, runs: int, delay: float) -> None:
        if not runs:
            return
        self._runs += 1
        now_ms = round(self.world.now * 1000)
        trigger = Trigger(f"run-{self._runs}", now_ms, now_ms, now_ms)

        def then() -> None:
            self._lane(generation, runs - 1, self.dice.choice((0.1, 5.0, 30.0)))

        self._start(trigger.run_id, lambda: self._run(generation, trigger), delay, then)

    def _run(self, generation: int, trigger: Trigger) -> Outcome:
        return run_batch(self.places.app(), self.pipelines[generation], trigger, no_session)

    def _start(
        self,
        name: str,
        work: Callable[[], Any],
        delay: float,
        then: Callable[[], None] = lambda: None,
        tries: int = _TRIES,
    ) -> Process:
        """A process, tried again while that can help; `then` follows once it has ended."""

        def again() -> None:
            self._start(name, work, 0.0, then=lambda: None, tries=0)

        def ended(process: Process) -> None:
            error = process.error
            self._count(name, error)
            if not isinstance(error, _BEARABLE):
                _bearable(process)
            if tries and isinstance(error, (Crashed, ConnectionError, Transient, *_BEARABLE)):
                wait = 5.0 if isinstance(error, LeaseHeld) else self.dice.choice((1.0, 10.0, 130.0))
                self._start(name, work, wait, then, tries - 1)
            else:
                then()

        process = self.world.start(f"{name}#{tries}", work, ended, delay)
        self._works[id(process)] = again
        return process

    def _count(self, name: str, error: BaseException | None) -> None:
        if name.startswith("promote"):
            self.world.counts[f"promotion: {type(error).__name__ if error else 'done'}"] += 1

    def _paused(self, process: Process) -> None:
        """It looks dead, so somebody tries again beside it."""
        if self.dice.random() < 0.6 and id(process) in self._works:
            self.world.counts["tried again beside a zombie"] += 1
            self.world.at(self.world.now + self.dice.choice((1.0, 40.0, 125.0)), self._works[id(process)])

    def _published(self, producer: str, records: Iterator[Record]) -> None:
        """A transaction was committed: of a generation that goes out, and of nothing else."""
        messages = list(records)
        progress = [json.loads(record.value or b"") for record in messages if record.key == producer.encode()]
        if len(progress) < len(messages):
            generation, seq = int(producer.split("-g")[1].split("-")[0]), progress[-1]["seq"]
            goes_out = self.places.store.charge(PIPELINE).goes_out(generation, seq)
            require(goes_out, f"batch {seq} of generation {generation} was published, and is withheld")

    def _received(self, shard: str, seq: int) -> None:
        """A request was used: of a generation that goes out, and of nothing else."""
        generation = int(shard.split("-g")[1].split("-")[0])
        goes_out = self.places.store.charge(PIPELINE).goes_out(generation, seq)
        require(goes_out, f"batch {seq} of generation {generation} was sent, and is withheld")

    # the quiet end

    def _end(self) -> None:
        self.world.quiet = True
        self.world.settle()
        for generation in (1, 2) if self.places.store.promotions[PIPELINE] else (1,):
            for _ in range(40):
                if self._quiet_run(generation):
                    break
            else:
                raise Violation("the end does not come")
        # The broker may still have to write markers of the last transaction, which show it to consumers.
        self.world.settle()

    def _quiet_run(self, generation: int) -> bool:
        self._runs += 1
        now_ms = round(self.world.now * 1000)
        trigger, ended = Trigger(f"final-{self._runs}", now_ms, None, now_ms), []
        work = lambda: self._run(generation, trigger)  # noqa: E731
        self.world.start(trigger.run_id, work, ended.append, 130.0)
        self.world.run()
        (process,) = ended
        if isinstance(process.error, (Transient, Crashed)):
            return False
        if process.error is not None:
            raise Violation(f"the end failed: {process.error!r}")
        return process.result.plan is None

    def _check(self) -> Counter[str]:
        spans = list(self.places.store.charge(PIPELINE).spans()) or [Span(1, range(1, 2**62), False)]
        for sink in self.pipelines[1].sinks:
            stage = self.pipelines[1].stage_of(sink).name
            sent = [(span, self._batches(span, stage)) for span in spans]
            self._check_net(sent, stage)
            if sink.name == SINK_NAME:
                check_received(self.places.receiver, [batch for _, batches in sent for batch in batches])
                continue
            if sink.messages is not None:
                batches = [list(map(as_record, batch)) for _, batches in sent for batch in batches]
                check_topic(self.places, sink.messages.target, batches)
                continue
            for generation in (1, 2):
                own = [batch for span, batches in sent if span.generation == generation for batch in batches]
                rows = self.places.shelf.table(shard_name(Stream(PIPELINE, generation), sink.name)).rows
                expected = [row for batch in own for row in batch]
                require(rows == expected, f"{sink.name} of {generation}: {difference(rows, expected)}")
        counts = Counter({f"spans: {len(spans)}": 1, "net promotions": sum(span.is_net for span in spans)})
        counts["went back"] = len([span for span in spans[1:] if span.generation == 1])
        counts["published"] = sum(len(log.entries) for log in self.places.broker.topics["output"])
        counts["publication fenced"] = self.places.broker.fenced
        return counts

    def _batches(self, span: Span, stage: str) -> list[list[Emission]]:
        """Return what a span's batches had for the sinks of a stage."""
        tables, outbox = self.places.store.streams[Stream(PIPELINE, span.generation)], self.places.lake.outbox
        return [
            outbox.get((stage, tables.commits[seq].name), [])
            for seq in sorted(tables.commits)
            if seq in span.seqs
        ]

    def _begun_with(self, generation: int, stage: str) -> dict[str, str | None]:
        """Return the values of the state that a generation has begun with."""
        row = self.places.store.streams[Stream(PIPELINE, generation)].head
        if row is None or row.origin is None:
            return {}
        stream, seq = row.origin
        return _fold({}, self._batches(Span(stream.generation, range(1, seq + 1), False), stage))

    def _check_net(self, sent: list[tuple[Span, list[list[Emission]]]], stage: str) -> None:
        """After net differences consumers hold what the generation has, and none was without need."""
        values: dict[str, str | None] = {}
        for span, batches in sent:
            if span.is_net:
                own = self._batches(Span(span.generation, range(1, span.seqs.start), False), stage)
                expected, net = _fold(self._begun_with(span.generation, stage), own), batches[0]
                needless = [row for row in net if values.get(row.key) == row.payload]
                require(not needless, f"net differences that are none: {needless}")
                now = _fold(values, [net])
                require(now == expected, f"consumers hold {now} after net differences, not {expected}")
                self.world.counts["deleted by net differences"] += sum(row.payload is None for row in net)
            values = _fold(values, batches)


def _fold(values: dict[str, str | None], batches: Iterable[list[Emission]]) -> dict[str, str | None]:
    newest = values | {row.key: row.payload for batch in batches for row in batch}
    return {key: payload for key, payload in newest.items() if payload is not None}


def simulate(seed: int) -> Result:
    """Run a seed. Call it within `simulated()`."""
    return run_scenario(seed, Generations)
