"""Compaction and cleaning, once a day; see `plugins/tidegate_airflow/maintenance.py`."""

from tidegate_airflow import maintenance_dag

dag = maintenance_dag()
