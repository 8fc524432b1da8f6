"""What a step fails of is noted and told, as long as its lease is its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tidegate.app import App
from tidegate.app.lease import leased, leased_for
from tidegate.errors import Fenced, StateGivenUp
from tidegate.ledger import LeasedLedger, OffsetRange, Plan, Stream

PLAN = Plan(Stream("p", 1), 1, "run", 5, 6, (OffsetRange("t", 0, 0, 1),), {"t": "id"}, "pipeline: p", "{}")


@pytest.fixture
def app(tmp_path: Path) -> App:
    opened = App.from_environment({"TIDEGATE_HOME": str(tmp_path)})
    opened.ledger.acquire(PLAN.stream, PLAN.run_id).add_plan(PLAN)
    return opened


def test_failure_of_a_step_is_noted_and_reported(app: App) -> None:
    with pytest.raises(StateGivenUp), leased_for(app, PLAN, "run", "compute"):
        raise StateGivenUp("no longer kept")
    noted = app.ledger.failure(PLAN.stream, PLAN.seq)
    assert noted is not None
    assert (noted.step, noted.error, noted.what) == ("compute", "StateGivenUp", "no longer kept")


Step = Callable[[App], AbstractContextManager[LeasedLedger]]


@pytest.mark.parametrize(
    "begin",
    [
        lambda app: leased_for(app, PLAN, "run", "compute"),
        lambda app: leased(app, PLAN.stream, "run"),
    ],
    ids=["a step", "maintenance"],
)
def test_failure_after_a_takeover_is_not_the_error(app: App, begin: Step) -> None:
    # the other may be through, and maintenance after it: then files of the batch are missing, by right
    step = begin(app)
    step.__enter__()
    app.ledger.acquire(PLAN.stream, "run")
    missed = StateGivenUp("no longer kept")
    with pytest.raises(Fenced) as caught:
        step.__exit__(StateGivenUp, missed, None)
    assert caught.value.__cause__ is missed
    assert app.ledger.failure(PLAN.stream, PLAN.seq) is None
