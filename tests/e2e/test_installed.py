"""The wheel in an Airflow that was there before: a DAG file of two lines, a pipeline by `tidegate init`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka import KafkaProducer
from tests.e2e.kills import SUBMITTED
from tests.faults.history import create_topics
from tests.install.built import Built, Environment, build
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.airflow_client import RunEnd
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.demo.topics import read_published
from tidegate_dev.stack import environment

pytestmark = [pytest.mark.long, pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark]

DAG_FILE = "from tidegate_airflow import pipeline_dags\nglobals().update(pipeline_dags())\n"
COLUMNS = "orderId string, quantity int"
DEFAULTS = "dag_id_prefix: shop_\nairflow: {owner: shop, tags: [shop], retries: 1}\n"


@dataclass
class Installed:
    """An Airflow with tidegate's wheel, and what Airflow was before that."""

    airflow: AirflowStack
    servers: str
    environment: Environment
    before: dict[str, str]
    built: Built


@pytest.fixture(scope="module")
def line(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Install and start everything as a user does who does not have this repository."""
    home = tmp_path_factory.mktemp("installed")
    (home / "jars").symlink_to(installed / "jars", target_is_directory=True)
    fresh = Environment(home / "venv", installed / "uv-cache")
    fresh.install("apache-airflow")
    before = fresh.versions()
    built = build(home)
    fresh.install(f"{built.wheel}[airflow,quality]")
    fresh.compile()
    project = home / "project"
    (project / "dags").mkdir(parents=True)
    (project / "dags" / "tidegate.py").write_text(DAG_FILE)
    with KafkaBroker(home) as broker, ExitStack() as end:
        env = environment(home, project, broker.bootstrap_servers) | {
            "TIDEGATE_PIPELINES": str(project / "pipelines"),
            "PYSPARK_PYTHON": str(fresh.python),
            "PYSPARK_DRIVER_PYTHON": str(fresh.python),
            "AIRFLOW_CONN_SPARK_DEFAULT": SUBMITTED,
            "AIRFLOW_CONN_TIDEGATE_KAFKA": json.dumps(
                {"conn_type": "tidegate_kafka", "extra": {"bootstrap.servers": broker.bootstrap_servers}}
            ),
        }
        flags = ("--topic", "orders", "--columns", COLUMNS, "--key", "orderId", "--emit", "change")
        fresh.run("tidegate", "init", "orders", *flags, "--sink", "kafka", "--schedule", "none", **env)
        (project / "pipelines" / "defaults.yaml").write_text(DEFAULTS)
        create_topics(broker.bootstrap_servers, "orders", "orders-out")
        airflow = AirflowStack(home, project / "dags", env=env)
        airflow.python = str(fresh.python)
        end.callback(airflow.stop)
        airflow.start()
        airflow.wait_ready()
        yield Installed(airflow, broker.bootstrap_servers, fresh, before, built)


@pytest.fixture(scope="module")
def ended(line: Installed) -> RunEnd:
    """The end of a run that has read three records of a key, of which the second changes nothing."""
    line.airflow.wait_dag("shop_orders")
    line.airflow.unpause("shop_orders")
    producer = KafkaProducer(bootstrap_servers=line.servers, acks="all")
    for quantity in (10, 10, 0):
        body = {"orderId": "o1", "quantity": quantity}
        producer.send("orders", json.dumps(body).encode(), timestamp_ms=1_700_000_000_000, partition=0)
    producer.flush()
    producer.close()
    line.airflow.trigger("shop_orders", "first")
    return line.airflow.wait_run("shop_orders", "first")


def test_installation_leaves_airflow_packages_unchanged(line: Installed) -> None:
    after = line.environment.versions()
    assert {name: after[name] for name in line.before} == line.before
    assert "apache-airflow" in line.before
    assert "pyspark" not in line.before


def test_the_new_pipeline_passes_its_own_case_there(line: Installed) -> None:
    env = line.airflow.env
    assert "2 files checked, no mistakes." in line.environment.run("tidegate", "validate", **env)
    cases = Path(env["TIDEGATE_PIPELINES"]) / "cases"
    assert "1 of 1 cases passed" in line.environment.run("tidegate", "test", cases, **env)


def test_its_run_succeeds_and_what_changed_goes_out(line: Installed, ended: RunEnd) -> None:
    assert ended.state == "success", ended.log_tail
    values = [value["quantity"] for value in read_published(line.servers, "orders-out")["o1"]]
    assert values == [10, 0]


def test_spark_submit_ran_the_program_of_the_wheel(line: Installed, ended: RunEnd) -> None:
    """And not one of this checkout, of which the environment knows nothing."""
    logs = (line.airflow.log.parent.parent / "airflow" / "logs").rglob("task_id=compute/*.log")
    programs = [match for log in logs for match in re.findall(r"\S+/compute\.py", log.read_text())]
    assert programs, ended
    packages = str(line.environment.folder / "lib")
    assert [program for program in programs if not program.startswith(packages)] == []


def test_airflow_lists_provider_and_default_dag(line: Installed) -> None:
    line.airflow.wait_dag("shop_orders")
    providers = line.airflow.api("GET", "/providers?limit=100")["providers"]
    assert "tidegate" in {provider["package_name"] for provider in providers}
    dag = line.airflow.api("GET", "/dags/shop_orders/details")
    assert {tag["name"] for tag in dag["tags"]} == {"tidegate", "shop"}
    assert dag["owners"] == ["shop"]
    assert line.airflow.api("GET", "/importErrors")["import_errors"] == []
    assert "tidegate" in {plugin["name"] for plugin in line.airflow.api("GET", "/plugins")["plugins"]}
    assert line.airflow.api("GET", "/plugins/importErrors")["import_errors"] == []


def test_the_demo_runs_without_a_checkout(line: Installed, tmp_path: Path, installed: Path) -> None:
    """Run the demo in a folder of its own, beside the Airflow above; it proves its output by itself."""
    (tmp_path / "jars").symlink_to(installed / "jars", target_is_directory=True)
    java = {"JAVA_HOME": line.airflow.env["JAVA_HOME"], "TIDEGATE_HOME": str(tmp_path)}
    line.environment.install(f"{line.built.wheel}[airflow,quality]", str(line.built.dev_wheel))
    samples = json.loads(line.environment.run("tidegate", "demo", "--json", **java))
    assert [(sample["pipeline"], sample["equal"]) for sample in samples] == [
        ("availability", True),
        ("visitor_batches", True),
    ]
