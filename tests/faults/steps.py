"""What runs in a step's process: the step as Airflow's task runs it, among the faults that it is to meet."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tests.faults.history import Scene
from tests.faults.kernel import InWorker, arm_workers
from tidegate import batch, failpoints, ledger, maintenance
from tidegate.app import App, lease, planned_for, stream_of
from tidegate.batch import compute_batch, connections, plan_batch
from tidegate.cli import cli
from tidegate.errors import LeaseHeld, TidegateError
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.kafka import config, log, progress, publisher
from tidegate.ledger import Ledger
from tidegate.sinks import outbox
from tidegate.sinks.kafka import sink as kafka_sink
from tidegate.sinks.sql.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


STEPS = ("plan", "compute", "validate", "commit", "publish")
COMMANDS = {
    "gap": ("recover", "--choose", "accept-gap", "--yes", "--by", "a person"),
    "drop": ("recover", "--choose", "drop-plan", "--yes", "--by", "a person"),
    "status": ("status",),
}
"""What a person does between two runs."""
NOTHING_TO_DO, LEASE_HELD, UNTYPED = 10, 75, 70
CHUNK = 4
"""Records per transaction of a topic, and per statement of a database: a batch takes several."""


class Spark(Protocol):
    """A Spark that outlives the steps' processes, and gives each of them a session."""

    def connect(self, name: str) -> SparkSession:
        """A session, for the stream of this name."""


@dataclass(frozen=True)
class Task:
    """Steps of one run, in one process. `faults` as TIDEGATE_FAILPOINTS; `late_s`: how far the ledger's clock
    is ahead; `lease_s`: how long a lease lasts; `notes`: where to write how often each failpoint was met, and
    which modules the process had at its end."""

    scene: Scene
    run_id: str
    batch: int
    names: Sequence[str] = STEPS
    faults: str = ""
    late_s: float = 0.0
    lease_s: float = 120.0
    notes: Path | None = None

    def run(self, spark: Spark) -> int:
        """The exit code of the process, as Airflow's tasks tell retry, fail, skip and wait apart."""
        print(f"--- {self.run_id} {self.names} {self.faults}", flush=True)
        self._prepare()
        try:
            return self._run(spark)
        except LeaseHeld as error:
            print(error)
            return LEASE_HELD
        except TidegateError as error:
            print(f"{type(error).__name__}: {error}")
            return error.exit_code
        except (FailpointRaised, ReplyLost):
            traceback.print_exc(file=sys.stdout)
            return 1
        except Exception:
            traceback.print_exc(file=sys.stdout)
            return UNTYPED
        finally:
            if self.notes is not None:
                self.notes.write_text(json.dumps({"hits": failpoints._hits, "modules": list(sys.modules)}))

    def _prepare(self) -> None:
        os.environ.update(self.scene.environment)
        os.environ["TIDEGATE_FAILPOINTS"] = self.faults or "none=raise"
        os.environ["TIDEGATE_FAILPOINTS_FIRED"] = str(self.scene.fired)
        failpoints._hits.clear()
        shorten(self.scene.progress, self.late_s, self.lease_s)
        if "compute." in self.faults:
            arm_workers(InWorker(f"{os.getpid()}", self.faults, str(self.scene.fired)))

    def _run(self, spark: Spark) -> int:
        if self.names[0] == "maintain":
            return self._maintain()
        if self.names[0] == "discard":
            self.scene.discard()
            return 0
        if self.names[0] in COMMANDS:
            return self._command(*COMMANDS[self.names[0]])
        app = App.from_environment()
        for name in self.names:
            if name == "plan":
                pipeline = app.pipeline(self.scene.name)
                connections(app.ledger, stream_of(pipeline), pipeline)
                trigger = self.scene.trigger(self.run_id, self.batch)
                if plan_batch(app, pipeline, trigger).plan is None:
                    return NOTHING_TO_DO
                continue
            plan = planned_for(app, self.scene.name, 1, self.run_id)
            if name == "compute":
                name = app.session_name(plan.stream)
                compute_batch(app, plan, self.run_id, lambda _, name=name: spark.connect(name))
            else:
                connections(app.ledger, plan.stream)
                getattr(batch, f"{name}_batch")(app, plan, self.run_id)
            if name == "publish":
                app.ledger.metrics(plan.stream, plan.seq)
        return 0

    def _maintain(self) -> int:
        """Fold the state; then, as if it were long after, give up and remove all that is older."""
        app = App.from_environment()
        stream = stream_of(app.pipeline(self.scene.name))
        maintenance.compact_state(app, stream)
        maintenance.clean(app, stream, time.time() + 100 * 86_400, timedelta(0))
        return 0

    def _command(self, command: str, *options: str) -> int:
        named = [self.scene.name] if options else []
        with suppress(SystemExit):  # what it finds wrong otherwise is not the question
            cli.main([command, *named, *options], standalone_mode=False)
        return 0


def shorten(progress_topic: str, late_s: float, lease_s: float) -> None:
    """Make small what would take long: chunks, leases, waiting; and progress a topic of the run's own."""
    for module in (config, log, progress, publisher):
        module.PROGRESS_TOPIC = progress_topic
    log.PROGRESS_PARTITIONS = 2  # of hundreds of runs on one broker
    for module in (ledger.writer, ledger.ledger, lease):
        module.LEASE_SECONDS = lease_s
    outbox.CHUNK_ROWS = CHUNK
    if late_s:  # somebody stopped, and may have a database's lock in his hands
        ledger.database._BUSY_TIMEOUT_MS = 500
        Database.__init__.__defaults__ = (0.5, 1.0)
    kafka_sink.KafkaPublisher = partial(publisher.KafkaPublisher, chunk_records=CHUNK)
    opened: Any = Ledger.open
    Ledger.open = lambda url: Ledger(opened(url)._engine, lambda: time.time() + late_s)
