"""A program with a cluster of two executors that computes one batch three times: undisturbed, beside a worker
that stands still, and with an executor that is killed. Prints what it found, as JSON. See `test_executors`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.world import NOW_MS, World
from tidegate import steps
from tidegate.engine import Before, compute_batch, open_session
from tidegate.lake.reader import read_attempts

PAUSE = "compute.kernel=pause"
CONF = {
    "spark.executor.memory": "512m",
    "spark.python.worker.reuse": "false",  # so that each task meets the failpoint anew
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.task.duration.threshold": "2s",
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
def disturbed(fired: Path, do: Callable[[int], None]) -> Iterator[list[int]]:
    """One worker stops in the kernel; `do` is called with it. Gives a list that has it then."""
    fired.unlink()
    seen: list[int] = []

    def watch() -> None:
        deadline = time.monotonic() + 120
        while not seen and time.monotonic() < deadline:
            found = stopped_worker()
            if found is None:
                time.sleep(0.05)
            else:
                do(found)
                seen.append(found)

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield seen
    watcher.join()
    for pid in seen:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)
    fired.write_text(PAUSE)


def main(servers: str, jars: str, folder: str) -> None:
    """The three computations; their rows, and what happened in between."""
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

    def kill_executor(worker: int) -> None:
        daemon = state_and_parent(worker)[1]  # it forks the workers
        executor = state_and_parent(daemon)[1]
        killed.append("CoarseGrainedExecutor" in Path(f"/proc/{executor}/cmdline").read_text())
        os.kill(executor, signal.SIGKILL)

    killed: list[bool] = []
    told: dict[str, Any] = {"calm": rows_of("calm")}
    with disturbed(fired, lambda _: None) as stopped:
        told["beside a copy"] = rows_of("beside")
    with disturbed(fired, kill_executor) as lost:
        told["executor lost"] = rows_of("lost")
    print(json.dumps(told | {"stopped": len(stopped), "lost": len(lost), "killed": killed}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
