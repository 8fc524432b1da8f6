"""A program with a cluster of two executors that computes one batch four times: undisturbed, with an executor
that is killed, with a worker that stands still, so that Spark starts its task a second time beside it
(speculation), and with a worker that is killed, so that Spark tries its task again. Each of them had written
its files by then.

In the same four ways it publishes a batch in two shards. The worker had sent a part of its shard by then.

Prints what it found, as JSON. See `test_executors`.
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

import pytest
from benchmarks.spark_cluster import cluster
from pyspark.sql import SparkSession

from tests.faults.processes import state_and_parent
from tests.sinks.kafka.sending import Sending
from tests.world import NOW_MS, World
from tidegate.batch import Trigger, plan_batch, publish_batch
from tidegate.spark.batch import compute_batch
from tidegate.spark.computation import Before, PlannedBatch
from tidegate.spark.session import open_session
from tidegate.spark.source import KafkaSource
from tidegate.storage.datafile import read_files
from tidegate.storage.manifest import Kind

PAUSE, KILL = "compute.files=pause_after", "compute.files=kill_after"
PAUSE_SENDING, KILL_SENDING = "publish.commit=pause_after@2", "publish.commit=kill_after@2"
FAULTS = (PAUSE, KILL, PAUSE_SENDING, KILL_SENDING)
KINDS: tuple[tuple[Kind, str], ...] = (
    ("state", "availability"),
    ("outbox", "availability"),
    ("quarantine", ""),
)
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Two: a second copy of a task goes to another host only."""
CONF = {
    "spark.executor.memory": "512m",
    "spark.python.worker.reuse": "false",  # so that each task meets the failpoint anew
    "spark.driver.host": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "10s",
    "spark.speculation.task.duration.threshold": "10s",  # where there is no other task to compare with
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}


def stopped_worker() -> int | None:
    """A process below this one that stands still."""
    for path in Path("/proc").glob("[0-9]*"):
        pid = above = int(path.name)
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end while it is looked at
            if state_and_parent(pid)[0] != "T":
                continue
            while above > 1:
                above = state_and_parent(above)[1]
                if above == os.getpid():
                    return pid
    return None


def arm(fired: Path, *faults: str) -> None:
    """Let these faults happen once, and the others no more."""
    fired.write_text("".join(f"{fault}\n" for fault in FAULTS if fault not in faults))


@contextmanager
def executor_killed(fired: Path, pause: str) -> Iterator[list[bool]]:
    """A worker stops where `pause` says; its executor is killed. Gives a list that tells so."""
    arm(fired, pause)
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


def speculated(events: Path) -> int:
    """Count the second copies of tasks that ended, by Spark's event log."""
    lines = [line for log in events.rglob("*events*") if log.is_file() for line in log.open()]
    ended = [event for event in map(json.loads, lines) if event["Event"] == "SparkListenerTaskEnd"]
    return sum(
        event["Task Info"]["Speculative"] and event["Task End Reason"]["Reason"] == "Success"
        for event in ended
    )


def main(servers: str, folder: str) -> None:
    """The computations; their rows, and what happened in between."""
    fired, home, events = Path(folder) / "fired", Path(folder), Path(folder) / "events"
    arm(fired)
    events.mkdir()
    conf = CONF | {"spark.eventLog.dir": events.as_uri()}
    (home / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in conf.items()))
    os.environ |= {
        "SPARK_CONF_DIR": folder,
        "TIDEGATE_FAILPOINTS": ",".join(FAULTS),
        "TIDEGATE_FAILPOINTS_FIRED": str(fired),
    }
    with cluster(home, HOSTS) as master:
        spark = open_session(master)
        results = computed(spark, World(servers, home, lambda _: spark), fired)
        # The workers keep it; this process writes the sink's own record, and is not disturbed.
        del os.environ["TIDEGATE_FAILPOINTS"]
        results["published"] = published(spark, servers, home, fired)
        spark.stop()
    print(json.dumps(results | {"copies": speculated(events)}))


def in_each_way(run: Callable[[str], Any], fired: Path, pause: str, kill: str) -> dict[str, Any]:
    """Return what `run` returns, undisturbed and for each fault, and which faults there were.

    `run` gets a name, another one each time.
    """
    arm(fired)
    results: dict[str, Any] = {"calm": run("calm")}
    with executor_killed(fired, pause) as killed:
        results["lost"] = run("lost")
    arm(fired, pause)
    results["speculated"] = run("slow")
    stood_still = pause in fired.read_text()
    arm(fired, kill)
    results["retried"] = run("retried")
    return results | {
        "killed": killed,
        "stood still": stood_still,
        "worker killed": kill in fired.read_text(),
    }


def computed(spark: SparkSession, world: World, fired: Path) -> dict[str, Any]:
    """The rows of one batch and its files, of each way to compute it, and which faults there were."""
    for product in range(20):
        world.stock(product % 3, 0, 5, product=product, partition=product % 2)
    world.send({"value": b"{no json", "key": b"x"})
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    assert plan is not None
    lake = world.app.lake(plan.stream)
    records = KafkaSource(world.app.settings.kafka(), plan.ranges)

    batch = PlannedBatch(plan, world.pipeline, lake, Before())

    def result(attempt: str) -> dict[str, Any]:
        manifest = compute_batch(spark, batch, records, attempt).manifest
        tables = [read_files(lake.store, manifest.files_of(*kind)) for kind in KINDS]
        folders = [lake.files(*kind, attempt) for kind in KINDS]
        return {
            "rows": [sorted(repr(row) for row in table.to_pylist()) for table in tables],
            "named": sorted(file.path for file in manifest.files),
            "written": sorted(file.path for folder in folders for file in lake.store.listed(folder)),
        }

    return in_each_way(result, fired, PAUSE, KILL)


def published(spark: SparkSession, servers: str, home: Path, fired: Path) -> dict[str, Any]:
    """Publish a batch in two shards in each way, and return what consumers see of it."""
    patch = pytest.MonkeyPatch()
    patch.setattr("tidegate.sinks.outbox.SHARD_EMISSIONS", 1)

    def publish(name: str) -> list[Any]:
        (home / name).mkdir()
        sending = Sending(home / name, servers, patch)
        sending.batches.outbox_files = 2
        plan = sending.batches.commit(1, {"first": [], "second": [(str(key), 1) for key in range(20)]})
        publish_batch(sending.batches.app, plan, "test", lambda _: spark)
        zombie = stopped_worker()
        if zombie is not None:  # it goes on where it stood, after its successor has sent the shard
            os.kill(zombie, signal.SIGCONT)
            time.sleep(3)
        return sorted(sending.sent().items())

    return in_each_way(publish, fired, PAUSE_SENDING, KILL_SENDING)


if __name__ == "__main__":
    main(*sys.argv[1:])
