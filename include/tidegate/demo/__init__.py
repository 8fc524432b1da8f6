"""The demo: its inputs, the expected outputs, and a run with real Kafka, Spark and Airflow."""

from tidegate.demo.run import DemoResult, SampleResult, run_demo

__all__ = ["DemoResult", "SampleResult", "run_demo"]
