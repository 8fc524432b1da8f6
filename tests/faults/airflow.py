"""What Airflow does with a run: each step in a process of its own, retries, then the next run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.faults.fault import Case, Fault
from tests.faults.history import BATCHES, DOCTOR, MAINTAINED, REPLAYED, TREE, Scene
from tests.faults.outside import Outside
from tests.faults.processes import Child, fork, in_child
from tests.faults.server import KeptServer
from tests.faults.steps import LEASE_HELD, NOTHING_TO_DO, STEPS, Spark, Task

RETRIES = 3
_PERMANENT = 2
_PERSON: dict[str, tuple[str, ...]] = {
    DOCTOR: ("gap", "plan", "drop", "status"),
    MAINTAINED: ("maintain",),
    REPLAYED: ("discard",),
    TREE: (),
}
"""What is done before the second batch, by history; beside what changes without anybody's command."""
_MOST_RUNS = 12
_MOST_TRIES = 200
_RESCHEDULED_S = 0.4
_LONGER_THAN_A_LEASE_S = 1000.0
_SHORT_LEASE_S = 0.8


class Airflow:
    """Runs of one pipeline, one after the other, among the faults of `case`.

    `look` is called between the commit of a batch and a fault that comes after another fault of this batch;
    without faults (`apart`), after each commit.
    """

    def __init__(
        self,
        scene: Scene,
        spark: Spark,
        case: Case = (),
        apart: bool = False,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self.scene = scene
        self.zombie: Child | None = None
        self.zombie_said = ""
        self.codes: list[int | None] = []
        self.runs = 0
        self.halted = False
        self._succeeded = self._attended = False
        self._spark = spark
        self._case = case
        self._apart = apart
        self._look = look
        self._late_s = 0.0

    def play(self, batch: int) -> None:
        """Runs until this batch is in, and if it is the one after the last, a run that finds nothing to do.

        A process that stopped on its way wakes up when all is done.
        """
        batches = min(batch, BATCHES)
        try:
            while not self._is_done(batches):
                self._attend()
                had_zombie = self.zombie is not None
                if not self.run(self.scene.databases.head() + 1) and had_zombie:
                    self._wake()  # it stopped with the database's lock in its hands
            while batch > batches and not self.run(batch):
                pass  # the run that is to find nothing to do has not come to that yet
            self._wake()
        finally:
            if self.zombie is not None:
                self.zombie.kill()

    def _attend(self) -> None:
        """Let happen what happens between the first two batches, in the histories in which something does."""
        if self.scene.history not in _PERSON or self._attended or self.scene.databases.head() != 1:
            return
        self._attended = True
        in_child(self.scene.change_surroundings, self.scene.log)
        for command in _PERSON[self.scene.history]:
            while (code := self._tried(f"person-{command}", 2, [command])) is None:
                pass  # it does not answer: once more
            if code != 0 and (command, code) != ("plan", _PERMANENT):
                raise AssertionError(f"{command} ends with {code}: {self.codes}")

    def _is_done(self, batches: int) -> bool:
        return self.runs > 0 and self._succeeded and self.scene.databases.head() >= batches

    def run(self, batch: int) -> bool:
        """One run, for that batch. False when it failed: Airflow then starts the next one at its time."""
        if self.runs == _MOST_RUNS:
            raise AssertionError(f"{_MOST_RUNS} runs did not come to an end: {self.codes}")
        self.runs += 1
        self._succeeded = False
        run_id = f"run-{self.runs}"
        for names in self._processes(batch):
            code = self._tried(run_id, batch, names)
            self.halted |= code == _PERMANENT
            if code == NOTHING_TO_DO:
                break
            if code != 0:
                return False
            if "commit" in names and "publish" not in names and self._is_to_look(batch):
                self._look()
        self._succeeded = True
        return True

    def _processes(self, batch: int) -> list[Sequence[str]]:
        """The steps, by process: the one that a fault is aimed at alone, others together, for speed."""
        if self._apart:
            return [[name] for name in STEPS]
        aimed = [fault.step for fault in self._case if fault.batch == batch and fault.step in STEPS]
        parts = itertools.groupby(STEPS, key=lambda step: aimed.index(step) if step in aimed else -1)
        return [list(steps) for _, steps in parts]

    def _is_to_look(self, batch: int) -> bool:
        of_batch = [fault for fault in self._case if fault.batch == batch]
        return self._apart or (
            len({fault.half for fault in of_batch}) == 2 and self._armed(batch, ["publish"]) is not None
        )

    def _tried(self, run_id: str, batch: int, names: Sequence[str]) -> int | None:
        """A task with its retries: the exit code of the last try, or None when it stopped."""
        tries, waited = 0, 0
        while tries <= RETRIES:
            code = self._once(run_id, batch, names)
            if code in (None, 0, NOTHING_TO_DO, _PERMANENT):
                return code
            if code == LEASE_HELD and waited < 3:
                waited += 1  # rescheduled: that is no try
                continue
            if code == LEASE_HELD:
                self._late_s += _LONGER_THAN_A_LEASE_S
                waited = 0
                continue
            tries += 1
        return code

    def _once(self, run_id: str, batch: int, names: Sequence[str]) -> int | None:
        fault = self._armed(batch, names)
        faults = fault.armed if fault is not None else ""
        task = Task(
            self.scene,
            run_id,
            batch,
            names,
            faults,
            self._late_s,
            _SHORT_LEASE_S if "ledger.renew" in faults else 120.0,
            notes_file(self.scene, batch, names) if self._apart else None,
        )
        child = fork(lambda: task.run(self._spark), self.scene.log)
        code = self._wait(child, fault)
        self.codes.append(code)
        if code is None:
            self.zombie = child
            self._late_s += _LONGER_THAN_A_LEASE_S
        return code

    def _wait(self, child: Child, fault: Fault | None) -> int | None:
        """Its exit code, or None when it stopped; with what comes from outside, at its moment."""
        if fault is None or fault.outside is None:
            return child.wait()
        assert isinstance(self._spark, KeptServer), f"{fault} needs a server"
        return Outside(fault, self._spark, child, self.scene.fired).wait()

    def _armed(self, batch: int, names: Sequence[str]) -> Fault | None:
        """The fault that waits in a process."""
        fired = self.fired()
        for fault in self._case:
            if fault.entry in fired:
                continue
            return fault if fault.batch == batch and fault.step in names else None
        return None

    def fired(self) -> list[str]:
        """Return the entries of the faults that have happened, in order.

        The moment at which a fault comes from outside is not an entry.
        """
        entries = self.scene.fired.read_text().split() if self.scene.fired.exists() else []
        moments = {fault.armed for fault in self._case if fault.outside is not None}
        return [entry for entry in entries if entry not in moments]

    def _wake(self) -> None:
        """The successor has finished: what does the one that it took over from do now?"""
        if self.zombie is not None and self.zombie.code is None:
            before = self.scene.log.stat().st_size
            self.zombie.go_on()
            code = self.zombie.wait()
            output = self.scene.log.read_bytes()[before:].decode().strip()
            self.zombie_said = f"exit code {code}: {output}"
        self.zombie = None


def notes_file(scene: Scene, batch: int, names: Sequence[str]) -> Path:
    """Return the file in which a step's process notes its hits of each failpoint, and its modules."""
    return scene.folder / f"notes.{batch}.{'-'.join(names)}"


def overlap(scene: Scene, spark: Spark, late_s: float) -> list[int | None]:
    """Two whole runs at once, the second so much later, each until it has an end. All exit codes, in order.

    A run that finds the lease held is rescheduled, as Airflow does it.
    """
    codes: list[int | None] = []
    working = {"run-a": _whole(scene, spark, "run-a")}
    time.sleep(late_s)
    working["run-b"] = _whole(scene, spark, "run-b")
    while working:
        for run_id, child in list(working.items()):
            if not child.poll():
                continue
            codes.append(child.code)
            if child.code in (0, NOTHING_TO_DO):
                del working[run_id]
            elif len(codes) > _MOST_TRIES:
                raise AssertionError(f"{run_id} did not come to an end: {codes}")
            else:
                time.sleep(_RESCHEDULED_S)
                working[run_id] = _whole(scene, spark, run_id)
        time.sleep(0.005)
    return codes


def _whole(scene: Scene, spark: Spark, run_id: str) -> Child:
    task = Task(scene, run_id, 1)
    return fork(lambda: task.run(spark), scene.log)
