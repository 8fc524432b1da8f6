"""Every error that tidegate raises. The type says whether a retry can help; the text says what to do.

TidegateError
├── Transient                 a retry can help: Airflow tries again, exit code 1
│   ├── BrokerUnavailable
│   ├── LedgerUnavailable
│   ├── LakeUnavailable
│   ├── SinkUnavailable
│   │   └── SinkBusy          an endpoint asks for a long pause: Airflow calls the step again after it
│   ├── RegistryUnavailable   a schema registry does not answer, or with a passing error
│   ├── SparkLost             Spark's JVM ended in the middle of a batch
│   ├── QualityLost           the process of the quality check ended before its verdict
│   ├── LeaseHeld             another run works on this pipeline; wait for it, which is no try: exit code 3
│   ├── Fenced                a newer try has taken over; this one must not go on
│   │   └── SinkAhead         the sink has a later batch, which this ledger has committed, so it has this one
│   └── OutcomeUnknown        a commit was sent and no answer came; the next try reads what is true
└── Permanent                 a retry cannot help until someone acts, exit code 2
    ├── SettingsInvalid
    ├── TriggerInvalid        a run's parameters do not go together, or not with the pipeline
    ├── PipelineInvalid       carries every problem found, each with file, line and fix
    ├── PipelineChanged       an edit of the file that the state of its generation does not survive
    ├── SchemaChanged         the same, found by Spark: a column of another type than in the state
    ├── PlanUnreadable        the ledger's form of a planned pipeline is damaged, or of a newer tidegate
    ├── ProgressUnreadable    a sink's own progress is damaged or in another format; never taken for "none"
    ├── StateGivenUp          the state after that batch is older than what is kept
    │   └── KeyErased         the key was erased since that batch (`tidegate erase`)
    ├── EmissionsExpired      the emissions of that batch are older than what is kept
    ├── TopicMissing
    ├── TopicShared           the patterns of two sources select one topic
    ├── Halted                going on would lose or double records; names the range and the command
    │   ├── TopicRecreated
    │   ├── OffsetsLost
    │   ├── LogTruncated
    │   ├── ProgressLost
    │   ├── LookupReplaced     a lookup's table was replaced by another one of the same name after planning
    │   ├── LedgerMismatch     the stream's folder or a sink has batches that this ledger has not committed
    │   ├── LakeDamaged       a file of the lake is missing, short or changed; never taken for "no state"
    │   ├── BackwardsRefused
    │   └── StartOverRefused  a batch would send again what another stream has sent to the same sink
    ├── CountMismatch
    ├── RecordTooLarge
    ├── TimestampRefused      an emission is too far in the future, or in the past, for its output topic
    ├── MemoryExhausted       a batch does not fit into the memory that Spark has
    ├── SchemaUnknown         a schema registry does not have a schema
    ├── SchemaRefused         a schema is not valid, or not compatible with the versions of its subject
    ├── SinkRefused           a sink's table or topic cannot hold the emissions; an endpoint refuses a request
    ├── BufferFull            a bounded buffer that may not emit early is full
    ├── RecordFailed          one record cannot be folded in, such as one that makes a sum overflow
    ├── UserFunctionFailed    a pipeline's own `python` function raised, or gave no answer
    ├── ConditionFailed       a `where` or `equal: sql` could not be evaluated on a value
    ├── LookupMissing         a lookup's table, pipeline or stage does not exist
    ├── LookupAmbiguous       a lookup finds several rows for one record
    ├── QualityFailed
    ├── QuarantineExceeded    a batch puts more into quarantine than its pipeline allows
    ├── LateExceeded          more records of a batch are late than its pipeline allows
    └── SetupFailed           the local stack: a download, a port, a process
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar


class TidegateError(Exception):
    """An error with its remedy: `what` happened, and the `fix` that a person can apply (one sentence each).

    Example: `raise TopicMissing("The topic events does not exist", "Create it, or correct `topics`.")`
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what, fix)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what.rstrip('.')}. {self.fix}".strip() if self.fix else self.what


class Transient(TidegateError):
    """An error that a retry can resolve."""

    exit_code: ClassVar[int] = 1


class BrokerUnavailable(Transient):
    """Kafka did not answer, or answered with a passing error."""


class LedgerUnavailable(Transient):
    """The ledger's database did not answer."""


class LakeUnavailable(Transient):
    """A table could not be read or written: the disk is full or read-only, or the store does not answer."""


class SinkUnavailable(Transient):
    """The database of a SQL sink did not answer, or an endpoint did not acknowledge a request."""


class SinkBusy(SinkUnavailable):
    """An endpoint asks for a pause that is too long to wait for it in the process."""

    def __init__(self, what: str, fix: str = "", pause_s: float = 0.0) -> None:
        super().__init__(what, fix)
        self.pause_s = pause_s


class RegistryUnavailable(Transient):
    """A schema registry did not answer, or answered with a passing error."""


class SparkLost(Transient):
    """Spark's JVM ended in the middle of a batch, most often because memory ran out; or no Spark server
    answers, or the job was interrupted. Nothing of the batch is visible.
    """


class QualityLost(Transient):
    """The process of the quality check ended before its verdict, most often because memory ran out. Nothing
    of the batch is visible.
    """


class LeaseHeld(Transient):
    """Another run holds the pipeline's lease. A run that meets it waits, which costs no retry."""

    exit_code: ClassVar[int] = 3


class Fenced(Transient):
    """A newer try has raised the epoch; nothing that the older try still does may have an effect."""


class SinkAhead(Fenced):
    """A sink has a later batch than the one that is published, and the ledger has committed that batch."""


SINK_IS_AHEAD = (
    "A newer publisher went ahead. If there is none, this ledger is not the one that was published from, or "
    "is older: set TIDEGATE_LEDGER to that, or restore it; else `tidegate recover` shows what can be done"
)
"""The fix of Fenced if a sink is ahead of the ledger."""


class OutcomeUnknown(Transient):
    """A commit may or may not have happened; the next try finds out."""


class Permanent(TidegateError):
    """An error that no retry resolves until a person acts."""

    resolved_by_edit: ClassVar[bool] = False
    """Whether an edit of the pipeline file resolves it. The edit has no effect on a batch that is planned."""


class SettingsInvalid(Permanent):
    """A setting is missing or wrong."""


class TriggerInvalid(Permanent):
    """The parameters of a run do not fit together, or not to the pipeline. Nothing was planned."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a pipeline file. `line` is 1-based; `field` is a dotted path such as `source.format`."""

    file: str
    line: int
    field: str
    message: str
    fix: str

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return PurePath(self.file).name

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field}: {self.message.rstrip('.')}. {self.fix}".rstrip()


class PipelineInvalid(Permanent):
    """A pipeline file has mistakes; `problems` has all of them.

    Example: `except PipelineInvalid as error: print(*error.problems, sep="\\n")`
    """

    resolved_by_edit = True

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PipelineChanged(Permanent):
    """The pipeline file was edited in a way that the state of its generation cannot follow."""


class SchemaChanged(Permanent):
    """The columns no longer fit the state that this generation has written."""

    resolved_by_edit = True


class PlanUnreadable(Permanent):
    """The pipeline that a batch was planned with cannot be read from the ledger."""


class ProgressUnreadable(Permanent):
    """The progress that a sink stores is damaged, or has a format that this tidegate does not read."""

    @classmethod
    def of_format(cls, where: str, stored: object, supported: int, replace: str) -> ProgressUnreadable:
        """Return the error for progress of another format.

        Args:
            where: the place that has the format, such as a table or a topic.
            stored: the format that the place has; None if it has none.
            supported: the format that this tidegate reads.
            replace: what to do about progress from before the first release.
        """
        if stored is None:
            return cls(f"{where} has no format: a tidegate from before the first release wrote it", replace)
        return cls(
            f"{where} has format {stored}; this tidegate reads {supported}",
            "Use the version of tidegate that wrote it, or a newer one.",
        )


class StateGivenUp(Permanent):
    """The state as of a batch is no longer kept: it is older than TIDEGATE_TIME_TRAVEL."""


class KeyErased(StateGivenUp):
    """The key was erased after the batch that is asked for, so nothing can be told of it."""


class EmissionsExpired(Permanent):
    """The emissions of a batch are no longer kept: they are older than `outboxes: {keep: …}`."""


class TopicMissing(Permanent):
    """A topic that a pipeline names does not exist."""


class TopicShared(Permanent):
    """The patterns of two sources of a pipeline select one topic."""


class Halted(Permanent):
    """The stream stopped, because going on would lose or double records."""


class TopicRecreated(Halted):
    """The topic has another id than in the head: it was deleted and created again, so its offsets have
    another meaning.
    """


class OffsetsLost(Halted):
    """Retention deleted records before they were read."""


class LogTruncated(Halted):
    """The log was truncated below the head, or below the end of a plan; it can have grown again since."""


class ProgressLost(Halted):
    """The progress record of a sink is missing, so it is unknown what was sent."""


class LookupReplaced(Halted):
    """A lookup's Delta table has another id than at planning, so its versions have another meaning."""


class LedgerMismatch(Halted):
    """A stream's folder or a sink belongs to another ledger, or to this one as it was before a restore."""


class LakeDamaged(Halted):
    """A file that the ledger refers to is missing, short or changed, or a table was not made by tidegate.

    `reader` names what needs the file, if that is known.
    """

    reader = ""

    def needed_by(self, reader: str) -> LakeDamaged:
        """Return the same error with the name of what needs the file; the error itself if it has one
        already.
        """
        if self.reader:
            return self
        named = LakeDamaged(f"{self.what}. {reader} needs it", self.fix)
        named.reader = reader
        return named


class StartOverRefused(Halted):
    """A batch would send again what another generation or pipeline has sent to the same sink."""


class BackwardsRefused(Halted):
    """A backfill's interval lies before one that was already read, and still has unread records."""


class CountMismatch(Permanent):
    """Records read and records accounted for differ."""


class RecordTooLarge(Permanent):
    """An emission is larger than its sink accepts."""

    resolved_by_edit = True


class TimestampRefused(Permanent):
    """An emission has a timestamp that its output topic does not take, by the broker's clock."""

    resolved_by_edit = True


class MemoryExhausted(Permanent):
    """A batch does not fit into Spark's memory. It has had no effect."""

    resolved_by_edit = True


class SchemaUnknown(Permanent):
    """A schema registry does not have a schema, a subject or a version."""


class SchemaRefused(Permanent):
    """A schema is not valid, does not fit the emitted columns, or is not compatible with the versions of its
    subject.
    """

    resolved_by_edit = True


class SinkRefused(Permanent):
    """A sink's table or topic cannot hold the emissions, because of its columns, limits or rules; or an
    endpoint refuses a request.
    """

    resolved_by_edit = True


class QualityFailed(Permanent):
    """A quality suite has failed, so the batch is not published."""

    resolved_by_edit = True


class QuarantineExceeded(Permanent):
    """A batch puts more records into quarantine than its pipeline allows."""

    resolved_by_edit = True


class LateExceeded(Permanent):
    """More records of a batch are late than its pipeline allows."""


class SetupFailed(Permanent):
    """The local stack could not be installed or started."""


class BufferFull(Permanent):
    """A stage's bounded buffer is full and may not emit early. The batch has had no effect."""

    resolved_by_edit = True


class RecordFailed(Permanent):
    """One record cannot be used by a stage, such as one that makes a sum too large for its type."""

    resolved_by_edit = True

    @classmethod
    def with_command(cls, what: str, fix: str, topic: str, partition: int, offset: int) -> RecordFailed:
        """Return the error of an expression, with the record that it fails on and the command that shows
        it.
        """
        return cls(
            f"{what} (the record {topic}[{partition}] offset {offset})",
            f"{fix} To see the record: kafka-console-consumer.sh --topic {topic} --partition {partition} "
            f"--offset {offset} --max-messages 1.",
        )


class UserFunctionFailed(Permanent):
    """A function that the pipeline file names raised an error, or returned neither true nor false."""

    resolved_by_edit = True


class ConditionFailed(Permanent):
    """A `where` or `equal: sql` has no answer for a value, such as after a division by zero."""

    resolved_by_edit = True


class LookupMissing(Permanent):
    """The table, pipeline or stage of a lookup does not exist, or has nothing committed yet."""


class LookupAmbiguous(Permanent):
    """A lookup's table has several rows for one record's columns."""

    resolved_by_edit = True
