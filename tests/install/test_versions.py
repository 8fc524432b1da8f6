"""Both ends of the ranges that the wheel asks for: the oldest and the newest Python, and Spark."""

from __future__ import annotations

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
