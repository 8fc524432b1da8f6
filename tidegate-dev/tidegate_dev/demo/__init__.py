"""The demo: its inputs, the expected outputs, and a run with real Kafka, Spark and Airflow."""
