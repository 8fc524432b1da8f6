"""A batch that is begun and not through: what its last try failed of, or which sinks still lack it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from tidegate import errors
from tidegate.app.root import App
from tidegate.errors import Permanent
from tidegate.ledger import Failure, LedgerReader, Plan, Stream
from tidegate.protocol.publish import lacking_sinks


@dataclass(frozen=True)
class Unfinished:
    """A sentence about a batch. `halts`: no retry gets it through until someone acts."""

    told: str
    halts: bool = False
    error: str = ""
    """The class of the error that is told of, if one is."""


def unfinished_batches(app: App, stream: Stream) -> Iterator[Unfinished]:
    """Of the head's batch and of the planned one after it, what is known about why they are not through.

    A planned batch of which no step has failed is not told: it may be at work.
    """
    head = app.ledger.head(stream)
    decided = app.ledger.plan(stream, head.seq) if head.seq else None
    if decided is not None:
        lacking = lacking_sinks(app, decided)
        if lacking:
            yield _failed(app.ledger, decided) or Unfinished(
                f"batch {decided.seq} is committed and not published to {', '.join(lacking)}; "
                "the next run publishes it"
            )
    planned = app.ledger.plan(stream, head.seq + 1)
    failed = _failed(app.ledger, planned) if planned is not None else None
    if failed is not None:
        yield failed


def _failed(ledger: LedgerReader, plan: Plan) -> Unfinished | None:
    noted = ledger.failure(plan.stream, plan.seq)
    if noted is None or _is_past(ledger, noted):
        return None
    at = datetime.fromtimestamp(noted.at_ms / 1000, timezone.utc).isoformat(sep=" ", timespec="seconds")
    told = f"batch {noted.seq} failed in {noted.step} at {at}: {noted.error}: {noted.what.rstrip('.')}."
    return Unfinished(f"{told} {noted.fix}".rstrip(), _halts(noted), noted.error)


def _is_past(ledger: LedgerReader, noted: Failure) -> bool:
    """Whether the step that failed has gone through since. Who publishes is asked for by its sinks."""
    if noted.step == "publish":
        return False
    if ledger.head(noted.stream).seq >= noted.seq:
        return True
    attempt = ledger.attempt(noted.stream, noted.seq)
    if attempt is None or noted.step == "commit":
        return False
    return noted.step == "compute" or bool(attempt.validated)


def _halts(noted: Failure) -> bool:
    """An error that this version does not know was noted by another: better told too loud."""
    return issubclass(getattr(errors, noted.error, Permanent), Permanent)
