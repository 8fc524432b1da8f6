"""The composition root: it builds from the settings everything that the batch steps use.

A step reaches Kafka, the ledger, the lake, sinks and Spark only through `App`. The files of a stream's
batches and snapshots are found by the manifests in the ledger; a damaged file is reported with who needs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.batch_counts import outgoing
from tidegate.errors import (
    Fenced,
    Halted,
    LakeDamaged,
    StateGivenUp,
    TidegateError,
)
from tidegate.failpoints import failpoint
from tidegate.kafka.clusters import KafkaClusters
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.shard import SendShards, SendTask, send_here
from tidegate.ledger import Attempt, Ledger, LedgerReader, ManifestRef, Plan, Run, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import python_functions
from tidegate.model.reading import reading_of
from tidegate.model.stage import Stage
from tidegate.model.trusted import require_trusted
from tidegate.settings import Settings
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import OpenSink, SinkContext, open_sinks
from tidegate.storage import Lake, Marks, Store, Written, read_manifest, write_manifest
from tidegate.storage.evolution import NO_ALIASES, Aliases, state_aliases
from tidegate.storage.manifest import DataFile, Manifest
from tidegate.yaml.folder import is_path
from tidegate.yaml.load import load_pipeline, load_pipeline_of_folder, pipeline_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.spark.computation import Before, Computed
    from tidegate.spark.reused import StoredBatch
    from tidegate.spark.source import RecordSource

OpenSession: TypeAlias = "Callable[[int], SparkSession]"
"""A function that opens a Spark session; its argument is about how many rows Spark gets in the batch."""
LONG_DONE = "its batch was committed and published so long ago that the ledger keeps no more of it than that"
"""The reason why a run has nothing to do."""
StateFiles = dict[str, tuple[DataFile, ...]]
"""Stage -> the files of its state, oldest first. A later file's row of an entry replaces an earlier one."""


@dataclass(frozen=True)
class App:
    """Settings and ledger. Kafka clusters, files and sinks are opened when a step needs them.

    Example:
        app = App.from_environment()
        pipeline = app.pipeline("orders")
        head = app.ledger.head(stream_of(pipeline))
    """

    settings: Settings
    ledger: Ledger

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> App:
        """Return an app that runs batches: a ledger without tables gets them.

        Raises SettingsInvalid if a setting cannot be used, LedgerUnavailable if the database does not answer.
        """
        settings = Settings.from_environment(environment)
        return cls(settings, Ledger.open(settings.ledger))

    @classmethod
    def for_reading(cls, environment: Mapping[str, str] = os.environ) -> App:
        """Return an app that only reads. If no ledger exists, it uses an empty one in memory, and creates
        none.

        Raises as `from_environment`.
        """
        settings = Settings.from_environment(environment)
        return cls(settings, Ledger.open_for_reading(settings.ledger))

    @cached_property
    def clusters(self) -> KafkaClusters:
        """The Kafka clusters. It is one object, so that all calls inside of `with app.clusters`, or of `with
        app.log(…)`, share a connection.
        """
        return KafkaClusters(self.settings.kafka)

    def log(self, connection: str | None) -> KafkaLog:
        """Return the logs of a Kafka cluster, by its connection name in the pipeline file (None: the default
        cluster).

        Raises SettingsInvalid if the connection is not set.
        """
        return self.clusters.log(connection)

    def lake(self, stream: Stream) -> Lake:
        """Return the files and tables of a stream."""
        return Lake(self.settings.lake, stream.pipeline, stream.generation)

    def marks(self, stream: Stream) -> Marks:
        """Return the marks in a stream's folder, which name the ledger that the folder belongs to."""
        return self.lake(stream).marks

    def promotion_marks(self, pipeline: str) -> Marks:
        """Return the marks in a pipeline's folder: one for each promotion."""
        return Marks(Store(self.settings.lake), f"{pipeline}/marks", keeps_all=True)

    def manifest(self, stream: Stream, reference: ManifestRef) -> Manifest:
        """Return the manifest of an attempt or a snapshot, after a check of its size and digest.

        Raises LakeDamaged if the file is missing, short or changed, LakeUnavailable if the store does not
        answer.
        """
        lake = self.lake(stream)
        with failpoint("manifest.read"):
            return read_manifest(
                lake.store, lake.manifests(reference.name), Written(reference.bytes, reference.digest)
            )

    def write_manifest(self, stream: Stream, manifest: Manifest) -> ManifestRef:
        """Write a manifest durably, and return the reference for the ledger. Raises LakeUnavailable."""
        lake = self.lake(stream)
        with failpoint("manifest.write"):
            written = write_manifest(lake.store, lake.manifests(manifest.name), manifest)
        return ManifestRef(manifest.name, written.bytes, written.digest, manifest.rows, manifest.bytes)

    def outbox(self, plan: Plan, stage: Stage, attempt: Attempt) -> Outbox:
        """Return the emissions of a stage in one attempt of a batch. Raises LakeDamaged, LakeUnavailable."""
        # Most batches of a quiet stage emit nothing: that costs no read.
        has_emitted = outgoing(attempt.stage_counts(stage.name)) > 0
        manifest = self.manifest(plan.stream, attempt.manifest) if has_emitted else None
        files = manifest.files_of("outbox", stage.name) if manifest is not None else ()
        return Outbox(plan, stage, attempt.name, self.lake(plan.stream).store, files)

    def quarantined(self, plan: Plan, attempt: Attempt) -> Outbox:
        """Return the records that one attempt of a batch has put into quarantine. Raises LakeDamaged,
        LakeUnavailable.
        """
        files = self.manifest(plan.stream, attempt.manifest).files_of("quarantine")
        return Outbox(plan, None, attempt.name, self.lake(plan.stream).store, files)

    def sinks(
        self, stream: Stream, pipeline: Pipeline, open_session: OpenSession | None = None
    ) -> list[OpenSink[Any]]:
        """Return the opened sinks of all outputs of a pipeline.

        With a Spark session, the shards of a large batch are sent by its tasks; without, by this process.
        """
        send = send_here if open_session is None else _sent_by_spark(open_session, pipeline)
        context = SinkContext(
            *(self.settings, self.ledger, stream, self.lake(stream), self.log),
            *(self.outbox, self.quarantined, send),
        )
        return open_sinks(pipeline, context)

    def records(self, plan: Plan, pipeline: Pipeline) -> RecordSource:
        """Return the input of a batch: ranges of Kafka's topics, or the records in quarantine that it
        replays.

        Raises SettingsInvalid if the connection is not set, LakeDamaged, LakeUnavailable.
        """
        from tidegate.spark.source import KafkaSource, ReplaySource

        if plan.replay is None:
            return KafkaSource(self.settings.kafka(pipeline.sources.connection), plan.ranges)
        files = self.manifest(plan.stream, plan.replay).files_of("quarantine")
        return ReplaySource(self.lake(plan.stream).store, files, plan.seq)

    def compute(self, plan: Plan, before: Before, attempt: str, open_session: OpenSession) -> Computed:
        """Compute a batch in Spark, and write its files under the attempt's name.

        Raises PipelineInvalid if the pipeline names a function of a module that the settings do not allow.
        """
        from tidegate.spark.batch import compute_batch  # late: only this needs Spark
        from tidegate.spark.computation import PlannedBatch

        pipeline = planned_pipeline(plan)
        records, stored = self.records(plan, pipeline), self._stored(plan)
        require_trusted(python_functions(pipeline))
        # Only now: opening a session takes seconds, and the checks above need none.
        with failpoint("compute.session"):
            session = open_session(expected_rows(plan, pipeline))
        batch = PlannedBatch(plan, pipeline, self.lake(plan.stream), before)
        return compute_batch(session, batch, records, attempt, stored)

    def _stored(self, plan: Plan) -> StoredBatch | None:
        """Return the batch that a plan reuses; None if it reuses none.

        Raises StateGivenUp if it is no longer kept, LakeDamaged, LakeUnavailable.
        """
        from tidegate.spark.reused import StoredBatch

        if plan.reused is None:
            return None
        origin = Stream(plan.stream.pipeline, plan.reused.generation)
        attempt = self.ledger.attempt(origin, plan.seq)
        # The ledger keeps the last batch of a sink, whose outbox can have expired all the same.
        if attempt is None or plan.seq <= self.ledger.expired(origin, "outbox").seq:
            raise StateGivenUp(
                f"{batch_named(plan.stream, plan.seq)} reuses that of {origin}, which is no longer kept",
                f"Drop it: `tidegate generation drop {origin.pipeline} {plan.stream.generation}`.",
            )
        with needed_by(batch_named(origin, plan.seq)):
            manifest = self.manifest(origin, attempt.manifest)
        manifest = manifest.without_expired({"quarantine": self.ledger.expired(origin, "quarantine").seq})
        store = self.lake(origin).store
        return StoredBatch(store, manifest, attempt.counts, attempt.times, plan.reused.stages)

    def session_name(self, stream: Stream) -> str:
        """Return the name under which a Spark Connect server keeps a stream's session.

        It contains the lake, so that streams of other ledgers on the same server have other sessions.
        """
        return f"{self.settings.lake} {stream}"

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline by its name (the file's, without .yaml) or by the path of its file.

        A pipeline that is given by name must also be consistent with the other files of the folder. Raises
        PipelineInvalid if the file does not exist or has mistakes.

        Example: `app.pipeline("orders")` reads `orders.yaml` in TIDEGATE_PIPELINES;
        `app.pipeline("./orders.yaml")` reads that file alone.
        """
        path = pipeline_path(name, self.settings.pipelines)
        return load_pipeline(path) if is_path(name) else load_pipeline_of_folder(path)


def _sent_by_spark(open_session: OpenSession, pipeline: Pipeline) -> SendShards:
    """Return a function that opens the session only when it sends shards."""

    def send(tasks: Sequence[SendTask]) -> Sequence[int]:
        from tidegate.spark.batch import send_shards  # late: only this needs Spark

        return send_shards(open_session(0), pipeline, tasks)

    return send


def expected_rows(plan: Plan, pipeline: Pipeline) -> int:
    """Return about how many rows Spark gets in a batch of the planned pipeline: see `Reading.rows`."""
    return reading_of(pipeline).rows(plan.most_records)


def stream_of(pipeline: Pipeline) -> Stream:
    """Return the stream that a pipeline file's generation writes."""
    return Stream(pipeline.pipeline, pipeline.generation)


def planned_for(app: App, pipeline: str, generation: int, run_id: str) -> Plan | None:
    """Return the plan of the batch that a run works on; None if there is nothing left to do: see `LONG_DONE`.

    Raises Halted if the run has no batch.
    """
    stream = Stream(pipeline, generation)
    run = app.ledger.run(stream, run_id)
    plan = app.ledger.plan(stream, run.seq) if run is not None and run.seq is not None else None
    # Maintenance removes plans of old batches, so a cleared old task may find none.
    if plan is None and run is not None and is_long_done(app.ledger, stream, run):
        return None
    if plan is None:
        raise Halted(
            f"Run {run_id} of {stream} has no planned batch", "Clear `plan`, and what comes after it."
        )
    return plan


def is_long_done(ledger: LedgerReader, stream: Stream, run: Run) -> bool:
    """Return whether the batch of a run, whose plan has left the ledger, is committed.

    The batch is then published, too: no batch is planned before the previous one is published.
    """
    return run.seq is not None and run.seq < ledger.head(stream).seq


def missing_of_head(ledger: LedgerReader, stream: Stream, seq: int, what: str) -> TidegateError:
    """Return the error for a ledger that lacks something of the batch that was the head when a step looked.

    Fenced if the head is a later batch: the step was overtaken, and its batch has left the ledger meanwhile.
    Halted if the batch is still the head: the ledger has lost rows.

    Args:
        seq: the batch that was the head.
        what: what the ledger lacks of it, in words.
    """
    # The head can have moved since the caller read it; only rows of the present head must exist.
    if ledger.head(stream).seq > seq:
        return Fenced(
            f"Batch {seq} of {stream} is published, and later ones are committed",
            "There is nothing left to do.",
        )
    return Halted(
        f"The ledger does not have the {what} of batch {seq} of {stream}, which is the head",
        "Restore the ledger from a backup, or raise `generation` to begin anew.",
    )


def batch_named(stream: Stream, seq: int) -> str:
    """Return the name of a batch as the reader of its own files: of a step, or of a person who views its
    emissions.
    """
    return f"Batch {seq} of {stream}"


def state_named(stream: Stream, seq: int) -> str:
    """Return the name of the state after a batch as the reader of files, which belong to many batches."""
    return f"The state after batch {seq} of {stream}"


@contextmanager
def needed_by(reader: str) -> Iterator[None]:
    """Let a LakeDamaged from inside of the block say that `reader` needs the file.

    If blocks are nested, the innermost one is named. Raises LakeDamaged.

    Example:
        with needed_by(batch_named(stream, seq)):
            manifest = app.manifest(stream, reference)
    """
    try:
        yield
    except LakeDamaged as error:
        named = error.needed_by(reader)
        if named is error:
            raise
        raise named from error


def read_manifests(app: App, stream: Stream, references: Iterable[ManifestRef]) -> list[Manifest]:
    """Return the manifests, in the order of `references`.

    Raises LakeDamaged if one is missing or changed, LakeUnavailable if the store does not answer.
    """
    return [app.manifest(stream, reference) for reference in references]


def state_files(manifests: Sequence[Manifest]) -> StateFiles:
    """Return the state files of all manifests, by stage and in the order of the manifests."""
    files_by_stage: StateFiles = {}
    for manifest in manifests:
        for file in manifest.files:
            if file.kind == "state":
                files_by_stage[file.stage] = (*files_by_stage.get(file.stage, ()), file)
    return files_by_stage


def state_after(app: App, stream: Stream, references: Iterable[ManifestRef]) -> StateFiles:
    """Return the state files of the manifests, as `LedgerReader.state_manifests` names them.

    Raises LakeDamaged if a manifest is missing or changed, LakeUnavailable if the store does not answer.

    Example:
        state_after(app, stream, app.ledger.state_manifests(stream, up_to=7))
    """
    return state_files(read_manifests(app, stream, references))


def aliases_of(ledger: LedgerReader, stream: Stream, seq: int, stage: str) -> Aliases:
    """Return the older names of a stage's columns by the plan of a batch; none if the ledger has no such plan
    any more.
    """
    plan = ledger.plan(stream, seq)
    stages = planned_pipeline(plan).stages if plan is not None else ()
    # A stage that the plan no longer has keeps the names that its files have.
    return next((state_aliases(candidate) for candidate in stages if candidate.name == stage), NO_ALIASES)
