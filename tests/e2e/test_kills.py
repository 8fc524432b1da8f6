"""SIGKILL to every process of a real stack, in every task of a run; its twin is left undisturbed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.e2e.kills import ASKING, EFFECTS, SENT, Line, above, go_on, play_calmly
from tests.e2e.processes import is_alive, kill, parent_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

Strike = Callable[[Line, str, str, int], None]
"""Kill something while a process of a run's task stands; and let go on what still lives."""


def worker(stack: Line, run_id: str, task: str, stands: int) -> None:
    """The task's own process. Where it only waits for Spark, the driver lives on beside its successor."""
    process = above(stands)[-2]
    kill(process)
    if process != stands:
        stack.until_tried_again(run_id, task)
        assert is_alive(stands)
        go_on(stands)


def machine(stack: Line, run_id: str, task: str, stands: int) -> None:
    """All of a task, with Airflow's process above it, which would tell that the task has died."""
    kill(*above(stands))


def scheduler(stack: Line, run_id: str, task: str, stands: int) -> None:
    """Its successor gives up what it finds running; that goes on beside the next try for a while."""
    stack.kill_scheduler()
    stack.until_tried_again(run_id, task)
    go_on(stands)


def broker(stack: Line, run_id: str, task: str, stands: int) -> None:
    """It comes back when the task has had its answer, or has none."""
    stack.broker.kill()
    assert not stack.broker.running
    go_on(stands)
    until(lambda: stack.task(run_id, task) != ("running", 1), f"{task} has come to an end", 400)
    stack.broker.start()


@pytest.mark.parametrize(
    ("strike", "points"),
    [(worker, SENT), (machine, EFFECTS), (scheduler, EFFECTS), (broker, ASKING)],
    ids=["worker", "machine", "scheduler", "broker"],
)
def test_a_kill_in_each_task_of_a_run_leaves_what_an_undisturbed_run_leaves(
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
        stands = stack.stand(points[task])
        stack.arm(*[points[each] for each in tasks[number + 1 : number + 2]])
        struck.append(stands)
        strike(stack, run_id, task, stands)
    tries = _ends_like_its_twin(stack, run_id, spark)
    for pid in struck:
        until(lambda pid=pid: not is_alive(pid), f"process {pid} has ended", 120)  # type: ignore[misc]
    with capsys.disabled():
        print(f"\n{strike.__name__}: {tries} in {time.monotonic() - began:.0f} s")
    if strike is broker:
        assert tries["plan"] == 2
        assert tries["compute"] == 2
        for task in (task for task in tasks if tries[task] > 1):
            said = stack.log_of(run_id, task, 1)
            assert "BrokerUnavailable" in said or "OutcomeUnknown" in said
    else:
        assert min(tries.values()) >= 2


def test_a_driver_that_is_killed_and_one_whose_jvm_is_killed_are_computed_again(
    stack: Line, spark: SparkSession
) -> None:
    point = EFFECTS["compute"]
    stack.arm(point)
    run_id = stack.begin()
    driver = stack.stand(point)
    stack.arm(point)
    kill(driver)
    orphan = stack.stand(point)
    kill(parent_of(orphan))
    until(lambda: stack.task(run_id, "compute") == ("running", 3), "the third try is at work")
    assert is_alive(orphan)
    go_on(orphan)
    assert _ends_like_its_twin(stack, run_id, spark)["compute"] == 3
    until(lambda: not is_alive(orphan), "the driver without a JVM has ended", 120)


def _ends_like_its_twin(stack: Line, run_id: str, spark: SparkSession) -> dict[str, int]:
    """The run ends well by itself, and all that is seen is what the twin shows. Task -> tries."""
    end = stack.airflow.wait_run(stack.scene.name, run_id, timeout_s=600)
    assert end.state == "success", end.log_tail
    play_calmly(stack.calm, lambda: spark, stack.waves - 1)
    seen, expected = stack.scene.observe(), stack.calm.observe()
    assert [part for part in seen if seen[part] != expected[part]] == []
    assert stack.scene.head() == stack.waves
    return {task.task_id: task.try_number for task in end.tasks}
