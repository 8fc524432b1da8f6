"""The local stack: Java, jars, a Kafka broker and Airflow on one machine, with nothing installed by hand."""
