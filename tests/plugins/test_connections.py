"""Airflow's connections become the settings' variables, with the driver that is installed."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from sqlalchemy import make_url

from tests.certificates import Authority
from tests.secured import CANARY
from tidegate.iceberg.catalog import CatalogConfig
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.registry_config import RegistryConfig
from tidegate.model.connection import Connection
from tidegate.sinks.web import HttpConfig

pytestmark = pytest.mark.airflow

POSTGRES = {
    "conn_type": "postgres",
    "host": "db",
    "port": 5433,
    "login": "u@x",
    "password": "p/w:d",
    "schema": "reports",
    "extra": {"sslmode": "require", "cursor": "realdictcursor", "nested": {"a": 1}},
}


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Restore the variables to which connections are exported after the test."""
    for variable in (
        "TIDEGATE_SQL",
        "TIDEGATE_SQL_REPORTS",
        "TIDEGATE_CLICKHOUSE_REPORTS",
        "TIDEGATE_HTTP_SHOP",
        "TIDEGATE_ICEBERG_LAKE",
        "TIDEGATE_KAFKA",
        "TIDEGATE_KAFKA_SHOP",
        "TIDEGATE_REGISTRY_SHOP",
    ):
        monkeypatch.setenv(variable, "before")
        monkeypatch.delenv(variable)
    return monkeypatch


def test_sql_connection_becomes_its_variable(exported: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.connections import export_connections

    exported.setenv("AIRFLOW_CONN_TIDEGATE_SQL_REPORTS", json.dumps(POSTGRES))
    export_connections([Connection("sql", "reports")])
    url = make_url(os.environ["TIDEGATE_SQL_REPORTS"])
    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.password, url.host, url.port, url.database) == (
        *("u@x", "p/w:d", "db", 5433),
        "reports",
    )
    assert dict(url.query) == {"sslmode": "require"}


def test_a_sqlite_connection_is_its_file(exported: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.connections import export_connections

    exported.setenv("AIRFLOW_CONN_TIDEGATE_SQL", '{"conn_type": "sqlite", "host": "/data/sink.db"}')
    export_connections([Connection("sql")])
    assert os.environ["TIDEGATE_SQL"] == "sqlite:////data/sink.db"


def test_missing_connection_leaves_the_environment_unchanged(
    exported: pytest.MonkeyPatch,
) -> None:
    from tidegate_airflow.connections import export_connections

    exported.setenv("TIDEGATE_SQL", "sqlite:///from-the-environment.db")
    export_connections([Connection("sql"), Connection("sql", "reports")])
    assert os.environ["TIDEGATE_SQL"] == "sqlite:///from-the-environment.db"
    assert "TIDEGATE_SQL_REPORTS" not in os.environ


@pytest.mark.parametrize(
    "where",
    [
        {"host": "registry.example.com", "port": 8443, "schema": "https"},
        {"host": "https://registry.example.com:8443"},
        {"extra": {"url": "https://registry.example.com:8443"}},
    ],
)
def test_registry_connection_becomes_its_variable(
    exported: pytest.MonkeyPatch, where: dict[str, Any]
) -> None:
    from tidegate_airflow.connections import export_connections

    login = {"conn_type": "http", "login": "alice", "password": CANARY}
    exported.setenv("AIRFLOW_CONN_TIDEGATE_REGISTRY_SHOP", json.dumps(login | where))
    export_connections([Connection("registry", "shop")])
    config = RegistryConfig.parse(os.environ["TIDEGATE_REGISTRY_SHOP"])
    assert config.url == "https://registry.example.com:8443"
    assert config.for_client()["basic.auth.user.info"] == f"alice:{CANARY}"


def test_http_connection_becomes_its_variable(exported: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.connections import export_connections

    stored = {
        "conn_type": "http",
        "host": "hooks.example.com",
        "schema": "https",
        "extra": {"bearer.auth.token": CANARY, "headers": {"x-tenant": "5"}, "proxy.url": ""},
    }
    exported.setenv("AIRFLOW_CONN_TIDEGATE_HTTP_SHOP", json.dumps(stored))
    export_connections([Connection("http", "shop")])
    config = HttpConfig.parse(os.environ["TIDEGATE_HTTP_SHOP"], "TIDEGATE_HTTP_SHOP")
    assert config.url("orders") == "https://hooks.example.com/orders"
    assert (config.token, config.headers) == (CANARY, {"x-tenant": "5"})


def test_clickhouse_connection_becomes_its_variable(exported: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.connections import export_connections

    stored = {"conn_type": "http", "host": "https://house/?database=shop", "login": "me", "password": CANARY}
    exported.setenv("AIRFLOW_CONN_TIDEGATE_CLICKHOUSE_REPORTS", json.dumps(stored))
    export_connections([Connection("clickhouse", "reports")])
    variable = "TIDEGATE_CLICKHOUSE_REPORTS"
    config = HttpConfig.parse(os.environ[variable], variable)
    assert (config.url(None), config.login) == ("https://house/?database=shop", ("me", CANARY))


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (
            {"conn_type": "http", "host": "catalog", "schema": "https", "port": 8181, "login": "id"},
            {"uri": "https://catalog:8181", "credential": f"id:{CANARY}", "warehouse": "s3://lake"},
        ),
        (
            {"conn_type": "postgres", "host": "db", "login": "me", "schema": "catalog"},
            {"uri": f"postgresql+psycopg://me:{CANARY}@db/catalog", "warehouse": "s3://lake"},
        ),
    ],
    ids=["rest", "sql"],
)
def test_catalog_connection_becomes_its_variable(
    exported: pytest.MonkeyPatch, stored: dict[str, Any], expected: dict[str, str]
) -> None:
    from tidegate_airflow.connections import export_connections

    connection = {**stored, "password": CANARY, "extra": {"warehouse": "s3://lake", "sslmode": "require"}}
    if stored["conn_type"] == "http":
        connection["extra"] = {"warehouse": "s3://lake"}
    else:
        expected = expected | {"uri": f"{expected['uri']}?sslmode=require"}
    exported.setenv("AIRFLOW_CONN_TIDEGATE_ICEBERG_LAKE", json.dumps(connection))
    export_connections([Connection("iceberg", "lake")])
    config = CatalogConfig.parse(os.environ["TIDEGATE_ICEBERG_LAKE"], "TIDEGATE_ICEBERG_LAKE")
    assert config.properties == expected


SHOP: dict[str, Any] = {
    "conn_type": "tidegate_kafka",
    "host": "kafka-1, kafka-2:9094",
    "port": 9093,
    "login": "alice",
    "password": CANARY,
    "extra": {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": "",
        "client.id": None,
    },
}


def export_shop(exported: pytest.MonkeyPatch, connection: dict[str, Any]) -> KafkaConfig:
    from tidegate_airflow.connections import export_connections

    exported.setenv("AIRFLOW_CONN_TIDEGATE_KAFKA_SHOP", json.dumps(connection))
    export_connections([Connection("kafka", "shop"), Connection("kafka")])
    assert "TIDEGATE_KAFKA" not in os.environ
    return KafkaConfig.parse(os.environ["TIDEGATE_KAFKA_SHOP"], "TIDEGATE_KAFKA_SHOP")


def test_a_connection_of_kafka_becomes_its_variable(exported: pytest.MonkeyPatch) -> None:
    assert export_shop(exported, SHOP).properties == {
        "bootstrap.servers": "kafka-1:9093,kafka-2:9094",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": CANARY,
    }


def test_connection_with_certificates_uses_mutual_tls(exported: pytest.MonkeyPatch) -> None:
    client = Authority("a").sign("client")
    extra = {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SSL",
        "ssl.truststore.certificates": client.text,
        "ssl.keystore.certificate.chain": client.text,
        "ssl.keystore.key": client.key,
    }
    config = export_shop(exported, {"conn_type": "tidegate_kafka", "extra": extra})
    assert config.for_python()["ssl_context"]
    assert config.for_librdkafka()["ssl.key.pem"] == client.key


def test_kafka_secrets_do_not_reach_airflow_logs(exported: pytest.MonkeyPatch) -> None:
    from airflow.sdk.log import redact

    client = Authority("a").sign("client")
    key = client.encrypted_key(f"{CANARY}-of-the-key")
    more = {
        "ssl.key.pem": key,
        "ssl.key.password": f"{CANARY}-of-the-key",
        "ssl.certificate.pem": client.text,
    }
    export_shop(exported, {**SHOP, "extra": {**SHOP["extra"], **more}})
    for text in (f"Log in with {CANARY}!", os.environ["TIDEGATE_KAFKA_SHOP"], f"the key is {key}"):
        shown = redact(text)
        assert "***" in shown
        assert CANARY not in shown
        assert key.splitlines()[3] not in shown


def test_step_environment_is_removed_after_the_step(exported: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.connections import export_connections, own_environment

    exported.setenv("AIRFLOW_CONN_TIDEGATE_KAFKA_SHOP", json.dumps(SHOP))
    exported.setenv("TIDEGATE_KAFKA", "before:1")
    exported.setenv("AIRFLOW_CONN_TIDEGATE_KAFKA", '{"conn_type": "kafka", "host": "inside"}')

    @own_environment()
    def step() -> None:
        export_connections([Connection("kafka"), Connection("kafka", "shop")])
        exported.setenv("ANOTHERS", "stays")
        assert json.loads(os.environ["TIDEGATE_KAFKA"]) == {"bootstrap.servers": "inside:9092"}
        raise ValueError(os.environ["TIDEGATE_KAFKA_SHOP"])

    with pytest.raises(ValueError, match="kafka-1:9093"):
        step()
    assert os.environ["TIDEGATE_KAFKA"] == "before:1"
    assert "TIDEGATE_KAFKA_SHOP" not in os.environ
    assert os.environ["ANOTHERS"] == "stays"
