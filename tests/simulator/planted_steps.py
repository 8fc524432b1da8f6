"""Planted bugs in the steps: plan, compute, validate, commit, publish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from tests.simulator.app import SimApp, here
from tests.simulator.compute import SimOutbox
from tests.simulator.ledger import Checks, SimLeased
from tests.simulator.planted import planted
from tidegate import batch
from tidegate.app import lease
from tidegate.app.root import state_after, state_files
from tidegate.batch import commit, compute, plan, publish, run, validate
from tidegate.errors import Halted, LedgerUnavailable, QualityFailed
from tidegate.ledger import Clocks, Run
from tidegate.ledger.planned import planned_pipeline
from tidegate.sinks import port
from tidegate.spark.computation import Before

_plan_ranges = plan.plan_ranges
_commit = SimLeased.commit
_attempt = SimLeased.attempt
_shard_name = port.shard_name
_batches = SimOutbox.batches
_outbox = SimApp.outbox
_unpublished_sinks = publish.unpublished_sinks
_publish_to = publish.publish_to
_publish_decided = publish.publish_decided


# plan


@planted((plan, "publish_decided"))
def leftover_is_not_published_before_planning(app: Any, ledger: Any, open_session: Any = None) -> None:
    """Leave the previous batch unpublished."""


@planted((SimLeased, "open_plan"), also=(partial(patch.object, Checks, "one_plan_per_batch", False),))
def an_open_plan_is_planned_anew(self: Any, stream: Any) -> None:
    """It is overlooked, and overwritten."""


@planted((SimLeased, "add_run"))
def an_adopted_plan_is_changed(self: Any, adopting: Run, clocks: Clocks | None = None) -> None:
    """It gets the clock of the run that goes on with it."""

    def act(tables: Any) -> None:
        tables.runs[adopting.run_id] = adopting
        self._row.clocks = self._row.clocks if clocks is None else clocks
        if adopting.seq in tables.plans:
            old = tables.plans[adopting.seq]
            tables.plans[adopting.seq] = replace(old, clock_ms=old.clock_ms + 1)

    self._fenced("add_run", act, adopting, clocks)


@planted((plan, "plan_ranges"))
def starts_come_from_a_consumer_position(head: Any, *rest: Any) -> Any:
    """Start where a consumer once read, as a consumer group does, even if no batch was committed."""
    positions = here().__dict__.setdefault("positions", {})
    ranges = _plan_ranges(replace(head, offsets={**head.offsets, **positions}), *rest)
    positions.update(
        {(offset_range.topic, offset_range.partition): offset_range.end for offset_range in ranges}
    )
    return ranges


@planted((plan, "plan_ranges"))
def ends_lie_beyond_the_last_stable_offset(head: Any, views: Any, *rest: Any) -> Any:
    return _plan_ranges(head, [replace(view, stable_ends=view.ends) for view in views], *rest)


# compute


@planted((compute, "attempt_name"))
def tries_share_the_name_of_their_tables(seq: int, epoch: int) -> str:
    return f"{seq:010d}"


@planted((compute, "leased_for"))
@contextmanager
def compute_does_not_look_again_under_the_lease(
    app: Any, batch_plan: Any, run_id: str, step: str
) -> Iterator[Any]:
    """Whether somebody computed the batch while it waited for the lease."""
    with lease.leased_for(app, batch_plan, run_id, step) as ledger:
        ledger.attempt = lambda stream, seq: None if seq == batch_plan.seq else _attempt(ledger, stream, seq)
        yield ledger


def _on_any_plan(app: Any, batch_plan: Any, run_id: str) -> Any:
    return lease.leased(app, batch_plan.stream, run_id)


@planted((compute, "leased_for"), (validate, "leased_for"), (commit, "leased_for"))
def a_dropped_plan_is_worked_on(app: Any, batch_plan: Any, run_id: str, step: str) -> Any:
    return _on_any_plan(app, batch_plan, run_id)


@planted((compute, "left_before"))
def state_misses_the_last_batch(app: Any, ledger: Any, batch_plan: Any) -> Any:
    manifests = [manifest for _, manifest in ledger.committed(ledger.stream)][:-1]
    return Before(state_after(app, ledger.stream, manifests))


@planted((compute, "left_before"))
def state_is_read_from_uncommitted_attempts(app: Any, ledger: Any, batch_plan: Any) -> Any:
    """Read the state from all manifests of the batches so far, also uncommitted ones."""
    manifests, head = here().lake.manifests, ledger.head(ledger.stream).seq
    so_far = [name for name in sorted(manifests) if manifests[name].seq <= head + 1]
    return Before(state_files([manifests[name] for name in so_far]))


# validate, commit


@planted((batch, "commit_batch"), (run, "commit_batch"))
def commit_takes_what_is_not_validated(app: Any, batch_plan: Any, run_id: str) -> None:
    if app.ledger.head(batch_plan.stream).seq < batch_plan.seq:
        with lease.leased_for(app, batch_plan, run_id, "commit") as ledger:
            attempt = ledger.attempt(batch_plan.stream, batch_plan.seq)
            if attempt is None:
                raise Halted("not computed")
            ledger.commit(batch_plan, attempt)


@planted((batch, "validate_batch"), (run, "validate_batch"))
def an_attempt_passes_before_the_gate(app: Any, batch_plan: Any, run_id: str, **_: Any) -> None:
    attempt = app.ledger.attempt(batch_plan.stream, batch_plan.seq)
    if attempt is None:
        raise Halted("not computed")
    if not attempt.validated:
        with lease.leased_for(app, batch_plan, run_id, "validate") as ledger:
            ledger.set_validated(attempt, True)
            verdicts = validate._verdicts(app, ledger, batch_plan, None, attempt, None)  # type: ignore[arg-type]
            if not all(verdict.passed for verdict in verdicts):
                raise QualityFailed("it does not pass")


@planted((commit, "check_source"))
def commit_does_not_look_at_the_source_again(app: Any, batch_plan: Any) -> None:
    """Whether it is still the one that was planned."""


@planted((compute, "check_still_there"), (commit, "check_source"))
def only_the_plan_looks_at_the_source(app: Any, batch_plan: Any) -> None:
    """Whatever becomes of it before it is read."""


@planted((plan, "check_head_epochs"))
def only_offsets_say_what_was_read(log: Any, head: Any, views: Any) -> None:
    """A log that was truncated and has grown again passes for the one that was read."""


@planted((SimLeased, "commit"))
def publish_comes_before_commit(self: Any, batch_plan: Any, attempt: Any) -> None:
    app = here().app()
    for sink in app.sinks(batch_plan.stream, planned_pipeline(batch_plan)):
        _publish_to(self, sink, batch_plan, attempt)
    _commit(self, batch_plan, attempt)


@planted((SimLeased, "commit"))
def a_commit_without_answer_is_taken_for_failed(self: Any, batch_plan: Any, attempt: Any) -> None:
    """And its plan forgotten."""

    def forget(tables: Any) -> None:
        tables.plans.pop(batch_plan.seq, None)
        tables.runs = {name: run for name, run in tables.runs.items() if run.seq != batch_plan.seq}

    try:
        _commit(self, batch_plan, attempt)
    except LedgerUnavailable:
        self._fenced("forget", forget)
        raise


# publish


@planted((publish, "publish_to"))
def a_publication_is_noted_before_it_is_sent(ledger: Any, sink: Any, batch_plan: Any, attempt: Any) -> Any:
    outbox = sink.outbox(batch_plan, attempt)
    last = ledger.last_published(batch_plan.stream, sink.name)
    ledger.add_publication(batch_plan.seq, sink.name, outbox.emitted)
    if outbox.emitted:
        sink.publish(ledger, outbox, last)
    return outbox.emitted


@planted((SimApp, "outbox"))
def the_first_outbox_is_published(self: Any, batch_plan: Any, stage: Any, attempt: Any) -> Any:
    """Return the outbox of the first try, whichever was committed."""
    names = [name for name, planned in here().lake.plans.items() if planned.seq == batch_plan.seq]
    first = replace(attempt.manifest, name=min(names))
    return _outbox(self, batch_plan, stage, replace(attempt, manifest=first))


@planted((publish, "unpublished_sinks"))
def one_sink_is_enough(ledger: Any, batch_plan: Any) -> list[str]:
    return (
        []
        if ledger.publications(batch_plan.stream, batch_plan.seq)
        else _unpublished_sinks(ledger, batch_plan)
    )


@planted((port, "shard_name"))
def all_sinks_share_their_progress(stream: Any, sink: str) -> str:
    return _shard_name(stream, "kafka:output")


@planted((SimOutbox, "batches"))
def the_outbox_is_in_another_order_each_time(self: Any, columns: Any, skip: int = 0) -> Iterator[Any]:
    turned = replace(self, rows=self.rows[::-1]) if len(self.world.trace) % 2 else self
    return _batches(turned, columns, skip)


@planted((batch, "publish_batch"), (run, "publish_batch"))
def publish_does_not_look_whether_its_batch_is_committed(
    app: Any, batch_plan: Any, run_id: str, open_session: Any = None
) -> None:
    """It may only be marked so. The head's batch goes out, and all seems well."""
    with lease.leased(app, batch_plan.stream, run_id) as ledger:
        _publish_decided(app, ledger)
        ledger.release()


@planted((publish, "publish_decided"), (plan, "publish_decided"))
def an_undecided_batch_is_published(app: Any, ledger: Any, open_session: Any = None) -> None:
    """The newest that is computed, whether it is committed or not."""
    batch_plan = ledger.open_plan(ledger.stream)
    attempt = _attempt(ledger, batch_plan.stream, batch_plan.seq) if batch_plan is not None else None
    if batch_plan is not None and attempt is not None:
        for sink in app.sinks(batch_plan.stream, planned_pipeline(batch_plan)):
            _publish_to(ledger, sink, batch_plan, attempt)
    _publish_decided(app, ledger)
