"""Examine whether streams can continue, and which command helps if not: the part of `doctor` on pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from tidegate.app.lease import check_owner
from tidegate.app.root import App, batch_named, state_named, stream_of
from tidegate.batch import (
    Trigger,
    check_progress,
    check_source,
    check_still_there,
    draft,
    new_topics,
    old_record_warnings,
    require_compatible,
    stalled_transactions,
)
from tidegate.errors import LakeDamaged, TidegateError, TopicMissing, Transient
from tidegate.inspect.streams import CatalogEntry, Tried, stream_condition
from tidegate.ledger import EXPIRING, Head, LedgerReader, ManifestRef, Plan, Stream
from tidegate.ledger.stream_condition import ConditionKind, StreamCondition, Urgency
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import with_digests
from tidegate.numerals import counted
from tidegate.storage.datafile import verify
from tidegate.storage.manifest import DataFile, Kind, Manifest


class FindingState(Enum):
    """The outcome of a finding."""

    OK = "ok"
    WAIT = "wait"
    """Not wrong, but not finished."""
    RETRY = "retry"
    """The last try failed, and a retry can help."""
    WRONG = "WRONG"
    """It stays wrong until somebody acts."""


_STATES = {
    Urgency.NONE: FindingState.OK,
    Urgency.WATCH: FindingState.WAIT,
    Urgency.RETRY: FindingState.RETRY,
    Urgency.ACT: FindingState.WRONG,
}


@dataclass(frozen=True)
class Finding:
    """A thing that was examined, its outcome, and a text with the command that helps."""

    check: str
    state: FindingState
    text: str


def check(name: str, examine: Callable[[], str]) -> Finding:
    """Return the finding of `examine`, which returns a text; if it raises a TidegateError, the finding is
    wrong.

    Example: `check("ledger", lambda: "schema 12")` is an OK finding with that text.
    """
    try:
        return Finding(name, FindingState.OK, examine())
    except TidegateError as error:
        return Finding(name, FindingState.WRONG, error_text(error))


def error_text(error: TidegateError) -> str:
    """Return an error's class and message.

    Example: the text of a TopicMissing begins with `TopicMissing: `.
    """
    return f"{type(error).__name__}: {error}"


def examine_pipeline(app: App, name: str, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield findings on a pipeline's file, source, sinks and condition. Asks Kafka and the sinks, and
    writes nothing.

    Args:
        app: The app, with the connections of the pipeline.
        name: The name of the file, without `.yaml`.
        pipeline: The pipeline of the file.
    """
    stream, title = stream_of(pipeline), f"pipeline {name}"
    errors: list[TidegateError] = []
    try:
        check_owner(app, stream)
        errors = sink_errors(app, pipeline)
        if errors:
            raise errors[0]
        text, next_plan = _dry_run(app, pipeline)
    except TidegateError as error:
        # before the first batch, a missing topic is only one that has not been created yet
        if isinstance(error, TopicMissing) and _is_unplanned(app, stream):
            yield Finding(title, FindingState.WAIT, f"{ConditionKind.NOT_STARTED.label}: {error}")
        else:
            yield from _failing_pipeline(app, stream, name, error)
        yield from _more_sinks(name, errors)
        return
    # the dry run has just succeeded, so an older recorded failure of `plan` is not shown
    condition = stream_condition(app, stream, next_plan.span, Tried())
    yield from _of_stream(title, name, condition, text)
    if app.ledger.head(stream).seq:
        yield check(f"sinks of {name}", partial(_sinks, app, stream))
    for warning in stalled_transactions(app, pipeline):
        yield Finding(f"source of {name}", FindingState.WAIT, warning)
    for warning in old_record_warnings(app, stream, pipeline, next_plan.ranges, clock_ms=None):
        yield Finding(f"sinks of {name}", FindingState.WAIT, warning)
    for warning in sink_warnings(app, pipeline):
        yield Finding(f"sinks of {name}", FindingState.WAIT, warning)


def examine_orphan(app: App, stream: Stream) -> Iterator[Finding]:
    """Yield findings on a generation that only the ledger has: it has no DAG, and no other command shows
    it.
    """
    text = f"batch {app.ledger.head(stream).seq} is the last, and no pipeline file has it any more"
    yield from _without_pipeline(app, stream, text)


def examine_broken(app: App, stream: Stream, file: str) -> Iterator[Finding]:
    """Yield findings on a generation whose own file has a mistake."""
    head = app.ledger.head(stream).seq
    text = f"batch {head} is the last, and its file {file} has a mistake: it continues when that is corrected"
    yield from _without_pipeline(app, stream, text)


def examine_files(app: App, stream: Stream) -> Iterator[Finding]:
    """Yield findings on each byte of the files that a stream's next batches need."""
    name = f"files of {stream.pipeline}, generation {stream.generation}"
    try:
        number, damaged = damaged_files(app, stream)
    except TidegateError as error:
        yield Finding(name, FindingState.WRONG, error_text(error))
        return
    for damage in damaged:
        yield Finding(name, FindingState.WRONG, error_text(damage))
    if not damaged:
        yield Finding(name, FindingState.OK, f"{counted(number, 'file')} read, each as it was written")


def examine_progress_topics(app: App, pipelines: Iterable[Pipeline]) -> Iterator[Finding]:
    """Yield findings on the topics of progress records: each cluster with a sink has one.

    Yields nothing if all topics are well, or no broker is set.
    """
    sinks = [sink for pipeline in pipelines for sink in pipeline.outputs]
    for cluster in sorted({cluster for sink in sinks for cluster in sink.connections}, key=str):
        if cluster.kind == "kafka" and app.settings.has(cluster):
            yield from _progress_topic(app, cluster.name)


def _progress_topic(app: App, connection: str | None) -> Iterator[Finding]:
    title = f"progress topic of {connection}" if connection else "progress topic"
    try:
        with app.log(connection) as log:
            shortcomings = log.progress_topic_shortcomings()
    except TidegateError as error:
        yield Finding(title, FindingState.WRONG, error_text(error))
        return
    for shortcoming in shortcomings:
        yield Finding(title, FindingState.WAIT, shortcoming)


def _failing_pipeline(app: App, stream: Stream, name: str, error: TidegateError) -> Iterator[Finding]:
    """Yield findings on a pipeline whose next plan would fail now."""
    condition = stream_condition(app, stream, tried=Tried(error))
    yield Finding(f"pipeline {name}", FindingState.WRONG, f"{condition.condition.label}: {error_text(error)}")
    yield from _causes(name, condition, but=type(error).__name__)


def _is_unplanned(app: App, stream: Stream) -> bool:
    return app.ledger.head(stream).seq == 0 and app.ledger.open_plan(stream) is None


def _more_sinks(name: str, errors: Sequence[TidegateError]) -> Iterator[Finding]:
    """Yield a finding for each error of sinks but the first, which is that of the pipeline."""
    # sinks of one connection have the same error
    for text in list(dict.fromkeys(map(error_text, errors)))[1:]:
        yield Finding(f"sinks of {name}", FindingState.WRONG, text)


def _without_pipeline(app: App, stream: Stream, text: str) -> Iterator[Finding]:
    name = f"{stream.pipeline}, generation {stream.generation}"
    try:
        check_owner(app, stream)
    except TidegateError as error:
        yield from _failing_pipeline(app, stream, name, error)
        return
    yield from _of_stream(f"pipeline {name}", name, stream_condition(app, stream), text)


def _of_stream(title: str, name: str, condition: StreamCondition, text: str) -> Iterator[Finding]:
    yield Finding(title, _STATES[condition.condition.urgency], f"{condition.condition.label}: {text}")
    yield from _causes(name, condition, but="PipelineInvalid")


def _causes(name: str, condition: StreamCondition, but: str) -> Iterator[Finding]:
    """Yield the causes of a stream's condition, except the error `but`, which was already reported."""
    for cause in condition.causes:
        if cause.error != but:
            yield Finding(f"batches of {name}", _STATES[cause.condition.urgency], cause.text)


def _dry_run(app: App, pipeline: Pipeline) -> tuple[str, Plan]:
    """Return a sentence on a plan that was made without storing it, and the plan. Raises what would halt
    the next run.
    """
    head = app.ledger.head(stream_of(pipeline))
    waiting = app.ledger.open_plan(head.stream)
    has_read = waiting is not None and app.ledger.attempt(head.stream, waiting.seq) is not None
    # the open plan has read its records, so only what comes after it is planned here
    if waiting and has_read:
        check_source(app, waiting)
        require_compatible(waiting, with_digests(pipeline))
    before = _after(head, waiting) if waiting and has_read else head
    next_plan = draft(
        app,
        pipeline,
        before,
        # The draft is never stored, so its clock has no effect.
        Trigger("doctor", clock_ms=0),
    )
    if waiting and not has_read:
        # The open plan must still find the records that it names, since a retry uses it unchanged.
        check_still_there(app, waiting)
    planned = f"; batch {waiting.seq} is planned and not committed" if waiting else ""
    is_withheld = app.ledger.charge(head.stream.pipeline).withholds(head.stream.generation)
    withheld = "; it is not in charge: what it decides is withheld" if is_withheld else ""
    topics = ", ".join(new_topics(pipeline.sources, before, next_plan.ranges))
    added = f", new topics: {topics}" if topics else ""
    unread = counted(next_plan.span, "offset")
    return f"batch {head.seq} is the last, {unread} to read{added}{planned}{withheld}", next_plan


def _after(head: Head, plan: Plan) -> Head:
    """Return the head as it will be after an open plan that has already read its records."""
    return replace(
        head,
        offsets={**head.offsets, **plan.ends},
        topic_ids={**head.topic_ids, **plan.topic_ids},
        epochs=plan.epochs_after(head),
    )


def _sinks(app: App, stream: Stream) -> str:
    check_progress(app, stream)
    return "they know what was published to them"


def damaged_files(app: App, stream: Stream) -> tuple[int, list[LakeDamaged]]:
    """Read every byte that the next batch, and the publication of the last one, need.

    Return the number of files, and an error for each file or manifest that is missing, short or changed. The
    error says what needs the file.

    Raises LakeUnavailable, LedgerUnavailable.
    """
    head = app.ledger.head(stream).seq
    of_state = app.ledger.state_manifests(stream, head)
    attempts = _attempts(app.ledger, stream, head)
    readers = dict.fromkeys(of_state, state_named(stream, head))
    for seq, ref in attempts.items():
        # A manifest of both counts as the state's, which the next batch needs.
        readers.setdefault(ref, batch_named(stream, seq))
    damaged: list[LakeDamaged] = []
    files: dict[str, dict[str, DataFile]] = {}
    expired: dict[Kind, int] = {kind: app.ledger.expired(stream, kind).seq for kind in EXPIRING}
    for ref, manifest in _readable(app, stream, readers, damaged):
        # the state of the last batch, where it is read through a snapshot, may have been cleaned away
        state_reader = readers[ref] if ref in of_state or manifest.seq > head else None
        for file in manifest.without_expired(expired).files:
            reader = state_reader if file.kind == "state" else batch_named(stream, manifest.seq)
            if reader is not None:
                # By path: a snapshot can list files of the batches before it, too, and each is read once.
                files.setdefault(reader, {})[file.path] = file
    store = app.lake(stream).store
    for reader, by_path in files.items():
        damaged += [error.needed_by(reader) for error in verify(store, list(by_path.values()))]
    return len(readers) + sum(map(len, files.values())), damaged


def _attempts(ledger: LedgerReader, stream: Stream, head: int) -> dict[int, ManifestRef]:
    """Return the manifests of the last batch, and of the next one if it is already computed."""
    attempts = {seq: ledger.attempt(stream, seq) for seq in (head, head + 1) if seq}
    return {seq: attempt.manifest for seq, attempt in attempts.items() if attempt is not None}


def _readable(
    app: App, stream: Stream, readers: Mapping[ManifestRef, str], damaged: list[LakeDamaged]
) -> Iterator[tuple[ManifestRef, Manifest]]:
    for ref, reader in readers.items():
        try:
            yield ref, app.manifest(stream, ref)
        except LakeDamaged as error:
            # Continue with the others: a person restores all damaged files at once.
            damaged.append(error.needed_by(reader))


def sink_errors(app: App, pipeline: Pipeline) -> list[TidegateError]:
    """Return what prevents publishing the next batch: at most one error for each sink of a pipeline file.
    `OpenSink.check_settings` and `OpenSink.check_target` raise them.

    Targets are asked only if all settings are well, and none after an error that a retry can mend: each
    further sink might wait as long for the same server.
    """
    sinks = app.sinks(stream_of(pipeline), pipeline)
    return _errors(sink.check_settings for sink in sinks) or _errors(sink.check_target for sink in sinks)


def _errors(checks: Iterable[Callable[[], None]]) -> list[TidegateError]:
    """Return the errors of checks, up to the first one that a retry can mend."""
    errors: list[TidegateError] = []
    for check_ in checks:
        try:
            check_()
        except TidegateError as error:
            errors.append(error)
            if isinstance(error, Transient):
                break
    return errors


def sink_warnings(app: App, pipeline: Pipeline) -> list[str]:
    """Return a sentence for each problem that a batch may meet. Raises TopicMissing, BrokerUnavailable."""
    return [warning for sink in app.sinks(stream_of(pipeline), pipeline) for warning in sink.warnings()]


def examine_entry(app: App, entry: CatalogEntry) -> Iterator[Finding]:
    """Yield the findings about a pipeline file, its mistakes, and the generations that have no file any
    more.
    """
    if entry.pipeline is not None:
        yield from examine_pipeline(app, entry.name, entry.pipeline)
    for problem in entry.problems:
        yield Finding(problem.name, FindingState.WRONG, f"{problem.message}. {problem.fix}")
    for stream in entry.streams[0 if entry.pipeline is None and not entry.problems else 1 :]:
        yield from examine_orphan(app, stream)
