"""Whether a batch would send again what another stream has sent to the same place.

That happens where a pipeline is renamed, its file is replaced by that of another pipeline, or `generation` is
raised, or lowered again. Whoever wants it says so: `start_over: true`, `--from-start`,
or `from_start` in the form of Airflow's trigger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from tidegate.app.root import App
from tidegate.batch.generations import streams_without_file
from tidegate.errors import SettingsInvalid, StartOverRefused
from tidegate.ledger import Head, OffsetRange, Plan, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.sinks.dataset import Dataset
from tidegate.spec import Pipeline


class Repetition(NamedTuple):
    """The records that another stream has read and sent to `target`, from the offset on at which this one
    would begin.
    """

    sender: Stream
    target: Dataset
    ranges: tuple[OffsetRange, ...]

    def __str__(self) -> str:
        read = ", ".join(
            f"{part.topic}[{part.partition}] {part.start}-{part.end - 1}" for part in self.ranges
        )
        return f"{self.sender} has sent to {self.target.namespace}/{self.target.name} what came of {read}"


def require_start_over(app: App, pipeline: Pipeline, head: Head, plan: Plan) -> None:
    """Raise StartOverRefused if a batch would send again what another stream has sent."""
    repetitions = list(_repetitions(app, pipeline, head, plan))
    if not repetitions:
        return
    name = plan.stream.pipeline
    raise StartOverRefused(
        f"{plan.stream} would begin at offsets from which on the same was sent already: "
        + "; ".join(map(str, repetitions)),
        "To send all of that again: `start_over: true` in the pipeline file, or once `tidegate run "
        f"{name} --from-start`, or `from_start` in the form that triggers its DAG. To change the pipeline "
        "without that: undo the edit of its name or generation, and make a generation beside this one: "
        "tidegate generation new.",
    )


def _repetitions(app: App, pipeline: Pipeline, head: Head, plan: Plan) -> Iterator[Repetition]:
    if not plan.span or app.ledger.charge(plan.stream.pipeline).promotions:
        return  # a promotion has decided what goes out
    targets = _targets(app, plan.stream, pipeline)
    for sender in app.ledger.streams():
        ranges = _read_by(app, sender, head, plan) if sender != plan.stream else ()
        if ranges:
            yield from (
                Repetition(sender, target, ranges)
                for target in _published_targets(app, sender)
                if target in targets
            )


def _read_by(app: App, sender: Stream, head: Head, plan: Plan) -> tuple[OffsetRange, ...]:
    """Return what `sender` has read from the starts of the plan's ranges on, where these begin anew.

    A range begins anew in a partition that the stream has not read yet, and in any partition if another
    generation, which has no file any more, has gone on after this one.
    """
    new = [part for part in plan.ranges if (part.topic, part.partition) not in head.offsets]
    parts = plan.ranges if sender.pipeline == plan.stream.pipeline else new
    if not any(part.span for part in parts):
        return ()
    read = _overlap(app.ledger.head(sender), plan, parts)
    if not read or set(read) & set(_overlap(app.ledger.head(sender), plan, new)):
        return read
    return read if _has_gone_on(app, sender, plan.stream) else ()


def _overlap(sent: Head, plan: Plan, parts: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return what lies between the starts of some ranges and a head, in topics that are still the same."""
    ends = {
        (part.topic, part.partition): sent.offsets.get((part.topic, part.partition), 0)
        for part in parts
        if sent.topic_ids.get(part.topic) == plan.topic_ids.get(part.topic)
    }
    return tuple(
        OffsetRange(part.topic, part.partition, part.start, ends[part.topic, part.partition])
        for part in parts
        if part.span and part.start < ends.get((part.topic, part.partition), 0)
    )


def _has_gone_on(app: App, sender: Stream, stream: Stream) -> bool:
    """Return whether another generation has committed since this one has, and has no file any more."""
    if sender not in streams_without_file(app):
        return False
    theirs, ours = app.ledger.stream_statuses([sender, stream])
    return (theirs.committed_at or 0) > (ours.committed_at or 0)


def _published_targets(app: App, sender: Stream) -> set[Dataset]:
    """Return where a stream has sent emissions to, by its newest plan."""
    seq = app.ledger.head(sender).seq
    plan = app.ledger.plan(sender, seq) if seq else None
    return set() if plan is None else _targets(app, sender, planned_pipeline(plan), only_published=True)


def _targets(app: App, stream: Stream, pipeline: Pipeline, only_published: bool = False) -> set[Dataset]:
    targets = set()
    for sink in app.sinks(stream, pipeline):
        if sink.gets_emissions and not (only_published and not app.ledger.last_published(stream, sink.name)):
            with suppress(SettingsInvalid):  # where its connection is unknown here, it is another place
                targets.add(sink.dataset)
    return targets
