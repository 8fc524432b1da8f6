"""Jobs that tidegate and its peers do side by side, each as its own users would write it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """`pipeline` is the stem of tidegate's file, a sample or one in `pipelines/`; `streams` is the class of
    Kafka Streams' program in `kafka_streams/`. For the same events both send the same records: for each key
    the same values and timestamps in the same order.
    """

    pipeline: str
    streams: str


AVAILABILITY = Job("availability", "Availability")
BATCHES = Job("event_batches", "EventBatches")
WINDOWS = Job("window_sums", "WindowSums")
SUMS = Job("running_sums", "RunningSums")
RATE_LIMIT = Job("rate_limit", "RateLimit")
