"""Many pipelines: what the figures are made of, without a stack."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from benchmarks.batches import PHASES, Batch, TaskRun, last_clocks, phases
from benchmarks.feed import PORTIONS, Event, Sent, seconds_to_portion
from benchmarks.groups import OTHER_PROCESSES, OWN, Groups, group_by_command
from benchmarks.many import Measured

from tidegate.ledger import Stream

_TASK, _WORKER = "Airflow's tasks", "Spark's Python workers"
_COMMANDS = {
    1: "python -m benchmarks.many",
    2: "python warden.py airflow standalone",
    3: "/bin/airflow scheduler",
    4: "python -B -c from multiprocessing.forkserver import main",
    5: "airflow worker -- LocalExecutor: <idle>",
    6: "java --conf spark.python.daemon.module=tidegate.spark.daemon org.apache.SparkConnectServer",
    7: "python -m tidegate.spark.daemon pyspark.worker",
    8: "python -m something.else",
}
_PARENTS = {1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 1, 7: 6, 8: 1}
_GROUPS = {
    1: OWN,
    2: "Airflow, the rest",
    3: "Airflow's scheduler",
    4: _TASK,
    5: _TASK,
    6: "Spark's JVM",
    7: _WORKER,
    8: OWN,
}


def test_process_belongs_to_its_nearest_named_parent() -> None:
    assert group_by_command(_PARENTS, _COMMANDS) == _GROUPS


_BURN = "import time\nwhile time.process_time() < 0.5: pass"
_HAVE_A_CHILD_BURN = f"""
import subprocess, sys
for _ in range(2):
    subprocess.run([sys.executable, "-c", {_BURN!r}], check=True)
    print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
def test_time_of_an_ended_process_counts_once() -> None:
    command = [sys.executable, "-c", _HAVE_A_CHILD_BURN, "airflow standalone"]
    pipe = subprocess.PIPE
    with Groups() as groups, subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["done\n"] * 2
        time.sleep(1.5)  # it is looked at every second
    seconds = {usage.group: usage.cpu_seconds for usage in groups.usages}
    assert 1.0 <= seconds["Airflow, the rest"] < 1.9
    assert seconds[OWN] < 1
    assert seconds[OTHER_PROCESSES] <= groups.seconds * (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("now", "seconds"), [(0.0, 5.0), (4.0, 1.0), (44.5, 0.5), (45.0, 15.0), (59.0, 1.0), (60.0, 5.0)]
)
def test_last_seconds_of_a_minute_send_nothing(now: float, seconds: float) -> None:
    assert seconds_to_portion(1_800 + now) == pytest.approx(seconds)


def test_a_minute_has_its_portions() -> None:
    now, portions = 0.0, 0
    while now < 60:
        now += seconds_to_portion(now)
        portions += 1
    assert (now, portions) == (60.0, PORTIONS)


def test_changes_are_those_before_an_instant() -> None:
    quantities = [(1, 0, 5), (2, 0, 3), (3, 0, 0), (4, 1, 0), (5, 0, 1)]
    sent = Sent("topic", [Event(*quantity) for quantity in quantities])
    changes = sent.changes(before_ms=5)
    assert list(changes.values()) == [[(1, True), (3, False)], [(4, False)]]
    assert (sent.count(1, 5), sent.count(2, 6)) == (4, 4)


def _batch(pipeline: str, clock: float, lag: float) -> Batch:
    steps = {"plan": 0.1, "compute": 1.0, "validate": 0.2, "commit": 0.1, "publish": 0.3}
    return Batch(Stream(pipeline, 1), int(clock), "run", clock, clock + lag, 10, 5, steps)


def test_phases_of_a_batch_sum_to_its_lag() -> None:
    run = TaskRun(made=61.0, started=62.0, queued=64.0, began=64.5, tries=1)
    parts = phases(_batch("a", 60.0, 7.0), run)
    assert tuple(parts) == PHASES
    assert sum(parts.values()) == pytest.approx(7.0)
    assert min(parts.values()) > 0


def test_pipeline_keeps_up_within_two_minutes() -> None:
    batches = [_batch("a", 240, 10), _batch("b", 180, 20), _batch("c", 120, 30), _batch("a", 180, 5)]
    clocks = last_clocks(batches)
    assert clocks == {"a": 240, "b": 180, "c": 120}
    measured = Measured(3, 0, 300, batches, clocks, [], [], 0)
    assert measured.keeping_up == 2
    assert dict(zip(clocks, measured.batches_of_each, strict=True)) == {"a": 2, "b": 1, "c": 1}
    assert sorted(measured.lags) == [5, 10, 20, 30]
