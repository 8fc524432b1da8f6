"""Planted bugs in what goes to tables, in drained batches, and where retention passes the head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from tests.simulator import airflow, grammar, sinks
from tests.simulator.airflow import Airflow, airflow_runs
from tests.simulator.app import here
from tests.simulator.compute import Batch
from tests.simulator.ledger import SimLeased, SimLedger, SimReader
from tests.simulator.planted import planted
from tests.simulator.sinks import Claim, Shelf, SimSqlPublisher
from tidegate import kernel
from tidegate.batch import offsets, plan
from tidegate.errors import ConditionFailed
from tidegate.ledger import Head, OffsetRange, Plan
from tidegate.maintenance import cleaning
from tidegate.model.condition import parse_condition
from tidegate.model.pipeline import Pipeline
from tidegate.storage.compatibility import Change, incompatible_changes

_plan_ranges = plan.plan_ranges
_no_batch = plan._no_batch
_accept_gap = SimLeased.accept_gap
_plan = SimReader.plan
_remove_batches = SimLedger.remove_batches


# tables


@planted((SimSqlPublisher, "publish"))
def rows_and_progress_are_two_transactions(
    self: Any, seq: int, attempt: str, emissions: Iterable[Batch], last: int
) -> None:
    table, effect = self.shelf.table(self.shard), self.shelf.world.effect
    if effect("sql.progress", lambda: table.progress) < seq:
        rows = [row for batch in emissions for row in batch.rows]
        effect("sql.commit", lambda: table.rows.extend(rows))
        effect("sql.commit", partial(self.shelf.write, self.shard, Claim(seq, attempt), []))


@planted((SimSqlPublisher, "publish"))
def only_the_ledger_says_what_a_database_has(
    self: Any, seq: int, attempt: str, emissions: Iterable[Batch], last: int
) -> None:
    if last < seq:
        rows = [row for batch in emissions for row in batch.rows]
        act = partial(self.shelf.write, self.shard, Claim(seq, attempt), rows)
        self.shelf.world.effect("sql.commit", act)


@planted((Shelf, "append"))
def progress_moves_from_wherever_it_is(self: Any, shard: str, stored_seq: int, batch: Any, rows: Any) -> None:
    """Whoever read it first may still write after somebody else."""
    self.write(shard, batch, rows)


@planted((sinks, "append_batch"))
def a_table_is_not_asked_for_its_version(
    shelf: Shelf, appender: Any, seq: int, attempt: str, rows: Any, last_published: int
) -> None:
    act = partial(shelf.write, appender.application, Claim(seq, attempt), rows)
    shelf.world.effect("table.append", act)


# the grammar


@planted((grammar, "read_compiled"))
def a_planned_text_is_parsed_again_under_todays_grammar(_: str, text: str, label: str) -> Pipeline:
    """Parse the text under a grammar that may refuse what it accepted before."""
    return grammar.parsed(text, label)


@planted((grammar, "require_conditions"))
def a_condition_is_parsed_again_when_its_batch_is_computed(pipeline: Pipeline) -> None:
    for emit in (stage.emit for stage in pipeline.stages):
        if isinstance(emit, kernel.Change) and isinstance(emit.equal, kernel.SqlEqual):
            _, faults = parse_condition(emit.equal.sql.text, None)
            if faults:
                raise ConditionFailed(faults[0].message)


@planted((grammar, "changed"))
def an_edit_is_compared_with_the_text_of_the_head(before: Pipeline, after: Pipeline) -> list[Change]:
    """Compare the edit with the head's text as today's grammar reads it."""
    return incompatible_changes(grammar.parsed(before.text, "head"), after)


# cut intervals


def _clocks_of_all(plan: Plan) -> dict[tuple[str, int], int]:
    return {at: max(clock, plan.clock_ms) for at, clock in plan.clocks.items()}


@planted(also=(partial(patch.object, Plan, "clocks_after", property(_clocks_of_all)),))
def a_cut_batch_applies_its_clock() -> None:
    """Apply the clock of a cut batch, so that the rest of its interval comes late."""


@planted((plan, "_no_batch"))
def an_interval_without_records_has_no_clock(lease: Any, trigger: Any, note: str, *_: Any) -> plan.Outcome:
    """Record no clock, so that a late record of the interval is not late."""
    return _no_batch(lease, trigger, note)


@planted((plan, "standing_still"))
def a_drained_batch_does_not_know_what_is_cut(head: Head, *_: Any) -> tuple[OffsetRange, ...]:
    """And applies its clock there."""
    return offsets.standing_still(head, ())


# drained batches


@planted((plan, "standing_still"))
def a_drained_batch_starts_at_the_ends_of_the_logs(head: Head, _: Any) -> tuple[OffsetRange, ...]:
    """Start at the ends of the logs, as if records that wait were read."""
    ends = {at: here().broker.log(at).end for at in sorted(head.offsets)}
    return tuple(OffsetRange(*at, end, end) for at, end in ends.items())


@planted((SimReader, "plan"))
def a_plan_forgets_that_it_drains(self: Any, stream: Any, seq: int) -> Any:
    """Lose the drain flag of a plan in the ledger."""
    stored = _plan(self, stream, seq)
    return stored and replace(stored, drain=False)


# retention


@planted((plan, "plan_ranges"))
def what_retention_deleted_is_skipped(head: Head, views: Any, *rest: Any) -> Any:
    """Skip records that retention deleted, without a message and an approval."""
    starts = {(view.topic, partition): start for view in views for partition, start in view.starts.items()}
    offsets = {at: max(offset, starts.get(at, 0)) for at, offset in head.offsets.items()}
    return _plan_ranges(replace(head, offsets=offsets), views, *rest)


@planted((SimLeased, "accept_gap"))
def more_is_accepted_as_lost_than_is_lost(self: Any, skipped: Sequence[OffsetRange]) -> None:
    _accept_gap(self, [replace(offset_range, end=offset_range.end + 1) for offset_range in skipped])


@planted((SimLeased, "drop_plan"))
def a_plan_of_what_is_lost_is_kept(self: Any) -> None:
    """Keep the plan, which blocks the stream for good."""


@planted((SimLeased, "accept_gap"))
def an_accepted_gap_keeps_the_epoch_before_it(self: Any, skipped: Sequence[OffsetRange]) -> None:
    """Keep the epoch of a record that is no longer before the head."""
    before = dict(self._row.epochs)
    _accept_gap(self, skipped)
    self._row.epochs = before


# runs of a backfill, all active at once


@planted((airflow_runs, "run_ahead"))
def a_later_interval_goes_first(run: Any) -> None:
    """Whoever comes first plans."""


# mostly runs wait for those of earlier intervals, and then there is none to refuse
_NOBODY_WAITS = (
    partial(patch.object, airflow_runs, "run_ahead", lambda _: None),
    partial(patch.object, Airflow, "check_turn", lambda *_: None),
)


@planted((plan, "_check_direction"), also=_NOBODY_WAITS)
def an_earlier_interval_is_read_after_a_later_one(*_: Any) -> None:
    """Its records meet a time that is later than theirs."""


# what leaves the ledger


@planted((SimLedger, "remove_batches"))
def a_commit_goes_that_the_state_still_needs(self: Any, stream: Any, before: int, most: int) -> int:
    """It is after the newest snapshot."""
    commits = self._store.streams[stream].commits
    for seq in [seq for seq in commits if seq >= before][:1]:
        self._store.write("ledger.remove_batches", partial(commits.pop, seq + 1, None))
    return _remove_batches(self, stream, before, most)


@planted((SimLedger, "remove_batches"))
def a_run_goes_together_with_its_batch(self: Any, stream: Any, before: int, most: int) -> int:
    """And when it is cleared, it has never been."""
    runs = self._store.streams[stream].runs
    for run_id in [run_id for run_id, run in runs.items() if run.seq is not None and run.seq < before]:
        self._store.write("ledger.remove_batches", partial(runs.pop, run_id, None))
    return _remove_batches(self, stream, before, most)


@planted((cleaning, "remove_history"), (airflow, "remove_history"))
def the_head_leaves_the_ledger(app: Any, stream: Any, *_: Any) -> int:
    """Before it is published, and whatever state was given up."""
    plans = app.ledger._store.streams[stream].plans
    head = app.ledger.head(stream).seq
    app.ledger._store.write("ledger.remove_batches", partial(plans.pop, head, None))
    return 1
