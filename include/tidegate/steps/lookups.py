"""Pinning lookup tables: a batch, and every retry of it, sees them as they were when it was planned."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from tidegate.errors import LookupMissing, PipelineInvalid, Problem
from tidegate.failpoints import failpoint
from tidegate.lake.reader import lake_errors
from tidegate.ledger import Head, LedgerReader, Plan, Stream
from tidegate.spec import Pipeline, Stage
from tidegate.spec.lookup import Lookup
from tidegate.steps.app import App, planned_pipeline


def pinned_lookups(app: App, pipeline: Pipeline) -> dict[str, Any]:
    """What each lookup's table is now, by its text in the pipeline file: see `ledger.Plan.lookups`.

    Raises LookupMissing, LakeUnavailable, and PipelineInvalid where a lookup does not fit a state's windows.
    """
    return {
        lookup.table: _pinned_table(lookup.table)
        if lookup.state is None
        else _pinned_stage(app.ledger, pipeline.pipeline, lookup, *lookup.state)
        for lookup in pipeline.lookup
    }


def read_through(ledger: LedgerReader, plan: Plan) -> dict[str, list[str]]:
    """The attempts through which the plan's pinned states are read now, by the lookup's text.

    The state after a batch is the same, whichever snapshot it is read through. Raises StateGivenUp: a plan
    that is not open any more keeps nothing from being given up.
    """
    return {
        table: ledger.state_attempts(Stream(pin["pipeline"], pin["generation"]), pin["seq"])
        for table, pin in plan.lookups.items()
        if "seq" in pin
    }


def _pinned_table(path: str) -> dict[str, Any]:
    with lake_errors(path), failpoint("plan.lookup"):
        if not DeltaTable.is_deltatable(path):
            raise LookupMissing(
                f"The lookup's table {path} does not exist", "Write it as a Delta table, or correct its path."
            )
        return {"version": DeltaTable(path).version()}


def _pinned_stage(
    ledger: LedgerReader, reader: str, lookup: Lookup, pipeline: str, stage: str
) -> dict[str, Any]:
    streams = [each for each in ledger.streams() if each.pipeline == pipeline]
    heads = [head for head in map(ledger.head, streams) if head.seq]
    if not heads:
        raise LookupMissing(
            f"The lookup {lookup.table} reads the pipeline {pipeline}, which has no committed batch",
            f"Run it first (tidegate run {pipeline}), or correct the name.",
        )
    newest = max(heads, key=lambda head: head.stream.generation)
    windowed = _stage(ledger, newest, stage, lookup.table).window is not None
    if (mistake := lookup.window_mistake(windowed)) is not None:
        raise PipelineInvalid([Problem(reader, 1, "lookup", *mistake)])
    return {
        "pipeline": pipeline,
        "generation": newest.stream.generation,
        "seq": newest.seq,
        "stage": stage,
    }


def _stage(ledger: LedgerReader, head: Head, name: str, table: str) -> Stage:
    plan = ledger.plan(head.stream, head.seq)
    stages = {stage.name: stage for stage in planned_pipeline(plan).stages} if plan else {}
    if name not in stages:
        raise LookupMissing(
            f"The lookup {table} reads the stage {name}, "
            f"which batch {head.seq} of {head.stream} does not have",
            f"Its stages are: {', '.join(stages)}.",
        )
    return stages[name]
