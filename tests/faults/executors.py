"""A program with a cluster of two executors that computes one batch twice: undisturbed, and with an executor
that is killed while it computes. Prints what it found, as JSON. See `test_executors`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark

from tests.world import NOW_MS, World
from tidegate import steps
from tidegate.engine import Before, compute_batch, open_session
from tidegate.lake.reader import read_attempts

PAUSE = "compute.kernel=pause"
CONF = {
    "spark.executor.memory": "512m",
    "spark.python.worker.reuse": "false",  # so that each task meets the failpoint anew
}


def state_and_parent(pid: int) -> tuple[str, int]:
    """As the kernel tells them: `T` is a process that stands still."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


def stopped_worker() -> int | None:
    """A process below this one that stands still."""
    for each in Path("/proc").glob("[0-9]*"):
        pid = above = int(each.name)
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end while it is looked at
            if state_and_parent(pid)[0] != "T":
                continue
            while above > 1:
                above = state_and_parent(above)[1]
                if above == os.getpid():
                    return pid
    return None


@contextmanager
def executor_killed(fired: Path) -> Iterator[list[bool]]:
    """One worker stops in the kernel, and its executor is killed. Gives a list that tells so."""
    fired.unlink()
    killed: list[bool] = []

    def watch() -> None:
        deadline = time.monotonic() + 300
        while (worker := stopped_worker()) is None:
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)
        daemon = state_and_parent(worker)[1]  # it forks the workers
        executor = state_and_parent(daemon)[1]
        killed.append("CoarseGrainedExecutor" in Path(f"/proc/{executor}/cmdline").read_text())
        os.kill(executor, signal.SIGKILL)
        os.kill(worker, signal.SIGKILL)

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield killed
    watcher.join()


def main(servers: str, jars: str, folder: str) -> None:
    """Both computations; their rows, and what happened in between."""
    fired, home = Path(folder) / "fired", Path(folder)
    fired.write_text(PAUSE)
    (home / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in CONF.items()))
    os.environ |= {
        "SPARK_CONF_DIR": folder,
        "TIDEGATE_FAILPOINTS": PAUSE,
        "TIDEGATE_FAILPOINTS_FIRED": str(fired),
    }
    spark = open_session(Path(jars), "local-cluster[2,1,512]")
    world = World(servers, home, Path(jars), lambda: spark)
    for product in range(20):
        world.stock(product % 3, 0, 5, product=product, partition=product % 2)
    world.send({"value": b"{no json", "key": b"x"})
    plan = steps.plan_batch(world.app, world.pipeline, steps.Trigger("r", NOW_MS)).plan
    assert plan is not None
    lake, kafka = world.app.lake(plan.stream), world.app.settings.require_kafka()

    def rows_of(attempt: str) -> list[list[str]]:
        compute_batch(spark, plan, world.pipeline, kafka, lake, Before(), attempt)
        tables = (lake.state("availability"), lake.outbox("availability"), lake.quarantine)
        found = [read_attempts(path, [attempt]) for path in tables]
        return [sorted(repr(row) for row in table.drop(["attempt"]).to_pylist()) for table in found if table]

    told: dict[str, Any] = {"calm": rows_of("calm")}
    with executor_killed(fired) as killed:
        told["executor lost"] = rows_of("lost")
    print(json.dumps(told | {"killed": killed}))
    application = spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(
        Path(pyspark.__file__).parent / "work" / application, ignore_errors=True
    )  # the executors' logs


if __name__ == "__main__":
    main(*sys.argv[1:])
