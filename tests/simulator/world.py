"""A world in which only one thing happens at a time, and the seed says which, and what goes wrong."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

Result = TypeVar("Result")
Error = Callable[[str], Exception]
Event = tuple[str, str, str, float]
"""Of a trace: process, effect, what happened to it, simulated seconds."""

BEAT_SECONDS = 30.0
START = 1_800_000_000.0
LONGEST_SECONDS = 61.0
"""No transaction is open for longer."""
MOST_EFFECTS = 30_000
"""An honest seed has hundreds: with so many, somebody goes round in circles."""

FAULTS = ("crash", "crash_after", "refuse", "lose", "late", "pause", "pause_after", "time")


WEIGHTS = {
    "ledger.acquire": 3.0,
    "ledger.add_plan": 3.0,
    "ledger.add_attempt": 3.0,
    "ledger.add_resolution": 10.0,
    "ledger.commit": 10.0,
    "ledger.add_publication": 5.0,
    "kafka.init_producer": 3.0,
    "kafka.end_transaction": 10.0,
    "kafka.consumer.poll": 2.0,
    "lookup.open": 3.0,
    "lookup.read": 3.0,
    "spark.write": 2.0,
    "sql.commit": 10.0,
    "table.append": 10.0,
    "http.send": 10.0,
    "ledger.set_sink_progress": 10.0,
}
"""How much likelier than elsewhere it goes wrong where it matters."""


class Crashed(BaseException):
    """The process has ended; the effects of its remaining code are lost."""


class Violation(BaseException):
    """The simulator's finding. No step may catch it."""


@dataclass(eq=False)
class Process:
    """One try of a step, in a process of its own. Compared by identity."""

    name: str
    work: Callable[[], Any]
    on_end: Callable[[Process], None]
    wakes_at: float
    wakes_as_zombie: bool = False
    paused: bool = False
    dead: bool = False
    over: bool = False
    result: Any = None
    error: BaseException | None = None
    greenlet: greenlet | None = None

    def run(self) -> None:
        try:
            self.result = self.work()
        except (Exception, Crashed) as error:
            self.error = error
        self.over = True


@dataclass
class Weather:
    """The faults of a seed's world: chances per effect, the kinds of faults, and their largest number."""

    switch: float
    fault: float
    faults: tuple[str, ...]
    most: int

    @classmethod
    def drawn(cls, dice: random.Random) -> Weather:
        kinds = [kind for kind in FAULTS if dice.random() < 0.6] or list(FAULTS)
        return cls(
            switch=dice.choice((0.02, 0.1, 0.3)),
            fault=dice.choice((0.01, 0.03, 0.08)),
            faults=tuple(kinds),
            most=dice.randint(1, 8),
        )


@dataclass
class Keeper:
    """A thread that renews a lease while its process is alive and not paused."""

    process: Process
    renew: Callable[[], bool]


@dataclass
class World:
    """Clock, scheduler, faults and trace of one seed."""

    seed: int
    dice: random.Random = field(init=False)
    weather: Weather = field(init=False)
    now: float = START
    quiet: bool = False
    trace: list[Event] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    processes: list[Process] = field(default_factory=list)
    keepers: list[Keeper] = field(default_factory=list)
    late: list[tuple[str, Callable[[], Any]]] = field(default_factory=list)
    on_pause: Callable[[Process], None] = lambda _: None
    on_wake: Callable[[Process], None] = lambda _: None

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.weather = Weather.drawn(self.dice)
        self._random = self.dice.random
        self._chance = 0.5 * self.weather.fault
        self._chances = {name: weight * self.weather.fault for name, weight in WEIGHTS.items()}
        self._stays = 1 - self.weather.switch
        self._main = getcurrent()
        self._current: Process | None = None
        self._agenda: list[tuple[float, int, Callable[[], Any]]] = []
        self._numbers = 0
        self._next_beat = START + BEAT_SECONDS
        self._closed = False
        self._violation: Violation | None = None

    # what processes do

    def effect(self, name: str, act: Callable[[], Result], error: Error = ConnectionError) -> Result:
        """One atomic effect of the running process, if nothing comes between. `error` makes what its edge
        raises when no answer comes."""
        me = self._current
        if me is None and not self._closed:
            return act()
        if me is None or me.dead:
            raise Crashed
        if len(self.trace) > MOST_EFFECTS:
            raise Violation("there is no end to it")
        drawn, fault = self._random(), ""
        if drawn < self._chances.get(name, self._chance) and self._may_go_wrong():
            fault = self.dice.choice(self.weather.faults)
            self._count(fault)
            self._before(me, name, fault, act, error)
        elif drawn > self._stays:
            self._switch()
        try:
            result = act()
        except Violation as violation:
            self._violation = violation  # whatever the process makes of it
            raise
        self.trace.append((me.name, name, fault, self.now))
        if fault:
            self._after(me, fault, error, name)
        return result

    def sleep(self, seconds: float) -> None:
        """Let the running process wait."""
        me = self._current
        if me is None or me.dead:
            raise Crashed
        me.wakes_at = self.now + seconds
        self._switch()

    @property
    def current(self) -> Process | None:
        """Return the process that runs."""
        return self._current

    def _may_go_wrong(self) -> bool:
        return not self.quiet and self.counts["faults"] < self.weather.most

    def _count(self, fault: str) -> None:
        self.counts["faults"] += 1
        self.counts[fault] += 1

    def _before(self, me: Process, name: str, fault: str, act: Callable[[], Any], error: Error) -> None:
        if fault == "crash":
            self._crash(me, name, fault)
        elif fault == "pause":
            self.trace.append((me.name, name, fault, self.now))
            self._pause(me)
        elif fault == "time":
            self.advance(self.now + self.dice.choice((1.0, 20.0, 70.0, 200.0)))
            self._switch()
        elif fault in ("refuse", "late"):
            self.trace.append((me.name, name, fault, self.now))
            if fault == "late":
                self.late.append((name, act))
                self.at(self.now + self.dice.choice((0.1, 3.0, 30.0)), lambda: self.arrive(name))
            raise error(f"{name}: no answer")

    def _after(self, me: Process, fault: str, error: Error, name: str) -> None:
        if fault == "crash_after":
            self._crash(me, name, fault)
        elif fault == "pause_after":
            self._pause(me)
        elif fault == "lose":
            raise error(f"{name}: the answer was lost")

    def _crash(self, me: Process, name: str, fault: str) -> None:
        self.trace.append((me.name, name, f"{fault}!", self.now))
        me.dead = True
        raise Crashed

    def _pause(self, me: Process) -> None:
        me.paused = True
        me.wakes_at = self.now + self.dice.choice((5.0, 50.0, 130.0, 300.0))
        self.on_pause(me)
        self._switch()
        me.paused = False
        self.on_wake(me)

    def _switch(self) -> None:
        me = self._current
        self._main.switch()
        assert me is not None
        if me.dead:
            raise Crashed

    # late messages

    def arrive(self, edge: str) -> None:
        """Whatever is under way to an edge arrives, unless it was lost for good."""
        while self.late and (due := [message for message in self.late if message[0].startswith(edge)]):
            self.late.remove(due[0])
            name, act = due[0]
            if self.dice.random() < 0.75:
                self.trace.append(("network", name, "arrives late", self.now))
                self.counts["arrived late"] += 1
                try:
                    act()
                except Exception as error:
                    self.trace.append(("network", name, type(error).__name__, self.now))

    # the scheduler

    def at(self, when: float, act: Callable[[], Any]) -> None:
        """Something that happens by itself, at an instant."""
        self._numbers += 1
        heapq.heappush(self._agenda, (when, self._numbers, act))

    def start(
        self, name: str, work: Callable[[], Any], on_end: Callable[[Process], None], delay: float
    ) -> Process:
        """A new process, which begins in `delay` seconds."""
        process = Process(name, work, on_end, self.now + delay)
        process.greenlet = greenlet(process.run, parent=self._main)
        self.processes.append(process)
        return process

    def stay_alive(self, seconds: float) -> None:
        """Keep the world going until then, even if no process is left meanwhile."""
        # Without a greenlet: it does nothing, so nothing can come between.
        self.processes.append(Process("timer", lambda: None, lambda _: None, self.now + seconds))

    def run(self) -> None:
        """Until no process is left."""
        while self.processes:
            now = self.now
            ready = [process for process in self.processes if process.wakes_at <= now]
            if not ready:
                self.advance(self._next_instant())
                continue
            self._resume(ready[0] if len(ready) == 1 else self.dice.choice(ready))
            self.advance(self.now + 0.01 + 0.2 * self.dice.random())
        for process in self.processes:
            assert process.over

    def _resume(self, process: Process) -> None:
        self._current = process
        try:
            (process.greenlet.switch if process.greenlet is not None else process.run)()
        finally:
            self._current = None
        if self._violation is not None:
            raise self._violation
        if process.over:
            self.processes.remove(process)
            if self.keepers:
                self.keepers = [keeper for keeper in self.keepers if keeper.process is not process]
            process.on_end(process)

    def _next_instant(self) -> float:
        soonest = min(process.wakes_at for process in self.processes)
        return max(self.now, min(soonest, self._agenda[0][0])) if self._agenda else soonest

    def close(self) -> None:
        """Whatever process is left has no effect any more."""
        self._closed = True

    def settle(self) -> None:
        """Let everything happen that is still to come by itself."""
        for _ in range(2):  # what ends by its timeout has an aftermath
            while self._agenda:
                self.advance(max(self.now, self._agenda[0][0]))
            self.advance(self.now + LONGEST_SECONDS)

    def advance(self, until: float) -> None:
        """Move the clock, in steps in which a live process would renew its lease."""
        if until < self._soonest():
            self.now = max(self.now, until)
            return
        me, self._current = self._current, None
        try:
            self._advance(until)
        finally:
            self._current = me

    def _advance(self, until: float) -> None:
        while (soonest := self._soonest()) <= until:
            self.now = max(self.now, soonest)
            if self.now >= self._next_beat:
                self._beat()
            while self._agenda and self._agenda[0][0] <= self.now:
                heapq.heappop(self._agenda)[2]()
        self.now = max(self.now, until)

    def _soonest(self) -> float:
        """Return the time of the next event that happens by itself."""
        beat = self._next_beat
        return self._agenda[0][0] if self._agenda and self._agenda[0][0] < beat else beat

    def _beat(self) -> None:
        self._next_beat = self.now + BEAT_SECONDS
        for keeper in list(self.keepers):
            alive = not (keeper.process.paused or keeper.process.dead)
            if alive and not keeper.renew():
                self.keepers.remove(keeper)


def trace_lines(trace: list[Event]) -> Iterator[str]:
    """A trace for people."""
    for process, effect, fault, at in trace:
        yield f"{at - START:9.2f}  {process:24} {effect:28} {fault}"
