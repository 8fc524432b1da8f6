"""The composition root: what the steps work with, built from the settings.

Whatever a step does outside of its own process, it does through `App`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate import core
from tidegate.broker.clusters import KafkaClusters
from tidegate.broker.log import KafkaLog
from tidegate.errors import Fenced, Halted, PipelineInvalid, Problem, TidegateError
from tidegate.failpoints import failpoint
from tidegate.lake import Lake, Manifest, Marks, Store, Written, read_manifest, write_manifest
from tidegate.ledger import Attempt, Ledger, LedgerReader, ManifestRef, Plan, Run, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.settings import Settings
from tidegate.sinks import OpenSink, Outbox, SinkContext, open_sinks
from tidegate.spec import (
    Pipeline,
    Stage,
    load_pipeline,
    load_pipeline_of_folder,
    pipeline_files,
    python_functions,
    require_trusted,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.engine.batch import Before, Computed
    from tidegate.engine.source import RecordSource

OpenSession: TypeAlias = "Callable[[int], SparkSession]"
"""How to come to a Spark session, for a batch of so many records."""


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

    @classmethod
    def for_reading(cls, environment: Mapping[str, str] = os.environ) -> App:
        """The same for who only looks: where there is no ledger yet, none is made, and it is an empty one."""
        settings = Settings.from_environment(environment)
        return cls(settings, Ledger.open_for_reading(settings.ledger))

    @cached_property
    def clusters(self) -> KafkaClusters:
        """The Kafka clusters: always the same, so that what is asked of one inside of `with app.clusters`,
        or of `with app.log(…)`, goes over one connection.
        """
        return KafkaClusters(self.settings.kafka)

    def log(self, connection: str | None) -> KafkaLog:
        """The logs of a Kafka cluster, by its name in the pipeline file. Raises SettingsInvalid where it is
        not set.
        """
        return self.clusters.log(connection)

    def lake(self, stream: Stream) -> Lake:
        """The tables of a stream."""
        return Lake(self.settings.lake, stream.pipeline, stream.generation)

    def marks(self, stream: Stream) -> Marks:
        """Return the marks in a stream's folder, which say whose it is."""
        return self.lake(stream).marks

    def promotion_marks(self, pipeline: str) -> Marks:
        """Return the marks in a pipeline's folder, which say what was promoted."""
        return Marks(Store(self.settings.lake), f"{pipeline}/marks", keeps_all=True)

    def manifest(self, stream: Stream, known: ManifestRef) -> Manifest:
        """The manifest of an attempt or a snapshot, as the ledger knows it. Raises LakeDamaged, …"""
        lake = self.lake(stream)
        with failpoint("manifest.read"):
            return read_manifest(lake.store, lake.manifest(known.name), Written(known.bytes, known.digest))

    def write_manifest(self, stream: Stream, manifest: Manifest) -> ManifestRef:
        """Write a manifest, durably; what is returned goes into the ledger. Raises LakeUnavailable."""
        lake = self.lake(stream)
        with failpoint("manifest.write"):
            written = write_manifest(lake.store, lake.manifest(manifest.name), manifest)
        return ManifestRef(manifest.name, written.bytes, written.digest, manifest.rows, manifest.bytes)

    def outbox(self, plan: Plan, stage: Stage, attempt: Attempt) -> Outbox:
        """What a stage sends out in one attempt of a batch. Raises LakeDamaged, LakeUnavailable."""
        emitted = core.outgoing(attempt.stage_counts(stage.name))
        manifest = self.manifest(plan.stream, attempt.manifest) if emitted else None
        files = manifest.files_of("outbox", stage.name) if manifest is not None else ()
        return Outbox(plan, stage, attempt.name, emitted, self.lake(plan.stream).store, files)

    def quarantined(self, plan: Plan, attempt: Attempt) -> Outbox:
        """What one attempt of a batch has put into quarantine. Raises LakeDamaged, LakeUnavailable."""
        files = self.manifest(plan.stream, attempt.manifest).files_of("quarantine")
        rows = sum(file.rows for file in files)
        return Outbox(plan, None, attempt.name, rows, self.lake(plan.stream).store, files)

    def sinks(self, stream: Stream, pipeline: Pipeline) -> list[OpenSink[Any]]:
        """All that a pipeline publishes to, as a stream does."""
        readers = (self.outbox, self.quarantined)
        context = SinkContext(self.settings, self.ledger, stream, self.lake(stream), self.log, *readers)
        return open_sinks(pipeline, context)

    def records(self, plan: Plan, pipeline: Pipeline) -> RecordSource:
        """What a batch reads: its ranges of Kafka's topics, or the records in quarantine that it replays.

        Raises SettingsInvalid, LakeDamaged, LakeUnavailable.
        """
        from tidegate.engine.replayed import ReplaySource
        from tidegate.engine.source import KafkaSource

        if plan.replay is None:
            return KafkaSource(self.settings.kafka(pipeline.source.connection), plan.ranges)
        files = self.manifest(plan.stream, plan.replay).files_of("quarantine")
        return ReplaySource(self.lake(plan.stream).store, files, plan.seq)

    def compute(self, plan: Plan, before: Before, attempt: str, open_session: OpenSession) -> Computed:
        """Compute a batch in Spark, and write its files under the attempt's name."""
        from tidegate.engine.batch import compute_batch  # late: only this needs Spark

        pipeline = planned_pipeline(plan)
        records = self.records(plan, pipeline)
        require_trusted(python_functions(pipeline))
        with failpoint("compute.session"):
            session = open_session(plan.most_records)
        return compute_batch(session, plan, pipeline, records, self.lake(plan.stream), before, attempt)

    def session_name(self, stream: Stream) -> str:
        """What a Spark Connect server keeps a stream's session under; other ledgers' streams have others."""
        return f"{self.settings.lake} {stream}"

    def pipeline(self, name: str) -> Pipeline:
        """A pipeline by its name (of the file, without .yaml) or by the path of its file.

        By its name it also has to go with the other files of the folder. Raises PipelineInvalid.
        """
        is_path = name.endswith((".yaml", ".yml"))
        path = Path(name) if is_path else self.settings.pipelines / f"{name}.yaml"
        if not path.is_file():
            known = ", ".join(file.stem for file in pipeline_files(self.settings.pipelines)) or "none"
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
        return load_pipeline(path) if is_path else load_pipeline_of_folder(path)


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
