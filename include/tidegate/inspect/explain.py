"""Find the committed batches that an explanation needs, and the state that each started from: for a command,
and for a page, which decides one batch again. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from tidegate.app.root import App, OpenSession, batch_named, needed_by, read_manifests, state_after
from tidegate.batch.compute import left_before
from tidegate.batch.lookups import check_lookup_tables
from tidegate.batch.offsets import is_truncated, planned_epochs
from tidegate.errors import OffsetsLost, SettingsInvalid, StateGivenUp
from tidegate.inspect.overview import overviews
from tidegate.inspect.read import require_not_erased
from tidegate.ledger import OffsetRange, Plan, Stream
from tidegate.ledger.batches import oldest_readable
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import python_functions
from tidegate.model.stage import stage_named
from tidegate.model.trusted import require_trusted
from tidegate.storage.datafile import read_files
from tidegate.storage.manifest import Manifest
from tidegate.storage.state import read_key

if TYPE_CHECKING:
    from tidegate.spark.explain import TraceEvent


@dataclass(frozen=True)
class Explanation:
    """The actions of one batch on a key.

    Args:
        events: The events of the key's records, in order.
        changed: All batches that changed the key's state, the oldest first.
    """

    plan: Plan
    key: str
    events: tuple[TraceEvent, ...]
    changed: tuple[int, ...]

    def within(self, offsets: OffsetRange) -> Explanation:
        """Return the explanation without the events of records that are not at these offsets."""
        return replace(self, events=tuple(event for event in self.events if _is_at(offsets, event)))


def explain(
    app: App,
    stream: Stream,
    key: str,
    open_session: OpenSession,
    seq: int | None = None,
    offsets: OffsetRange | None = None,
    stage: str | None = None,
) -> list[Explanation]:
    """Explain what committed batches did with a key.

    Args:
        seq: Only this batch; None for the newest.
        offsets: The batches that read these offsets, instead of `seq`.
        stage: Only this stage; None for all.
        open_session: Number of records -> Spark session.

    Raises SettingsInvalid if the batch, offsets, stage or key does not exist; KeyErased; OffsetsLost if
    Kafka no longer has the records; and what `spark.explain` raises.
    """
    plans = _plans(app, stream, seq, offsets)
    # Kafka may still have the records: what came of them is not told again. The first plan is the oldest.
    require_not_erased(app, stream, plans[0].seq, key)
    # all checks first: starting Spark takes seconds
    for plan in plans:
        if stage is not None:
            stage_named(planned_pipeline(plan).stages, stage, f"Batch {plan.seq} of {plan.stream}")
        _require_records(app, plan)
    explanations = []
    for plan in plans:
        # Adds to an error of a damaged file which batch needs it.
        with needed_by(batch_named(stream, plan.seq)):
            explanation = _explained(app, plan, key, open_session, stage)
            explanations.append(explanation.within(offsets) if offsets is not None else explanation)
    if not any(explanation.events or explanation.changed for explanation in explanations):
        raise SettingsInvalid(
            f"{stream} knows nothing of the key {key!r}: no record of it came in, and it has no state",
            f"Write it as `tidegate state {stream.pipeline}` does{_example(app, stream, plans[-1])}, or name "
            "another batch.",
        )
    return explanations


def _plans(app: App, stream: Stream, seq: int | None, offsets: OffsetRange | None) -> list[Plan]:
    head = app.ledger.head(stream)
    if not head.seq:
        raise SettingsInvalid(f"{stream} has no committed batch", f"Run one: tidegate run {stream.pipeline}.")
    if offsets is not None:
        return _plans_of(app, stream, offsets)
    requested = head.seq if seq is None else seq
    plan = app.ledger.plan(stream, requested) if 0 < requested <= head.seq else None
    if plan is None and 0 < requested <= head.seq:
        raise _removed(stream, requested)
    if plan is None:
        raise SettingsInvalid(
            f"Batch {requested} of {stream} is not committed", f"Name one from 1 to {head.seq}."
        )
    return [plan]


def _plans_of(app: App, stream: Stream, offsets: OffsetRange) -> list[Plan]:
    """Return the plans of the batches that read some of the offsets, the oldest first."""
    head = app.ledger.head(stream)
    plans: list[Plan] = []
    covered: list[OffsetRange] = []
    # from the newest on, since offsets that people ask about are usually recent
    for seq in range(head.seq, 0, -1):
        plan = app.ledger.plan(stream, seq)
        if plan is None:
            if not plans:
                raise _removed(stream, seq)
            break
        ranges = [range_ for range_ in plan.ranges if range_.place == offsets.place]
        covered += ranges
        if any(range_.start < offsets.end and offsets.start < range_.end for range_ in ranges):
            # The search runs backwards; the result is the oldest first.
            plans.insert(0, plan)
        # Offsets only rise from batch to batch, so no earlier batch has read these.
        if any(range_.start <= offsets.start for range_ in ranges):
            break
    if not plans:
        raise SettingsInvalid(_outside(stream, offsets, covered), "Correct --offsets; see `tidegate status`.")
    return plans


def _removed(stream: Stream, seq: int) -> StateGivenUp:
    return StateGivenUp(
        f"Of batch {seq} of {stream}, and of those before it, the ledger keeps no more than that they were "
        "committed",
        "TIDEGATE_TIME_TRAVEL says for how many days batches can be explained. What they sent is still "
        f"there: tidegate emissions {stream.pipeline} --batch {seq}.",
    )


def _outside(stream: Stream, offsets: OffsetRange, covered: Sequence[OffsetRange]) -> str:
    place = f"{offsets.topic}[{offsets.partition}]"
    if not covered:
        return f"{stream} never read {place}"
    first, end = min(range_.start for range_ in covered), max(range_.end for range_ in covered)
    if offsets.start >= end:
        return (
            f"Offset {offsets.start} of {place} is in no committed batch: {stream} has read up to {end - 1}"
        )
    return (
        f"Offset {offsets.start} of {place} is in no committed batch: {stream} has read {first} to {end - 1}"
    )


def _require_records(app: App, plan: Plan) -> None:
    """Check that Kafka still has all records that the batch read, in the same topics. Raises OffsetsLost."""
    read = [range_ for range_ in plan.ranges if range_.span]
    with app.log(planned_pipeline(plan).sources.connection) as log:
        views = {topic: log.view(topic) for topic in {range_.topic for range_ in read}}
        epoch_ends = log.epoch_ends(planned_epochs(plan))
    for range_ in read:
        view = views[range_.topic]
        # A topic that was created again has other records at the same offsets.
        if plan.topic_ids.get(range_.topic) not in (None, view.topic_id):
            why = f"the topic {range_.topic} was deleted and created again"
        elif view.starts.get(range_.partition, range_.end) > range_.start:
            why = f"{range_.topic}[{range_.partition}] begins at offset {view.starts[range_.partition]} now"
        # After an unclean leader election a log may have lost records and grown over their offsets.
        elif is_truncated(range_, epoch_ends):
            why = f"{range_.topic}[{range_.partition}] was truncated, and has grown again"
        else:
            continue
        raise OffsetsLost(
            f"Kafka no longer has the records of batch {plan.seq} ({range_.topic}[{range_.partition}] "
            f"offsets {range_.start} to {range_.end - 1}): {why}",
            f"What it decided is still there: tidegate emissions {plan.stream.pipeline} --batch {plan.seq}, "
            f"tidegate state {plan.stream.pipeline} --as-of {plan.seq}.",
        )


def _explained(app: App, plan: Plan, key: str, open_session: OpenSession, stage: str | None) -> Explanation:
    from tidegate.spark.computation import PlannedBatch
    from tidegate.spark.explain import explain_batch

    pipeline = planned_pipeline(plan)
    # Explaining runs the user's functions, as computing the batch does.
    require_trusted(python_functions(pipeline))
    check_lookup_tables(plan)
    session, records = open_session(plan.most_records), app.records(plan, pipeline)
    batch = PlannedBatch(plan, pipeline, app.lake(plan.stream), left_before(app, app.ledger, plan))
    attempt = app.ledger.attempt(plan.stream, plan.seq)
    # one stage may need some of the sources only
    counted = attempt.stage_counts("").get("read", 0) if attempt is not None and stage is None else 0
    events = explain_batch(session, batch, records, stage, key, counted)
    return Explanation(plan, key, tuple(events), _changed(app, pipeline, plan.stream, stage, key))


def _is_at(offsets: OffsetRange, event: TraceEvent) -> bool:
    *place, offset = event.source
    return tuple(place) == offsets.place and offsets.start <= offset < offsets.end


def _changed(app: App, pipeline: Pipeline, stream: Stream, stage: str | None, key: str) -> tuple[int, ...]:
    """Return the batches that changed the key's state in one stage, or in any.

    These are all batches whose changelogs still exist, and the last one before them.
    """
    manifests, store, seqs = _readable_manifests(app, stream), app.lake(stream).store, set[int]()
    for spec_stage in pipeline.stages:
        is_bounded = kernel_stage(pipeline, spec_stage).bound is not None
        for manifest in manifests if stage in (None, spec_stage.name) else ():
            files = manifest.files_of("state", spec_stage.name)
            if files:
                # State files are sorted by hash: one row group per file is read, except of a bounded stage.
                seqs.update(read_key(store, files, key, is_bounded)["updated_seq"].to_pylist())
    return tuple(sorted(seqs))


def _readable_manifests(app: App, stream: Stream) -> list[Manifest]:
    """Return the manifests of the oldest state that can be read, and of the changelogs since."""
    oldest = oldest_readable(app.ledger.snapshots(stream))
    # Its snapshot stands for all changelogs before it, which may have been removed.
    base = app.ledger.state_manifests(stream, oldest) if oldest else []
    return read_manifests(
        app, stream, [*base, *(manifest for _, manifest in app.ledger.committed(stream, oldest))]
    )


def _example(app: App, stream: Stream, plan: Plan) -> str:
    """Return an existing key, to show how keys are written."""
    state = state_after(app, stream, app.ledger.state_manifests(stream))
    for stage in planned_pipeline(plan).stages:
        for file in state.get(stage.name, ())[:1]:
            rows = read_files(app.lake(stream).store, [file], ["key"])
            return f" (such as {rows['key'][0].as_py()})"
    return ""


MOST_RECORDS = 200_000
"""The most records of a batch that is decided again for a page."""
_SPARK = Lock()
"""Pages share one session, which decides one batch at a time."""


def key_records(
    app: App, stream: Stream, key: str, seq: int, open_session: OpenSession
) -> Sequence[TraceEvent]:
    """Return the events of a key in a committed batch, which is decided again from Kafka's records.

    Raises SettingsInvalid if the batch is too large, or has nothing of the key; BrokerUnavailable if Kafka
    does not answer within two seconds; and the errors of `explain`.
    """
    plan = app.ledger.plan(stream, seq)
    if plan is not None and plan.most_records > MOST_RECORDS:
        raise SettingsInvalid(
            f"Batch {seq} has read {plan.most_records:,} offsets, and a page reads at most {MOST_RECORDS:,}",
            f"Run tidegate explain {stream.pipeline} '{key}' --batch {seq}.",
        )
    # A client would wait a minute for a broker that does not answer.
    _, lags = overviews(app, [stream])
    if lags.error is not None:
        raise lags.error
    with _SPARK:
        (explanation,) = explain(app, stream, key, open_session, seq)
    return explanation.events
