"""One DAG per file in the pipelines folder; see `plugins/tidegate_airflow/factory.py`."""

from tidegate_airflow import pipeline_dags

globals().update(pipeline_dags())
