"""The Spark edge: session, Kafka read, decoding, feeding the kernel, writing."""

from tidegate.engine.batch import compute_batch
from tidegate.engine.session import open_session

__all__ = ["compute_batch", "open_session"]
