"""`airflow:` of a pipeline file and of defaults.yaml: what may stand there, and whose word counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.files import GOOD, good, problems
from tidegate.errors import PipelineInvalid
from tidegate.model.airflow import AirflowSettings
from tidegate.model.compiled import compile_pipeline, read_compiled
from tidegate.storage.compatibility import incompatible_changes
from tidegate.yaml.load import load_defaults, load_pipelines, parse_pipeline

AIRFLOW = """\
airflow:
  owner: shop
  tags: [shop, stock]
  pool: spark
  queue: large
  retries: 5
  retry_delay: 30s
  task_timeout: 30m
  run_timeout: 1h
  on_task_failure: shop.alerts:page
  on_task_retry: shop.alerts:note
  on_run_failure: shop.alerts:page
  on_run_success: shop.alerts:note
  on_missed_deadline: shop.alerts:page
  on_quality: shop.alerts:quality
  on_quarantine: shop.alerts:page
  approve_promotion: true
  spark:
    connection: spark_large
    driver_memory: 2g
    executor_memory: 1500m
    executor_cores: 2
    executors: 4
    conf: {spark.executor.memoryOverhead: 1g, spark.ui.enabled: false}
"""


def settings(text: str) -> AirflowSettings:
    """Return the settings of a pipeline file with this `airflow:`, which is given as YAML in one line."""
    return parse_pipeline(f"{GOOD}airflow: {text}\n", "p.yaml").airflow


def test_all_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    read = parse_pipeline(GOOD + AIRFLOW, "p.yaml").airflow
    assert (read.owner, read.tags, read.pool, read.queue, read.retries) == (
        *("shop", ("shop", "stock"), "spark", "large", 5),
    )
    assert (read.retry_delay_ms, read.task_timeout_ms, read.run_timeout_ms) == (30_000, 1_800_000, 3_600_000)
    assert read.approve_promotion is True
    assert read.spark.conf == {"spark.executor.memoryOverhead": "1g", "spark.ui.enabled": False}


@pytest.mark.parametrize(
    ("written", "field", "expected"),
    [
        ("{retires: 5}", "retires", "Did you mean `retries`?"),
        ("{retries: -1}", "retries", "too small"),
        ("{retry_delay: 30}", "retry_delay", "`30s`"),
        ("{task_timeout: 25h}", "task_timeout", "a day at most"),
        ("{pool: ''}", "pool", "1 to 100 characters"),
        ("{tags: [a, a]}", "tags", "named twice"),
        ("{on_task_failure: page}", "on_task_failure", "`module:function`"),
        ("{on_task_failure: 'os:system'}", "on_task_failure", "TIDEGATE_PYTHON_MODULES=os"),
        ("{spark: {driver_memory: 2}}", "spark.driver_memory", "text"),
        ("{spark: {driver_memory: 2t}}", "spark.driver_memory", "`4g`"),
        ("{spark: {conf: {spark.sql.ansi.enabled: false}}}", "spark.conf.spark.sql.ansi.enabled", "itself"),
        ("{spark: {conf: {spark.hadoop.fs.s3a.secret.key: x}}}", "spark.conf", "Spark connection"),
        ("{spark: {conf: {spark.executorEnv.TOKEN: x}}}", "spark.conf", "Spark connection"),
        ("{dag_id: x}", "dag_id", "unknown field"),
    ],
)
def test_airflow_mistake_has_line_and_fix(written: str, field: str, expected: str) -> None:
    ((line, actual_field, message, fix),) = problems(f"{GOOD}airflow: {written}\n")
    assert line == len(GOOD.splitlines()) + 1
    assert actual_field.startswith(f"airflow.{field}")
    assert expected in f"{message}. {fix}"


def test_airflow_settings_leave_plans_and_state_unchanged() -> None:
    plain, placed = good(), parse_pipeline(f"{GOOD}airflow: {{pool: spark, retries: 0}}\n", "p.yaml")
    assert compile_pipeline(placed) == compile_pipeline(plain)
    assert incompatible_changes(plain, placed) == []
    assert read_compiled(compile_pipeline(placed), placed.text, "batch 1").airflow == AirflowSettings()


def test_pipeline_settings_override_defaults_field_by_field() -> None:
    defaults = settings(
        "{pool: a, queue: q, tags: [x], spark: {executors: 2, conf: {spark.ui.enabled: true}}}"
    )
    own = settings("{pool: b, tags: [], spark: {conf: {spark.cores.max: 4}}}")
    both = own.over(defaults)
    assert (both.pool, both.queue, both.tags, both.spark.executors) == ("b", "q", (), 2)
    assert both.spark.conf == {"spark.ui.enabled": True, "spark.cores.max": 4}


def test_a_null_takes_a_default_back() -> None:
    assert settings("{pool: null}").over(settings("{pool: a, retries: 1}")) == settings("{retries: 1}")


def test_defaults_are_no_pipeline_and_none_are_needed(tmp_path: Path) -> None:
    (tmp_path / "levels.yaml").write_text(GOOD)
    assert load_defaults(tmp_path).dag_id_prefix == ""
    (tmp_path / "defaults.yaml").write_text("dag_id_prefix: shop_\nairflow: {pool: spark}\n")
    pipelines, broken = load_pipelines(tmp_path)
    assert (list(pipelines), broken) == (["levels"], [])
    defaults = load_defaults(tmp_path)
    assert (defaults.dag_id_prefix, defaults.airflow.pool) == ("shop_", "spark")


def test_an_empty_file_of_defaults_has_none(tmp_path: Path) -> None:
    (tmp_path / "defaults.yaml").write_text("# nothing yet\n")
    assert load_defaults(tmp_path).airflow == AirflowSettings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dag_prefix: a", "Did you mean `dag_id_prefix`?"),
        ("dag_id_prefix: 'a b'", "letters, digits"),
        ("\nairflow: {schedule: '@daily'}", "defaults.yaml:2: airflow.schedule: unknown field"),
        ("airflow: [", "defaults.yaml:1"),
    ],
)
def test_defaults_mistake_has_line_and_fix(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "defaults.yaml").write_text(text)
    with pytest.raises(PipelineInvalid) as caught:
        load_defaults(tmp_path)
    assert expected in str(caught.value)
