"""The kinds of sinks, and the function that opens the sinks of a pipeline."""

from __future__ import annotations

from typing import Any

from tidegate.sinks.kafka.dead_letters import OpenDeadLetters
from tidegate.sinks.kafka.sink import OpenTopic
from tidegate.sinks.port import OpenSink, SinkContext
from tidegate.sinks.sql.sink import OpenSqlTable
from tidegate.sinks.table.sink import OpenDeltaTable
from tidegate.spec import Pipeline

KINDS: dict[str, type[OpenSink[Any]]] = {"kafka": OpenTopic, "sql": OpenSqlTable, "table": OpenDeltaTable}
"""`kind` in the pipeline file -> the class that implements it."""


def open_sinks(pipeline: Pipeline, context: SinkContext) -> list[OpenSink[Any]]:
    """Return the sinks of a pipeline in the order of its file, and after them the topic of dead letters.

    No sink connects before one of its methods needs a connection.
    """
    # Dead letters are no entry of `sinks:` in the file (decision 57), but published by the same steps.
    sinks = [KINDS[sink.kind](sink, pipeline, context) for sink in pipeline.sinks]
    dead_letters = pipeline.dead_letters
    return sinks if dead_letters is None else [*sinks, OpenDeadLetters(dead_letters, pipeline, context)]
