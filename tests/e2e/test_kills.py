"""SIGKILL to every process of a real stack, in every task of a run; its twin is left undisturbed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.e2e.kills import ASKING, EFFECTS, SENT, Line, above, go_on, play_calmly
from tests.e2e.processes import is_alive, kill, parent_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.long]


@dataclass(frozen=True)
class Standing:
    """A try of a task, and the process of it that a failpoint has stopped."""

    stack: Line
    run_id: str
    task: str
    number: int
    pid: int

    def until_tried_again(self) -> None:
        """Wait for the next try to be at work."""
        self.stack.until_tried_again(self.run_id, self.task, self.number)


Strike = Callable[[Standing], None]
"""Kill something while a task stands; and let go on what still lives."""


def worker(at: Standing) -> None:
    """The task's own process. Where it only waits for Spark, the driver may live on beside its successor.

    Not always: the kernel hangs up on a group of processes that is orphaned while one of them stands.
    """
    process = above(at.pid)[-2]
    kill(process)
    if process != at.pid:
        at.until_tried_again()
        go_on(at.pid)


def machine(at: Standing) -> None:
    """Kill all processes of a task, with Airflow's process above it, which would report that the task has
    died.
    """
    kill(*above(at.pid))


def scheduler(at: Standing) -> None:
    """Its successor gives up what it finds running; that goes on beside the next try for a while."""
    at.stack.kill_scheduler()
    at.until_tried_again()
    go_on(at.pid)


def broker(at: Standing) -> None:
    """It comes back when the task has had its answer, or has none."""
    at.stack.broker.kill()
    assert not at.stack.broker.running
    go_on(at.pid)
    until(lambda: _has_ended(at), f"{at.task} has come to an end")
    at.stack.broker.start()


def _has_ended(at: Standing) -> bool:
    return at.stack.task(at.run_id, at.task) != ("running", at.number)


@pytest.mark.parametrize(
    ("strike", "points"),
    [(worker, SENT), (machine, EFFECTS), (scheduler, EFFECTS), (broker, ASKING)],
    ids=["worker", "machine", "scheduler", "broker"],
)
def test_kill_in_each_task_changes_no_output(
    stack: Line,
    spark: SparkSession,
    strike: Strike,
    points: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = time.monotonic()
    tasks = list(points)
    stack.arm(points[tasks[0]])
    run_id = stack.begin()
    struck = []
    for number, task in enumerate(tasks):
        pid = stack.stand(points[task])
        stack.arm(*[points[task] for task in tasks[number + 1 : number + 2]])
        at = Standing(stack, run_id, task, stack.task(run_id, task)[1], pid)
        struck.append(at)
        strike(at)
    tries = _ends_like_its_twin(stack, run_id, spark)
    again = {at.task for at in struck if tries[at.task] > at.number}
    with capsys.disabled():
        print(f"\n{strike.__name__}: tried again: {sorted(again)} in {time.monotonic() - began:.0f} s")
    until(lambda: not any(is_alive(at.pid) for at in struck), "whoever was taken for dead has ended")
    if strike is not broker:
        assert again == set(tasks)
        return
    assert {"plan", "compute"} <= again
    for at in struck:
        if at.task in again:
            log = stack.log_of(run_id, at.task, at.number)
            assert "BrokerUnavailable" in log or "OutcomeUnknown" in log


def test_killed_driver_or_jvm_is_computed_again(stack: Line, spark: SparkSession) -> None:
    point = EFFECTS["compute"]
    stack.arm(point)
    run_id = stack.begin()
    driver = stack.stand(point)
    first = stack.task(run_id, "compute")[1]
    stack.arm(point)
    kill(driver)
    orphan = stack.stand(point)
    second = stack.task(run_id, "compute")[1]
    assert second > first
    kill(parent_of(orphan))
    stack.until_tried_again(run_id, "compute", after=second)
    go_on(orphan)  # if it has not been hung up on, as `worker` tells
    assert _ends_like_its_twin(stack, run_id, spark)["compute"] > second
    until(lambda: not is_alive(orphan), "the driver without a JVM has come to an end")


def _ends_like_its_twin(stack: Line, run_id: str, spark: SparkSession) -> dict[str, int]:
    """The run ends well by itself, and all that is seen is what the twin shows. Task -> tries."""
    end = stack.airflow.wait_run(stack.scene.name, run_id)
    assert end.state == "success", end.log_tail
    play_calmly(stack.calm, lambda _: spark, stack.waves - 1)
    seen, expected = stack.scene.observe(), stack.calm.observe()
    assert [part for part in seen if seen[part] != expected[part]] == []
    assert stack.scene.databases.head(stack.scene.name) == stack.waves
    return {task.task_id: task.try_number for task in end.tasks}
