"""Airflow's connections, as the environment that tidegate reads its settings from.

`tidegate_kafka`   host and port, or `bootstrap.servers` in the extra field; any further Kafka client
                   property there; login and password are SASL's
`tidegate_ledger`  the ledger's database, if it is not in TIDEGATE_LEDGER
`tidegate_sql`, `tidegate_sql_<name>`  databases of SQL sinks, without and with `connection: <name>`, if they
                   are not in TIDEGATE_SQL, TIDEGATE_SQL_<NAME>

The first two reach the Spark driver in its environment, never in arguments or Spark's configuration; the
sinks' databases do not reach it at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError
from sqlalchemy import URL

from tidegate.settings import sql_variable

KAFKA_CONNECTION = "tidegate_kafka"
LEDGER_CONNECTION = "tidegate_ledger"
SQL_CONNECTION = "tidegate_sql"
_SPARK_CONNECT = "spark_connect"
# the rest of the extra field is for Airflow's own hooks
_POSTGRES_OPTIONS = ("sslmode", "sslcert", "sslkey", "sslrootcert", "connect_timeout", "target_session_attrs")


def export_connections() -> None:
    """Put the connections into this task's environment, where Settings and spark-submit find them."""
    kafka = _connection(KAFKA_CONNECTION)
    if kafka is not None:
        os.environ["TIDEGATE_KAFKA"] = json.dumps(kafka_properties(kafka))
    ledger = _connection(LEDGER_CONNECTION)
    if ledger is not None:
        os.environ["TIDEGATE_LEDGER"] = database_url(ledger)


def export_sql_connections(names: Iterable[str | None]) -> None:
    """The same for the databases of SQL sinks, by the sinks' `connection`."""
    for name in names:
        found = _connection(f"{SQL_CONNECTION}_{name}" if name else SQL_CONNECTION)
        if found is not None:
            os.environ[sql_variable(name)] = database_url(found)


def spark_connect_url(name: str) -> str | None:
    """The URL of the Spark Connect server of a connection; None: it is of another kind, or there is none."""
    spark = _connection(name)
    if spark is None or spark.conn_type != _SPARK_CONNECT:
        return None
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    return str(SparkConnectHook(name).get_connection_url())


def kafka_properties(connection: Any) -> dict[str, Any]:
    """A Kafka connection as client properties, by their Java names."""
    properties = dict(connection.extra_dejson)
    if connection.host:
        properties.setdefault("bootstrap.servers", f"{connection.host}:{connection.port or 9092}")
    if connection.login:
        properties |= {"sasl.username": connection.login, "sasl.password": connection.password or ""}
    return properties


def database_url(connection: Any) -> str:
    """A database connection as SQLAlchemy's URL, with the driver that tidegate brings along."""
    if connection.conn_type == "sqlite":
        return f"sqlite:///{connection.host or connection.schema}"
    if connection.conn_type not in ("postgres", "postgresql"):
        return str(connection.get_uri())
    extra = connection.extra_dejson
    options = {name: str(extra[name]) for name in _POSTGRES_OPTIONS if name in extra}
    url = URL.create(
        "postgresql+psycopg",
        connection.login,
        connection.password,
        connection.host,
        connection.port,
        connection.schema,
        options,
    )
    return url.render_as_string(hide_password=False)


def _connection(name: str) -> Any:
    try:
        return BaseHook.get_connection(name)
    except (AirflowNotFoundException, AirflowRuntimeError):
        return None
