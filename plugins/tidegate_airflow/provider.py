"""The provider description of the package, for Airflow's entry point of providers.

Airflow calls it in every process, to draw the forms of connections and to list providers. So this module
imports nothing else.
"""

from __future__ import annotations

from typing import Any

KAFKA_TYPE = "tidegate_kafka"
KAFKA_NAME = "Kafka (tidegate)"
"""The type of a connection to a Kafka cluster, and its name in the form."""

_TEXT = {"type": ["string", "null"]}
_PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
_MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

_KAFKA = {
    "connection-type": KAFKA_TYPE,
    "hook-name": KAFKA_NAME,
    "hook-class-name": "tidegate_airflow.hook.KafkaHook",
    "ui-field-behaviour": {
        "hidden-fields": ["schema"],
        "relabeling": {
            "host": "Bootstrap server",
            "login": "SASL user name",
            "password": "SASL password",
            "extra": "Further client properties, by their Java names",
        },
        "placeholders": {
            "host": "kafka.example.com",
            "port": "9092",
            "extra": '{"bootstrap.servers": "kafka-1:9092,kafka-2:9092"}',
        },
    },
    # Each name is a client property; Airflow stores these fields in the connection's extra field.
    "conn-fields": {
        "security.protocol": {
            "label": "Security protocol",
            "description": "The protocol to the brokers; by default PLAINTEXT.",
            "schema": {**_TEXT, "enum": [*_PROTOCOLS, None]},
        },
        "sasl.mechanism": {
            "label": "SASL mechanism",
            "description": "With SASL_PLAINTEXT and SASL_SSL.",
            "schema": {**_TEXT, "enum": [*_MECHANISMS, None]},
        },
        "ssl.ca.location": {
            "label": "Authorities",
            "description": "A PEM file of the brokers' certificate authorities, on each worker.",
            "schema": _TEXT,
        },
        "ssl.certificate.location": {
            "label": "Certificate",
            "description": "A PEM file of the client's certificate, if the brokers require one.",
            "schema": _TEXT,
        },
        "ssl.key.location": {
            "label": "Key",
            "description": "A PEM file of the certificate's key.",
            "schema": _TEXT,
        },
        "sasl.oauthbearer.callback": {
            "label": "Token function",
            "description": "With OAUTHBEARER: module:function, from the modules in TIDEGATE_PYTHON_MODULES.",
            "schema": _TEXT,
        },
    },
}


def get_provider_info() -> dict[str, Any]:
    """Return the description of the provider, in the format of `airflow/provider_info.schema.json`.

    Example: `get_provider_info()["package-name"]` is `tidegate`.
    """
    name = "tidegate"
    return {
        "package-name": name,
        "name": name,
        "description": "Micro-batch ETL for Kafka: one DAG per pipeline file.",
        "integrations": [{"integration-name": name, "tags": ["service"]}],
        "hooks": [{"integration-name": name, "python-modules": ["tidegate_airflow.hook"]}],
        "operators": [{"integration-name": name, "python-modules": ["tidegate_airflow.operators"]}],
        "connection-types": [_KAFKA],
    }
