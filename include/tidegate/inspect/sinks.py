"""Examine the sinks of a pipeline file, for `doctor`."""

from __future__ import annotations

from tidegate.app.root import App, stream_of
from tidegate.spec import Pipeline


def check_sinks(app: App, pipeline: Pipeline) -> None:
    """Check that nothing prevents publishing the next batch to the sinks of a pipeline file.

    Raises what `OpenSink.check_settings` and `OpenSink.check_target` raise.
    """
    sinks = app.sinks(stream_of(pipeline), pipeline)
    for sink in sinks:
        sink.check_settings()
    for sink in sinks:
        sink.check_target()


def sink_warnings(app: App, pipeline: Pipeline) -> list[str]:
    """Return a sentence for each problem that a batch may meet. Raises TopicMissing, BrokerUnavailable."""
    return [warning for sink in app.sinks(stream_of(pipeline), pipeline) for warning in sink.warnings()]
