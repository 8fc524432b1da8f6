"""Find a decided batch that cannot be published, the sinks that lack it, and the cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidegate import errors
from tidegate.app import App
from tidegate.batch.publish import lacking_batches
from tidegate.errors import (
    LedgerMismatch,
    LedgerUnavailable,
    OutcomeUnknown,
    Permanent,
    ProgressLost,
    SettingsInvalid,
    TidegateError,
    TopicRecreated,
)
from tidegate.ledger import Attempt, Failure, LeasedLedger, LedgerReader, Plan, Stream
from tidegate.ledger.planned import planned_pipeline, unpublished_sinks
from tidegate.recovery.situation import Situation
from tidegate.sinks import OpenSink


@dataclass(frozen=True)
class UnsentBatch:
    """A committed batch that must be published, and the sinks that lack it.

    `failure` is that of the last try to publish it; None: no try has failed.
    """

    plan: Plan
    attempt: Attempt
    sinks: tuple[OpenSink[Any], ...]
    failure: Failure | None

    @property
    def seq(self) -> int:
        """The number of the batch."""
        return self.plan.seq

    @property
    def is_refused(self) -> bool:
        """Return whether its last try failed with an error that no retry resolves. An unknown error counts as
        such.

        A sink that has lost its progress, or was replaced, does not refuse the batch.
        """
        if self.failure is None:
            return False
        error = getattr(errors, self.failure.error, Permanent)
        return issubclass(error, Permanent) and not issubclass(
            error, (LedgerMismatch, ProgressLost, TopicRecreated)
        )

    @property
    def cause(self) -> str:
        """The reason why it is not published, as a sentence."""
        names = ", ".join(sink.name for sink in self.sinks)
        if self.failure is None:
            return f"Batch {self.seq} is decided, and {names} lacks it."
        what = self.failure.what.rstrip(".")
        return f"Batch {self.seq} is decided and cannot be published: {self.failure.error}: {what}."


def first_unsent(app: App, ledger: LedgerReader, stream: Stream) -> UnsentBatch | None:
    """Return the oldest batch of a stream that must be published and is not; None if all are published, or
    withheld.

    Raises Halted or PlanUnreadable if the ledger no longer has its plan.
    """
    for plan in lacking_batches(ledger, stream):
        attempt = ledger.attempt(stream, plan.seq)
        if attempt is None:
            return None
        lacking = unpublished_sinks(ledger, plan)
        sinks = [sink for sink in app.sinks(stream, planned_pipeline(plan)) if sink.name in lacking]
        failure = ledger.failure(stream, plan.seq)
        is_of_publish = failure is not None and failure.step == "publish"
        return UnsentBatch(plan, attempt, tuple(sinks), failure if is_of_publish else None)
    return None


def refusals(
    lease: LeasedLedger, batch: UnsentBatch, named: tuple[str, ...]
) -> Iterator[tuple[OpenSink[Any], TidegateError]]:
    """Publish a batch to each sink that lacks it; yield the sinks that refuse it, with the error.

    Raises an error that a retry can resolve, unless the sink is in `named`.
    """
    for sink in batch.sinks:
        try:
            outbox = sink.outbox(batch.plan, batch.attempt)
            if outbox.emitted:
                sink.publish(lease, outbox, lease.last_published(lease.stream, sink.name))
        except (LedgerUnavailable, OutcomeUnknown):
            raise
        except TidegateError as error:
            if sink.name not in named and not isinstance(error, Permanent):
                raise
            yield sink, error
        else:
            lease.add_publication(batch.seq, sink.name, outbox.emitted)


def require_sinks(situation: Situation, existing: list[str]) -> None:
    """Raise SettingsInvalid if `--sink` names a sink that does not exist."""
    unknown = sorted(set(situation.options.sinks) - set(existing))
    if unknown:
        raise SettingsInvalid(
            f"{situation.stream} has no sink {', '.join(unknown)} that this is about",
            f"It has: {', '.join(existing) or 'none'}.",
        )
