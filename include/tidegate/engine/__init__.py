"""The Spark edge: session, Kafka read, decoding, feeding the kernel, writing."""

from tidegate.engine.batch import Before, Computed, compute_batch
from tidegate.engine.session import open_session

__all__ = ["Before", "Computed", "compute_batch", "open_session"]
