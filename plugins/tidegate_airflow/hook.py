"""Airflow's hook of Kafka connections, for their form's `Test` button and for DAGs of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from tidegate_airflow.connections import KAFKA_CONNECTION, kafka_properties
from tidegate_airflow.provider import KAFKA_NAME, KAFKA_TYPE

if TYPE_CHECKING:
    from tidegate.broker.log import KafkaLog


class KafkaHook(BaseHook):  # type: ignore[misc]  # Airflow is not typed
    """The Kafka cluster of a connection, as tidegate reads and writes it."""

    conn_name_attr = "kafka_conn_id"
    default_conn_name = KAFKA_CONNECTION
    conn_type = KAFKA_TYPE
    hook_name = KAFKA_NAME

    def __init__(self, kafka_conn_id: str = KAFKA_CONNECTION) -> None:
        super().__init__()
        self.kafka_conn_id = kafka_conn_id

    def get_conn(self) -> KafkaLog:
        """Kafka's logs, which are asked over one connection inside of `with`. Raises SettingsInvalid."""
        from tidegate.broker.config import KafkaConfig
        from tidegate.broker.log import KafkaLog

        return KafkaLog(KafkaConfig.from_dict(kafka_properties(self.get_connection(self.kafka_conn_id))))

    def test_connection(self) -> tuple[bool, str]:
        """Whether a broker answers to this login, and what tidegate would lack there."""
        from tidegate.errors import TidegateError

        try:
            with self.get_conn() as log:
                shortcomings = log.progress_topic_shortcomings()
        except TidegateError as error:
            return False, str(error)
        return True, " ".join(["A broker answers.", *shortcomings])
