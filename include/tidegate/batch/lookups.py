"""Pinning lookup tables: a batch, and every retry of it, sees them as they were when it was planned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.app.root import App, aliases_of, state_after
from tidegate.errors import LookupMissing, LookupReplaced, PipelineInvalid, Problem
from tidegate.failpoints import failpoint
from tidegate.ledger import Head, LedgerReader, Plan, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.kernel_stages import state_columns, state_schema
from tidegate.model.lookup import Lookup
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage
from tidegate.model.tables import Expected, missing_column
from tidegate.storage.delta import delta_errors, existing_table, open_table

if TYPE_CHECKING:
    from tidegate.spark.lookups import PinnedTable, PinnedTables

logger = logging.getLogger(__name__)


def pinned_lookups(app: App, pipeline: Pipeline, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the present version of each lookup's table, by its text in the pipeline file: see
    `ledger.Plan.lookups`.

    `before` are the lookups of the previous batch: a lookup never goes back to an older generation of a
    pipeline, unless a promotion says so. Raises LookupMissing, LakeUnavailable, and PipelineInvalid if a
    lookup does not fit the entries of a state.
    """
    return {
        lookup.table: _pinned_table(pipeline.pipeline, lookup)
        if lookup.state is None
        else _pinned_stage(app.ledger, pipeline.pipeline, lookup, before.get(lookup.table, {}))
        for lookup in pipeline.tables
    }


def changed_tables(pipeline: Pipeline, plan: Plan, read_before: Callable[[], Plan | None]) -> frozenset[str]:
    """Return the tables that may have other rows than in the batch before, of those whose changes count: of
    lookups with `on_change: emit`, and of expected keys.

    Args:
        pipeline: The pipeline of the plan.
        plan: The plan of a batch.
        read_before: Reads the plan of the batch before; None if the ledger has none: then any table may have
            changed. It is not called for a pipeline whose tables do not count.
    """
    expected = {stage.expected.table for stage in pipeline.stages if stage.expected is not None}
    reacting = {lookup.table for lookup in pipeline.reacting_lookups} | expected
    before = read_before() if reacting else None
    if before is None or planned_pipeline(before).tables != pipeline.tables:
        return frozenset(reacting)
    return frozenset(table for table in reacting if before.lookups.get(table) != plan.lookups.get(table))


def pinned_tables(app: App, ledger: LedgerReader, plan: Plan) -> PinnedTables:
    """Return the tables that the plan's lookups read, by the lookup's text.

    The state after a batch is the same, whichever snapshot it is read through. Raises LookupMissing for a
    generation that was dropped, and StateGivenUp: a plan that repeats an old one keeps no state from either.
    Raises LakeDamaged, LakeUnavailable.
    """
    from tidegate.spark.lookups import DeltaVersion, StateVersion  # late: only this needs Spark

    reads: dict[str, frozenset[str]] = {}
    for lookup in planned_pipeline(plan).tables:
        reads[lookup.table] = reads.get(lookup.table, frozenset()).union(lookup.reads)

    def pinned(table: str, pin: Mapping[str, Any]) -> PinnedTable:
        if "version" in pin:
            return DeltaVersion(table, pin["version"])
        stream = Stream(pin["pipeline"], pin["generation"])
        if ledger.head(stream).seq < pin["seq"]:
            raise LookupMissing(
                f"Batch {plan.seq} of {plan.stream} looks up {table} after batch {pin['seq']} of {stream}, "
                "which the ledger does not have any more",
                "Let a batch be planned with the state as it is now: "
                f"{plan.stream.recover_command('drop-plan')} --yes.",
            )
        state = state_after(app, stream, ledger.state_manifests(stream, pin["seq"]))
        aliases = aliases_of(ledger, stream, pin["seq"], pin["stage"])
        files = state.get(pin["stage"], ())
        # The files declare the columns; only an empty state takes them from the plan.
        columns = pa.schema([]) if files else _columns(ledger, stream, pin)
        return StateVersion(app.lake(stream).store, files, aliases, columns, reads.get(table, frozenset()))

    return {table: pinned(table, pin) for table, pin in plan.lookups.items()}


def _columns(ledger: LedgerReader, stream: Stream, pin: Mapping[str, Any]) -> pa.Schema:
    """Return the columns of a stage's key and values, by the plan of the pinned batch."""
    plan = ledger.plan(stream, pin["seq"])
    if plan is None:
        return pa.schema([])
    pipeline = planned_pipeline(plan)
    return state_schema(pipeline, next(stage for stage in pipeline.stages if stage.name == pin["stage"]))


def _pinned_table(reader: str, lookup: Lookup | Expected) -> dict[str, Any]:
    path = lookup.table
    with delta_errors(path), failpoint("plan.lookup"):
        table = existing_table(path)
        if table is None:
            raise LookupMissing(
                f"The lookup's table {path} does not exist", "Write it as a Delta table, or correct its path."
            )
        _require_columns(reader, lookup, [field.name for field in table.schema().fields])
        # The version alone does not identify a table: one that was created again counts from 0, too.
        return {"version": table.version(), "id": str(table.metadata().id)}


def check_lookup_tables(plan: Plan) -> None:
    """Find out whether the pinned Delta tables are still the same, and not others by their names.

    Raises LookupReplaced, LakeUnavailable.
    """
    for path, pin in plan.lookups.items():
        if "version" in pin and _table_id(path, pin["version"]) != pin["id"]:
            raise LookupReplaced(
                f"The lookup's table {path} is not the one that batch {plan.seq} of {plan.stream} was "
                f"planned with, which was version {pin['version']} of the table {pin['id']}",
                f"Put it back; or {plan.stream.recover_command('drop-plan')} --yes: then the next batch is "
                "planned with the table as it is now.",
            )


def _table_id(path: str, version: int) -> str | None:
    """Return the id of the table at a version; None if the version or the table does not exist."""
    with delta_errors(path), failpoint("compute.lookup"):
        newest = existing_table(path)
        if newest is None or newest.version() < version:
            return None
        return str(open_table(path, version).metadata().id)


def _pinned_stage(
    ledger: LedgerReader, reader: str, lookup: Lookup | Expected, before: Mapping[str, Any]
) -> dict[str, Any]:
    assert lookup.state is not None, "only asked for states"
    pipeline, stage = lookup.state
    streams = _readable(ledger, pipeline, before.get("generation", 0))
    # seq 0: the generation has a row in the ledger and no state yet.
    heads = [head for head in map(ledger.head, streams) if head.seq]
    if not heads:
        raise LookupMissing(
            f"The lookup {lookup.table} reads the pipeline {pipeline}, which has no committed batch",
            f"Run it first (tidegate run {pipeline}), or correct the name.",
        )
    newest = _caught_up(heads, lookup.table)
    source, stage_model = _stage(ledger, newest, stage, lookup.table)
    mistake = lookup.state_mistake(stage_model)
    if mistake is not None:
        raise PipelineInvalid([Problem(reader, 1, "lookup", *mistake)])
    _require_columns(reader, lookup, state_columns(source, stage_model))
    return {
        "pipeline": pipeline,
        "generation": newest.stream.generation,
        "seq": newest.seq,
        "stage": stage,
    }


def _readable(ledger: LedgerReader, pipeline: str, oldest: int) -> list[Stream]:
    """Return the generations whose state may be looked up.

    That is the one in charge, also if another one was pinned before. If nothing was ever promoted, it is
    those from `oldest` on.
    """
    # Before the charge: a generation that was opened beside another one is not in charge.
    streams = ledger.streams()
    in_charge = ledger.charge(pipeline).generation
    if in_charge is not None:
        return [Stream(pipeline, in_charge)]
    return [stream for stream in streams if stream.pipeline == pipeline and stream.generation >= oldest]


def _caught_up(heads: Sequence[Head], table: str) -> Head:
    """Return the newest generation that has read all that the older ones have: the state of others is
    partial.
    """
    # Several heads only where none was ever promoted: the newest counts once it has caught up.
    newest_first = sorted(heads, key=lambda head: head.stream.generation, reverse=True)
    for number, head in enumerate(newest_first):
        ahead = [older for older in newest_first[number + 1 :] if head.unread_of(older)]
        if not ahead:
            return head
        logger.info(
            "The lookup %s does not read %s yet: it is behind %s", table, head.stream, ahead[0].stream
        )
    raise AssertionError("the oldest one is behind nobody")


def _require_columns(reader: str, lookup: Lookup | Expected, columns: Collection[str]) -> None:
    """Raise PipelineInvalid if a table lacks a column, before a plan pins it."""
    if (missing := missing_column(lookup, columns)) is not None:
        raise PipelineInvalid([Problem(reader, 1, "lookup", *missing)])


def _stage(ledger: LedgerReader, head: Head, name: str, table: str) -> tuple[Pipeline, Stage]:
    """Return the stage, and its pipeline, as the newest batch was planned with. Raises LookupMissing."""
    plan = ledger.plan(head.stream, head.seq)
    pipeline = planned_pipeline(plan) if plan is not None else None
    stages = {stage.name: stage for stage in pipeline.stages} if pipeline is not None else {}
    if pipeline is None or name not in stages:
        raise LookupMissing(
            f"The lookup {table} reads the stage {name}, "
            f"which batch {head.seq} of {head.stream} does not have",
            f"Its stages are: {', '.join(stages)}.",
        )
    return pipeline, stages[name]
