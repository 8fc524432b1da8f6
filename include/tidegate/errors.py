"""Every error that tidegate raises. Whether a retry can help is in the type; what to do is in the text.

TidegateError
├── Transient                 a retry can help: Airflow tries again, exit code 1
│   ├── BrokerUnavailable
│   ├── LedgerUnavailable
│   ├── LakeUnavailable
│   ├── LeaseHeld             another run works on this pipeline; wait for it
│   ├── Fenced                a newer try has taken over; this one must not go on
│   └── OutcomeUnknown        a commit was sent and no answer came; the next try reads what is true
└── Permanent                 a retry cannot help until someone acts, exit code 2
    ├── SettingsInvalid
    ├── PipelineInvalid       carries every problem found, each with file, line and fix
    ├── SchemaChanged
    ├── TopicMissing
    ├── Halted                going on would lose or double records; names the range and the command
    │   ├── TopicRecreated
    │   ├── OffsetsLost
    │   ├── LogTruncated
    │   ├── ProgressLost
    │   └── BackwardsRefused
    ├── CountMismatch
    ├── RecordTooLarge
    ├── QualityFailed
    └── SetupFailed           the local stack: a download, a port, a process
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class TidegateError(Exception):
    """An error with its remedy: `what` happened, and the `fix` a person can apply (both one sentence)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what, fix)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what.rstrip('.')}. {self.fix}".strip() if self.fix else self.what


class Transient(TidegateError):
    """A retry can help."""

    exit_code: ClassVar[int] = 1


class BrokerUnavailable(Transient):
    """Kafka did not answer, or answered with a passing error."""


class LedgerUnavailable(Transient):
    """The ledger's database did not answer."""


class LakeUnavailable(Transient):
    """A table could not be read or written: disk full, read-only, store away."""


class LeaseHeld(Transient):
    """Another run holds the pipeline's lease."""


class Fenced(Transient):
    """A newer try raised the epoch; whatever this one still does must have no effect."""


class OutcomeUnknown(Transient):
    """A commit may or may not have happened; the next try finds out."""


class Permanent(TidegateError):
    """A retry cannot help until someone acts."""


class SettingsInvalid(Permanent):
    """A setting is missing or wrong."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a pipeline file. `line` is 1-based; `field` is a dotted path such as `source.format`."""

    file: str
    line: int
    field: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field}: {self.message.rstrip('.')}. {self.fix}".rstrip()


class PipelineInvalid(Permanent):
    """A pipeline file has mistakes; `problems` holds all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SchemaChanged(Permanent):
    """The columns no longer fit the state that this generation has written."""


class TopicMissing(Permanent):
    """A topic that a pipeline names does not exist."""


class Halted(Permanent):
    """Going on would lose or double records."""


class TopicRecreated(Halted):
    """The topic has another id than the head's: its offsets mean something else now."""


class OffsetsLost(Halted):
    """Retention passed the head: records were deleted before they were read."""


class LogTruncated(Halted):
    """The log ends before the head."""


class ProgressLost(Halted):
    """The progress record of a sink is gone, so what was sent cannot be known."""


class BackwardsRefused(Halted):
    """A backfill asks for an interval before what is already read, in the wrong order."""


class CountMismatch(Permanent):
    """Records read and records accounted for differ."""


class RecordTooLarge(Permanent):
    """An emission is larger than its sink accepts."""


class QualityFailed(Permanent):
    """A quality suite found the outbox unfit to publish."""


class SetupFailed(Permanent):
    """The local stack could not be installed or started."""
