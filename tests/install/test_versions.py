"""Both ends of the ranges that the wheel asks for, the oldest and the newest Python and Spark; and Airflow in
the newest patch of each minor version.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.batch.committed import Committed
from tests.cli.test_reading import NUMBER, remember
from tests.conftest import REPOSITORY
from tests.install.built import Built, Environment
from tests.install.test_extras import READ
from tidegate.spark.java import find_java, java_home

pytestmark = pytest.mark.long

AIRFLOW_MINORS = ("3.3",)
"""The supported minor versions, as far as they are released."""
_AIRFLOW = ("apache-airflow", "apache-airflow-core", "apache-airflow-task-sdk")
DAG_FILE = """\
from tidegate_airflow import maintenance_dag, pipeline_dags
globals().update(pipeline_dags())
maintenance = maintenance_dag()
"""
Fresh = Callable[[str], Environment]


@pytest.fixture
def fresh(installed: Path, tmp_path: Path) -> Fresh:
    return lambda python: Environment(tmp_path / "venv", installed / "uv-cache", python)


def interpreter(version: str) -> str:
    """A Python of this machine, by its name or pyenv's; the test is skipped where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for program in (f"python{version}", *map(str, pyenv.glob(f"{version}.*/bin/python"))):
        with suppress(FileNotFoundError):
            if subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0:
                return program
    pytest.skip(f"Python {version} is not on this machine")


@pytest.mark.parametrize("python", ["3.10", "3.13", "3.14"])
def test_the_core_reads_state_and_checks_pipelines(
    python: str, fresh: Fresh, built: Built, tmp_path: Path
) -> None:
    environment = fresh(interpreter(python))
    environment.install(str(built.wheel))
    made = Committed(tmp_path, "  - {kind: table}")
    made.commit(1, {"second": [("a", 1)]})
    remember(made, "second", NUMBER, {"key": "a", "value": {"m": 1}, "updated_seq": 1})
    assert environment.run("python", "-c", READ, **made.environment) == "1\n"
    assert "1 file checked, no mistakes." in environment.run("tidegate", "validate", **made.environment)
    assert not {"apache-airflow", "pyspark", "great-expectations", "pandas"} & environment.versions().keys()


@pytest.mark.spark
@pytest.mark.parametrize(
    "packages", [("pyspark==4.1.3",), ("pyspark==4.2.0", "pyspark-client==4.2.0"), ("pyspark==4.3.0",)]
)
def test_the_cases_of_all_samples_pass(
    packages: tuple[str, ...], fresh: Fresh, built: Built, tmp_path: Path
) -> None:
    environment = fresh(sys.executable)
    environment.install(f"{built.wheel}[spark]", *packages, but=("pyspark", "pyspark-client", "py4j"))
    java = {"JAVA_HOME": str(java_home(find_java())), "TIDEGATE_HOME": str(tmp_path)}
    output = environment.run("tidegate", "test", REPOSITORY / "include" / "pipelines" / "cases", **java)
    passed, _, rest = output.strip().splitlines()[-1].partition(" of ")
    assert int(passed) == int(rest.split()[0]) > 20
    assert [f"{name}=={version}" for name, version in environment.versions().items() if "spark" in name] == [
        *packages
    ]


@pytest.mark.parametrize("minor", AIRFLOW_MINORS)
def test_newest_patch_of_each_minor_has_every_dag(
    minor: str, fresh: Fresh, built: Built, tmp_path: Path
) -> None:
    environment = fresh(sys.executable)
    # Without a pin for the last one: when a minor version is released that no test has, this fails.
    pin = [] if minor == AIRFLOW_MINORS[-1] else [f"apache-airflow=={minor}.*"]
    environment.install(f"{built.wheel}[airflow]", *pin, but=_AIRFLOW)
    assert environment.versions()["apache-airflow-core"].startswith(f"{minor}.")
    home, dags, pipelines = tmp_path / "airflow", tmp_path / "dags", REPOSITORY / "include" / "pipelines"
    dags.mkdir()
    (dags / "pipelines.py").write_text(DAG_FILE)
    variables = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "TIDEGATE_HOME": str(tmp_path),
        "TIDEGATE_PIPELINES": str(pipelines),
    }
    environment.run("airflow", "db", "migrate", **variables)
    environment.run("airflow", "dags", "reserialize", **variables)
    listed = environment.run("airflow", "dags", "list", "--output", "json", **variables)
    listed_dags = {dag["dag_id"] for dag in json.loads(listed[listed.index("[{") :])}
    files = {file.stem for file in pipelines.glob("*.yaml")} - {"defaults"}
    assert listed_dags == files | {"tidegate_maintenance"}
    providers = environment.run("airflow", "providers", "list", "--output", "json", **variables)
    assert '"package_name": "tidegate"' in providers
