"""What the DAG factory hands to spark-submit."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize(("set_to", "handed_on"), [("2g", "2g"), ("", None)])
def test_driver_memory_reaches_spark_submit(
    set_to: str, handed_on: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow.factory import pipeline_dags

    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_SPARK_MEMORY", set_to)
    computed = pipeline_dags()["availability"].get_task("compute")
    assert computed._get_hook()._driver_memory == handed_on


def test_started_batches_precede_new_plans_in_few_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow.factory import pipeline_dags

    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    dag = pipeline_dags()["availability"]
    assert {task.weight_rule for task in dag.tasks} == {"upstream"}


def test_maintenance_compacts_and_cleans_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dags import maintenance

    from tidegate_airflow.factory import maintenance_dag

    dag = maintenance_dag()
    assert maintenance.dag.dag_id == dag.dag_id == "tidegate_maintenance"
    compacting = dag.get_task("compact_availability")
    assert tuple(compacting.op_args) == ("availability", 1)
    assert {"compact_visitor_batches", "clean"} < set(dag.task_ids)
    assert {task.task_type for task in dag.tasks} == {"_PythonDecoratedOperator"}
    assert dag.max_active_tasks == 1
    assert dag.get_task("migrate").downstream_task_ids == set(dag.task_ids) - {"migrate"}


def test_starting_task_reads_only_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.factory import pipeline_dags

    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name in ("availability", "visitor_batches"):
        text = (REPOSITORY / "include" / "pipelines" / f"{name}.yaml").read_text()
        (folder / f"{name}.yaml").write_text(text)
    (folder / "typo.yaml").write_text("pipelines: none")
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_PIPELINES", str(folder))
    names = {"availability", "visitor_batches", "typo"}
    assert pipeline_dags().keys() == names
    for dag_id in names:
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", dag_id)
        assert pipeline_dags().keys() == {dag_id}
    # who has no file of this name is looked for among all
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "elsewhere")
    assert pipeline_dags().keys() == names


def test_dag_has_schedule_time_zone_and_trigger_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.factory import pipeline_dags

    text = (REPOSITORY / "include" / "pipelines" / "availability.yaml").read_text()
    lines = "timezone: Europe/Berlin\nstart_date: 2026-07-01\ncatchup: true\nsource:\n"
    (tmp_path / "here.yaml").write_text(text.replace("source:\n", lines, 1))
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_PIPELINES", str(tmp_path))
    dag = pipeline_dags()["here"]
    assert (dag.timetable.expression, str(dag.timetable.timezone)) == ("*/5 * * * *", "Europe/Berlin")
    assert dag.start_date == datetime(2026, 6, 30, 22, tzinfo=timezone.utc)
    assert dag.catchup
    form = ["until", "until_offsets", "max_records", "drain", "from_start", "dry_run", "replay"]
    assert list(dag.params)[:7] == form
    sections = [param.schema.get("section") for param in list(dag.params.values())[6:]]
    assert list(dict.fromkeys(sections)) == ["Replay of quarantine", "Action in place of a batch"]


@pytest.mark.parametrize(
    ("schedule", "first", "hours"),
    [
        ("0 0 * * *", "2026-03-28", [24, 23, 24]),
        ("0 0 * * *", "2026-10-24", [24, 25, 24]),
        ("0 * * * *", "2026-03-29", [1] * 23),
        ("0 * * * *", "2026-10-25", [1] * 25),
    ],
    ids=["days in spring", "days in autumn", "hours in spring", "hours in autumn"],
)
def test_schedule_intervals_join_across_clock_changes(
    schedule: str, first: str, hours: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables.base import TimeRestriction

    from tidegate_airflow.factory import pipeline_dags

    text = (REPOSITORY / "include" / "pipelines" / "availability.yaml").read_text()
    lines = f"timezone: Europe/Berlin\nstart_date: {first}\ncatchup: true\nsource:\n"
    text = text.replace("source:\n", lines, 1).replace("*/5 * * * *", schedule)
    (tmp_path / "here.yaml").write_text(text)
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_PIPELINES", str(tmp_path))
    dag = DagSerialization.from_dict(DagSerialization.to_dict(pipeline_dags()["here"]))
    midnight = datetime.fromisoformat(first).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    limits, last, end = TimeRestriction(dag.start_date, None, catchup=True), None, midnight
    for length in hours:
        info = dag.timetable.next_dagrun_info(last_automated_data_interval=last, restriction=limits)
        last = info.data_interval
        assert last.start == end
        assert last.end - last.start == timedelta(hours=length)
        end = last.end
    assert end.astimezone(midnight.tzinfo).hour == 0


def test_relative_home_is_refused_under_airflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tidegate.errors import SettingsInvalid
    from tidegate_airflow.factory import pipeline_dags

    monkeypatch.setenv("TIDEGATE_HOME", "state")
    with pytest.raises(SettingsInvalid, match="TIDEGATE_HOME=state is a relative path"):
        pipeline_dags()
