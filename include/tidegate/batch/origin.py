"""A generation that begins with another's state: as of a batch of it, at the offsets where that ended.

Its first batch has that state, folded into files of its own, reads nothing and emits nothing. From then on
the two have nothing in common: what was the origin's may be compacted, cleaned or dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tidegate.app.damage import needed_by, state_named
from tidegate.app.lease import leased
from tidegate.app.manifests import state_after
from tidegate.app.root import App, missing_of_head, stream_of
from tidegate.batch.net import running_counts
from tidegate.batch.ranges import standing_still
from tidegate.batch.suites import pinned
from tidegate.errors import Halted, PipelineChanged
from tidegate.lake import DataFile, attempt_name
from tidegate.lake.compaction import FoldRule, fold, of_batch
from tidegate.lake.manifest import manifest_of
from tidegate.ledger import Attempt, Head, LeasedLedger, Plan, Stream
from tidegate.ledger.planned import planned_pipeline, planned_pipelines
from tidegate.spec import Pipeline, compile_pipeline, incompatible_changes
from tidegate.spec.kernel import state_stages

FIRST = 1
"""The batch that has the state."""


def begin_from(app: App, pipeline: Pipeline, origin: Stream, seq: int, run_id: str) -> None:
    """Let a pipeline file's generation, which has no batch yet, begin with a state: that of `origin` after
    batch `seq`.

    Raises LeaseHeld, Fenced, Halted if it has a batch; StateGivenUp; PipelineChanged where the file
    does not fit that state; LakeDamaged, LakeUnavailable. Then it is empty still.
    """
    plan, last = app.ledger.plan(origin, seq), app.ledger.attempt(origin, seq)
    if plan is None or last is None:
        raise missing_of_head(app.ledger, origin, seq, "plan")
    pipeline = pinned(app, pipeline)
    _require_fitting(plan, pipeline)
    with leased(app, stream_of(pipeline), run_id) as lease:
        if lease.head(lease.stream).seq or lease.open_plan(lease.stream) is not None:
            raise Halted(
                f"{lease.stream} has begun already, so it cannot begin with a state",
                "Drop it, and make another generation: tidegate generation drop, tidegate generation new.",
            )
        first = _first_plan(lease, pipeline, _end_of(app, plan), plan, run_id)
        name = attempt_name(FIRST, lease.lease.epoch)
        files = list(_folded(app, origin, seq, lease.stream, name))
        manifest = app.write_manifest(lease.stream, manifest_of(name, FIRST, files))
        counts = running_counts(last)
        attempt = Attempt(lease.stream, FIRST, manifest, counts, validated=True, times=last.times)
        lease.begin_from((first, attempt), origin, seq)
        lease.release()


def _require_fitting(plan: Plan, pipeline: Pipeline) -> None:
    changes = incompatible_changes(planned_pipeline(plan), pipeline)
    if changes:
        raise PipelineChanged(
            f"The state of {plan.stream} after batch {plan.seq} does not fit the pipeline file of generation "
            f"{pipeline.generation}: " + "; ".join(map(str, changes)),
            "Undo the edit; or let the generation begin empty, and read the source from its start.",
        )


def _end_of(app: App, plan: Plan) -> Head:
    """The head as it was after a batch; the newest one may have been moved past a gap since."""
    head = app.ledger.head(plan.stream)
    if head.seq == plan.seq:
        return head
    epochs = plan.epochs_after(Head(plan.stream))
    return Head(plan.stream, plan.seq, plan.ends, plan.topic_ids, epochs, plan.clocks_after)


def _first_plan(lease: LeasedLedger, pipeline: Pipeline, end: Head, plan: Plan, run_id: str) -> Plan:
    return Plan(
        stream=lease.stream,
        seq=FIRST,
        run_id=run_id,
        clock_ms=plan.clock_ms,
        believed_until_ms=plan.believed_until_ms,
        ranges=standing_still(end, plan.cut_partitions),
        topic_ids=end.topic_ids,
        spec_text=pipeline.text,
        spec_compiled=compile_pipeline(pipeline),
        clocks=end.clocks_of(end.offsets),
    )


def _folded(app: App, origin: Stream, seq: int, stream: Stream, name: str) -> Iterator[DataFile]:
    """The state as files of the new generation, which say that it is of its first batch."""
    lake, store = app.lake(stream), app.lake(origin).store
    rules, first = state_stages(planned_pipelines(app.ledger, origin)), partial(of_batch, seq=FIRST)
    with needed_by(state_named(origin, seq)):
        for stage, files in state_after(app, origin, app.ledger.state_manifests(origin, seq)).items():
            folder = lake.files("state", stage, name)
            yield from fold(
                store, folder, files, FoldRule.for_stages(rules[stage]), is_whole=True, change=first
            )
