"""The kinds of sinks, and how those of a pipeline are opened."""

from __future__ import annotations

from typing import Any

from tidegate.sinks.kafka.sink import OpenTopic
from tidegate.sinks.port import OpenSink, SinkContext
from tidegate.sinks.sql.sink import OpenSqlTable
from tidegate.sinks.table.sink import OpenDeltaTable
from tidegate.spec import Pipeline

KINDS: dict[str, type[OpenSink[Any]]] = {"kafka": OpenTopic, "sql": OpenSqlTable, "table": OpenDeltaTable}
"""`kind` in the pipeline file -> what implements it."""


def open_sinks(pipeline: Pipeline, context: SinkContext) -> list[OpenSink[Any]]:
    """The sinks of a pipeline, in the order of its file."""
    return [KINDS[sink.kind](sink, pipeline, context) for sink in pipeline.sinks]
