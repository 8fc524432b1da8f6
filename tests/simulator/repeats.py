"""Worlds in which a generation repeats batches: `python -m tests.simulator --world repeats`.

Beside the first generation, somebody restates a range of it, or recomputes what an edit has changed: a sink
that is new. Whatever crashes, sleeps or is lost meanwhile, a repeated batch has the emissions of the one that
it repeats, sinks that inherit get nothing twice, and the new one gets all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from tests.simulator import grammar
from tests.simulator.airflow import no_session
from tests.simulator.checks import as_record, check_topic, require
from tests.simulator.emissions import Emission
from tests.simulator.generations import PIPELINE, Generations
from tests.simulator.receivers import SINK_NAME, check_received
from tests.simulator.simulate import Result, run_scenario
from tests.simulator.world import World
from tidegate.batch import Trigger
from tidegate.errors import Halted
from tidegate.generations import open_generation, promote
from tidegate.generations.recompute import plan_recomputation
from tidegate.generations.restate import plan_restatement, repeat
from tidegate.ledger import Plan, Stream
from tidegate.sinks.port import shard_name

_NEW_SINK = "  - {kind: kafka, topic: added, stage: changes}\n"
_FIRST, _SECOND = Stream(PIPELINE, 1), Stream(PIPELINE, 2)


class Repeats(Generations):
    """Two generations, of which the second repeats batches: all of it drawn from the seed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._repeating = random.Random(f"repeats {world.seed}")
        self._is_edit = self._repeating.random() < 0.5
        text = self.pipelines[1].text.replace("generation: 1", "generation: 2")
        if self._is_edit:
            text = text.replace("sinks:\n", f"sinks:\n{_NEW_SINK}")
            self.places.broker.create("added", 2)
        self.pipelines[2] = grammar.parsed(text, "2.yaml")
        if self.places.files:
            self.places.files["2"] = self.pipelines[2]
        self._range: tuple[int, int] | None = None

    def _open(self) -> None:
        app = self.places.app()
        head = app.ledger.head(_FIRST).seq
        if head < 2:
            raise Halted("there is no batch to repeat yet")
        if _SECOND not in app.ledger.streams():
            open_generation(app, self.pipelines[2])
        if self._is_edit:
            work = plan_recomputation(app, self.pipelines[2], _FIRST, head)
            repeat(app, self.pipelines[2], work, no_session)
            self.world.counts["recomputed"] += 1
            return
        first, last = self._range = self._range or self._drawn_range(head)
        pipeline = self.pipelines[2]
        repeat(app, pipeline, plan_restatement(app, pipeline, _FIRST, first, last), no_session)
        self.world.counts["restated"] += 1

    def _drawn_range(self, head: int) -> tuple[int, int]:
        first = self._repeating.randint(2, head)
        return first, self._repeating.randint(first, head)

    def _promotion(self, run_id: str) -> Callable[[], Any]:
        """After an edit, only the second one is promoted, and nobody goes back."""
        if not self._is_edit:
            return super()._promotion(run_id)

        def promote_the_second() -> Any:
            app, now_ms = self.places.app(), round(self.world.now * 1000)
            if app.ledger.charge(PIPELINE).generation == 1:
                self._runs += 1
                self._run(2, Trigger(f"run-{self._runs}", now_ms, None, now_ms))
            return promote(app, _SECOND, run_id)

        return promote_the_second

    # what must hold

    def _check(self) -> Counter[str]:
        for plan, repeated in self._repetitions():
            for stage in self.pipelines[1].stages:
                expected = self._outbox(*repeated, stage.name)
                actual = self._outbox(_SECOND, plan.seq, stage.name)
                where = f"batch {plan.seq} repeats {repeated[1]}: {stage.name}"
                require(expected == actual, f"{where} has {actual}, not {expected}")
            self.world.counts["batches repeated"] += 1
        return self._check_edited() if self._is_edit else super()._check()

    def _repetitions(self) -> Iterator[tuple[Plan, tuple[Stream, int]]]:
        """Yield the committed batches that repeat one of the first generation, with that one."""
        tables = self.places.store.streams[_SECOND]
        for plan in (tables.plans[seq] for seq in sorted(tables.commits)):
            run, _, seq = plan.run_id.partition("__1.")
            if seq and run in ("restate", "restate_as_it_was", "recompute"):
                yield plan, (_FIRST, int(seq))

    def _outbox(self, stream: Stream, seq: int, stage: str) -> list[Emission]:
        commit = self.places.store.streams[stream].commits[seq]
        return self.places.lake.outbox.get((stage, commit.name), [])

    def _check_edited(self) -> Counter[str]:
        """Require that each sink has what the two generations send, and no batch twice."""
        for sink in self.pipelines[2].sinks:
            stage = self.pipelines[2].stage_of(sink).name
            sent = [self._sent(stream, sink.name, stage) for stream in (_FIRST, _SECOND)]
            if sink.name == SINK_NAME:
                check_received(self.places.receiver, list(chain(*sent)))
                continue
            if sink.messages is not None:
                batches = [list(map(as_record, rows)) for rows in chain(*sent)]
                check_topic(self.places, sink.messages.target, batches)
                continue
            for stream, of_stream in zip((_FIRST, _SECOND), sent, strict=True):
                rows = self.places.shelf.table(shard_name(stream, sink.name)).rows
                is_same = rows == list(chain(*of_stream))
                require(is_same, f"{sink.name} of {stream} has {rows}, not {of_stream}")
        return Counter({"publication fenced": self.places.broker.fenced})

    def _sent(self, stream: Stream, sink: str, stage: str) -> list[list[Emission]]:
        """Return what each batch of a generation sends to a sink."""
        charge, tables = self.places.store.charge(PIPELINE), self.places.store.streams[stream]
        is_promoted = charge.generation == 2
        if (stream == _SECOND and not is_promoted) or (stream == _FIRST and sink == "kafka:added"):
            return []
        last = charge.promotions[-1].replaced_seq if is_promoted else max(tables.commits, default=0)
        seqs = sorted(tables.commits)
        if stream == _FIRST:
            return [self._outbox(stream, seq, stage) for seq in seqs if seq <= last]
        reused = {seq: tables.plans[seq].reused for seq in seqs if seq <= last}
        inherited = {seq for seq, part in reused.items() if part is not None and sink in part.sinks}
        self.world.counts["batches inherited"] += len(inherited)
        return [self._outbox(stream, seq, stage) for seq in seqs if seq not in inherited]


def simulate(seed: int) -> Result:
    """Run a seed. Call it within `simulated()`."""
    return run_scenario(seed, Repeats)
