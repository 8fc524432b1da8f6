"""Airflow's connections, as the environment that tidegate reads its settings from.

`tidegate_kafka`   host and port, or `bootstrap.servers` in the extra field; any further Kafka client
                   property there; login and password are SASL's
`tidegate_ledger`  the ledger's database, if it is not in TIDEGATE_LEDGER

They reach the Spark driver in its environment, never in arguments or Spark's configuration.
"""

from __future__ import annotations

import json
import os
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

KAFKA_CONNECTION = "tidegate_kafka"
LEDGER_CONNECTION = "tidegate_ledger"


def export_connections() -> None:
    """Put the connections into this task's environment, where Settings and spark-submit find them."""
    kafka = _connection(KAFKA_CONNECTION)
    if kafka is not None:
        os.environ["TIDEGATE_KAFKA"] = json.dumps(kafka_properties(kafka))
    ledger = _connection(LEDGER_CONNECTION)
    if ledger is not None:
        os.environ["TIDEGATE_LEDGER"] = sqlalchemy_url(ledger.get_uri())


def kafka_properties(connection: Any) -> dict[str, Any]:
    """A Kafka connection as client properties, by their Java names."""
    properties = dict(connection.extra_dejson)
    if connection.host:
        properties.setdefault("bootstrap.servers", f"{connection.host}:{connection.port or 9092}")
    if connection.login:
        properties |= {"sasl.username": connection.login, "sasl.password": connection.password or ""}
    return properties


def sqlalchemy_url(uri: str) -> str:
    """Airflow's URI of a database connection, with the driver that tidegate brings along."""
    for scheme in ("postgres://", "postgresql://"):
        if uri.startswith(scheme):
            return "postgresql+psycopg://" + uri.removeprefix(scheme)
    return uri


def _connection(name: str) -> Any:
    try:
        return BaseHook.get_connection(name)
    except (AirflowNotFoundException, AirflowRuntimeError):
        return None
