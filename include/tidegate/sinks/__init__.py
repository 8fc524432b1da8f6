"""Send emissions to sinks, each batch exactly once: one port, and a folder per kind."""

from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import OpenSink, SinkContext, shard_name
from tidegate.sinks.registry import KINDS, open_sinks

__all__ = ["KINDS", "OpenSink", "Outbox", "SinkContext", "open_sinks", "shard_name"]
