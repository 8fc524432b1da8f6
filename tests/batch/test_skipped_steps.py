"""A step before was only marked as a success: nothing was done by it. Each step that comes next says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.batch.committed import Committed
from tidegate.app import App, planned_for
from tidegate.batch import commit_batch, publish_batch, validate_batch
from tidegate.errors import Halted
from tidegate.ledger import Plan

ROWS: dict[str, list[tuple[str, int | None]]] = {"first": [("1", 10)], "second": [("1", 11)]}


@pytest.fixture
def batches(tmp_path: Path) -> Committed:
    """Batch 1 is decided and not published, batch 2 is computed and not validated."""
    sinks = "  - {kind: sql, table: seconds}"
    committed = Committed(tmp_path, sinks, f"sqlite:///{tmp_path}/sink.db")
    committed.commit(1, ROWS)
    committed.compute(2, ROWS)
    committed.lease.release()
    return committed


def planned(committed: Committed, seq: int) -> Plan:
    plan = committed.app.ledger.plan(committed.stream, seq)
    assert plan is not None
    return plan


def test_publish_after_a_missing_commit_halts(batches: Committed) -> None:
    with pytest.raises(Halted, match=r"Batch 2 of visitors/1 is not committed.*Clear `commit`"):
        publish_batch(batches.app, planned(batches, 2), "run-2")
    assert batches.app.ledger.publications(batches.stream, 1) == {}
    assert batches.app.ledger.publications(batches.stream, 2) == {}
    assert batches.app.ledger.lease_holder(batches.stream) is None


def test_publish_before_the_head_is_a_no_op(batches: Committed) -> None:
    batches.publish(1)
    attempt = batches.app.ledger.attempt(batches.stream, 2)
    assert attempt is not None
    lease = batches.app.ledger.acquire(batches.stream, "test")
    lease.commit(planned(batches, 2), replace(attempt, validated=True))
    lease.release()
    assert publish_batch(batches.app, planned(batches, 1), "run-1") == {"sql:seconds": 1}
    assert batches.app.ledger.publications(batches.stream, 2) == {}


def _plan_again(app: App, plan: Plan) -> Any:
    return planned_for(app, plan.stream.pipeline, plan.stream.generation, "run-9")


def _validate(app: App, plan: Plan) -> Any:
    return validate_batch(app, plan, plan.run_id)


def _commit(app: App, plan: Plan) -> Any:
    return commit_batch(app, plan, plan.run_id)


@pytest.mark.parametrize(
    ("is_computed", "step", "message"),
    [
        (False, _plan_again, "Run run-9 of visitors/1 has no planned batch. Clear `plan`"),
        (False, _validate, "Batch 2 of visitors/1 is not computed. Clear `compute`"),
        (False, _commit, "Batch 2 of visitors/1 is not computed. Clear `compute`"),
        (True, _commit, "Batch 2 of visitors/1 is not validated. Clear `validate`"),
    ],
    ids=["compute after plan", "validate after compute", "commit after compute", "commit after validate"],
)
def test_step_after_a_skipped_one_names_it(
    batches: Committed, is_computed: bool, step: Callable[[App, Plan], Any], message: str
) -> None:
    plan = planned(batches, 2)
    if not is_computed:
        lease = batches.app.ledger.acquire(batches.stream, "test")
        lease.drop_plan()
        lease.add_plan(plan)
        lease.release()
    with pytest.raises(Halted, match=message):
        step(batches.app, plan)
    assert batches.app.ledger.head(batches.stream).seq == 1
