"""The local stack of `tidegate up` and the demo: Kafka, Spark and Airflow on one machine, with nothing
installed by hand. Production does not install this distribution.
"""

__version__ = "0.1.0"
