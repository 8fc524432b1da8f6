"""A world whose batches are computed by spark-submit, as Airflow's task has it done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY
from tests.world import NOW_MS, World
from tidegate.app import OpenSession
from tidegate.batch import Outcome, Trigger, commit_batch, plan_batch, publish_batch, validate_batch

COMPUTE = REPOSITORY / "spark_jobs" / "compute.py"


def no_session(_: int) -> Any:
    """There is none in the process that has the steps run."""
    raise AssertionError("spark-submit opens it")


@dataclass(frozen=True)
class Submission:
    """A spark-submit to a master, in an environment, with a file for its output."""

    master: str
    environment: Mapping[str, str]
    log: Path

    def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """The program of the compute step, to its end."""
        program = str(Path(sys.executable).with_name("spark-submit"))
        with self.log.open("a") as log:
            done = subprocess.run(
                [program, "--master", self.master, str(COMPUTE), *arguments],
                env={**self.environment, **environment},
                stdout=log,
                stderr=log,
                timeout=600,
                check=False,
            )
        assert done.returncode == 0, self.log.read_text()[-4000:]


@dataclass
class SubmittingWorld(World):
    """A world whose batches are computed so."""

    open_session: OpenSession = no_session
    submission: Submission | None = None

    def run(self, run_id: str | None = None, **trigger: Any) -> Outcome:
        """One batch; the second step in a process of its own."""
        self.runs += 1
        requested = Trigger(run_id or f"run-{self.runs}", **({"clock_ms": NOW_MS} | trigger))
        outcome = plan_batch(self.app, self.pipeline, requested)
        plan = outcome.plan
        assert plan is not None
        assert self.submission is not None
        stream = plan.stream
        self.submission.run([stream.pipeline, str(stream.generation), requested.run_id], self.environment)
        for step in (validate_batch, commit_batch, publish_batch):
            step(self.app, plan, requested.run_id)
        return outcome
