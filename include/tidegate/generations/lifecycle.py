"""Begin a generation, empty or with the state of another one, and drop it for good."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

from tidegate.app.lease import leased, mark_dropped
from tidegate.app.root import App, missing_of_head, needed_by, state_after, state_named, stream_of
from tidegate.app.tables import drop_tables
from tidegate.batch.offsets import standing_still
from tidegate.batch.pipeline_files import head_plan, streams_without_file
from tidegate.batch.still_batch import running_counts
from tidegate.batch.suites import pinned
from tidegate.errors import Halted, PipelineChanged, SettingsInvalid
from tidegate.failpoints import failpoint
from tidegate.ledger import Attempt, Head, LeasedLedger, LedgerReader, Plan, Stream
from tidegate.ledger.erasure import require_no_erasure
from tidegate.ledger.planned import lacking_sinks, planned_pipeline, planned_pipelines
from tidegate.model.compiled import compile_pipeline
from tidegate.model.kernel_stages import state_stages
from tidegate.model.pipeline import Pipeline
from tidegate.storage import DataFile, attempt_name
from tidegate.storage.compaction import FoldRule, fold, of_batch
from tidegate.storage.compatibility import incompatible_changes
from tidegate.storage.manifest import manifest_of
from tidegate.storage.store import Listed

logger = logging.getLogger(__name__)
FIRST = 1
"""The batch that has the state."""


def open_generation(app: App, pipeline: Pipeline) -> int:
    """Make the generation of a pipeline file beside the one in charge, which is returned. It begins empty.

    From the first time on that this is done for a pipeline, only its generation in charge publishes. Raises
    SettingsInvalid where there is no generation to stand beside, several publish, or the number was used.
    """
    stream = stream_of(pipeline)
    in_charge = _in_charge(app, stream)
    app.ledger.open_generation(stream, in_charge)
    return in_charge


def require_generation(app: App, stream: Stream) -> None:
    """Raise SettingsInvalid where there is no such generation."""
    if stream not in app.ledger.streams():
        raise SettingsInvalid(
            f"The ledger has no generation {stream.generation} of a pipeline {stream.pipeline}",
            "`tidegate generation list` shows them all.",
        )


def has_begun(ledger: LedgerReader, stream: Stream) -> bool:
    """Return whether a generation has a batch, decided or planned.

    The ledger has others, too: one that was just made, and one whose first plan failed.
    """
    return bool(ledger.head(stream).seq) or ledger.open_plan(stream) is not None


def require_batch(app: App, stream: Stream, seq: int) -> None:
    """Raise SettingsInvalid where a generation has no such batch."""
    last = app.ledger.head(stream).seq
    if not 1 <= seq <= last:
        fix = f"Name one from 1 to {last}: `tidegate history {stream.pipeline}` lists them."
        raise SettingsInvalid(f"{stream} has no batch {seq}", fix if last else "Run it first.")


def origin_of(app: App, pipeline: Pipeline) -> Stream:
    """Return the generation beside which another one is made of a pipeline file: the one in charge.

    Raises SettingsInvalid as `open_generation` does.
    """
    stream = stream_of(pipeline)
    in_charge = app.ledger.charge(stream.pipeline).generation
    if in_charge is None and has_begun(app.ledger, stream):
        return stream  # its own file: a copy of it gets another number
    return Stream(stream.pipeline, in_charge if in_charge is not None else _in_charge(app, stream))


def _in_charge(app: App, stream: Stream) -> int:
    """Return the generation beside which a new one is to stand. Raises SettingsInvalid if there is none, or
    several.
    """
    charge = app.ledger.charge(stream.pipeline)
    if charge.generation is not None:
        return charge.generation
    generations = [other for other in app.ledger.streams() if other.pipeline == stream.pipeline]
    siblings = [other for other in generations if other != stream and has_begun(app.ledger, other)]
    if not siblings:
        raise SettingsInvalid(
            f"No generation of {stream.pipeline} was ever run, so there is none to stand beside",
            f"Run this one: tidegate run {stream.pipeline}.",
        )
    *older, newest = siblings
    without_file = streams_without_file(app)
    # Only the newest will publish on: what an older one has not sent yet would be withheld.
    still_open = [other for other in older if other not in without_file or _is_unpublished(app, other)]
    if still_open:
        raise SettingsInvalid(
            f"{', '.join(map(str, still_open))} and {newest} publish, and only one can be in charge",
            "Let the older one publish what it has decided, and remove its pipeline file.",
        )
    return newest.generation


def _is_unpublished(app: App, stream: Stream) -> bool:
    plan = head_plan(app, app.ledger.head(stream))
    return plan is not None and bool(lacking_sinks(app.ledger, plan))


def require_fitting(app: App, pipeline: Pipeline, origin: Stream, seq: int) -> None:
    """Raise PipelineChanged where a pipeline file does not fit the state of `origin` after batch `seq`;
    StateGivenUp where the ledger has no plan of it.
    """
    plan = app.ledger.plan(origin, seq)
    if plan is None:
        raise missing_of_head(app.ledger, origin, seq, "plan")
    changes = incompatible_changes(planned_pipeline(plan), pinned(app, pipeline))
    if changes:
        raise PipelineChanged(
            f"The state of {origin} after batch {seq} does not fit the pipeline file of generation "
            f"{pipeline.generation}: " + "; ".join(map(str, changes)),
            f"Undo the edit; or let it be computed: tidegate generation new {pipeline.pipeline} "
            f"--from-batch {app.ledger.head(origin).seq}, without --keep-state; or let the generation begin "
            "empty, and read the source from its start.",
        )


def begin_from(app: App, pipeline: Pipeline, origin: Stream, seq: int, run_id: str) -> None:
    """Let a pipeline file's generation, which has no batch yet, begin with a state: that of `origin` after
    batch `seq`.

    Raises LeaseHeld, Fenced, Halted if it has a batch; StateGivenUp; PipelineChanged where the file
    does not fit that state; LakeDamaged, LakeUnavailable. Then it is empty still.
    """
    # Without the origin's lease: only an erasure changes a committed batch's state, which the ledger checks.
    rewrites = app.ledger.rewrites(origin)
    require_no_erasure(origin, app.ledger.head(origin).erasure)
    plan, last = app.ledger.plan(origin, seq), app.ledger.attempt(origin, seq)
    if plan is None or last is None:
        raise missing_of_head(app.ledger, origin, seq, "plan")
    require_fitting(app, pipeline, origin, seq)
    pipeline = pinned(app, pipeline)
    with leased(app, stream_of(pipeline), run_id) as lease:
        if has_begun(lease, lease.stream):
            raise Halted(
                f"{lease.stream} has begun already, so it cannot begin with a state",
                "Drop it, and make another generation: tidegate generation drop, tidegate generation new.",
            )
        first = _first_plan(lease, pipeline, _end_of(app, plan), plan, run_id)
        name = attempt_name(FIRST, lease.lease.epoch)
        files = list(_folded_state(app, origin, seq, lease.stream, name))
        manifest = app.write_manifest(lease.stream, manifest_of(name, FIRST, files))
        counts = running_counts(last)
        attempt = Attempt(lease.stream, FIRST, manifest, counts, validated=True, times=last.times)
        # One transaction decides the batch and notes the origin: before it, the generation is empty.
        try:
            lease.begin_from((first, attempt), origin, seq, rewrites)
        except Halted:
            # An erasure has begun since: what was read before it must not stay.
            for file in files:
                app.lake(lease.stream).store.delete(file.path)
            raise
        lease.release()


def _end_of(app: App, plan: Plan) -> Head:
    """Return the head as it was after a batch. The newest head may have been moved past a gap since."""
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


def _folded_state(app: App, origin: Stream, seq: int, stream: Stream, name: str) -> Iterator[DataFile]:
    """Yield files with the state, folded, of the new generation's first batch."""
    lake, store = app.lake(stream), app.lake(origin).store
    rules, first = state_stages(planned_pipelines(app.ledger, origin)), partial(of_batch, seq=FIRST)
    # Folded into files of its own: the origin may be compacted, cleaned or dropped from then on.
    with needed_by(state_named(origin, seq)):
        for stage, files in state_after(app, origin, app.ledger.state_manifests(origin, seq)).items():
            folder = lake.files("state", stage, name)
            yield from fold(
                store, folder, files, FoldRule.for_stages(rules[stage]), is_whole=True, change=first
            )


def drop_generation(app: App, stream: Stream, run_id: str) -> int:
    """Forget a generation that is not in charge, remove its files, and return their number.

    Published records stay where they are, also in a table of its own, and so do the marks of its folder. If
    the process is killed, the next call removes the rest. Raises LeaseHeld; Halted if the generation
    publishes; LedgerMismatch if its folder belongs to another ledger; SettingsInvalid if it never existed;
    LakeUnavailable.
    """
    if not app.ledger.is_dropped(stream):
        _require_droppable(app, stream)
        with leased(app, stream, run_id) as lease:
            lease.drop()
    # The mark makes an older copy of the ledger halt. The files come last: nobody reads them any more.
    mark_dropped(app, stream)
    drop_tables(app, stream)
    return remove_files(app, stream)


def _require_droppable(app: App, stream: Stream) -> None:
    require_generation(app, stream)
    require_not_looked_up(app, stream)


def require_not_looked_up(app: App, stream: Stream) -> None:
    """Raise Halted where a planned batch of another pipeline looks up the state of a stream."""
    pins = [pin for lookups in app.ledger.open_lookups() for pin in lookups.values()]
    if any(
        (pin.get("pipeline"), pin.get("generation")) == (stream.pipeline, stream.generation) for pin in pins
    ):
        raise Halted(
            f"A batch of another pipeline is planned that looks up the state of {stream}",
            "Let it go through, or forget it: tidegate recover PIPELINE --choose drop-plan.",
        )


def files_of(app: App, stream: Stream) -> list[Listed]:
    """Return the files of a stream, without marks and what is published. Raises LakeUnavailable."""
    lake = app.lake(stream)
    # Marks stay, so that an older copy of the ledger halts; consumers read `published`.
    excluded = (f"{lake.published}/", lake.marks.folder)
    return [file for file in lake.store.listed(lake.base) if not file.path.startswith(excluded)]


def has_published(app: App, stream: Stream) -> bool:
    """Return whether the lake has a `table` sink that is the stream's own. Raises LakeUnavailable."""
    lake = app.lake(stream)
    return bool(lake.store.listed(lake.published))


def remove_files(app: App, stream: Stream) -> int:
    """Delete the files of a stream that the ledger has forgotten, and return how many those were."""
    lake, files = app.lake(stream), files_of(app, stream)
    # The order does not matter: the ledger does not know the stream any more, and a second call goes on.
    for file in files:
        with failpoint("drop.delete"):
            lake.store.delete(file.path)
    return len(files)
