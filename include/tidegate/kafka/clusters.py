"""The Kafka clusters that a step uses: the source and each sink can have its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog


class KafkaClusters:
    """The logs of clusters, by the names of their connections; None is the default connection.

    As a context manager it lets all calls to a cluster inside of the block share one connection. Blocks can
    be nested: the outermost one closes the connections.

    Example:
        with clusters:
            ends = clusters.log(None).stable_ends(["events"])
    """

    def __init__(self, config_of: Callable[[str | None], KafkaConfig]) -> None:
        self._config_of = config_of
        self._logs: dict[str | None, KafkaLog] = {}
        self._users = 0
        self._entered = ExitStack()

    def log(self, connection: str | None) -> KafkaLog:
        """Return a cluster's logs, always the same object. Raises SettingsInvalid if the connection is not
        set.
        """
        if connection not in self._logs:
            log = self._logs[connection] = KafkaLog(self._config_of(connection))
            # A cluster that is first used inside of the block shares its connection there, too.
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
