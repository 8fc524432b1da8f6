"""The console: pages that show pipelines, their batches and their records. They only read.

Airflow serves them behind its login, and `tidegate ui` without Airflow.
"""
