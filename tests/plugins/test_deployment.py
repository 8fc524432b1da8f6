"""A pipeline's DAG in an Airflow, by `airflow:` and `defaults.yaml`, and the folders of pipelines."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.model.test_airflow import AIRFLOW
from tidegate.errors import PipelineInvalid, QualityFailed, SettingsInvalid

pytestmark = pytest.mark.airflow

SAMPLE = (REPOSITORY / "include" / "pipelines" / "availability.yaml").read_text()
SHOP = """\
calls = []
causes = []
def page(context):
    calls.append(context["what"])
    causes.append(context["cause"])
note = page
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of pipelines that no variable names, with one in it."""
    made = tmp_path / "anywhere"
    made.mkdir()
    (made / "availability.yaml").write_text(SAMPLE)
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_PIPELINES", str(tmp_path / "elsewhere"))
    return made


@pytest.fixture
def shop(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's own, with callbacks."""
    package = modules / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "alerts.py").write_text(SHOP)
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")


def dag_of(folder: Path, dag_id: str = "availability") -> Any:
    from tidegate_airflow import pipeline_dags

    return pipeline_dags(folder)[dag_id]


def test_two_lines_are_a_dag_file(folder: Path) -> None:
    names: dict[str, Any] = {}
    lines = f"from tidegate_airflow import pipeline_dags\nglobals().update(pipeline_dags({str(folder)!r}))"
    exec(compile(lines, "dags.py", "exec"), names)
    assert set(names["availability"].task_ids) == {
        *("plan", "compute", "validate", "commit", "publish", "cover")
    }


def test_every_task_finds_the_folder_of_its_dag(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for task in dag_of(folder).tasks:
        monkeypatch.setenv("TIDEGATE_PIPELINES", "before")
        task._pre_execute_hook({})
        assert os.environ["TIDEGATE_PIPELINES"] == str(folder)


def test_missing_folder_is_reported_with_a_remedy(folder: Path) -> None:
    from tidegate_airflow import maintenance_dag, pipeline_dags

    for made in (pipeline_dags, maintenance_dag):
        with pytest.raises(SettingsInvalid, match=r"elsewhere. Set TIDEGATE_PIPELINES"):
            made()


def test_all_settings_reach_the_dag_and_its_tasks(folder: Path, shop: None) -> None:
    (folder / "availability.yaml").write_text(SAMPLE + AIRFLOW)
    dag = dag_of(folder)
    assert dag.tags == {"tidegate", "shop", "stock"}
    assert dag.dagrun_timeout == timedelta(hours=1)
    assert dag.has_on_failure_callback
    assert dag.has_on_success_callback
    for task in dag.tasks:
        assert (task.owner, task.pool, task.queue, task.retries) == ("shop", "spark", "large", 5)
        assert (task.retry_delay, task.execution_timeout) == (timedelta(seconds=30), timedelta(minutes=30))
        assert (len(task.on_failure_callback), len(task.on_retry_callback)) == (3, 2)
        assert task.weight_rule == "upstream"
    hook = dag.get_task("compute")._get_hook()
    assert (hook._driver_memory, hook._executor_memory, hook._executor_cores) == ("2g", "1500m", 2)
    assert hook._num_executors == 4
    assert dag.get_task("compute")._conn_id == "spark_large"
    assert dag.get_task("compute").conf == {
        "spark.executor.memoryOverhead": "1g",
        "spark.ui.enabled": "false",
    }


def test_factory_defaults_apply_without_settings(folder: Path) -> None:
    dag = dag_of(folder)
    compute = dag.get_task("compute")
    assert (compute.retries, compute.retry_delay, compute.pool) == (3, timedelta(seconds=10), "default_pool")
    assert (compute._conn_id, compute.execution_timeout) == ("spark_default", timedelta(days=1))
    assert dag.tags == {"tidegate"}


def test_a_callback_is_imported_when_it_is_called(folder: Path, shop: None) -> None:
    import sys

    (folder / "availability.yaml").write_text(SAMPLE + "airflow: {on_task_failure: 'shop.alerts:page'}\n")
    *_, callback = dag_of(folder).get_task("plan").on_failure_callback
    assert "shop.alerts" not in sys.modules
    callback({"what": "failed", "exception": QualityFailed("Batch 1 does not pass", "Correct the data")})
    assert sys.modules["shop.alerts"].calls == ["failed"]
    assert sys.modules["shop.alerts"].causes == ["Batch 1 does not pass. Correct the data"]


def test_defaults_hold_for_every_pipeline_that_says_nothing(folder: Path) -> None:
    (folder / "other.yaml").write_text(
        SAMPLE.replace("pipeline: availability", "pipeline: other") + "airflow: {pool: own}\n"
    )
    (folder / "defaults.yaml").write_text("airflow: {pool: shared, retries: 1}\n")
    pools = {name: dag_of(folder, name).get_task("plan").pool for name in ("availability", "other")}
    assert pools == {"availability": "shared", "other": "own"}
    assert dag_of(folder, "other").get_task("plan").retries == 1


def test_task_reads_its_file_by_prefixed_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow import pipeline_dags

    (folder / "defaults.yaml").write_text("dag_id_prefix: shop.\n")
    (folder / "typo.yaml").write_text("pipelines: none")
    assert pipeline_dags(folder).keys() == {"shop.availability", "shop.typo"}
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "shop.availability")
    assert pipeline_dags(folder).keys() == {"shop.availability"}
    assert dag_of(folder, "shop.availability").get_task("plan").op_args[0] == "availability"


def test_defaults_mistake_is_an_import_error(folder: Path) -> None:
    (folder / "defaults.yaml").write_text("airflow: {pol: shared}\n")
    with pytest.raises(PipelineInvalid, match="Did you mean `pool`"):
        dag_of(folder)


def test_a_dag_with_all_settings_survives_airflows_serialization(folder: Path, shop: None) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    (folder / "availability.yaml").write_text(SAMPLE + AIRFLOW)
    first, second = (DagSerialization.to_dict(dag_of(folder)) for _ in range(2))
    assert first == second
    restored = DagSerialization.from_dict(first)
    assert restored.get_task("compute").pool == "spark"
