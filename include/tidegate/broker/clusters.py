"""The Kafka clusters that a step works with: source and sinks may have one each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from tidegate.broker.config import KafkaConfig
from tidegate.broker.log import KafkaLog


class KafkaClusters:
    """The logs of clusters, by the names of their connections; None is the one without a name.

    As a context manager, whatever is asked of a cluster inside goes over one connection. It may be entered
    again inside: the outermost one ends the connections.
    """

    def __init__(self, config_of: Callable[[str | None], KafkaConfig]) -> None:
        self._config_of = config_of
        self._logs: dict[str | None, KafkaLog] = {}
        self._users = 0
        self._entered = ExitStack()

    def log(self, connection: str | None) -> KafkaLog:
        """A cluster's logs, always the same. Raises SettingsInvalid where it is not set."""
        if connection not in self._logs:
            log = self._logs[connection] = KafkaLog(self._config_of(connection))
            if self._users:
                self._entered.enter_context(log)
        return self._logs[connection]

    def __enter__(self) -> KafkaClusters:
        if self._users == 0:
            for log in self._logs.values():
                self._entered.enter_context(log)
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if self._users == 0:
            self._entered.close()
