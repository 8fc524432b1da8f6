"""Compare the pipeline files with the streams of the ledger: edits, mistakes,
and generations without a file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tidegate.app.lease import leased
from tidegate.app.root import App, missing_of_head, stream_of
from tidegate.batch.publish import publish_decided
from tidegate.errors import (
    Halted,
    LeaseHeld,
    PipelineChanged,
    PipelineInvalid,
    PlanUnreadable,
    SettingsInvalid,
    StartOverRefused,
    TidegateError,
)
from tidegate.ledger import Head, LastPlanned, OffsetRange, Plan, Stream
from tidegate.ledger.planned import lacking_sinks, planned_pipeline
from tidegate.ledger.stream_condition import undecided_without_file
from tidegate.model.pipeline import Pipeline
from tidegate.sinks.port import Dataset
from tidegate.storage.compatibility import incompatible_changes, notable_changes
from tidegate.yaml.load import load_pipelines, stream_in_broken_file

logger = logging.getLogger(__name__)
_MOST_LINES = 60
_THE_SAME = (
    "The file is the same as then: what it means has changed with tidegate, its settings, or the other files."
)


def require_compatible(planned: Plan | None, pipeline: Pipeline) -> None:
    """Raise PipelineChanged when the head's batch was planned with a pipeline that this one cannot follow.

    What is compared are the compiled forms, so defaults that have changed with tidegate count as edits.

    Args:
        planned: the head's plan, see `head_plan`.
        pipeline: the pipeline file as it is now.
    """
    if planned is None:
        return
    before = planned_pipeline(planned)
    changes = incompatible_changes(before, pipeline)
    if changes:
        raise PipelineChanged(
            f"The state of {planned.stream} after batch {planned.seq} does not fit the edited pipeline file: "
            + "; ".join(map(str, changes)),
            "Undo the edit; or make it in another generation, which computes what it changes: `tidegate "
            f"generation new {planned.stream.pipeline} --from-batch {planned.seq}`; or, to begin anew and "
            "send all of it again, raise `generation` in the file, with `start_over: true`. Nothing was "
            "planned.",
        )
    for sentence in notable_changes(before, pipeline):
        logger.warning("%s: %s", planned.stream, sentence)


def head_plan(app: App, head: Head) -> Plan | None:
    """Return the plan of the head's batch; None before the first. Raises the error of `missing_of_head`."""
    if head.seq == 0:
        return None
    plan = app.ledger.plan(head.stream, head.seq)
    if plan is None:
        raise missing_of_head(app.ledger, head.stream, head.seq, "plan")
    return plan


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
    """Check that a batch does not send again what another stream has sent. Raises StartOverRefused.

    Args:
        app: the ledger and sinks.
        pipeline: the pipeline of the batch.
        head: the stream's head before it.
        plan: the batch, not in the ledger yet.
    """
    repetitions = list(_repetitions(app, pipeline, head, plan))
    if not repetitions:
        return
    name = plan.stream.pipeline
    raise StartOverRefused(
        f"{plan.stream} would begin at offsets from which on the same was sent already: "
        + "; ".join(map(str, repetitions)),
        "To send all of that again: `start_over: true` in the pipeline file, or once `tidegate run "
        f"{name} --from-start`, or `from_start` in the form that triggers its DAG. To change the pipeline "
        "without that: undo the edit of its name or generation, and make a generation beside the one that "
        f"has sent it: tidegate generation new {repetitions[0].sender.pipeline}.",
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
    new = [part for part in plan.ranges if part.place not in head.offsets]
    parts = plan.ranges if sender.pipeline == plan.stream.pipeline else new
    if not any(part.span for part in parts):
        return ()
    read = _overlap(app.ledger.head(sender), plan, parts)
    # What this stream never read is a repetition in any case; the rest only if the other went on later.
    if not read or set(read) & set(_overlap(app.ledger.head(sender), plan, new)):
        return read
    return read if _has_gone_on(app, sender, plan.stream) else ()


def _overlap(sent: Head, plan: Plan, parts: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return what lies between the starts of some ranges and a head, in topics that are still the same."""
    ends = {
        part.place: sent.offsets.get(part.place, 0)
        for part in parts
        if sent.topic_ids.get(part.topic) == plan.topic_ids.get(part.topic)
    }
    return tuple(
        OffsetRange(part.topic, part.partition, part.start, ends[part.place])
        for part in parts
        if part.span and part.start < ends.get(part.place, 0)
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


def streams_without_file(app: App) -> list[Stream]:
    """Return the streams of the ledger that no pipeline file has, of all pipelines."""
    return [stream for stream, file in _streams_without_pipeline(app) if file is None]


def streams_of_broken_files(app: App) -> list[tuple[Stream, str]]:
    """Return the streams of the ledger whose pipeline file has a mistake now, each with the file."""
    return [(stream, file) for stream, file in _streams_without_pipeline(app) if file is not None]


def _streams_without_pipeline(app: App) -> Iterator[tuple[Stream, str | None]]:
    """Yield the streams that no usable file has, each with the broken file that names it, or None."""
    pipelines, errors = load_pipelines(app.settings.pipelines)
    owned = set(map(stream_of, pipelines.values()))
    named = {file: stream_in_broken_file(file) for file in (error.problems[0].file for error in errors)}
    for stream in app.ledger.streams():
        if stream not in owned:
            # A broken file may not show its generation; then it counts as the file of any of them.
            names = ((stream.pipeline, stream.generation), (stream.pipeline, None))
            yield stream, next((file for file, name in named.items() if name in names), None)


def orphaned_streams(app: App, pipeline: Pipeline) -> list[Stream]:
    """Return the pipeline's other generations that have unfinished work and no pipeline file.

    A generation that has a file has a DAG of its own, and is never touched, also while its file has a
    mistake. The files are read only if there is such a batch.
    """
    own = stream_of(pipeline)
    siblings = [
        stream for stream in app.ledger.streams() if stream.pipeline == own.pipeline and stream != own
    ]
    open_streams = [stream for stream in siblings if _has_open_batch(app, stream)]
    if not open_streams:
        return []
    without_file = streams_without_file(app)
    return [stream for stream in open_streams if stream in without_file]


def finish_orphaned_streams(app: App, pipeline: Pipeline, run_id: str) -> None:
    """Publish what the pipeline's other generations have decided, if they have no file; name what stays.

    Whatever keeps it from being published is logged, and noted for `doctor`: it holds up no new generation.
    A stream that somebody else works on is left to them.
    """
    for stream in orphaned_streams(app, pipeline):
        try:
            with leased(app, stream, run_id) as lease:
                publish_decided(app, lease)
                lease.release()
        except LeaseHeld as error:
            logger.info("Another generation has a batch that is not through. %s", error)
        except TidegateError as error:
            logger.warning("What %s has decided cannot be published: %s", stream, error)
        else:
            open_plan = app.ledger.open_plan(stream)
            if open_plan is not None:
                logger.warning("%s: %s", stream, undecided_without_file(stream, open_plan.seq).text)


def _has_open_batch(app: App, stream: Stream) -> bool:
    head = app.ledger.head(stream)
    try:
        if app.ledger.plan(stream, head.seq + 1) is not None:
            return True
        decided = app.ledger.plan(stream, head.seq) if head.seq else None
        return decided is not None and bool(lacking_sinks(app.ledger, decided))
    except (Halted, PlanUnreadable):
        return True  # its pipeline is lost; who tries to publish it says so


def explain_broken_file(app: App, error: PipelineInvalid) -> str:
    """Return the mistakes, the last batch that was planned with a valid text, and the lines that differ
    since.

    Only the texts of the file and of the ledger are quoted.
    """
    file = error.problems[0].file
    stream = broken_stream(app, error)
    last = app.ledger.last_planned(stream) if stream is not None else None
    if last is None:
        return f"{error}\nThe ledger has no batch that was planned with this file."
    return "\n".join([str(error), *_last_good(last), *_changed_lines(Path(file), last)])


def broken_stream(app: App, error: PipelineInvalid) -> Stream | None:
    """Return the stream of a file with mistakes; of several generations the newest that the ledger has."""
    named = stream_in_broken_file(error.problems[0].file)
    if named is None:
        return None
    pipeline, generation = named
    if generation is not None:
        return Stream(pipeline, generation)
    generations = [stream.generation for stream in app.ledger.streams() if stream.pipeline == pipeline]
    return Stream(pipeline, max(generations)) if generations else None


def _last_good(last: LastPlanned) -> Iterator[str]:
    at = datetime.fromtimestamp(last.planned_at, timezone.utc).isoformat(sep=" ", timespec="seconds")
    yield f"The last good text was used for batch {last.seq}, planned at {at} by the run {last.run_id}."
    yield f"When the file is corrected, the next run goes on after batch {last.seq}."


def _changed_lines(file: Path, last: LastPlanned) -> Iterator[str]:
    now = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    lines = unified_diff(
        last.text.splitlines(), now.splitlines(), f"batch {last.seq}", str(file), lineterm="", n=1
    )
    difference = list(islice(lines, _MOST_LINES))
    yield from ["What is different since:", *difference] if difference else [_THE_SAME]
