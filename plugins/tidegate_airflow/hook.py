"""A hook for Kafka connections, for the `Test` button of their form and for your own DAGs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from tidegate_airflow.connections import KAFKA_CONNECTION, kafka_properties
from tidegate_airflow.provider import KAFKA_NAME, KAFKA_TYPE

if TYPE_CHECKING:
    from tidegate.kafka.log import KafkaLog


class KafkaHook(BaseHook):  # type: ignore[misc]  # Airflow is not typed
    """The Kafka cluster of a connection, as tidegate uses it.

    Example:
        with KafkaHook("tidegate_kafka_shop").get_conn() as log:
            ends = log.stable_ends(["orders"])
    """

    conn_name_attr = "kafka_conn_id"
    default_conn_name = KAFKA_CONNECTION
    conn_type = KAFKA_TYPE
    hook_name = KAFKA_NAME

    def __init__(self, kafka_conn_id: str = KAFKA_CONNECTION) -> None:
        super().__init__()
        self.kafka_conn_id = kafka_conn_id

    def get_conn(self) -> KafkaLog:
        """Return the cluster's logs; inside of `with` all calls share a connection.

        Raises SettingsInvalid if a property of the connection cannot be used.
        """
        from tidegate.kafka.config import KafkaConfig
        from tidegate.kafka.log import KafkaLog

        return KafkaLog(KafkaConfig.from_dict(kafka_properties(self.get_connection(self.kafka_conn_id))))

    def test_connection(self) -> tuple[bool, str]:
        """Return whether a broker accepts this login, and a message, which also lists unsuitable settings.

        Example: `(True, "A broker answers.")`
        """
        from tidegate.errors import TidegateError

        try:
            with self.get_conn() as log:
                shortcomings = log.progress_topic_shortcomings()
        except TidegateError as error:
            return False, str(error)
        return True, " ".join(["A broker answers.", *shortcomings])
