"""tidegate: micro-batch ETL for Kafka that lets out only what matters, exactly once."""

__version__ = "0.1.0"
