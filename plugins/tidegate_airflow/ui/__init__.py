"""Pages in Airflow's UI: what streams hold, how batches went, what is wrong. They only read."""
