"""Compaction and cleaning, once a day; see `plugins/tidegate_airflow/factory.py`."""

from tidegate_airflow import maintenance_dag

dag = maintenance_dag()
