"""Read the keys to erase from a topic of requests."""

from __future__ import annotations

from tidegate.app import App
from tidegate.erasure.plan import newest_pipeline, streams_of
from tidegate.errors import SettingsInvalid
from tidegate.kafka.records import Slice, read_slice


def keys_in_topic(app: App, pipeline: str, topic: str) -> list[str]:
    """Return the distinct keys of a topic's records, in the cluster of the pipeline's source.

    Raises SettingsInvalid if a key is not text; TopicMissing, BrokerUnavailable.
    """
    connection = newest_pipeline(app, streams_of(app, pipeline)[0]).sources.connection
    with app.log(connection) as log:
        view = log.view(topic)
    keys: dict[str, None] = {}
    for partition, end in view.stable_ends.items():
        for block in read_slice(
            app.settings.kafka(connection), Slice(topic, partition, view.starts[partition], end)
        ):
            for message in block:
                keys[_text(message.key(), topic, partition)] = None
    return list(keys)


def _text(key: bytes | None, topic: str, partition: int) -> str:
    try:
        if key is not None:
            return key.decode()
    except UnicodeDecodeError:
        pass
    raise SettingsInvalid(
        f"A record of {topic}[{partition}] has no key, or one that is not text",
        "Send a record with each key to erase, as `tidegate state` writes it.",
    )
