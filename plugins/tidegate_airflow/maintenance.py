"""The maintenance DAG: it compacts state and removes unused files. It runs beside the pipelines' DAGs."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG, task

from tidegate.spec import load_pipelines
from tidegate_airflow import tasks
from tidegate_airflow.factory import START, parse_settings

MAINTENANCE = "tidegate_maintenance"


def maintenance_dag(folder: str | os.PathLike[str] | None = None) -> DAG:
    """Migrate the ledger if it is of an older tidegate; then compact each stream that needs it, and clean all
    streams.

    Cleaning does not wait for compaction: it removes only files that were given up a day ago. One task runs
    at a time, so that the pipelines keep most of the machine.
    """
    # A stream whose file has mistakes is not compacted here; a batch compacts if that is overdue.
    pipelines, _ = load_pipelines(parse_settings(folder).pipelines)
    with DAG(
        dag_id=MAINTENANCE,
        schedule="@daily",
        start_date=START,
        catchup=False,
        max_active_runs=1,
        max_active_tasks=1,
        default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
        tags=["tidegate"],
        doc_md=maintenance_dag.__doc__,
    ) as dag:
        migrated = task(task_id="migrate")(tasks.migrate)()
        for name, pipeline in pipelines.items():
            compact = task(task_id=f"compact_{name}")(tasks.compact)
            migrated >> compact(pipeline.pipeline, pipeline.generation)
        # `clean` reads the streams from the ledger, so generations without a file are cleaned, too.
        migrated >> task(task_id="clean")(tasks.clean)()
    return dag
