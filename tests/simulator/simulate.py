"""One seed: a world, its runs and faults, a quiet end, and what must hold then."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.simulator import grammar, tree
from tests.simulator.airflow import COVER, STEPS, Airflow, Run
from tests.simulator.app import Places, enter, simulated
from tests.simulator.broker import Record
from tests.simulator.checks import Watch, check_end
from tests.simulator.emissions import INPUT, MORE
from tests.simulator.receivers import with_endpoint
from tests.simulator.replays import ALL, SOME, request
from tests.simulator.world import Event, Violation, World
from tidegate.batch import Trigger
from tidegate.kafka.config import PROGRESS_TOPIC
from tidegate.ledger import Attempt, Plan
from tidegate.model.pipeline import Pipeline

_SOURCE = """\
pipeline: simulated
generation: 1
source:
  topics: [input]
  format: string
  {limit}
stages:
  - name: changes
    select: {{value: "`value`"}}
    reduce: latest
    emit: {{on: change, equal: {{sql: "old.`value` <=> new.`value`"}}}}
"""
_SECOND_STAGE = """\
  - name: every_other
    select: {value: "`value`"}
    reduce: latest
    emit: {on: update}
"""
_ONE_SINK = "sinks:\n  - {kind: kafka, topic: output}\n"
_TWO_SINKS = (
    "sinks:\n"
    "  - {kind: kafka, topic: output, stage: changes}\n"
    "  - {kind: kafka, topic: others, stage: every_other}\n"
)
_TABLES = (
    "sinks:\n"
    "  - {kind: sql, table: output, stage: changes}\n"
    "  - {kind: table, path: others, stage: every_other}\n"
)
_QUALITY = "quality: {suite: simulated, on_failure: stop}\n"
_DEAD_LETTERS = "quarantine: {topic: dead}\n"

PIPELINES = (
    _SOURCE.format(limit="") + _ONE_SINK,
    _SOURCE.format(limit="max_records: 6") + _ONE_SINK + _QUALITY,
    _SOURCE.format(limit="") + _SECOND_STAGE + _TWO_SINKS + _QUALITY,
    _SOURCE.format(limit="") + _SECOND_STAGE + _TABLES,
)
_LITTLE = _SOURCE.format(limit="max_records: 3") + _ONE_SINK + _QUALITY
"""Of which a run that covers its interval takes several batches."""

_LIMIT = re.compile("(, )?max_records: [0-9]+")

HORIZON_SECONDS = 90.0
_KEYS = ("a", "b", "c")


@dataclass
class Result:
    """The result of a seed. `violation` is empty if the seed passed."""

    seed: int
    violation: str = ""
    trace: list[Event] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class Scenario:
    """The input, the runs and the faults of a seed: all of it drawn from the seed."""

    share_of_trees: ClassVar[float] = 0.2

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = world.dice
        self.places = Places(world)
        # dice of its own: it changes nothing else in the worlds that have it
        self._upgrades = random.Random(f"upgrade {world.seed}")
        text = self.dice.choice(PIPELINES)
        self._tasks = random.Random(f"tasks {world.seed}")  # likewise
        self._resolving = random.Random(f"resolutions {world.seed}")  # likewise
        self._has_bad_records = self._resolving.random() < 0.3
        self._refusing = random.Random(f"refusals {world.seed}")  # likewise
        self._has_refusals = self._refusing.random() < 0.3
        self._covers = self._tasks.random() < 0.25
        if self._covers and self._tasks.random() < 0.8:
            text = _LITTLE
        self._growing = random.Random(f"tree {world.seed}")  # likewise
        self._is_tree = self._growing.random() < self.share_of_trees
        if self._is_tree:
            limits = (", max_records: 3",) if self._covers else ("", ", max_records: 6")
            text = tree.PIPELINE.format(limit=self._growing.choice(limits))
            world.counts["trees of stages over two sources"] += 1
        letters = random.Random(f"dead letters {world.seed}")  # likewise
        if self._has_bad_records and letters.random() < 0.6:
            text += _DEAD_LETTERS
        text = with_endpoint(text, world.seed)
        self.pipeline: Pipeline = grammar.parsed(text, "simulated.yaml")
        self.watch = Watch(self.places)
        self.places.store.watch = self.watch
        self.places.broker.watch = self.watch.published
        self.places.shelf.watch = self.watch.appended
        self.places.receiver.watch = self.watch.appended
        self.places.gate = self._gate
        self._is_backfilled = self.dice.random() < 0.2
        in_order = self._is_backfilled and self.dice.random() < 0.7
        self.airflow = Airflow(self.places, self.pipeline, in_order=in_order)
        self.watch.clock_of = lambda run_id: self.airflow.trigger_of(run_id).clock_ms
        self.airflow.check_covered = self.watch.check_covered
        if in_order:
            self.watch.check_turn = self.airflow.check_turn
        for topic in (INPUT, *([MORE] if self._is_tree else []), "output", "others", "dead"):
            self.places.broker.create(topic, 2)
        if self.dice.random() < 0.7:
            self.places.broker.create(PROGRESS_TOPIC, self.dice.randint(1, 2))
        self._lanes = 0
        self._halted = False
        self._finals = 0
        self._idle = False

    def run(self) -> Counter[str]:
        """Run the whole scenario. Raises Violation."""
        self._input()
        self._neighbours()
        self._meddling()
        self._runs()
        self.world.run()
        while not self._finish():
            pass
        self.world.settle()
        counts = check_end(self.places, self.watch, self.places.stream, self._halted)
        return counts + Counter({"publication fenced": self.places.broker.fenced})

    def _some_time(self) -> float:
        return self.world.now + self.dice.random() * HORIZON_SECONDS

    def _gate(self, attempt: Attempt) -> bool:
        """Whether the quality suite lets an attempt through: now and then not before somebody corrects it."""
        passed = self.watch.passed
        if self.world.quiet or not self.pipeline.quality or self.dice.random() < 0.9:
            passed.add(attempt.name)
        return attempt.name in passed

    # what comes in

    def _input(self) -> None:
        for number in range(self.dice.randint(3, 12)):
            self.world.at(self._some_time(), lambda number=number: self._append(number))  # type: ignore[misc]

    def _append(self, number: int) -> None:
        """A few records to one partition, now and then in a transaction, which may be aborted."""
        dice, at = self.dice, (INPUT, self.dice.randrange(2))
        if self._is_tree and self._growing.random() < 0.4:
            at = (MORE, at[1])
        records = [self._record(f"{number}.{index}", at[1]) for index in range(dice.randint(1, 3))]
        if dice.random() < 0.1:
            self.places.broker.log(at).elect()
        if dice.random() < 0.7:
            self.places.broker.log(at).append(records)
            return
        self._transaction(f"source-{number}", at, records, dice.random() < 0.6)

    def _record(self, name: str, partition: int) -> Record:
        value = self.dice.choice((name, "same")).encode()
        if self._has_bad_records and self._resolving.random() < 0.3:
            value = f"bad {name}".encode()
        elif self._has_refusals and self._refusing.random() < 0.2:
            value = f"refused {name}".encode()
        before = HORIZON_SECONDS if name.startswith("-") else 5
        timestamp = round((self.world.now + self.dice.uniform(-before, 5)) * 1000)
        return Record(f"{self.dice.choice(_KEYS)}{partition}".encode(), value, timestamp)

    def _neighbours(self) -> None:
        """Other pipelines publish, too: their progress records lie in the same topic."""
        for number in range(self.dice.randint(0, 2)):
            self.world.at(self._some_time(), lambda number=number: self._neighbour(number))  # type: ignore[misc]

    def _neighbour(self, number: int) -> None:
        if logs := self.places.broker.topics.get(PROGRESS_TOPIC):
            at = (PROGRESS_TOPIC, self.dice.randrange(len(logs)))
            records = [Record(b"neighbour", b"{}", 0)] * self.dice.choice((1, 1, 10))
            self._transaction(f"neighbour-{number}", at, records, self.dice.random() < 0.5)

    def _compact_progress(self) -> None:
        """The log's cleaner comes by: behind a part of a log, since it leaves alone what is written to."""
        if logs := self.places.broker.topics.get(PROGRESS_TOPIC):
            log = self.dice.choice(logs)
            self.world.counts["progress compacted"] += log.compact(self.dice.randint(0, log.end)) > 0

    def _transaction(self, name: str, at: tuple[str, int], records: list[Record], commits: bool) -> None:
        """Somebody else's transaction: committed after a while, or left to its timeout."""
        broker, world = self.places.broker, self.world
        epoch = broker.init_producer(name)
        assert epoch is not None
        broker.append(name, epoch, 1, 60.0, at, records)
        if commits:
            world.at(world.now + self.dice.choice((0.5, 10.0, 50.0)), lambda: broker.commit(name, epoch, 1))

    # who runs

    def _runs(self) -> None:
        dice = self.dice
        self._lane("scheduled", dice.randint(1, 3))
        if self._is_backfilled:
            self._backfill(dice.randint(2, 5))
            return
        if dice.random() < 0.5:
            self._lane("backfill", dice.randint(1, 2))
        if dice.random() < 0.4:
            self._lane("cli", 1)
        if self._has_bad_records:
            self._lane("replay", self._resolving.randint(1, 3))
            for _ in range(self._resolving.choice((0, 1, 2))):
                self.world.at(self._some_time(), self._discard)

    def _backfill(self, runs: int) -> None:
        """Start all runs of a backfill at once; their records exist already.

        If none of them waits for its turn, they plan in any order, and those that would go backwards are
        refused.
        """
        for number in range(self.dice.randint(runs, 20)):
            self._append(-1 - number)
        self.world.counts["backfills all at once"] += 1
        for number in range(1, runs + 1):
            end_ms = round((self.world.now - (runs - number) * HORIZON_SECONDS / runs) * 1000)
            now_ms = round(self.world.now * 1000)
            trigger = Trigger(f"backfill-{number}", end_ms, end_ms, now_ms, backfill=True)
            self.watch.backfills.add(trigger.run_id)
            self._run(trigger, lambda _: None).start(self.dice.random() * 10)

    def _lane(self, name: str, runs: int) -> None:
        """Runs one after the other, beside those of the other lanes."""
        self._lanes += 1
        self.world.at(self.world.now + self.dice.random() * 20, lambda: self._next(name, 1, runs))
        self.world.stay_alive(20.0)

    def _next(self, lane: str, number: int, runs: int) -> None:
        if number > runs:
            self._lanes -= 1
            return

        def then(_: Run) -> None:
            delay = self.dice.choice((0.1, 5.0, 40.0))
            self.world.at(self.world.now + delay, lambda: self._next(lane, number + 1, runs))
            self.world.stay_alive(delay)

        trigger = self._trigger(f"{lane}-{number}", lane)
        self._run(trigger, then, is_cli=lane in ("cli", "replay")).start()

    def _run(self, trigger: Trigger, then: Callable[[Run], None], is_cli: bool = False) -> Run:
        """Return a run of Airflow, with five tasks or one, or a run of the command line, which makes one
        batch.
        """
        covers = self._covers and not is_cli
        return Run(
            self.airflow,
            trigger,
            then,
            whole=is_cli or (covers and self._tasks.random() < 0.5),
            covers=covers,
        )

    def _trigger(self, run_id: str, lane: str) -> Trigger:
        now_ms = round(self.world.now * 1000)
        if lane == "cli":
            return Trigger(run_id, now_ms, None, now_ms)
        if lane == "replay":
            self.watch.replays.add(run_id)
            how_many = self._resolving.choice((ALL, SOME))
            return Trigger(run_id, now_ms, None, now_ms, replay=request(how_many))
        end_ms = now_ms - (self.dice.randint(0, 60_000) if lane == "backfill" else 0)
        drain = lane == "scheduled" and self.dice.random() < 0.1
        self.world.counts["drained"] += drain
        return Trigger(run_id, end_ms, end_ms, now_ms, drain=drain)

    def _meddling(self) -> None:
        if self.dice.random() < 0.4:
            for _ in range(self.dice.randint(1, 3)):
                self.world.at(self._some_time(), self._clear_any)
        if self.dice.random() < 0.2:
            for _ in range(self.dice.randint(1, 2)):
                self.world.at(self._some_time(), self.airflow.drop_plan)
        if self.dice.random() < 0.3:
            for _ in range(self.dice.randint(1, 3)):
                self.world.at(self._some_time(), self._maintain)
        if self.dice.random() < 0.25:
            self.world.at(self._some_time(), self._delete_old)
        elif self.dice.random() < 0.2:
            self.watch.planned.append(self._another_log_soon)
        if self.dice.random() < 0.3:
            for _ in range(self.dice.randint(1, 3)):
                self.world.at(self._some_time(), self._compact_progress)
        if self.dice.random() < 0.2:
            for _ in range(self.dice.randint(1, 3)):
                self.world.at(self._some_time(), self._mark_any)
        self._upgrade()

    def _upgrade(self) -> None:
        """A tidegate whose grammar is stricter is installed: at any time, or while a batch is at work."""
        chance = self._upgrades.random()
        if chance < 0.1:
            at = self.world.now + self._upgrades.random() * HORIZON_SECONDS
            self.world.at(at, self._grow_stricter)
        elif chance < 0.3:
            self.watch.planned.append(self._stricter_soon)

    def _stricter_soon(self, _: Plan) -> None:
        if not self.world.quiet and self._upgrades.random() < 0.5:
            self.watch.planned.remove(self._stricter_soon)
            self.world.at(self.world.now + self._upgrades.uniform(0, 10), self._grow_stricter)

    def _grow_stricter(self) -> None:
        tables = self.places.store.streams[self.places.stream]
        self.world.counts["grammar stricter"] += 1
        self.world.counts["grammar stricter after a plan"] += bool(set(tables.plans) - set(tables.commits))
        grammar.grow_stricter()
        self._edit(grammar.in_todays_words(self.pipeline.text))

    def _lift_limit(self) -> None:
        """Somebody takes `max_records` out of the file: else the end would take a third of all runs."""
        self._edit(_LIMIT.sub("", self.pipeline.text))

    def _edit(self, text: str) -> None:
        """Somebody edits the pipeline's file."""
        self.pipeline = self.airflow.pipeline = grammar.parsed(text, "simulated.yaml")

    def _another_log_soon(self, _: Plan) -> None:
        """While a batch is at work, and once, the topic that it reads becomes another one."""
        if not self.world.quiet and self.dice.random() < 0.5:
            self.watch.planned.remove(self._another_log_soon)
            self.world.at(self.world.now + self.dice.uniform(0, 5), self._another_log)

    def _another_log(self) -> None:
        """It is deleted and created again, or a leader takes over that has lost the end of a log; and whoever
        produces goes on, until it is longer than it was.
        """
        broker, dice = self.places.broker, self.dice
        before, number = [log.end for log in broker.topics[INPUT]], dice.randrange(2)
        if dice.random() < 0.5:
            broker.recreate(INPUT)
            self.world.counts["topic recreated"] += 1
        else:
            log = broker.log((INPUT, number))
            broker.truncate((INPUT, number), dice.randint(log.start, log.end))
            self.world.counts["log truncated"] += 1
        for partition, log in enumerate(broker.topics[INPUT]):
            lost = before[partition] - log.end
            log.append([self._record(f"other{index}", partition) for index in range(lost + bool(lost))])

    def _delete_old(self) -> None:
        """Retention deletes a part of a partition that was read before, and often what was not read yet."""
        at = (INPUT, self.dice.randrange(2))
        row, log = self.places.store.streams[self.places.stream].head, self.places.broker.log(at)
        read = row.offsets.get(at) if row is not None else None
        if read is not None and read <= log.stable_end:
            log.start = self.dice.randint(read, log.stable_end)
            self.world.counts["retention passed the head"] += log.start > read

    def _discard(self) -> None:
        """Somebody decides that some of what cannot be used never will be."""
        self.airflow.discard(request(SOME))

    def _clear_any(self) -> None:
        if self.airflow.runs:
            run_id = self.dice.choice(sorted(self.airflow.runs))
            if run_id.startswith(("cli", "replay")):
                return
            # whatever the ledger remembers of it: that must not be less
            is_noted = (
                run_id in self.watch.runs or run_id in self.places.store.streams[self.places.stream].runs
            )
            names = STEPS if is_noted else STEPS[1:]
            if self._covers:
                names = (*names, COVER)
            self.airflow.clear(run_id, self.dice.choice(names))

    def _maintain(self) -> None:
        """Old batches leave the ledger, and then somebody clears runs of long ago."""
        self.airflow.maintain()
        for _ in range(self.dice.randint(0, 2)):
            self.world.at(self.world.now + self.dice.choice((5.0, 60.0)), self._clear_any)

    def _mark_any(self) -> None:
        if self.airflow.runs:
            self.airflow.mark_success(self.dice.choice(sorted(self.airflow.runs)))

    # the quiet end

    def _finish(self) -> bool:
        """One more run, without faults, beside whoever still wakes up. True when there is nothing left."""
        if not self.world.quiet:
            self.world.quiet = True
            self._lift_limit()
        self.world.settle()
        ended: list[Run] = []
        tables = self.places.store.streams[self.places.stream]
        is_planned = bool(set(tables.plans) - set(tables.commits))
        self._finals += 1
        now_ms = round(self.world.now * 1000)
        is_replay = self._has_bad_records and self._finals % 2 == 0
        replay = request(ALL) if is_replay else None
        trigger = Trigger(f"final-{self._finals}", now_ms, None, now_ms, replay=replay)
        if is_replay:
            self.watch.replays.add(trigger.run_id)
        Run(self.airflow, trigger, ended.append, whole=True, patient=True).start()
        self.world.run()
        if self._finals > 200:  # a run may read only three of a hundred records
            raise Violation("the end does not come")
        # with a plan open it may be that one's log which is another, and not the head's
        self._halted = not is_planned and all(run.is_of_another_log for run in ended)
        is_idle = all(run.nothing_to_do for run in ended)
        # only where records are replayed do two kinds of runs take turns, and each has to find nothing
        was_idle, self._idle = self._idle or not self._has_bad_records, is_idle
        return self._halted or (is_idle and was_idle)


def simulate(seed: int) -> Result:
    """Run a seed. Call it within `simulated()`."""
    return run_scenario(seed, Scenario)


def run_scenario(seed: int, scenario_in: Callable[[World], Any]) -> Result:
    """Run what happens in a seed's world: a scenario has `places`, and `run()`, which gives counts."""
    with grammar.of_its_day():
        world = World(seed)
        scenario = scenario_in(world)
        enter(scenario.places)
        result = Result(seed, trace=world.trace, counts=world.counts)
        try:
            result.counts += scenario.run()
        except (Exception, Violation) as violation:
            result.violation = f"{type(violation).__name__}: {violation}"
        finally:
            world.close()
        result.counts.update(seeds=1, effects=len(world.trace))
        return result


def simulate_all(seeds: Iterable[int]) -> Iterator[Result]:
    """Run many."""
    with simulated():
        for seed in seeds:
            yield simulate(seed)
