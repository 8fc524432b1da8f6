"""A pipeline file with mistakes: its DAG stays, and its first task tells them, and which text was good."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.batch.committed import Committed
from tests.plugins.runs import CREATED
from tidegate.batch import Trigger

pytestmark = pytest.mark.airflow

SCHEDULE = "*/5 * * * *"
NAMES = ("plan", "compute", "validate", "commit", "publish")
ROWS: dict[str, list[tuple[str, int | None]]] = {"first": [("1", 10)], "second": [("1", 11)]}


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committed:
    """A scheduled pipeline in whose ledger one batch is."""
    committed = Committed(tmp_path, "  - {kind: sql, table: seconds}", f"sqlite:///{tmp_path}/sink.db")
    edit(committed, "source:", f'schedule: "{SCHEDULE}"\nsource:')
    committed.commit(1, ROWS)
    committed.lease.release()
    for name, value in committed.environment.items():
        monkeypatch.setenv(name, value)
    return committed


def edit(committed: Committed, written: str, instead: str) -> None:
    text = committed.file.read_text()
    assert written in text
    committed.file.write_text(text.replace(written, instead, 1))


def dags() -> dict[str, Any]:
    from tidegate_airflow.factory import pipeline_dags

    return pipeline_dags()


def plan(run_id: str) -> bool:
    from tidegate_airflow import tasks

    context = {"dag_run": SimpleNamespace(run_id=run_id, run_after=CREATED), "params": {}}
    return tasks.plan("visitors", context, Trigger(run_id, clock_ms=10_000))


def test_broken_file_keeps_its_dag_schedule_and_tasks(
    committed: Committed,
) -> None:
    other = committed.file.read_text().replace("pipeline: visitors", "pipeline: guests")
    committed.file.with_name("guests.yaml").write_text(other)
    good = dags()["visitors"]
    edit(committed, "reduce: latest", "reduce: lastest")
    assert dags().keys() == {"visitors", "guests"}
    broken = dags()["visitors"]
    assert "invalid pipeline file" in broken.tags
    assert "`latest`" in broken.doc_md
    assert broken.timetable.expression == good.timetable.expression == SCHEDULE
    assert broken.task_ids == good.task_ids
    assert [task.task_id for task in broken.topological_sort()][: len(NAMES)] == list(NAMES)
    assert dags()["guests"].tags == good.tags


def test_whatever_a_file_holds_it_has_a_dag(committed: Committed) -> None:
    for text in ("", "\0", "[", "pipeline: X Y", "\N{NO-BREAK SPACE}"):
        committed.file.write_text(text)
        assert dags().keys() == {"visitors"}
    committed.file.write_bytes(b"pipeline: visitors\n\xff")
    assert dags().keys() == {"visitors"}


def test_misnamed_file_leaves_other_dags_alone(committed: Committed) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from tidegate_airflow import tasks
    from tidegate_airflow.factory import maintenance_dag

    committed.file.with_name("visitors (copy).yaml").write_text(committed.file.read_text())
    assert dags().keys() == {"visitors", "visitors__copy__invalid"}
    misnamed = dags()["visitors__copy__invalid"]
    assert "invalid pipeline file" in misnamed.tags
    assert "cannot be the id of its DAG" in misnamed.doc_md
    assert set(maintenance_dag().task_ids) == {"migrate", "compact_visitors", "clean"}
    context = {"dag_run": SimpleNamespace(run_id="run-2", run_after=CREATED), "params": {}}
    with pytest.raises(AirflowFailException, match="Rename it"):
        tasks.plan("visitors (copy)", context, Trigger("run-2", clock_ms=10_000))


def test_mistaken_schedule_keeps_the_last_planned_one(
    committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate import batch
    from tidegate.batch import Outcome
    from tidegate_airflow import tasks

    monkeypatch.setattr(tasks, "run_ahead", lambda _: None)
    monkeypatch.setattr(batch, "plan_batch", lambda *_: Outcome(None, "nothing"))
    plan("run-2")
    edit(committed, SCHEDULE, "*/5 * * *")
    assert dags()["visitors"].timetable.expression == SCHEDULE


def test_mistaken_schedule_without_a_good_text_is_none(committed: Committed) -> None:
    edit(committed, SCHEDULE, "*/5 * * *")
    assert not dags()["visitors"].timetable.can_be_scheduled


def test_first_task_fails_with_mistakes_and_last_text(committed: Committed) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    edit(committed, "reduce: latest", "reduce: lastest")
    with pytest.raises(AirflowFailException) as failed:
        plan("run-2")
    message = str(failed.value)
    line = (
        committed.file.read_text()
        .splitlines()
        .index("  - {name: first, select: {n: n}, reduce: lastest, emit: {on: update}}")
    )
    assert message.startswith(f"{committed.file}:{line + 1}: stages.0.reduce: ")
    assert "The last good text was used for batch 1, planned at 20" in message
    assert "by the run run-1." in message
    assert "\n-  - {name: first, select: {n: n}, reduce: latest, emit: {on: update}}\n" in message
    assert committed.app.ledger.run(committed.stream, "run-2") is None


def test_mistake_without_an_edit_is_reported_so(
    committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    committed.file.with_name("again.yaml").write_text("# the same stream\n" + committed.file.read_text())
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "visitors")
    assert dags().keys() == {"visitors"}
    with pytest.raises(
        AirflowFailException, match=r"is also in .*again\.yaml[\s\S]*The file is the same as then"
    ):
        plan("run-2")


def test_planned_run_outlives_its_broken_file(committed: Committed) -> None:
    from tidegate_airflow import tasks

    edit(committed, "reduce: latest", "reduce: lastest")
    assert plan("run-1")
    tasks.publish("visitors", 1, "run-1", {})
    assert committed.query("SELECT key, m FROM seconds") == [("1", 11)]


def test_never_good_file_reports_no_batch(committed: Committed) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    committed.file.write_text("pipeline: another\nschedul: daily\n")
    with pytest.raises(AirflowFailException, match=r"schedul[\s\S]*has no batch that was planned"):
        plan("run-2")


def test_newest_text_is_kept_and_full_disk_logged(tmp_path: Path) -> None:
    from tidegate_airflow.runs import recall_text, remember_text

    assert recall_text(tmp_path, "p") == ""
    for text in ("one", "two"):
        remember_text(tmp_path, "p", text)
        assert recall_text(tmp_path, "p") == text
    assert [path.name for path in (tmp_path / "last_good").iterdir()] == ["p.yaml"]
    (tmp_path / "file").write_text("")
    remember_text(tmp_path / "file", "p", "two")
    assert recall_text(tmp_path / "file", "p") == ""
