"""What doctor finds out about the sinks of a pipeline file."""

from __future__ import annotations

from tidegate.app.root import App, stream_of
from tidegate.spec import Pipeline


def check_sinks(app: App, pipeline: Pipeline) -> None:
    """Find what would keep the next batch from being published to the sinks of a pipeline file.

    Raises what `OpenSink.check_settings` and `OpenSink.check_target` raise.
    """
    sinks = app.sinks(stream_of(pipeline), pipeline)
    for sink in sinks:
        sink.check_settings()
    for sink in sinks:
        sink.check_target()


def sink_warnings(app: App, pipeline: Pipeline) -> list[str]:
    """A sentence for all that a batch may run into. Raises TopicMissing, BrokerUnavailable."""
    return [told for sink in app.sinks(stream_of(pipeline), pipeline) for told in sink.warnings()]
