"""Airflow's connections, as the environment that tidegate reads its settings from.

`tidegate_kafka`, `tidegate_kafka_<name>`  Kafka clusters, without and with `connection: <name>`: host and
                   port (or `bootstrap.servers` in the extra field); any further Kafka client property there,
                   by Java's name or librdkafka's; login and password are SASL's
`tidegate_sql`, `tidegate_sql_<name>`  databases of SQL sinks, likewise
`tidegate_registry`, `tidegate_registry_<name>`  schema registries: the URL as host (or host, port, and
                   `https` as schema), login and password; `ssl.ca.location` and the like in the extra field
`tidegate_ledger`  the ledger's database, if it is not in TIDEGATE_LEDGER

Those that Airflow does not have may be in the environment: TIDEGATE_KAFKA, TIDEGATE_SQL_<NAME>, …

A step has those that it works with, and they are gone after it. The ledger's and that of the source reach the
Spark driver in its environment, never in arguments or Spark's configuration; those of sinks do not reach it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError
from airflow.sdk.log import mask_secret
from sqlalchemy import URL

from tidegate.errors import SettingsInvalid

if TYPE_CHECKING:
    from tidegate.spec import Connection

KAFKA_CONNECTION = "tidegate_kafka"
LEDGER_CONNECTION = "tidegate_ledger"
_SPARK_CONNECT = "spark_connect"
_KAFKA_PORT = 9092
# the rest of the extra field is for Airflow's own hooks
_POSTGRES_OPTIONS = ("sslmode", "sslcert", "sslkey", "sslrootcert", "connect_timeout", "target_session_attrs")


@contextmanager
def own_environment() -> Iterator[None]:
    """What is exported inside is gone afterwards. Also a decorator."""
    before = _settings()
    try:
        yield
    finally:
        for name in _settings().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _settings() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith("TIDEGATE_")}


def require_absolute_home() -> None:
    """Raise SettingsInvalid for a relative TIDEGATE_HOME, which would be another folder in each process."""
    home = os.environ.get("TIDEGATE_HOME")
    if home and not Path(home).expanduser().is_absolute():
        raise SettingsInvalid(
            f"TIDEGATE_HOME={home} is a relative path, and each part of Airflow is in another folder",
            "Set it to an absolute path, the same for the scheduler, workers and web server.",
        )


def export_ledger() -> None:
    """Put the ledger's connection into this task's environment, where Settings and spark-submit find it."""
    os.environ.update(ledger_environment())


def export_connections(connections: Iterable[Connection]) -> None:
    """The same for Kafka clusters, the databases of SQL sinks, and schema registries."""
    os.environ.update(connection_environment(connections))


def ledger_environment() -> dict[str, str]:
    """The ledger's database as a variable, if Airflow has a connection to it."""
    ledger = _connection(LEDGER_CONNECTION)
    return {} if ledger is None else {"TIDEGATE_LEDGER": database_url(ledger)}


def connection_environment(connections: Iterable[Connection]) -> dict[str, str]:
    """Kafka clusters, databases of SQL sinks and schema registries as variables, as far as Airflow has
    connections to them.
    """
    variables = {}
    for connection in connections:
        stored = _connection(connection.airflow_id)
        if stored is not None:
            variables[connection.variable] = _TEXTS[connection.kind](stored)
    return variables


def spark_connect_url(name: str) -> str | None:
    """The URL of the Spark Connect server of a connection; None: it is of another kind, or there is none."""
    spark = _connection(name)
    if spark is None or spark.conn_type != _SPARK_CONNECT:
        return None
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    return str(SparkConnectHook(name).get_connection_url())


def kafka_text(connection: Any) -> str:
    """A Kafka connection as its variable has it. Airflow's logs show none of its secrets from now on."""
    from tidegate.broker.properties import secrets

    properties = kafka_properties(connection)
    for secret in secrets(properties):
        mask_secret(secret)
        mask_secret(json.dumps(secret)[1:-1])  # a key has lines, which it keeps as `\\n`
    return json.dumps(properties)


def kafka_properties(connection: Any) -> dict[str, Any]:
    """A Kafka connection as client properties. What a form leaves empty is not there."""
    given = connection.extra_dejson
    properties = {name: value for name, value in given.items() if value not in (None, "")}
    if connection.host:
        properties.setdefault("bootstrap.servers", _servers(connection.host, connection.port))
    if connection.login:
        properties["sasl.username"] = connection.login
    if connection.password:
        properties["sasl.password"] = connection.password
    return properties


def registry_text(connection: Any) -> str:
    """A schema registry's connection as its variable has it. Airflow's logs show no secrets of it."""
    properties = {name: value for name, value in connection.extra_dejson.items() if value not in (None, "")}
    if connection.host:
        port = f":{connection.port}" if connection.port else ""
        scheme = "" if "://" in connection.host else f"{connection.schema or 'http'}://"
        properties.setdefault("url", f"{scheme}{connection.host}{port}")
    if connection.login:
        properties["basic.auth.user.info"] = f"{connection.login}:{connection.password or ''}"
    for secret in (connection.password, *(text for name, text in properties.items() if "password" in name)):
        if secret:
            mask_secret(secret)
    return json.dumps(properties)


def _servers(host: str, port: int | None) -> str:
    """`host` may be a list, and its servers may have ports of their own."""
    servers = [server.strip() for server in host.split(",")]
    return ",".join(server if ":" in server else f"{server}:{port or _KAFKA_PORT}" for server in servers)


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


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "kafka": kafka_text,
    "sql": database_url,
    "registry": registry_text,
}
"""A connection's kind -> what its variable has."""


def _connection(name: str) -> Any:
    try:
        return BaseHook.get_connection(name)
    except (AirflowNotFoundException, AirflowRuntimeError):
        return None
