"""The composition root: what the steps work with, built from the settings.

Whatever a step does outside of its own process, it does through `App`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.broker import KafkaLog
from tidegate.broker.publisher import KafkaPublisher
from tidegate.errors import Fenced, Halted, PipelineInvalid, Problem, TidegateError
from tidegate.failpoints import failpoint
from tidegate.lake import Lake, on_disk
from tidegate.ledger import Attempt, Ledger, LedgerReader, Plan, Run, Stream
from tidegate.settings import Settings
from tidegate.spec import Pipeline, Stage, load_pipeline, python_functions, read_compiled, require_trusted
from tidegate.steps.outbox import Outbox, open_outbox

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.engine import Before, Computed


@dataclass(frozen=True)
class App:
    """Settings and the ledger; everything else is opened when it is needed."""

    settings: Settings
    ledger: Ledger

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> App:
        """Raises SettingsInvalid, LedgerUnavailable."""
        settings = Settings.from_environment(environment)
        return cls(settings, Ledger.open(settings.ledger))

    def log(self) -> KafkaLog:
        """Kafka's logs. Close it."""
        return KafkaLog(self.settings.require_kafka())

    def publisher(self, shard: str, topic: str) -> KafkaPublisher:
        """Who publishes to a topic, under a stable name."""
        return KafkaPublisher(self.settings.require_kafka(), shard, topic)

    def lake(self, stream: Stream) -> Lake:
        """The tables of a stream."""
        return Lake(self.settings.lake, stream.pipeline, stream.generation)

    def state_bytes(self, stream: Stream, stage: str, attempts: Sequence[str]) -> int:
        """How large a stage's state is on disk, in these attempts."""
        with failpoint("compute.state_bytes"):
            return on_disk(self.lake(stream).state(stage), attempts).bytes

    def outbox(self, plan: Plan, stage: Stage, attempt: Attempt) -> Outbox:
        """What a stage sends out in one attempt of a batch. Raises Halted when it is gone."""
        return open_outbox(self.lake(plan.stream), plan, stage, attempt)

    def compute(
        self, plan: Plan, before: Before, attempt: str, open_session: Callable[[], SparkSession]
    ) -> Computed:
        """Compute a batch in Spark, and write its tables under the attempt's name."""
        from tidegate import engine  # late: only this needs Spark

        pipeline, kafka = planned_pipeline(plan), self.settings.require_kafka()
        require_trusted(python_functions(pipeline))
        with failpoint("compute.session"):
            session = open_session()
        return engine.compute_batch(session, plan, pipeline, kafka, self.lake(plan.stream), before, attempt)

    def fold(
        self,
        stream: Stream,
        pipelines: Sequence[Pipeline],
        attempts: Sequence[str],
        name: str,
        open_session: Callable[[], SparkSession],
    ) -> None:
        """Fold a stream's state in Spark, under a snapshot's name. `pipelines`: all that wrote it."""
        from tidegate.engine.compact import write_snapshot  # late: only this needs Spark

        with failpoint("compact.session"):
            session = open_session()
        write_snapshot(session, pipelines, self.lake(stream), attempts, name)

    def pipeline(self, name: str) -> Pipeline:
        """A pipeline by its name (of the file, without .yaml) or by the path of its file."""
        path = Path(name) if name.endswith((".yaml", ".yml")) else self.settings.pipelines / f"{name}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(each.stem for each in self.settings.pipelines.glob("*.yaml"))) or "none"
            raise PipelineInvalid(
                [
                    Problem(
                        str(path),
                        1,
                        "pipeline",
                        "There is no such file",
                        f"{self.settings.pipelines} has: {known}. Set TIDEGATE_PIPELINES for another folder.",
                    )
                ]
            )
        return load_pipeline(path)


def stream_of(pipeline: Pipeline) -> Stream:
    """The stream that a pipeline file's generation writes."""
    return Stream(pipeline.pipeline, pipeline.generation)


LONG_DONE = "its batch was committed and published so long ago that the ledger keeps no more of it than that"
"""Why a run has nothing to do."""


def planned_for(app: App, pipeline: str, generation: int, run_id: str) -> Plan | None:
    """The plan of the batch that a run works on; None where there is nothing left to do: see `LONG_DONE`.

    Raises Halted when the run has no batch.
    """
    stream = Stream(pipeline, generation)
    run = app.ledger.run(stream, run_id)
    plan = app.ledger.plan(stream, run.seq) if run is not None and run.seq is not None else None
    if plan is None and run is not None and is_long_done(app.ledger, stream, run):
        return None
    if plan is None:
        raise Halted(
            f"Run {run_id} of {stream} has no planned batch", "Clear `plan`, and what comes after it."
        )
    return plan


def is_long_done(ledger: LedgerReader, stream: Stream, run: Run) -> bool:
    """Whether a run's batch, of which there is no plan any more, is committed.

    Then it is published, too: no batch is planned before its predecessor is.
    """
    return run.seq is not None and run.seq < ledger.head(stream).seq


def missing_of_head(ledger: LedgerReader, stream: Stream, seq: int, what: str) -> TidegateError:
    """Why the ledger does not have `what` of the batch that was the head's when a step looked.

    Fenced: it is the head's no more, so the step was overtaken, and slept until the batch had left the
    ledger. Halted: the ledger has lost it.
    """
    if ledger.head(stream).seq > seq:
        return Fenced(
            f"Batch {seq} of {stream} is published, and later ones are committed",
            "There is nothing left to do.",
        )
    return Halted(
        f"The ledger does not have the {what} of batch {seq} of {stream}, which is the head",
        "Restore the ledger from a backup, or raise `generation` to begin anew.",
    )


def planned_pipelines(app: App, stream: Stream) -> list[Pipeline]:
    """The pipeline as each batch was planned with it, each version once, the newest last.

    Raises PlanUnreadable.
    """
    return [read_compiled(spec.compiled, spec.text, str(stream)) for spec in app.ledger.planned_specs(stream)]


def planned_pipeline(plan: Plan) -> Pipeline:
    """The pipeline as it was when the batch was planned, whatever the file and the grammar say now.

    Raises PlanUnreadable.
    """
    return read_compiled(plan.spec_compiled, plan.spec_text, f"batch {plan.seq} of {plan.stream}")
