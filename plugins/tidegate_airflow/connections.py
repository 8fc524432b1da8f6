"""Export Airflow's connections to the environment, from which tidegate reads its settings, while a step runs.

`tidegate_kafka`, `tidegate_kafka_<name>`  Kafka clusters, without and with `connection: <name>`: host and
                   port (or `bootstrap.servers` in the extra field); any further Kafka client property there,
                   by Java's name or librdkafka's; login and password are SASL's
`tidegate_sql`, `tidegate_sql_<name>`  databases of SQL sinks, likewise
`tidegate_registry`, `tidegate_registry_<name>`  schema registries: the URL as host (or host, port, and
                   `https` as schema), login and password; `ssl.ca.location` and the like in the extra field
`tidegate_http`, `tidegate_http_<name>`  endpoints of HTTP sinks: the URL in the same way, login and password;
                   `bearer.auth.token`, `headers` and the like in the extra field
`tidegate_iceberg`, `tidegate_iceberg_<name>`  Iceberg catalogs: a database like those of SQL sinks, or a REST
                   catalog: the URL in the same way as of an endpoint, client id and secret as login and
                   password; `warehouse`, `s3.endpoint` and the like in the extra field
`tidegate_clickhouse`, `tidegate_clickhouse_<name>`  servers of ClickHouse sinks: like endpoints of HTTP sinks
`tidegate_ledger`  the ledger's database, if it is not in TIDEGATE_LEDGER

Connections that Airflow lacks can be set in the environment: TIDEGATE_KAFKA, TIDEGATE_SQL_<NAME>, …

A step exports only the connections that it uses, and removes them at its end. The Spark driver gets those of
the ledger and the source in its environment, never in arguments or Spark's configuration, which the Spark UI
shows. It does not get those of sinks.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseHook, get_current_context
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowNotFoundException,
    AirflowRescheduleException,
    AirflowRuntimeError,
)
from airflow.sdk.log import mask_secret
from sqlalchemy import URL

from tidegate.errors import SettingsInvalid
from tidegate.redaction import names_secret

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.ledger import Stream
    from tidegate.model.connection import Connection
    from tidegate.model.pipeline import Pipeline

log = logging.getLogger(__name__)
KAFKA_CONNECTION = "tidegate_kafka"
LEDGER_CONNECTION = "tidegate_ledger"
_WAIT_FOR_LEASE = timedelta(seconds=15)
"""Longer than a busy scheduler takes to notice that a task has ended. If the task is queued again before, the
scheduler takes it for killed, and counts a try.
"""
_LONGEST_PAUSES = timedelta(hours=1)
"""The longest time for which a task waits for an endpoint without using a retry."""
Result = TypeVar("Result")
_SPARK, _SPARK_CONNECT = "spark", "spark_connect"
_LOCAL = re.compile(r"local(\[.*\])?")
_ledger_is_exported = ContextVar("ledger_is_exported", default=False)
_KAFKA_PORT = 9092
_TALKATIVE = ("kafka", "py4j")
"""Loggers of libraries that report each connection at the level INFO, which is that of a task's log."""
# Airflow's own hooks use the rest of the extra field.
_POSTGRES_OPTIONS = ("sslmode", "sslcert", "sslkey", "sslrootcert", "connect_timeout", "target_session_attrs")


@contextmanager
def own_environment() -> Iterator[None]:
    """Remove settings that are exported inside of the block from the environment afterwards. Also usable as a
    decorator.

    Example: `with own_environment(): export_ledger()`
    """
    before = _settings()
    try:
        yield
    finally:
        # Tasks can share a process (`dag.test()`), and child processes would inherit the secrets.
        for name in _settings().keys() - before.keys():
            del os.environ[name]
        # An exported connection may have replaced a variable that the machine sets.
        os.environ.update(before)


def _settings() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith("TIDEGATE_")}


def require_absolute_home() -> None:
    """Raise SettingsInvalid if TIDEGATE_HOME is a relative path, which would be another folder in each
    process.
    """
    from tidegate.settings import home_path

    home = os.environ.get("TIDEGATE_HOME")
    if home and not home_path(home).is_absolute():
        raise SettingsInvalid(
            f"TIDEGATE_HOME={home} is a relative path, and each part of Airflow is in another folder",
            "Set it to an absolute path, the same for the scheduler, workers and web server.",
        )


def export_ledger() -> None:
    """Export the ledger's connection to this task's environment, from which Settings and spark-submit read
    it.

    Example: `with own_environment(): export_ledger()` sets TIDEGATE_LEDGER inside of the block.
    """
    os.environ.update(ledger_environment())


@contextmanager
def ledger_exported() -> Iterator[None]:
    """Export the ledger's connection for all steps inside of the block, with one question to Airflow.

    If the connection changes meanwhile, a later step fails, and the task's retry asks Airflow again. So do
    not use it around several batches.

    Example: `with ledger_exported(): run_step(first); run_step(second)`
    """
    with own_environment():
        export_ledger()
        token = _ledger_is_exported.set(True)
        try:
            yield
        finally:
            _ledger_is_exported.reset(token)


def export_connections(connections: Iterable[Connection]) -> None:
    """Export the connections of Kafka clusters, SQL sinks, schema registries, HTTP sinks and
    Iceberg catalogs to this task's environment.

    Example: `export_connections([Connection("kafka", "shop")])` sets TIDEGATE_KAFKA_SHOP.
    """
    os.environ.update(connection_environment(connections))


def ledger_environment() -> dict[str, str]:
    """Return the ledger's database as a variable; empty if Airflow has no connection `tidegate_ledger`.

    Example: `{"TIDEGATE_LEDGER": "postgresql+psycopg://…"}`
    """
    ledger = _connection(LEDGER_CONNECTION)
    return {} if ledger is None else {"TIDEGATE_LEDGER": database_url(ledger)}


def connection_environment(connections: Iterable[Connection]) -> dict[str, str]:
    """Return connections as variable -> text, for those that Airflow has.

    Example: `{"TIDEGATE_KAFKA_<CONNECTION>": '{"bootstrap.servers": "shop:9092"}'}`
    """
    variables = {}
    for connection in connections:
        stored = _connection(connection.airflow_id)
        if stored is not None:
            variables[connection.variable] = _TEXTS[connection.kind](stored)
    return variables


def task_master(name: str) -> str | None:
    """Return Spark's master if a task needs no spark-submit: it is a client of a Spark Connect server, or
    starts a `local` Spark itself. None for each other connection.

    A connection with an extra field, such as a deploy mode, is one for spark-submit, whatever its master.

    Example: `sc://spark:15002` for a connection of the type `spark_connect` with that host and port;
    `local[2]` for one of the type `spark` with that host.
    """
    # at run time, not at parse time: the DAG processor must read no connection
    spark = _connection(name)
    if spark is None:
        return None
    if spark.conn_type == _SPARK_CONNECT:
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

        return str(SparkConnectHook(name).get_connection_url())
    is_local = spark.conn_type == _SPARK and _LOCAL.fullmatch(spark.host or "") and not spark.port
    return str(spark.host) if is_local and not spark.extra_dejson else None


def kafka_text(connection: Any) -> str:
    """Return a Kafka connection as the JSON text of its variable.

    From then on Airflow's logs mask its secrets.
    """
    from tidegate.kafka.properties import secrets

    properties = kafka_properties(connection)
    # In the extra field Airflow masks only what a telling name shows to be secret.
    for secret in secrets(properties):
        mask_secret(secret)
        mask_secret(json.dumps(secret)[1:-1])  # in JSON the lines of a key are separated by `\\n`
    return json.dumps(properties)


def kafka_properties(connection: Any) -> dict[str, Any]:
    """Return a Kafka connection as client properties, without fields that the form leaves empty.

    Example: a connection with host `kafka` and login `me` gives `{"bootstrap.servers": "kafka:9092",
    "sasl.username": "me"}`.
    """
    given = connection.extra_dejson
    properties = {name: value for name, value in given.items() if value not in (None, "")}
    if connection.host:
        properties.setdefault("bootstrap.servers", _servers(connection.host, connection.port))
    if connection.login:
        properties["sasl.username"] = connection.login
    if connection.password:
        properties["sasl.password"] = connection.password
    return properties


def web_text(connection: Any) -> str:
    """Return the connection of a schema registry, an endpoint or ClickHouse as the JSON text of its variable.

    From then on Airflow's logs mask its secrets.

    Example: `{"url": "http://registry:8081"}` for a connection with that host and port.
    """
    properties = {name: value for name, value in connection.extra_dejson.items() if value not in (None, "")}
    if connection.host:
        properties.setdefault("url", _web_url(connection))
    if connection.login:
        properties["basic.auth.user.info"] = f"{connection.login}:{connection.password or ''}"
    headers = properties.get("headers") or {}
    secrets = [text for name, text in properties.items() if names_secret(name)]
    for secret in (connection.password, *secrets, *(headers.values() if isinstance(headers, dict) else ())):
        if secret:
            mask_secret(str(secret))
    return json.dumps(properties)


def _web_url(connection: Any) -> str:
    """Return the URL of a connection, whose host can be the whole URL."""
    port = f":{connection.port}" if connection.port else ""
    scheme = "" if "://" in connection.host else f"{connection.schema or 'http'}://"
    return f"{scheme}{connection.host}{port}"


def _servers(host: str, port: int | None) -> str:
    """Return the bootstrap servers. `host` can be a list, and its servers can have their own ports."""
    servers = [server.strip() for server in host.split(",")]
    return ",".join(server if ":" in server else f"{server}:{port or _KAFKA_PORT}" for server in servers)


def database_url(connection: Any) -> str:
    """Return a database connection as a URL of SQLAlchemy, with the driver that tidegate installs
    (psycopg).

    Example: `postgresql+psycopg://me:secret@db:5432/shop` for a connection of the type `postgres`.
    """
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
    # SQLAlchemy masks the password by default, and the text would be no usable URL.
    return url.render_as_string(hide_password=False)


def catalog_text(connection: Any) -> str:
    """Return the connection of an Iceberg catalog as the JSON text of its variable.

    From then on Airflow's logs mask its secrets.

    Example: `{"uri": "https://catalog:8181", "credential": "id:secret"}` for a connection with that host,
    login and password.
    """
    given = {name: value for name, value in connection.extra_dejson.items() if value not in (None, "")}
    properties = {name: value for name, value in given.items() if name not in _POSTGRES_OPTIONS}
    if connection.conn_type in ("postgres", "postgresql", "sqlite"):
        properties.setdefault("uri", database_url(connection))
    else:
        if connection.host:
            properties.setdefault("uri", _web_url(connection))
        if connection.login:
            properties["credential"] = f"{connection.login}:{connection.password or ''}"
    secrets = [text for name, text in properties.items() if names_secret(name)]
    for secret in filter(None, (connection.password, *secrets)):
        mask_secret(str(secret))
    return json.dumps(properties)


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "kafka": kafka_text,
    "sql": database_url,
    "registry": web_text,
    "http": web_text,
    "iceberg": catalog_text,
    "clickhouse": web_text,
}
"""A connection's kind -> the function that gives the text of its variable."""


def _connection(name: str) -> Any:
    try:
        return BaseHook.get_connection(name)
    except (AirflowNotFoundException, AirflowRuntimeError):
        return None


@own_environment()
def run_step(work: Callable[[], Result]) -> Result:
    """Run a step, and map its error to Airflow's fail, retry or wait.

    Raises AirflowFailException for an error that needs a person, AirflowRescheduleException if another run
    has the lease, or if an endpoint asks for a long pause. Other errors pass through, and Airflow retries.
    """
    from tidegate.errors import LeaseHeld, Permanent, SinkBusy
    from tidegate.extras import missing_extra

    _quieten_libraries()
    if not _ledger_is_exported.get():
        export_ledger()
    try:
        return work()
    except ModuleNotFoundError as error:
        # None: the module is not part of an optional extra, so it is a bug or the user's own import.
        missing = missing_extra(error)
        if missing is None:
            raise
        raise AirflowFailException(str(missing)) from error
    except LeaseHeld as error:
        log.info("%s", error)
        # A reschedule uses no retry: three busy moments must not fail a run.
        raise reschedule() from error
    except SinkBusy as error:
        pause = timedelta(seconds=error.pause_s)
        # Bounded, so that an endpoint that is always busy fails the run, and people are alerted.
        if _rescheduled_since() + pause > _LONGEST_PAUSES:
            raise
        log.info("%s", error)
        raise reschedule(pause) from error
    except Permanent as error:
        raise AirflowFailException(str(error)) from error


def _quieten_libraries() -> None:
    """Keep reports on connections out of a task's log, unless the user has chosen a level for them."""
    for logger in map(logging.getLogger, _TALKATIVE):
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def _rescheduled_since() -> timedelta:
    """Return how long ago the current task first gave its slot back; zero if it has not, or there is none."""
    try:
        context: Any = get_current_context()
    except RuntimeError:  # a step that is called outside of a task
        return timedelta()
    first = context["ti"].get_first_reschedule_date(context)
    return timedelta() if first is None else datetime.now(timezone.utc) - first


def reschedule(wait: timedelta = _WAIT_FOR_LEASE) -> AirflowRescheduleException:
    """Return the exception that makes a task give its slot back and start again after `wait`, without using a
    retry.

    Example: `raise reschedule(timedelta(minutes=1))`
    """
    return AirflowRescheduleException(datetime.now(timezone.utc) + wait)


def connected(app: App, stream: Stream, *more: Pipeline) -> App:
    """Return the app with the connections of Airflow that the stream's batches, and the pipelines `more`,
    use.

    Example: `connected(App.from_environment(), Stream("orders", 1))`
    """
    from tidegate.batch import connections
    from tidegate.settings import Settings

    # Only what this step uses, so that processes that it starts inherit no other secret.
    export_connections(connections(app.ledger, stream, *more) | app.settings.table_connections)
    return replace(app, settings=Settings.from_environment())
