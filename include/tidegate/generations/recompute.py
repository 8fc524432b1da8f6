"""Recompute what an edit of a pipeline file has changed, and nothing else, in a generation of its own.

The generation repeats each batch of the one in charge, with its number, records and clocks, so it becomes
what the edited file would have made of them from the first batch on. State and emissions of stages that the
edit has not changed are taken from the files of the other generation, and emissions are the input of the
stages behind them: then no record is read. Where the edit changes what a stage makes of records, all of them
are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidegate.app.root import App, stream_of
from tidegate.batch.suites import pinned
from tidegate.batch.trigger import RepeatedBatch
from tidegate.batch_counts import QUARANTINED, refused_emissions
from tidegate.errors import Halted
from tidegate.generations.lifecycle import require_batch
from tidegate.generations.restate import RepeatedRun, repeatable_plans, require_records
from tidegate.ledger import Attempt, Plan, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.ledger.records import ReusedBatch
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage
from tidegate.storage.unchanged import changed_stages, inherited_outputs, same_outputs

_RUN = "recompute"
_INSTEAD = (
    "To let the edit count from the next batch on, use --keep-state, where the state survives it; or make a "
    "generation that begins empty, and reads the source from its start: `tidegate generation new`."
)


@dataclass(frozen=True)
class StageWork:
    """The work that is done for a stage.

    Args:
        stage: its name.
        is_reused: whether state and emissions are taken from the other generation.
        input: what it is computed from: the outboxes of a stage, or the source; None: it is reused.
        why: the reason why it is computed; empty if it is reused.
    """

    stage: str
    is_reused: bool
    input: str | None = None
    why: str = ""


def stage_work(
    pipeline: Pipeline, changed: Mapping[str, str], unstored: Mapping[str, str]
) -> tuple[StageWork, ...]:
    """Return what is done for each stage of the edited pipeline.

    Args:
        pipeline: the edited pipeline.
        changed: the stages that the edit has changed, each with the reason.
        unstored: stages whose emissions cannot be read, each with the reason.
    """
    computed = dict(changed)
    # Stages that read a stage come after it, so each one knows its readers.
    for stage in reversed(pipeline.stages):
        if stage.name in unstored and _is_needed(pipeline, stage, computed):
            computed.setdefault(stage.name, unstored[stage.name])
    readers = [stage.name for stage in pipeline.source_stages if stage.name in computed]
    if readers:
        # Its records come by all the same, and with them what the source puts into quarantine.
        again = f"the source is read again, for {readers[0]}"
        computed = {stage.name: computed.get(stage.name, again) for stage in pipeline.stages}
    return tuple(
        StageWork(stage.name, False, _input(stage), computed[stage.name])
        if stage.name in computed
        else StageWork(stage.name, True)
        for stage in pipeline.stages
    )


def _is_needed(pipeline: Pipeline, stage: Stage, computed: Mapping[str, str]) -> bool:
    """Return whether a sink, a check, or a stage that is computed takes the emissions of a stage."""
    readers = [reader.name for reader in pipeline.stages if stage.name in reader.inputs]
    is_read = any(reader in computed for reader in readers) or stage.late is not None
    return is_read or stage.name in pipeline.published_stages


def _input(stage: Stage) -> str:
    return " and ".join(stage.inputs)


@dataclass(frozen=True)
class Recomputation:
    """The batches that a generation repeats.

    Args:
        origin: the generation that has decided them.
        plans: their plans, from the first batch of `origin` on.
        stages: what is done for each stage.
        inherited: the sinks that have their emissions from `origin`: none of these goes out again.
    """

    origin: Stream
    plans: tuple[Plan, ...]
    stages: tuple[StageWork, ...]
    inherited: tuple[str, ...]

    @property
    def reused(self) -> ReusedBatch | None:
        """The part of each batch that is not computed; None: all is."""
        stages = tuple(work.stage for work in self.stages if work.is_reused)
        return ReusedBatch(self.origin.generation, stages, self.inherited) if stages else None

    @property
    def runs(self) -> Iterator[RepeatedRun]:
        """The batches, as the new generation repeats them: under the same numbers."""
        for plan in self.plans:
            repeats = RepeatedBatch(plan, keeps_lookups=True, reused=self.reused)
            yield RepeatedRun(f"{_RUN}__{self.origin.generation}.{plan.seq}", plan.seq, repeats)

    def begin(self, app: App, pipeline: Pipeline) -> None:
        """Check that the batches that the generation has were computed in this way. Raises Halted."""
        stream = stream_of(pipeline)
        plan = app.ledger.plan(stream, app.ledger.head(stream).seq)
        if plan is None:
            return
        edit = _first_edit(planned_pipeline(plan), pinned(app, pipeline))
        if edit is not None or plan.reused != self.reused:
            drop = f"tidegate generation drop {stream.pipeline} {stream.generation}"
            raise Halted(
                f"A file was edited since {stream} began: {edit or 'that of the generation in charge'}",
                f"Undo the edit; or begin again: {drop}.",
            )


def is_edited(app: App, origin: Stream, seq: int, pipeline: Pipeline) -> bool:
    """Return whether a pipeline file differs from what a batch was planned with, in stages or sinks.

    Args:
        seq: the batch of `origin`.
    """
    plan = app.ledger.plan(origin, seq)
    if plan is None:
        return False  # beginning with its state says so
    return _first_edit(planned_pipeline(plan), pinned(app, pipeline)) is not None


def _first_edit(before: Pipeline, after: Pipeline) -> str | None:
    """Return a stage that is changed or removed, or a sink that is new; None if there is none."""
    for name, why in changed_stages(before, after).items():
        return f"the stage {name}: {why}"
    for name in {stage.name for stage in before.stages} - {stage.name for stage in after.stages}:
        return f"the stage {name}: it was removed"
    same = same_outputs(before, after)
    return next((f"the sink {output.name}" for output in after.outputs if output.name not in same), None)


def plan_recomputation(app: App, pipeline: Pipeline, origin: Stream, last: int) -> Recomputation:
    """Return what is recomputed of the batches of `origin` up to `last` for an edited pipeline file.

    Raises SettingsInvalid if there is no such batch; StateGivenUp if the first batches have left the ledger,
    Halted if one of them cannot be repeated exactly, or if records are needed that Kafka no longer has.
    """
    require_batch(app, origin, last)
    if app.ledger.origin(origin) is not None:
        raise Halted(f"{origin} did not begin with the first records: it began with a state", _INSTEAD)
    plans = repeatable_plans(app.ledger, origin, 1, last)
    pipeline = pinned(app, pipeline)
    attempts = [attempt for plan in plans if (attempt := app.ledger.attempt(origin, plan.seq)) is not None]
    versions = [planned_pipeline(plan) for plan in {plan.spec.hash: plan for plan in plans}.values()]
    changed: dict[str, str] = {}
    for before in versions:
        changed = {**changed_stages(before, pipeline), **changed}
    work = stage_work(pipeline, changed, _unstored(pipeline, versions, attempts))
    reused = tuple(entry.stage for entry in work if entry.is_reused)
    inherited = inherited_outputs(planned_pipeline(plans[-1]), pipeline, reused)
    _require_topics(pipeline, plans)
    if reused:
        names = {stage.name for before in versions for stage in before.stages}
        _require_own_quarantine(attempts, names - {*reused})
        # Files of a state that is given up may be removed already.
        app.ledger.state_manifests(origin, 1)
    else:
        require_records(app, pipeline, plans, _INSTEAD)
    return Recomputation(origin, plans, work, inherited)


def _unstored(
    pipeline: Pipeline, versions: Iterable[Pipeline], attempts: Iterable[Attempt]
) -> dict[str, str]:
    """Return the stages whose emissions no outbox has as a stage behind them needs them."""
    unstored: dict[str, str] = {}
    for stage in pipeline.stages:
        if any(stage.name not in before.published_stages for before in versions):
            unstored[stage.name] = "no sink or check has read it, so its emissions were not stored"
        elif kernel_stage(pipeline, stage).tells_before:
            unstored[stage.name] = "outboxes do not say what an emission replaces, which is needed now"
        elif stage.late is not None:
            unstored[stage.name] = "its late records are computed again, and not copied"
    for attempt in attempts:
        for name, counts in attempt.counts.items():
            if refused_emissions(counts):
                why = f"in batch {attempt.seq} a sink has refused some of its emissions"
                unstored.setdefault(name, why)
    return unstored


def _require_topics(pipeline: Pipeline, plans: Iterable[Plan]) -> None:
    """Raise Halted if the edited file does not read a topic of which the batches have records."""
    for plan in plans:
        for range_ in plan.ranges:
            if range_.span and not pipeline.sources.reads(range_.topic):
                raise Halted(
                    f"The file does not read {range_.topic} any more, of which batch {plan.seq} of "
                    f"{plan.stream} has records",
                    "Undo that edit of `source.topics`; or make a generation that begins empty.",
                )


def _require_own_quarantine(attempts: Iterable[Attempt], computed: Collection[str]) -> None:
    """Raise Halted if a stage that is computed again has put something into quarantine: its records there are
    among those of reused stages, and would be there twice.
    """
    for attempt in attempts:
        for name in computed:
            if any(attempt.stage_counts(name).get(metric) for metric in QUARANTINED):
                raise Halted(
                    f"Batch {attempt.seq} of {attempt.stream} has records of the stage {name} in quarantine, "
                    "which cannot be told from those of other stages",
                    _INSTEAD,
                )
