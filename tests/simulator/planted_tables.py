"""Planted bugs in how a batch pins the tables that it looks up, and in what a changed table emits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from tests.simulator.app import SimApp, here
from tests.simulator.ledger import SimLeased
from tests.simulator.lookups import RATES
from tidegate.batch import compute, lookups, plan
from tidegate.batch.trigger import RepeatedBatch
from tidegate.generations import lifecycle
from tidegate.ledger import Plan, Stream
from tidegate.spark.lookups import DeltaVersion

_pinned_tables, _changed_tables = lookups.pinned_tables, lookups.changed_tables
_pinned_lookups, _commit, _outbox = lookups.pinned_lookups, SimLeased.commit, SimApp.outbox
_planned, _first_plan = RepeatedBatch.planned, lifecycle._first_plan


def _newest(pin: Mapping[str, Any]) -> dict[str, Any]:
    if "version" in pin:
        return here().lake.delta.pin(RATES)
    head = here().store.streams[Stream(pin["pipeline"], pin["generation"])].head
    assert head is not None, "it was pinned"
    return {**pin, "seq": head.seq}


def _as_they_are_now(app: Any, ledger: Any, batch_plan: Plan) -> Any:
    """Read the newest version of a Delta table, whatever the plan has pinned."""
    return {
        name: DeltaVersion(name, int(_newest({"version": 0})["version"]))
        if isinstance(table, DeltaVersion)
        else table
        for name, table in _pinned_tables(app, ledger, batch_plan).items()
    }


def _states_as_they_are_now(app: Any, ledger: Any, batch_plan: Plan) -> Any:
    """Read the newest state of another pipeline, whatever the plan has pinned."""
    pins = {name: pin if "version" in pin else _newest(pin) for name, pin in batch_plan.lookups.items()}
    return _pinned_tables(app, ledger, replace(batch_plan, lookups=pins))


@contextmanager
def _pins_at_the_commit() -> Iterator[None]:
    """Compare with the tables as they were when the batch before was committed, and not when it was
    planned.
    """

    def commit(self: Any, batch_plan: Plan, attempt: Any) -> None:
        _commit(self, batch_plan, attempt)
        noted = here().__dict__.setdefault("noted", {})
        noted[batch_plan.stream, batch_plan.seq] = {n: _newest(pin) for n, pin in batch_plan.lookups.items()}

    def changed(pipeline: Any, batch_plan: Plan, read_before: Callable[[], Plan | None]) -> frozenset[str]:
        before = read_before()
        if before is not None and before.lookups:
            noted = here().__dict__.get("noted", {}).get((before.stream, before.seq), before.lookups)
            before = replace(before, lookups=noted)
        return _changed_tables(pipeline, batch_plan, lambda: before)

    changes = partial(patch.object, attribute="changed_tables", new=changed)
    with patch.object(SimLeased, "commit", commit), changes(compute), changes(plan):
        yield


def _with_rows_of_all_tries(self: Any, batch_plan: Plan, stage: Any, attempt: Any) -> Any:
    """Return the outbox of an attempt, and what changed tables have emitted in tries before it."""
    outbox = _outbox(self, batch_plan, stage, attempt)
    tries = [name for name, planned in here().lake.plans.items() if planned == batch_plan]
    earlier = [
        row
        for name in tries
        if name != attempt.name
        for row in here().lake.outbox.get((stage.name, name), [])
        if row.source.startswith("#")
    ]
    rows = [*earlier, *outbox.rows]
    return replace(outbox, rows=rows, emitted=len(rows))


def _without_the_batch_before(app: Any, pipeline: Any, before: Any) -> Any:
    return _pinned_lookups(app, pipeline, {})


def _with_tables_of_today(self: RepeatedBatch, head: Any, batch_plan: Plan) -> Plan:
    return _planned(replace(self, keeps_lookups=False), head, batch_plan)


def _with_pins(lease: Any, pipeline: Any, *rest: Any) -> Plan:
    """Pin the tables in the batch that begins with a state, which was joined with older ones."""
    pins = _pinned_lookups(here().app(), pipeline, {}) if pipeline.lookup else {}
    return replace(_first_plan(lease, pipeline, *rest), lookups=pins)


def _unchanged(*_: Any) -> frozenset[str]:
    return frozenset()


BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a_retry_reads_a_newer_version": partial(patch.object, compute, "pinned_tables", _as_they_are_now),
    "a_retry_reads_a_newer_state": partial(patch.object, compute, "pinned_tables", _states_as_they_are_now),
    "a_change_between_plan_and_commit_is_lost": _pins_at_the_commit,
    "a_table_alone_makes_no_batch": partial(patch.object, plan, "changed_tables", _unchanged),
    "last_records_are_not_joined_again": partial(patch.object, compute, "changed_tables", _unchanged),
    "changes_of_a_retried_batch_go_out_twice": partial(
        patch.object, SimApp, "outbox", _with_rows_of_all_tries
    ),
    "a_lookup_goes_back_to_an_older_generation": partial(
        patch.object, plan, "pinned_lookups", _without_the_batch_before
    ),
    "a_version_alone_identifies_a_table": partial(
        patch.object, compute, "check_lookup_tables", lambda *_: None
    ),
    "a_recomputed_batch_has_the_tables_of_today": partial(
        patch.object, RepeatedBatch, "planned", _with_tables_of_today
    ),
    "a_state_passes_for_joined_with_the_tables_of_today": partial(
        patch.object, lifecycle, "_first_plan", _with_pins
    ),
}
