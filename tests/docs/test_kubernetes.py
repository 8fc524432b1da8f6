"""docs/kubernetes.md: each key was checked against the charts' schemas, each variable is read by somebody."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from scripts.chart_keys import CHECKED, PAGE, check_defaults, check_schema, page_files, paths_of

import yaml
from tests.compose.model import services
from tidegate.kafka.config import KafkaConfig
from tidegate.settings import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
TEXT = PAGE.read_text()
FILES = page_files()
VALUES = FILES["airflow.yaml"][0]
SCHEMA: dict[str, Any] = {
    "properties": {"a": {"$ref": "#/definitions/A"}, "free": {"additionalProperties": {"type": "string"}}},
    "definitions": {"A": {"items": {"properties": {"b": {"type": "string"}}}}},
}


def test_checked_keys_equal_those_of_the_page() -> None:
    checked = json.loads(CHECKED.read_text())
    assert {name: paths_of(documents) for name, documents in FILES.items()} == checked, (
        "check the page anew: see scripts/chart_keys.py"
    )
    assert sum(map(len, checked.values())) > 150


def test_check_accepts_named_or_open_keys() -> None:
    check_schema({"a": [{"b": "x"}], "free": {"anything": "x"}}, SCHEMA, SCHEMA)
    check_defaults({"spark": {"jobNamespaces": ["etl"]}}, {"spark": {"jobNamespaces": []}})


@pytest.mark.parametrize("value", [{"c": 1}, {"a": [{"c": "x"}]}], ids=str)
def test_check_refuses_keys_outside_of_the_schema(value: Any) -> None:
    with pytest.raises(LookupError, match=r"\.c is not in the schema"):
        check_schema(value, SCHEMA, SCHEMA)
    with pytest.raises(LookupError):
        check_defaults({"spark": {"namespaces": []}}, {"spark": {"jobNamespaces": []}})


def test_tidegate_or_airflow_reads_every_variable() -> None:
    names = {entry.get("name") or entry["envName"] for entry in [*VALUES["env"], *VALUES["secret"]]}
    names |= set(re.findall(r"`(TIDEGATE_\w+|AIRFLOW_CONN_\w+)`", TEXT))
    variables = {variable.name for variable in VARIABLES}
    plugin = "".join(path.read_text() for path in (ROOT / "plugins" / "tidegate_airflow").glob("*.py"))
    for name in names:
        if name.startswith("AIRFLOW_CONN_"):
            assert f'"{name.removeprefix("AIRFLOW_CONN_").lower()}"' in plugin
        elif name.startswith("TIDEGATE_"):
            assert name in variables
    assert {"TIDEGATE_LEDGER", "TIDEGATE_LAKE", "AIRFLOW_CONN_SPARK_DEFAULT"} <= names


def test_airflow_has_every_option_of_config() -> None:
    spec = importlib.util.find_spec("airflow")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations)))
    documented = yaml.safe_load((folder / "config_templates" / "config.yml").read_text())
    config = dict(VALUES["config"])
    # the Celery provider's, which is in Airflow's image and not installed here
    assert set(config.pop("celery")) == {"worker_concurrency"}
    for section, options in config.items():
        assert set(options) <= set(documented[section]["options"])


def test_every_secret_of_a_block_is_created() -> None:
    made: dict[str, set[str]] = {}
    commands = re.sub(r"\\\n", " ", TEXT)
    for name, literals in re.findall(
        r"create secret generic (\S+)((?:.|\n)*?)(?=^kubectl|^```)", commands, re.M
    ):
        made[name] = set(re.findall(r"--from-literal=([\w-]+)=", literals))
    assert made["airflow-keys"] == {"fernet-key", "api-secret-key", "jwt-secret"}
    assert made["airflow-metadata"] == {"connection"}
    migrate = FILES["migrate.yaml"][0]["spec"]["template"]["spec"]["containers"][0]["env"][0]
    used = {entry["secretKey"] for entry in VALUES["secret"]} | {migrate["valueFrom"]["secretKeyRef"]["key"]}
    assert used == made["tidegate"]


def test_the_kafka_connection_of_the_secret_is_one() -> None:
    (text,) = re.findall(r"--from-literal=kafka='(\{.*?\})'", TEXT, re.DOTALL)
    connection = json.loads(text)
    assert connection["conn_type"] == "kafka"
    servers = f"{connection['host']}:{connection['port']}"
    login = {"sasl.username": connection["login"], "sasl.password": connection["password"]}
    KafkaConfig.from_dict({"bootstrap.servers": servers, **login, **connection["extra"]})


def test_the_spark_connection_means_the_service() -> None:
    variables = {entry["name"]: entry["value"] for entry in VALUES["env"]}
    connection = json.loads(variables["AIRFLOW_CONN_SPARK_DEFAULT"])
    deployment, service, account, policy = FILES["spark-connect.yaml"]
    assert (connection["host"], connection["port"]) == (
        service["metadata"]["name"],
        service["spec"]["ports"][0]["port"],
    )
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == labels
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]


def test_page_starts_the_server_like_the_containers() -> None:
    here = FILES["spark-connect.yaml"][0]["spec"]["template"]["spec"]["containers"][0]
    container_command = services()["spark-connect"]["command"]
    assert here["command"] == container_command[:1]
    configured = ("driver", "executor", "python")
    other = ("--master", "--driver-memory", *(f"--conf=spark.{name}" for name in configured))
    assert [word for word in here["args"] if not word.startswith(other)] == [
        word for word in container_command[1:] if not word.startswith(other)
    ]


def test_page_versions_equal_the_locks() -> None:
    lock = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    for package, version in re.findall(r'"([\w-]+)==([\d.]+)"', TEXT):
        assert lock[package] == version
    assert f"apache/airflow:{lock['apache-airflow']}-python" in TEXT
    assert VALUES["airflowVersion"] == lock["apache-airflow"]
    assert FILES["spark-connect-operator.yaml"][0]["spec"]["sparkVersion"] == lock["pyspark"]
    (python,) = re.findall(r"^FROM python:(3\.\d+)\.", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert f"-python{python}\n" in TEXT
