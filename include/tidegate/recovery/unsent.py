"""Remedies for a decided batch that cannot be published: continue after it (`give-up`), or put another
generation in charge (`promote`).

What a sink never gets of it is exported as JSON lines.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from tidegate import errors
from tidegate.app import App, leased
from tidegate.batch.publish import lacking_batches, publish_decided, publish_to
from tidegate.batch_counts import outgoing
from tidegate.errors import (
    LakeDamaged,
    LakeUnavailable,
    LedgerMismatch,
    LedgerUnavailable,
    OutcomeUnknown,
    Permanent,
    ProgressLost,
    SettingsInvalid,
    TidegateError,
    TopicRecreated,
)
from tidegate.generations import Approval, promote, rollback
from tidegate.generations.promotion import require_approval, require_ready
from tidegate.kernel.json_text import json_texts
from tidegate.ledger import Attempt, Failure, GivenUp, LeasedLedger, LedgerReader, Plan, Stream
from tidegate.ledger.planned import planned_pipeline, unpublished_sinks
from tidegate.numerals import counted
from tidegate.recovery.remedy import Proposal, Situation
from tidegate.sinks.port import OpenSink
from tidegate.storage.datafile import read_files
from tidegate.storage.schema import KEY, REASON, SOURCE, TIMESTAMP, VALUE, WINDOW

_COLUMNS = (KEY, *WINDOW, TIMESTAMP, REASON, SOURCE)
FOLDER = "given-up"
"""The folder of exported records, below TIDEGATE_HOME."""


@dataclass(frozen=True)
class UnsentBatch:
    """A committed batch that must be published.

    Args:
        plan: the batch.
        attempt: the attempt that was committed.
        sinks: the sinks that lack it.
        failure: the failure of the last try to publish it; None: no try has failed.
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
        # The ledger has the error's class name; another version of tidegate may have had other classes.
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
    for plan in lacking_batches(ledger, ledger.head(stream)):
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
            records = publish_to(lease, sink, batch.plan, batch.attempt)
        # The sink may have the batch after all: giving it up now would be a false record.
        except (LedgerUnavailable, OutcomeUnknown):
            raise
        except TidegateError as error:
            if sink.name not in named and not isinstance(error, Permanent):
                raise
            yield sink, error
        else:
            lease.add_publication(batch.seq, sink.name, records)


def require_sinks(situation: Situation, existing: list[str]) -> None:
    """Check that `--sink` names only sinks that exist. Raises SettingsInvalid."""
    unknown = sorted(set(situation.options.sinks) - set(existing))
    if unknown:
        raise SettingsInvalid(
            f"{situation.stream} has no sink {', '.join(unknown)} that this is about",
            f"It has: {', '.join(existing) or 'none'}.",
        )


def export_records(folder: Path, batch: UnsentBatch, sink: OpenSink[Any]) -> tuple[Path, int]:
    """Write all records that a batch has for a sink, and return the file and how many records are in it.

    The first line says which batch it is, which offsets it has read, and which files could not be read: the
    records of those are not here. Each other line is a record. Raises LakeUnavailable.
    """
    # The name of a sink, such as `table:out/stock`, has characters that a file name cannot have.
    name = f"batch-{batch.seq}-{sink.name}".replace(":", "-").replace("/", "-")
    path = folder / str(batch.plan.stream) / f"{name}.jsonl"
    rows, unreadable = _record_lines(batch, sink)
    lines = [json.dumps(_header(batch, sink, unreadable)), *rows]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise LakeUnavailable(
            f"The records of batch {batch.seq} cannot be exported to {path}: {error}",
            "Make TIDEGATE_HOME writable. Nothing was given up.",
        ) from error
    return path, len(rows)


def records_of(batch: UnsentBatch, sink: OpenSink[Any]) -> int:
    """Return how many records a batch has for a sink, also where its files are lost."""
    try:
        return sink.outbox(batch.plan, batch.attempt).emitted
    except LakeDamaged:
        return outgoing(batch.attempt.stage_counts(sink.stage.name)) if sink.gets_emissions else 0


def _record_lines(batch: UnsentBatch, sink: OpenSink[Any]) -> tuple[list[str], list[str]]:
    """Return the lines of the records, and the files that cannot be read."""
    lines: list[str] = []
    unreadable: list[str] = []
    try:
        outbox = sink.outbox(batch.plan, batch.attempt)
    except LakeDamaged as error:
        return lines, [error.what]
    # File by file: one that is damaged must not keep the records of the others from the export.
    for file in outbox.files:
        try:
            rows = read_files(outbox.store, [file])
        except LakeDamaged:
            unreadable.append(file.path)
        else:
            lines += _emissions(rows) if sink.gets_emissions else _quarantined(rows)
    return lines, unreadable


def _emissions(rows: pa.Table) -> Iterator[str]:
    """Yield each emission as a JSON line, with the value as people see it everywhere; null for a deletion."""
    values = json_texts(rows[VALUE].combine_chunks()).to_pylist()
    for row, value in zip(rows.select(_COLUMNS).to_pylist(), values, strict=True):
        # The value is JSON text already: it is inserted as it is, so that no number is written anew.
        yield f'{json.dumps(row)[:-1]}, "value": {value or "null"}}}'


def _quarantined(rows: pa.Table) -> Iterator[str]:
    for row in rows.to_pylist():
        yield json.dumps(row, default=_text)


def _text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _header(batch: UnsentBatch, sink: OpenSink[Any], unreadable: list[str]) -> dict[str, Any]:
    plan = batch.plan
    ranges = [
        {"topic": read.topic, "partition": read.partition, "start": read.start, "end": read.end}
        for read in plan.ranges
    ]
    stream = {"pipeline": plan.stream.pipeline, "generation": plan.stream.generation, "batch": plan.seq}
    return stream | {"sink": sink.name, "read": ranges, "unreadable_files": unreadable}


class GiveUp:
    """Export the records of the oldest unpublished batch that a sink refuses, and continue after the
    batch.
    """

    name = "give-up"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if a decided batch cannot be published; for any unpublished batch, if the remedy
        is chosen.
        """
        batch = first_unsent(situation.app, situation.ledger, situation.stream)
        if batch is None or not (batch.is_refused or situation.is_chosen(self.name)):
            return None
        require_sinks(situation, [sink.name for sink in batch.sinks])
        folder = situation.app.settings.home / FOLDER / str(batch.plan.stream)
        counts = ", ".join(f"{records_of(batch, sink)} for {sink.name}" for sink in batch.sinks)
        effects = (
            f"Batch {batch.seq} is offered once more to each sink that lacks it (records: {counts}).",
            "A sink that refuses it never gets what it lacks of it.",
            "Where a retry could help, nothing is given up, unless you name the sink with --sink.",
            f"First all records of it that can still be read are exported to {folder}.",
            f"The ledger records what was given up, and the stream continues after batch {batch.seq}.",
        )
        return Proposal(self.name, batch.cause, effects, lambda: _give_up(situation, batch.seq))


def _give_up(situation: Situation, seq: int) -> tuple[str, ...]:
    app, stream = situation.app, situation.stream
    with situation.leased() as lease, app.clusters:
        batch = first_unsent(app, lease, stream)
        # A run may have published it since the proposal; the next batch was not shown to the person.
        if batch is None or batch.seq != seq:
            return (f"Batch {seq} is published now; nothing was given up.",)
        done = list(give_up_batch(app, lease, batch, situation.options.sinks))
        # The batches after it have waited for it, and need no decision of a person.
        publish_decided(app, lease)
    return (*done, f"{stream} is published up to batch {lease.head(stream).seq}.")


def give_up_unsent(app: App, lease: LeasedLedger) -> list[str]:
    """Publish all decided batches of a stream, and give up what a sink refuses. Returns a sentence for each
    refusal.

    Raises what `give_up_batch` raises; then the batches before that one are done.
    """
    done: list[str] = []
    while (batch := first_unsent(app, lease, lease.stream)) is not None:
        done += give_up_batch(app, lease, batch, ())
    return done


def give_up_batch(app: App, lease: LeasedLedger, batch: UnsentBatch, named: tuple[str, ...]) -> list[str]:
    """Publish a batch to the sinks that accept it, and give it up for those that do not: see `refusals`.

    Returns a sentence for each sink that does not. Raises LakeUnavailable if its records cannot be exported,
    and what `refusals` raises.

    Args:
        app: the settings: the export is below TIDEGATE_HOME.
        lease: the stream's lease.
        batch: the batch and the sinks that lack it.
        named: sinks that a person has named: they are given up even if a retry could help.
    """
    done = []
    for sink, error in refusals(lease, batch, named):
        # The order guards the records: export, then seal the sink, then the note that lets the stream go on.
        path, exported = export_records(app.settings.home / FOLDER, batch, sink)
        sent, note = _sealed(lease, sink, batch.seq)
        records = records_of(batch, sink)
        lease.give_up_publication(GivenUp(batch.seq, sink.name, sent, records, str(path)))
        done.append(
            f"{sink.name}: batch {batch.seq} of {batch.plan.stream} is given up ({type(error).__name__}: "
            f"{error.what.rstrip('.')}). It had {counted(records, 'record')}, of which the sink has {sent}; "
            f"{exported} are in {path}.{note}"
        )
    return done


def _sealed(lease: LeasedLedger, sink: OpenSink[Any], seq: int) -> tuple[int, str]:
    """Make sure that nobody can send the batch to the sink any more. Return how many records the sink has,
    and a note.
    """
    try:
        return sink.seal(lease, seq), ""
    # A sink that does not answer cannot be sealed (decision 65); the note says what is not known.
    except TidegateError as error:
        return 0, f" What it has of it is not known: {type(error).__name__}: {error.what.rstrip('.')}."


class Promote:
    """Give up what the generation in charge cannot publish, and put another one in charge.

    The other one is that of `--generation`. If that one is in charge, it is the generation that was in charge
    before, or else the newest.
    """

    name = "promote"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if the generation in charge has a decided batch that cannot be published."""
        app, pipeline = situation.app, situation.stream.pipeline
        charge = situation.ledger.charge(pipeline)
        if charge.generation is None:
            return None
        replaced = Stream(pipeline, charge.generation)
        other = _other(situation, replaced, charge.previous)
        batch = first_unsent(app, situation.ledger, replaced)
        if other is None or batch is None or not (batch.failure or situation.is_chosen(self.name)):
            return None
        is_back = other.generation == charge.previous
        effects = (
            f"What {replaced} has decided is offered once more to its sinks.",
            "What they refuse is exported, and given up.",
            f"{other} is in charge from then on, and publishes what it has withheld.",
            *(("It goes on where it stopped, as after a rollback.",) if is_back else ()),
        )

        def put_in_charge() -> tuple[str, ...]:
            by, run_id = situation.options.by, f"recover__{uuid4().hex[:8]}"
            approval = Approval(by, len(charge.promotions)) if by is not None else None
            # A rollback needs no approval: that generation was in charge before.
            if not is_back:
                require_approval(app, other, charge, approval)
            # Before anything is given up: no record may be lost for a promotion that is then refused.
            require_ready(app, app.ledger.head(other), app.ledger.head(replaced), may_be_behind=is_back)
            with leased(app, other, run_id):  # a run at work there would refuse the promotion afterwards
                done = _give_up_replaced(app, replaced, run_id)
            # The run keeps both leases: the promotion goes on with them.
            if is_back:
                rollback(app, pipeline, run_id)
            else:
                promote(app, other, run_id, approval=approval)
            return (*done, f"{other} is in charge.")

        return Proposal(self.name, f"{replaced}: {batch.cause}", effects, put_in_charge, other)


def _give_up_replaced(app: App, replaced: Stream, run_id: str) -> list[str]:
    with leased(app, replaced, run_id) as lease, app.clusters:
        return give_up_unsent(app, lease)


def _other(situation: Situation, replaced: Stream, previous: int | None) -> Stream | None:
    """Return the generation that would take charge; None if there is none."""
    if situation.stream != replaced:
        return None if situation.ledger.is_dropped(situation.stream) else situation.stream
    streams = [stream for stream in situation.ledger.streams() if stream.pipeline == replaced.pipeline]
    candidates = [stream for stream in streams if stream != replaced and situation.ledger.head(stream).seq]
    earlier = [stream for stream in candidates if stream.generation == previous]
    return next(iter(earlier or candidates[-1:]), None)
