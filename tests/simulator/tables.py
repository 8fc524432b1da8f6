"""Worlds whose pipeline looks up tables that change: `python -m tests.simulator --world tables`.

A Delta table gets other versions between and during batches, and is now and then replaced by another one.
The other table is the state of a pipeline that runs beside it, in two generations. A third of the worlds
have the runs and faults of `simulate`, with replays; the others have the generations and promotions of
`generations`, or the repeated batches of `repeats`.

Whatever happens: what goes out is what a naive model gives from the tables that the plans have pinned, each
emission once; and at the end the last record of each key is joined with the tables as they are then.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from tests.simulator import grammar, lookups
from tests.simulator.airflow import _bearable, no_session
from tests.simulator.app import Places
from tests.simulator.broker import Record
from tests.simulator.checks import looked_up, require
from tests.simulator.compute import decide
from tests.simulator.emissions import State
from tests.simulator.generations import PIPELINE, Generations
from tests.simulator.lookups import (
    CHANGES,
    RATES,
    RULES,
    RULES_FILE,
    RULES_PIPELINE,
    RULES_TOPIC,
    TOTALS,
)
from tests.simulator.repeats import Repeats
from tests.simulator.simulate import _DEAD_LETTERS, _QUALITY, HORIZON_SECONDS, Result, Scenario, run_scenario
from tests.simulator.world import Process, World
from tidegate.batch import Trigger, run_batch
from tidegate.generations import open_generation, promote
from tidegate.ledger import Attempt, Plan, Stream

_RULES = {number: Stream(RULES_PIPELINE, number) for number in (1, 2)}
_KEYS = [f"{letter}{partition}" for letter in "abc" for partition in range(2)]
_TRIES = 6


class Tables:
    """The tables of a world, who changes them, and what a plan may pin of them."""

    def __init__(self, world: World, places: Places, may_replace: bool) -> None:
        self.world, self.places = world, places
        self.dice = random.Random(f"tables {world.seed}")
        self.pipelines = {
            number: grammar.parsed(RULES_FILE.format(generation=number), f"rules{number}.yaml")
            for number in _RULES
        }
        self._may_replace = may_replace
        self._runs = 0
        self._watch = places.store.watch
        places.store.watch = self._written
        self._appended, places.shelf.watch = places.shelf.watch, self._check_appended
        self._gate, places.gate = places.gate, self._passes
        places.broker.create(RULES_TOPIC, 1)

    def begin(self) -> None:
        """Write both tables once, and let the rest happen in time."""
        self._write(RATES)
        self._add_rules()
        self.world.quiet = True
        self._run_rules(1)
        self.world.run()
        self.world.quiet = False
        for _ in range(self.dice.randint(1, 6)):
            self._some_time(lambda: self._write(RATES))
        for _ in range(self.dice.randint(1, 6)):
            self._some_time(self._add_rules)
        for _ in range(self.dice.randint(1, 6)):
            self._some_time(lambda: self._run_rules(1))
        if self.dice.random() < 0.5:
            self._some_time(self._open_second)

    def end(self) -> None:
        """Let the looked-up pipeline read what is left."""
        for number in self._opened:
            before = -1
            while before < (before := self.places.store.streams[_RULES[number]].head.seq):  # type: ignore[union-attr]
                self._run_rules(number)
                self.world.run()

    def _some_time(self, act: Callable[[], None]) -> None:
        self.world.at(self.world.now + self.dice.random() * HORIZON_SECONDS, act)

    def _write(self, path: str) -> None:
        tables = self.places.lake.delta
        replaces = self._may_replace and path in tables.tables and self.dice.random() < 0.2
        keys = [key for key in _KEYS if self.dice.random() < 0.7]
        tables.write(path, {key: f"rate {self.dice.randrange(3)}" for key in keys}, replaces)
        self.world.counts["tables replaced"] += replaces
        self.world.counts["tables changed while a batch was open"] += self._is_open()

    def _is_open(self) -> bool:
        """Whether a batch is planned and not committed."""
        streams = self.places.store.streams
        return any(
            set(table.plans) - set(table.commits)
            for stream, table in streams.items()
            if stream.pipeline == PIPELINE
        )

    # the pipeline whose state is looked up

    def _add_rules(self) -> None:
        timestamp = round(self.world.now * 1000)
        keys = self.dice.sample(_KEYS, self.dice.randint(1, 4))
        values = [f"rule {self.dice.randrange(3)}".encode() for _ in keys]
        records = [Record(key.encode(), value, timestamp) for key, value in zip(keys, values, strict=True)]
        self.places.broker.log((RULES_TOPIC, 0)).append(records)

    @property
    def _opened(self) -> list[int]:
        heads = {number: self.places.store.streams[stream].head for number, stream in _RULES.items()}
        return [number for number, head in heads.items() if head is not None]

    def _run_rules(self, generation: int) -> None:
        trigger = self._trigger()
        self._start(
            trigger.run_id,
            lambda: run_batch(self.places.app(), self.pipelines[generation], trigger, no_session),
        )

    def _trigger(self) -> Trigger:
        self._runs += 1
        now_ms = round(self.world.now * 1000)
        return Trigger(f"rules-{self._runs}", now_ms, None, now_ms)

    def _start(self, name: str, work: Callable[[], Any], tries: int = _TRIES) -> None:
        def ended(process: Process) -> None:
            _bearable(process)
            if process.error is not None and (tries or self.world.quiet):
                wait = self.dice.choice((5.0, 40.0, 130.0))
                self.world.at(self.world.now + wait, lambda: self._start(name, work, tries - 1))
                self.world.stay_alive(wait)

        self.world.start(f"{name}#{tries}", work, ended, 0.0)

    def _open_second(self) -> None:
        """Let a second generation begin, and now and then promote it."""
        is_promoted = self.dice.random() < 0.5

        def work() -> None:
            app = self.places.app()
            if is_promoted and app.ledger.charge(RULES_PIPELINE).generation is None:
                open_generation(app, self.pipelines[2])
            run_batch(app, self.pipelines[2], self._trigger(), no_session)
            if is_promoted:
                promote(app, _RULES[2], "promote-rules")

        self._start("second", work)
        for _ in range(self.dice.randint(0, 2)):
            self._some_time(lambda: self._run_rules(2) if 2 in self._opened else None)

    # what is written, and what a plan pins

    def _passes(self, attempt: Attempt) -> bool:
        return attempt.stream.pipeline == RULES_PIPELINE or self._gate(attempt)

    def _check_appended(self, shard: str, seq: int) -> None:
        if not shard.startswith(f"tidegate-{RULES_PIPELINE}-"):
            self._appended(shard, seq)

    def _written(self, name: str, stream: Stream, epoch: int, *arguments: Any) -> None:
        if stream.pipeline == RULES_PIPELINE:
            return
        if name == "add_plan":
            self._check_pins(arguments[0])
        self._watch(name, stream, epoch, *arguments)

    def _check_pins(self, plan: Plan) -> None:
        """Require that a plan pins what there is, and nothing older than the plan before it."""
        require(set(plan.lookups) == {RATES, RULES}, f"batch {plan.seq} pins {plan.lookups}")
        if "__" in plan.run_id:  # it repeats a batch of another generation, with the tables of then
            return
        before = self.places.store.streams[plan.stream].plans.get(plan.seq - 1)
        rates, rules = plan.lookups[RATES], plan.lookups[RULES]
        ids = [table.id for table in self.places.lake.delta.tables[RATES]]
        require(rates["id"] in ids, f"batch {plan.seq} pins {rates}")
        head = self.places.store.streams[_RULES[rules["generation"]]].head
        require(head is not None and 0 < rules["seq"] <= head.seq, f"batch {plan.seq} pins {rules}")
        if before is None or not before.lookups or "__" in before.run_id:
            return
        was_rates, was_rules = before.lookups[RATES], before.lookups[RULES]
        is_newer = (ids.index(rates["id"]), rates["version"]) >= (
            ids.index(was_rates["id"]),
            was_rates["version"],
        )
        is_newer &= (rules["generation"], rules["seq"]) >= (was_rules["generation"], was_rules["seq"])
        require(is_newer, f"batch {plan.seq} pins {plan.lookups}, and the one before {before.lookups}")
        self.world.counts["another generation looked up"] += rules["generation"] > was_rules["generation"]

    def check_newest(self, stream: Stream) -> None:
        """Require that the state of a stream has each last record as the tables of now join it."""
        tables, lake = self.places.store.streams[stream], self.places.lake
        plan = tables.plans[max(tables.plans)]
        pinned = looked_up(self.places, plan)
        require(plan.lookups[RATES] == lake.delta.pin(RATES), f"{stream} ends with {plan.lookups}")
        rules = plan.lookups[RULES]
        head = self.places.store.streams[_RULES[rules["generation"]]].head
        reacts = RULES in pinned.changed
        is_newest = head is not None and rules["seq"] == head.seq
        require(is_newest or not reacts, f"{stream} ends with {plan.lookups}")
        state = lake.state_of([commit.name for _, commit in sorted(tables.commits.items())])
        for entry, (text, _, _) in state.items():
            if entry.startswith(CHANGES) and text is not None:
                key, (_, rate, rule) = entry.split("/")[1], text.split("/")
                require(rate == pinned.text(RATES, key), f"{stream} ends with {text} for {key}")
                require(not reacts or rule == pinned.text(RULES, key), f"{stream} ends with {text} for {key}")

    # what must hold of generations

    def check_model(self, stream: Stream) -> State:
        """Require that each batch has emitted what the naive model gives. Returns the state."""
        tables, lake = self.places.store.streams[stream], self.places.lake
        origin = tables.head.origin if tables.head is not None else None
        state: State = {}
        for seq in sorted(tables.commits):
            plan = tables.plans[seq]
            if origin is not None and seq == 1:
                commits = self.places.store.streams[origin[0]].commits
                state = lake.state_of([commits[at].name for at in sorted(commits) if at <= origin[1]])
                continue
            came_in = lake.came_in(self.places.broker.topics, plan, settled=True)
            decided = decide(plan, came_in, state, looked_up(self.places, plan))
            self.world.counts += lookups.happened(plan, decided)
            state |= decided.state
            if plan.run_id.startswith("promote"):
                continue  # net differences, which `_check_net` looks at
            for stage in (CHANGES, TOTALS):
                actual = lake.outbox.get((stage, tables.commits[seq].name), [])
                expected = decided.emissions[stage]
                require(actual == expected, f"{stage} of {stream}/{seq} has {actual}, not {expected}")
        return state


def _text(dice: random.Random, limit: str = "") -> str:
    on_change = dice.choice(("emit", "emit", "nothing"))
    return lookups.PIPELINE.format(generation=1, limit=limit, on_change=on_change)


class TableRuns(Scenario):
    """The runs, replays and faults of `simulate`, and tables."""

    share_of_trees: ClassVar[float] = 0.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.tables = Tables(world, self.places, may_replace=True)
        limit = "max_records: 3" if self._covers else self.tables.dice.choice(("", "max_records: 6"))
        text = _text(self.tables.dice, limit)
        if self.tables.dice.random() < 0.5:
            text += _QUALITY
        if self._has_bad_records and self.tables.dice.random() < 0.6:
            text += _DEAD_LETTERS
        self._edit(text)
        self.watch.planned.append(self._change_soon)

    def run(self) -> Counter[str]:
        """Run the whole scenario. Raises Violation."""
        self.tables.begin()
        return super().run()

    def _change_soon(self, _: Plan) -> None:
        """Change a table while a batch is at work."""
        if not self.world.quiet and self.tables.dice.random() < 0.3:
            delay = self.tables.dice.uniform(0, 5)
            self.world.at(self.world.now + delay, lambda: self.tables._write(RATES))

    def _finish(self) -> bool:
        if not self.world.quiet:
            self.world.quiet = True
            self._lift_limit()
            self.world.settle()
            self.tables.end()
        is_over = super()._finish()
        if is_over and not self._halted:
            self.tables.check_newest(self.places.stream)
        return is_over


class TableGenerations(Generations):
    """The generations and promotions of `generations`, and tables."""

    share_of_trees = 0.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._begin_tables()

    def _begin_tables(self) -> None:
        self.tables = Tables(self.world, self.places, may_replace=False)
        text = _text(self.tables.dice)
        for number in (1, 2):
            of_generation = text.replace("generation: 1", f"generation: {number}")
            if number == 2 and "added" in self.places.broker.topics:
                of_generation += "  - {kind: kafka, topic: added, stage: changes}\n"
            self.pipelines[number] = grammar.parsed(of_generation, f"{number}.yaml")
        if self.places.files:
            self.places.files = {str(number): pipeline for number, pipeline in self.pipelines.items()}

    def run(self) -> Counter[str]:
        """Run the whole scenario. Raises Violation."""
        self.tables.begin()
        return super().run()

    def _end(self) -> None:
        self.world.quiet = True
        self.world.settle()
        self.tables.end()
        super()._end()

    def _check(self) -> Counter[str]:
        for stream in sorted(
            (stream for stream in self.places.store.streams if stream.pipeline == PIPELINE),
            key=lambda stream: stream.generation,
        ):
            if self.places.store.streams[stream].commits:
                self.tables.check_model(stream)
                self.tables.check_newest(stream)
        return super()._check()


class TableRepeats(TableGenerations, Repeats):
    """The repeated batches of `repeats`, and tables."""

    def _repetitions(self) -> Any:
        """A restated batch has other tables; the model says what it emits."""
        return super()._repetitions() if self._is_edit else iter(())


def simulate(seed: int) -> Result:
    """Run a seed. Call it within `simulated()`."""
    return run_scenario(seed, (TableRuns, TableGenerations, TableRepeats)[seed % 3])
