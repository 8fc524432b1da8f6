"""docker-compose.yaml, read as a file: what it may hold, and that its parts agree with each other."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import stat
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema
import pytest

import yaml
from tests.compose.model import (
    ENV_EXAMPLE,
    OURS,
    ROOT,
    default_variables,
    environment_of,
    filled,
    mounts_of,
    raw,
    required_variables,
    resolved,
    services,
    texts,
)
from tidegate.kafka.config import KafkaConfig
from tidegate_dev.airflow import AirflowStack

NAMES = sorted(services())
AIRFLOW = [name for name in NAMES if name.startswith("airflow-")]
_SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|_KEY|SQL_ALCHEMY_CONN|LEDGER|TIDEGATE_SQL")


def test_the_file_fits_the_schema() -> None:
    schema = json.loads(Path(__file__).with_name("compose.schema.json").read_text())
    jsonschema.validate(raw(), schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", NAMES)
def test_every_image_is_built_here_or_pinned(name: str) -> None:
    service = services()[name]
    if "build" in service:
        assert service["image"] == OURS
    else:
        assert re.search(r":\d+\.\d+[\w.-]*$", service["image"])
    assert "latest" not in service["image"]


@pytest.mark.parametrize("name", NAMES)
def test_lasting_service_has_a_health_check(name: str) -> None:
    service = services()[name]
    assert ("healthcheck" in service) == (service["restart"] == "unless-stopped")


def test_only_the_database_server_starts_with_capabilities() -> None:
    """Its image starts as root, and becomes another user."""
    assert [name for name in NAMES if services()[name].get("cap_drop") != ["ALL"]] == ["postgres"]


@pytest.mark.parametrize("name", NAMES)
def test_ports_are_published_on_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in services()[name].get("ports", []))


def test_what_a_service_waits_for_can_happen() -> None:
    for service in services().values():
        for other, dependency in service.get("depends_on", {}).items():
            has = "healthcheck" if dependency["condition"] == "service_healthy" else "command"
            assert has in services()[other]
            runs_once = services()[other]["restart"] == "no"
            assert runs_once == (dependency["condition"] == "service_completed_successfully")


def test_worker_count_comes_from_the_env_file() -> None:
    wide = resolved({**filled(), "SPARK_WORKERS": "3", "AIRFLOW_WORKERS": "2"})["services"]
    counts = {name: wide[name]["deploy"]["replicas"] for name in NAMES if "deploy" in wide[name]}
    assert counts == {"spark-worker": "3", "airflow-scheduler": "2"}
    assert {default_variables()[name] for name in ("SPARK_WORKERS", "AIRFLOW_WORKERS")} == {"1"}


def test_scaled_service_has_nothing_unique() -> None:
    several = [name for name in NAMES if "deploy" in services()[name]]
    assert several
    for name in several:
        assert "ports" not in services()[name]
        assert "container_name" not in services()[name]
    # nobody asks for one of them by name: the server hands out work, and the database the schedule
    addressed = {urlsplit(text).hostname for service in services().values() for text in texts(service)}
    assert not addressed & set(several)


def test_there_is_an_order_to_start_in() -> None:
    order = TopologicalSorter({name: set(services()[name].get("depends_on", {})) for name in NAMES})
    assert list(order.static_order())[-1] in AIRFLOW


def test_declared_names_are_used_and_used_declared() -> None:
    used = {volume for service in services().values() for volume in mounts_of(service).values()}
    assert used == set(raw()["volumes"])
    mounted = {config["source"] for service in services().values() for config in service.get("configs", [])}
    assert mounted == set(raw()["configs"])


@pytest.mark.parametrize("name", NAMES)
def test_no_secret_is_written_down(name: str) -> None:
    for variable, value in environment_of(services()[name]).items():
        if _SECRET.search(variable) and not variable.endswith("_FILE"):
            assert re.search(r"\$\{\w+:\?set it in \.env, see \.env\.example\}", value), variable
    assert not [text for text in texts(services()[name]) if re.search(r"://[^/@:]*:(?!\$\{)[^/@]*@", text)]


def test_secrets_are_in_environments_only() -> None:
    file = resolved(filled())
    for service in file["services"].values():
        service.pop("environment", None)
    file = {name: part for name, part in file.items() if not name.startswith("x-")}
    assert not [text for text in texts(file) if "secret-" in text]


def test_secrets_go_where_they_are_needed_only() -> None:
    secrets: dict[str, set[str]] = {}
    for name, service in resolved(filled())["services"].items():
        for secret in re.findall(r"secret-([A-Z_]*[A-Z])", " ".join(environment_of(service).values())):
            secrets.setdefault(secret, set()).add(name)
    airflow = set(AIRFLOW)
    assert secrets == {
        "POSTGRES_PASSWORD": {"postgres", "postgres-init"},
        "AIRFLOW_DB_PASSWORD": {"postgres-init", *airflow},
        "LEDGER_DB_PASSWORD": {"postgres-init", *airflow},
        "SINK_DB_PASSWORD": {"postgres-init", *airflow},
        "AIRFLOW_ADMIN_PASSWORD": {"airflow-init"},
        "AIRFLOW_FERNET_KEY": airflow,
        "AIRFLOW_JWT_SECRET": airflow,
        "AIRFLOW_SECRET_KEY": airflow,
    }


@pytest.mark.parametrize("name", sorted(required_variables()))
def test_nothing_starts_without_every_secret(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        resolved({**filled(), name: ""})


def test_env_example_lists_variables_without_secrets() -> None:
    text = ENV_EXAMPLE.read_text()
    assert dict(re.findall(r"^([A-Z]\w*)=(.*)$", text, re.M)) == dict.fromkeys(required_variables(), "")
    assert dict(re.findall(r"^#([A-Z]\w*)=(.*)$", text, re.M)) == default_variables()


def test_env_example_command_makes_an_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env.example").write_text(ENV_EXAMPLE.read_text())
    header = ENV_EXAMPLE.read_text().split("\n\n")[0].splitlines()
    command = "\n".join(line.removeprefix("#") for line in header if line.startswith("#   "))
    subprocess.run(["sh", "-euc", command], cwd=tmp_path, check=True)
    made = tmp_path / ".env"
    variables = dict(re.findall(r"^([A-Z]\w*)=(.+)$", made.read_text(), re.M))
    assert set(variables) == required_variables()
    assert len(set(variables.values())) == len(variables)
    assert len(base64.urlsafe_b64decode(variables["AIRFLOW_FERNET_KEY"])) == 32
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert resolved(variables)["services"]["postgres"]["environment"]


@pytest.mark.parametrize("name", NAMES)
def test_tidegate_reads_every_variable_of_its_name(name: str) -> None:
    code = "".join(path.read_text() for top in ("include", "plugins") for path in (ROOT / top).rglob("*.py"))
    for variable in environment_of(services()[name]):
        if variable.startswith("TIDEGATE_"):
            assert f'"{variable}"' in code


@pytest.mark.parametrize("name", AIRFLOW)
def test_airflow_has_every_option(name: str) -> None:
    spec = importlib.util.find_spec("airflow")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations)))
    options = yaml.safe_load((folder / "config_templates" / "config.yml").read_text())
    for variable in environment_of(services()[name]):
        if variable.startswith("AIRFLOW__"):
            _, section, option = variable.lower().split("__")
            # a component may have its own of these two, as the text of the one in `core` says
            section = "core" if option.startswith("mp_") else section
            assert option in options[section]["options"]


def test_airflow_s_services_share_one_environment() -> None:
    environments = [environment_of(services()[name]) for name in AIRFLOW]
    extra = [set(environment) - set(environments[1]) for environment in environments]
    assert extra == [{"AIRFLOW_ADMIN_PASSWORD"} if name == "airflow-init" else set() for name in AIRFLOW]


def test_tasks_fork_from_the_same_imports_as_local(tmp_path: Path) -> None:
    variables = environment_of(services()["airflow-scheduler"])
    assert variables["AIRFLOW__SCHEDULER__MP_START_METHOD"] == "forkserver"
    preload = variables["AIRFLOW__SCHEDULER__MP_FORKSERVER_PRELOAD"]
    local = AirflowStack(tmp_path, tmp_path).environment()
    assert preload == local["AIRFLOW__SCHEDULER__MP_FORKSERVER_PRELOAD"]
    page = (ROOT / "docs" / "spark.md").read_text().splitlines()
    assert f"mp_forkserver_preload = {preload}" in page


def test_connections_have_the_plugin_names() -> None:
    plugin = "".join(path.read_text() for path in (ROOT / "plugins" / "tidegate_airflow").glob("*.py"))
    names = {variable for variable in environment_of(services()["airflow-scheduler"]) if "_CONN_" in variable}
    expected = set(re.findall(r'^(?:KAFKA|SPARK)_CONNECTION = "(\w+)"', plugin, re.M))
    assert {name.removeprefix("AIRFLOW_CONN_").lower() for name in names if "__" not in name} == expected


def test_spark_connection_and_command_mean_the_server() -> None:
    environment = environment_of(services()["airflow-scheduler"])
    connection = json.loads(environment["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert connection["conn_type"] == "spark_connect"
    server = f"{connection['host']}:{connection['port']}"
    assert environment["TIDEGATE_SPARK_MASTER"] == f"sc://{server}"
    assert connection["host"] in services()["airflow-scheduler"]["depends_on"]
    command = services()[connection["host"]]["command"]
    assert f"--conf=spark.connect.grpc.binding.port={connection['port']}" in command
    assert f"--conf=spark.driver.host={connection['host']}" in command


def test_kafka_connection_and_command_mean_the_broker() -> None:
    environment = environment_of(services()["airflow-scheduler"])
    connection = json.loads(environment["AIRFLOW_CONN_TIDEGATE_KAFKA"])
    assert KafkaConfig.from_dict(connection["extra"]) == KafkaConfig.parse(environment["TIDEGATE_KAFKA"])
    kafka = resolved(filled())["services"]["kafka"]
    advertised = environment_of(kafka)["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INTERNAL://{environment['TIDEGATE_KAFKA']}" in advertised.split(",")


@pytest.mark.parametrize("port", ["9092", "19999"])
def test_broker_advertises_the_published_port(port: str) -> None:
    kafka = resolved({**filled(), "KAFKA_PORT": port})["services"]["kafka"]
    environment = environment_of(kafka)
    host = re.search(r"HOST://:(\d+)", environment["KAFKA_LISTENERS"])
    assert host is not None
    assert kafka["ports"] == [f"127.0.0.1:{port}:{host[1]}"]
    assert f"HOST://127.0.0.1:{port}" in environment["KAFKA_ADVERTISED_LISTENERS"].split(",")


def test_server_and_worker_mean_the_same_master() -> None:
    command = services()["spark-master"]["command"]
    listens = dict(zip(command[2::2], command[3::2], strict=True))
    master = f"spark://{listens['--host']}:{listens['--port']}"
    assert services()["spark-worker"]["command"][-1] == master
    assert f"--master={master}" in services()["spark-connect"]["command"]


def test_executor_fits_its_worker_beside_python() -> None:
    sizes = {
        name: int(size.removesuffix("g")) for name, size in default_variables().items() if "MEMORY" in name
    }
    assert sizes["SPARK_EXECUTOR_MEMORY"] * 2 <= sizes["SPARK_WORKER_MEMORY"]


def test_lake_is_one_folder_for_all_services() -> None:
    lake = environment_of(services()["airflow-scheduler"])["TIDEGATE_LAKE"]
    assert all(mounts_of(services()[name])[lake] == "lake" for name in [*AIRFLOW, "spark-worker"])


def test_data_docs_folder_is_shared_with_api_server() -> None:
    assert "TIDEGATE_DATA_DOCS" not in environment_of(services()["airflow-scheduler"])  # below the home
    home = environment_of(services()["airflow-scheduler"])["TIDEGATE_HOME"]
    assert {mounts_of(services()[name])[home] for name in AIRFLOW} == {"home"}


def test_login_is_written_where_api_server_reads() -> None:
    path = Path(
        environment_of(services()["airflow-init"])["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]
    )
    holders = [name for name in NAMES if str(path.parent) in mounts_of(services()[name])]
    assert holders == ["airflow-api-server", "airflow-init"]


@pytest.mark.parametrize("name", NAMES)
def test_every_address_names_a_service(name: str) -> None:
    service = resolved(filled())["services"][name]
    hosts = {urlsplit(text).hostname for text in texts(service) if re.match(r"[a-z+]+://\S+$", text)}
    assert hosts - {"localhost"} <= set(NAMES)


def test_tasks_reach_the_api_server_where_it_listens() -> None:
    url = urlsplit(environment_of(services()["airflow-scheduler"])["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"])
    (published,) = services()["airflow-api-server"]["ports"]
    assert url.hostname == "airflow-api-server"
    assert published.endswith(f":{url.port}")
