"""One DAG per pipeline file. At parse time only the YAML files are read."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, get_parsing_context, task

from tidegate.errors import PipelineInvalid
from tidegate.settings import Settings
from tidegate.spec import Pipeline, load_pipeline, load_pipelines
from tidegate_airflow import tasks
from tidegate_airflow.operators import BatchOperator, ComputeOperator

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
_REPOSITORY = Path(__file__).resolve().parents[2]
_RUN_ID = "{{ run_id }}"
SPARK_CONNECTION = "spark_default"


def pipeline_dags() -> dict[str, DAG]:
    """DAG id -> DAG, one per file in the pipelines folder and named after it, so that two generations of a
    pipeline can run side by side. A broken file becomes a DAG that says so.

    A task that is about to run needs its own DAG only, and reads that file alone.
    """
    settings = parse_settings()
    wanted = get_parsing_context().dag_id
    if wanted is not None and (file := settings.pipelines / f"{wanted}.yaml").is_file():
        return {wanted: _dag(wanted, load_pipeline(file), settings)}
    pipelines, broken = load_pipelines(settings.pipelines)
    dags = [_dag(name, each, settings) for name, each in pipelines.items()]
    dags += [_broken_dag(each) for each in broken]
    return {dag.dag_id: dag for dag in dags}


def parse_settings() -> Settings:
    """The settings while DAG files are parsed: the pipelines are those of this checkout, unless set."""
    default = str(_REPOSITORY / "include" / "pipelines")
    return Settings.from_environment({"TIDEGATE_PIPELINES": default, **os.environ})


def _dag(name: str, pipeline: Pipeline, settings: Settings) -> DAG:
    schedule = CronDataIntervalTimetable(pipeline.schedule, timezone="UTC") if pipeline.schedule else None
    with DAG(
        dag_id=name,
        schedule=schedule,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        # "upstream": a batch that is begun comes before the plans of runs that may only find that they wait
        default_args={"retries": 3, "retry_delay": timedelta(seconds=10), "weight_rule": "upstream"},
        tags=["tidegate"],
        doc_md=_documentation(pipeline),
    ) as dag:
        _wire(name, pipeline, settings)
    return dag


def _wire(name: str, pipeline: Pipeline, settings: Settings) -> None:
    """plan >> compute >> validate >> commit >> publish; or all of it in one task, `batch`."""
    if pipeline.tasks == "one":
        BatchOperator(task_id="batch", pipeline_file=name, **_spark_options(pipeline, settings))
        return
    mine = (pipeline.pipeline, pipeline.generation, _RUN_ID)
    planned = task.short_circuit(task_id="plan")(_plan)(name)
    computed = ComputeOperator(task_id="compute", **_spark_options(pipeline, settings))
    validated = task(task_id="validate")(tasks.validate)(*mine)
    committed = task(task_id="commit")(tasks.commit)(*mine)
    published = task(task_id="publish")(tasks.publish)(*mine)
    planned >> computed >> validated >> committed >> published


def _spark_options(pipeline: Pipeline, settings: Settings) -> dict[str, Any]:
    """What spark-submit is told of step 2, where it starts it."""
    return {
        "application": str(_REPOSITORY / "spark_jobs" / "compute.py"),
        "application_args": [pipeline.pipeline, str(pipeline.generation), _RUN_ID],
        "name": f"tidegate-{pipeline.pipeline}-g{pipeline.generation}",
        "conn_id": SPARK_CONNECTION,
        "driver_memory": settings.spark_memory,
        "durable": False,  # a retry must compute again; the ledger knows what is done
    }


def _plan(pipeline_file: str, **context: Any) -> bool:
    return tasks.plan(pipeline_file, context["dag_run"])


def _documentation(pipeline: Pipeline) -> str:
    return f"Generation {pipeline.generation} of `{pipeline.pipeline}`:\n\n```yaml\n{pipeline.text}\n```\n"


def _broken_dag(error: PipelineInvalid) -> DAG:
    """Visible in the UI beside the others, which go on; its only task fails with the list of mistakes."""
    name = Path(error.problems[0].file).stem
    problems = "\n".join(f"* {problem}" for problem in error.problems)
    with DAG(
        dag_id=f"{name}__invalid",
        schedule=None,
        start_date=START,
        tags=["tidegate", "invalid pipeline file"],
        doc_md=f"**{name} has mistakes:**\n\n{problems}\n",
    ) as dag:
        task(task_id="plan")(_refuse)(str(error))
    return dag


def _refuse(problems: str) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    raise AirflowFailException(problems)
