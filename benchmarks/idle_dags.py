"""DAGs of one and of five tasks that do nothing: what Airflow itself takes, beside runs of a pipeline."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG, chain, task


def _nothing() -> None:
    pass


for tasks in (1, 5):
    with DAG(
        dag_id=f"idle_{tasks}", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)
    ) as dag:
        chain(*[task(task_id=f"nothing_{number}")(_nothing)() for number in range(tasks)])
    globals()[dag.dag_id] = dag
