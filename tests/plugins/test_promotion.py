"""The DAG that promotes a generation once a person has approved it: compare, wait, switch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from tests.generations.two_generations import Beside
from tests.plugins.runs import CREATED, SUFFIX
from tidegate.generations import Approval

pytestmark = pytest.mark.airflow
Ask = Callable[..., None]


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    """A new generation that has read what the old one has, of a pipeline that asks for approvals."""
    beside = Beside(tmp_path)
    beside.fill()
    beside.old.file.write_text(beside.old.file.read_text() + "airflow: {approve_promotion: true}\n")
    for name, value in beside.old.environment.items():
        monkeypatch.setenv(name, value)
    return beside


class Instance:
    """A task instance of a run of which `diff` has shown something."""

    def __init__(self, shown: dict[str, Any] | None = None) -> None:
        self.id = uuid4()
        self.values: dict[tuple[str, str], Any] = {("diff", "return_value"): shown}

    def xcom_push(self, key: str, value: Any) -> None:
        """Store a value; only `approve` pushes under a key."""
        self.values["approve", key] = value

    def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
        return self.values.get((task_ids, key))


def context(generation: int, instance: Instance | None = None, *, net: bool = False) -> dict[str, Any]:
    """Return the context of a task."""
    instance = instance or Instance()
    return {
        "params": {"generation": generation, "net": net},
        "dag_run": SimpleNamespace(run_id="manual__1", run_after=CREATED),
        "ti": instance,
        "task_instance": instance,
    }


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run the task `approve` of a run, which anna answers."""
    from airflow.providers.standard.operators import hitl
    from airflow.sdk.exceptions import TaskAwaitingInput

    from tidegate_airflow.factory import pipeline_dags

    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_: None)

    def answer(instance: Instance, option: str = "Approve") -> None:
        approve = pipeline_dags()["visitors.promote"].get_task("approve")
        approve.body = instance.xcom_pull("diff")["summary"]  # as Airflow renders it
        with pytest.raises(TaskAwaitingInput):
            approve.execute(context(2, instance))
        user = {"id": "7", "name": "anna"}
        instance.xcom_push("return_value", {"chosen_options": [option], "responded_by_user": user})

    return answer


def test_pipeline_with_approvals_has_a_promotion_dag(beside: Beside) -> None:
    from tidegate_airflow.factory import pipeline_dags

    dags = pipeline_dags()
    assert set(dags) == {"visitors", "visitors_g2", "visitors.promote"}
    dag = dags["visitors.promote"]
    assert [task.task_id for task in dag.topological_sort()] == ["diff", "approve", "promote"]
    assert dag.get_task("approve").options == ["Approve", "Reject"]
    assert dag.get_task("approve").response_timeout is None  # a task's timeout is not a person's
    assert (dag.schedule, dag.max_active_runs, list(dag.params)) == (None, 1, ["generation", "net"])


def test_approval_has_no_timeout(beside: Beside) -> None:
    from tidegate_airflow.factory import pipeline_dags

    defaults = "airflow: {approve_promotion: true, run_timeout: 1h, task_timeout: 30m, owner: shop}\n"
    (beside.old.file.parent / "defaults.yaml").write_text(defaults)
    dag = pipeline_dags()["visitors.promote"]
    approve = dag.get_task("approve")
    assert (dag.dagrun_timeout, approve.execution_timeout, approve.response_timeout) == (None, None, None)
    assert approve.owner == "shop"


def test_a_pipeline_that_does_not_ask_has_none(beside: Beside) -> None:
    from tidegate_airflow.factory import pipeline_dags

    beside.old.file.write_text(beside.old.file.read_text().replace("true", "false"))
    assert set(pipeline_dags()) == {"visitors", "visitors_g2"}


def test_a_file_with_a_mistake_keeps_the_dag(beside: Beside) -> None:
    from tidegate_airflow.factory import pipeline_dags

    beside.old.file.write_text(beside.old.file.read_text().replace("stages:", "stagse:"))
    assert "visitors.promote" in pipeline_dags()


def test_approver_sees_changes_but_no_records(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    from tidegate_airflow.promotion import compare

    with caplog.at_level(logging.INFO):
        shown = compare("visitors", **context(2))
    assert shown["replaced"] == 1
    assert "visitors/2 after batch 2 against visitors/1 after batch 2" in shown["summary"]
    assert "| sql:seconds | 0 | 2 | 1 | 0 |" in shown["summary"]
    assert "all that it has withheld" in shown["summary"]
    quoted = any('{"m":20}' in message for message in caplog.messages)
    assert ('{"m":20}' in shown["summary"], quoted) == (False, True)
    beside.decide(beside.old, 3, [("a", 3)])
    behind = compare("visitors", **context(2, net=True))["summary"]
    assert "It has yet to read 1 offsets that visitors/1 has read." in behind
    assert "only what differs" in behind


def test_promotion_returns_worker_while_a_batch_runs(beside: Beside, ask: Ask) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException

    from tidegate_airflow.promotion import compare, promote

    instance = Instance(compare("visitors", **context(2)))
    ask(instance)
    lease = beside.new.app.ledger.acquire(beside.new.stream, "somebody")
    with pytest.raises(AirflowRescheduleException):
        promote("visitors", **context(2, instance))
    lease.release()
    assert "visitors/2 is in charge" in promote("visitors", **context(2, instance))


def test_impossible_promotion_is_not_offered_for_approval(beside: Beside) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from tidegate_airflow.promotion import compare

    with pytest.raises(AirflowFailException, match="visitors/1 is in charge already"):
        compare("visitors", **context(1))
    with pytest.raises(AirflowFailException, match="no generation 9"):
        compare("visitors", **context(9))


def test_approved_generation_takes_charge_with_its_approver(beside: Beside, ask: Ask) -> None:
    from tidegate_airflow.promotion import compare, promote

    sent = beside.sent()
    shown = Instance(compare("visitors", **context(2)))
    ask(shown)
    assert (beside.in_charge, beside.sent()) == (1, sent)
    assert "visitors/2 is in charge" in promote("visitors", **context(2, shown))
    promotion = beside.old.app.ledger.charge("visitors").promotions[-1]
    assert (promotion.generation, promotion.run_id, promotion.approved_by) == (
        2,
        f"manual__1{SUFFIX}",
        "anna",
    )
    assert len(beside.sent()) == len(sent) + 4
    promote("visitors", **context(2, shown))  # a task that is tried again
    assert len(beside.old.app.ledger.charge("visitors").promotions) == 2


def test_promotion_cleared_after_a_rollback_does_nothing(beside: Beside, ask: Ask) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from tidegate_airflow.promotion import compare, promote

    shown = Instance(compare("visitors", **context(2)))
    ask(shown)
    promote("visitors", **context(2, shown))
    beside.rollback()
    sent = beside.sent()
    with pytest.raises(
        AirflowFailException, match=r"The run manual__1@.* has put visitors/2 in charge already"
    ):
        promote("visitors", **context(2, shown))
    with pytest.raises(AirflowFailException, match="trigger a new run"):
        compare("visitors", **context(2))  # nobody is asked for what the run would not do
    assert (beside.in_charge, beside.sent()) == (1, sent)


def test_an_approval_from_before_a_rollback_promotes_nothing(beside: Beside, ask: Ask) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from tidegate_airflow.promotion import compare, promote

    waiting = Instance(compare("visitors", **context(2)))
    ask(waiting)
    beside.promote(beside.new, approval=Approval("bert"))
    beside.rollback()
    with pytest.raises(AirflowFailException, match=r"anna has approved .* after promotion 1"):
        promote("visitors", **context(2, waiting))
    assert beside.in_charge == 1


def test_approval_of_an_older_diff_promotes_nothing(beside: Beside, ask: Ask) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from tidegate_airflow.promotion import compare, promote

    instance = Instance(compare("visitors", **context(2)))
    ask(instance)
    beside.promote(beside.new, approval=Approval("bert"))
    beside.rollback()
    instance.values["diff", "return_value"] = compare("visitors", **context(2))  # cleared alone
    with pytest.raises(
        AirflowFailException, match=r"anna has approved what .* Clear the task `approve`, too"
    ):
        promote("visitors", **context(2, instance))
    assert beside.in_charge == 1
    ask(instance)
    promote("visitors", **context(2, instance))
    assert beside.in_charge == 2


def test_repeated_diff_needs_another_approval(beside: Beside, ask: Ask) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from tidegate_airflow.promotion import compare, promote

    instance = Instance(compare("visitors", **context(2)))
    ask(instance)
    instance.values["diff", "return_value"] = compare("visitors", **context(2))
    with pytest.raises(AirflowFailException, match="before it ran again"):
        promote("visitors", **context(2, instance))
    assert beside.in_charge == 1


@pytest.mark.parametrize("option", ["Reject", None])
def test_marked_or_cleared_task_without_approval_promotes_nothing(
    beside: Beside, ask: Ask, option: str | None
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from tidegate_airflow.promotion import compare, promote

    instance = Instance(compare("visitors", **context(2)))
    if option is not None:
        ask(instance, option)
    with pytest.raises(AirflowFailException, match="Nobody has approved this promotion"):
        promote("visitors", **context(2, instance))
    assert beside.in_charge == 1
