"""What spark-submit runs. Each file is a program; they are installed as `tidegate_airflow.spark_jobs`."""
