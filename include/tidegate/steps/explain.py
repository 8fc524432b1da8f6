"""Which committed batches an explanation is about, and what each of them started from. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tidegate.errors import OffsetsLost, SettingsInvalid, StateGivenUp
from tidegate.lake import read_attempts
from tidegate.ledger import OffsetRange, Plan, Stream
from tidegate.spec import Pipeline, python_functions, require_trusted
from tidegate.steps.app import App, planned_pipeline
from tidegate.steps.identity import is_truncated, planned_epochs
from tidegate.steps.lookups import check_lookup_tables, read_through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.engine import Before
    from tidegate.engine.explain import Told


@dataclass(frozen=True)
class Explanation:
    """What one batch did with a key; `changed` are the batches that changed its state, oldest first."""

    plan: Plan
    key: str
    told: tuple[Told, ...]
    changed: tuple[int, ...]


def explain(
    app: App,
    stream: Stream,
    key: str,
    open_session: Callable[[], SparkSession],
    seq: int | None = None,
    offsets: OffsetRange | None = None,
    stage: str | None = None,
) -> list[Explanation]:
    """What committed batches did with a key: batch `seq`, or those that read `offsets`, or the newest.

    Raises SettingsInvalid for a batch, offsets, a stage or a key that there is not, OffsetsLost when Kafka no
    longer has the records, and what `engine.explain` raises.
    """
    plans = _plans(app, stream, seq, offsets)
    for plan in plans:
        _require_stage(planned_pipeline(plan), plan, stage)
        _require_records(app, plan)
    found = [_explained(app, plan, key, open_session, offsets, stage) for plan in plans]
    if not any(each.told or each.changed for each in found):
        raise SettingsInvalid(
            f"{stream} knows nothing of the key {key!r}: no record of it came in, and it has no state",
            f"Write it as `tidegate state {stream.pipeline}` does{_example(app, stream, plans[-1])}, or name "
            "another batch.",
        )
    return found


def _plans(app: App, stream: Stream, seq: int | None, offsets: OffsetRange | None) -> list[Plan]:
    head = app.ledger.head(stream)
    if not head.seq:
        raise SettingsInvalid(f"{stream} has no committed batch", f"Run one: tidegate run {stream.pipeline}.")
    if offsets is not None:
        return _plans_of(app, stream, offsets)
    wanted = head.seq if seq is None else seq
    plan = app.ledger.plan(stream, wanted) if 0 < wanted <= head.seq else None
    if plan is None and 0 < wanted <= head.seq:
        raise _removed(stream, wanted)
    if plan is None:
        raise SettingsInvalid(
            f"Batch {wanted} of {stream} is not committed", f"Name one from 1 to {head.seq}."
        )
    return [plan]


def _plans_of(app: App, stream: Stream, offsets: OffsetRange) -> list[Plan]:
    """The batches that read some of the offsets, oldest first. Looks through the plans, newest first."""
    head = app.ledger.head(stream)
    found: list[Plan] = []
    covered: list[OffsetRange] = []
    for seq in range(head.seq, 0, -1):
        plan = app.ledger.plan(stream, seq)
        if plan is None:
            if not found:
                raise _removed(stream, seq)
            break
        mine = [each for each in plan.ranges if _same_place(each, offsets)]
        covered += mine
        if any(each.start < offsets.end and offsets.start < each.end for each in mine):
            found.insert(0, plan)
        if any(each.start <= offsets.start for each in mine):
            break
    if not found:
        raise SettingsInvalid(_outside(stream, offsets, covered), "Correct --offsets; see `tidegate status`.")
    return found


def _removed(stream: Stream, seq: int) -> StateGivenUp:
    return StateGivenUp(
        f"Of batch {seq} of {stream}, and of those before it, the ledger keeps no more than that they were "
        "committed",
        "TIDEGATE_TIME_TRAVEL says for how many days batches can be explained. What they sent is still "
        f"there: tidegate emissions {stream.pipeline} --batch {seq}.",
    )


def _same_place(one: OffsetRange, other: OffsetRange) -> bool:
    return (one.topic, one.partition) == (other.topic, other.partition)


def _outside(stream: Stream, offsets: OffsetRange, covered: Sequence[OffsetRange]) -> str:
    place = f"{offsets.topic}[{offsets.partition}]"
    if not covered:
        return f"{stream} never read {place}"
    first, end = min(each.start for each in covered), max(each.end for each in covered)
    if offsets.start >= end:
        return (
            f"Offset {offsets.start} of {place} is in no committed batch: {stream} has read up to {end - 1}"
        )
    return (
        f"Offset {offsets.start} of {place} is in no committed batch: {stream} has read {first} to {end - 1}"
    )


def _require_stage(pipeline: Pipeline, plan: Plan, stage: str | None) -> None:
    names = [each.name for each in pipeline.stages]
    if stage is not None and stage not in names:
        raise SettingsInvalid(
            f"Batch {plan.seq} of {plan.stream} has no stage {stage}", f"Its stages are: {', '.join(names)}."
        )


def _require_records(app: App, plan: Plan) -> None:
    """All records that the batch read must still be there, in the same topics. Raises OffsetsLost."""
    read = [each for each in plan.ranges if each.span]
    with app.log() as log:
        views = {topic: log.view(topic) for topic in {each.topic for each in read}}
        epoch_ends = log.epoch_ends(planned_epochs(plan))
    for each in read:
        view = views[each.topic]
        if plan.topic_ids.get(each.topic) not in (None, view.topic_id):
            why = f"the topic {each.topic} was deleted and created again"
        elif view.starts.get(each.partition, each.end) > each.start:
            why = f"{each.topic}[{each.partition}] begins at offset {view.starts[each.partition]} now"
        elif is_truncated(each, epoch_ends):
            why = f"{each.topic}[{each.partition}] was truncated, and has grown again"
        else:
            continue
        raise OffsetsLost(
            f"Kafka no longer has the records of batch {plan.seq} ({each.topic}[{each.partition}] offsets "
            f"{each.start} to {each.end - 1}): {why}",
            f"What it decided is still there: tidegate emissions {plan.stream.pipeline} --batch {plan.seq}, "
            f"tidegate state {plan.stream.pipeline} --as-of {plan.seq}.",
        )


def _explained(
    app: App,
    plan: Plan,
    key: str,
    open_session: Callable[[], SparkSession],
    offsets: OffsetRange | None,
    stage: str | None,
) -> Explanation:
    from tidegate.engine.explain import explain_batch

    pipeline = planned_pipeline(plan)
    require_trusted(python_functions(pipeline))
    check_lookup_tables(plan)
    told = explain_batch(
        open_session(),
        plan,
        pipeline,
        app.settings.require_kafka(),
        app.lake(plan.stream),
        _before(app, plan),
        stage,
        key,
    )
    inside = [each for each in told if offsets is None or _within(offsets, each)]
    return Explanation(plan, key, tuple(inside), _changed(app, pipeline, plan.stream, stage, key))


def _within(offsets: OffsetRange, told: Told) -> bool:
    topic, partition, offset = told.source
    return (topic, partition) == (offsets.topic, offsets.partition) and offsets.start <= offset < offsets.end


def _before(app: App, plan: Plan) -> Before:
    """What the batches before it had left."""
    from tidegate import engine

    ledger, stream = app.ledger, plan.stream
    last = ledger.attempt(stream, plan.seq - 1) if plan.seq > 1 else None
    return engine.Before(
        attempts=ledger.state_attempts(stream, plan.seq - 1),
        times=last.times if last is not None else {},
        counts=last.counts if last is not None else {},
        lookups=read_through(ledger, plan),
    )


def _changed(app: App, pipeline: Pipeline, stream: Stream, stage: str | None, key: str) -> tuple[int, ...]:
    """The batches that changed the key's state, in one stage or in any: all whose changelogs are kept, and of
    those before them the last."""
    changelogs = [name for _, name in app.ledger.committed(stream)]
    attempts = [*changelogs, *app.ledger.state_attempts(stream)]
    names = [stage] if stage is not None else [each.name for each in pipeline.stages]
    found: set[int] = set()
    for name in names:
        rows = read_attempts(app.lake(stream).state(name), attempts, ["key", "updated_seq"])
        if rows is not None:
            found.update(rows.filter(pc.equal(rows["key"], key))["updated_seq"].to_pylist())
    return tuple(sorted(found))


def _example(app: App, stream: Stream, plan: Plan) -> str:
    """A key that there is, to show how keys are written."""
    for stage in planned_pipeline(plan).stages:
        attempts = app.ledger.state_attempts(stream)
        rows = read_attempts(app.lake(stream).state(stage.name), attempts, ["key"])
        if rows is not None and rows.num_rows:
            return f" (such as {rows['key'][0].as_py()})"
    return ""
