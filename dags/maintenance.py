"""Compaction and cleaning, once a day; see `plugins/tidegate_airflow/maintenance.py`."""

from tidegate_airflow.maintenance import maintenance_dag

dag = maintenance_dag()
