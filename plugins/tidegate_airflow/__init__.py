"""All that knows Airflow: the DAG factory, the steps as tasks, and Airflow's connections as settings."""
