"""What is in the wheel that `make dist` builds, and what it asks for."""

from __future__ import annotations

import re
import zipfile
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest

import tidegate
import tidegate_dev
from tests.conftest import REPOSITORY
from tests.install.built import Built

EXTRAS = {"airflow", "spark", "postgres", "mysql", "duckdb", "quality", "s3", "ui", "formats", "http"}
EXTRAS |= {"iceberg", "openlineage"}
FOLDERS = {
    "tidegate": REPOSITORY / "include" / "tidegate",
    "tidegate_airflow": REPOSITORY / "plugins" / "tidegate_airflow",
    "tidegate_airflow/spark_jobs": REPOSITORY / "spark_jobs",
}
DEV_FOLDERS = {
    "tidegate_dev": REPOSITORY / "tidegate-dev" / "tidegate_dev",
    "tidegate_dev/demo/project/dags": REPOSITORY / "dags",
    "tidegate_dev/demo/project/include/expectations": REPOSITORY / "include" / "expectations",
    "tidegate_dev/demo/project/include/pipelines": REPOSITORY / "include" / "pipelines",
}


@pytest.fixture(scope="module")
def wheel(built: Built) -> zipfile.ZipFile:
    return zipfile.ZipFile(built.wheel)


@pytest.fixture(scope="module")
def dev_wheel(built: Built) -> zipfile.ZipFile:
    return zipfile.ZipFile(built.dev_wheel)


@pytest.fixture(scope="module")
def requirements(wheel: zipfile.ZipFile) -> list[str]:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist") or []


def files_of(folders: dict[str, Path]) -> set[str]:
    return {
        f"{package}/{path.relative_to(folder)}"
        for package, folder in folders.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.process
def test_wheel_has_every_file_of_both_packages(wheel: zipfile.ZipFile) -> None:
    files = files_of(FOLDERS)
    assert files == {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert "tidegate_airflow/spark_jobs/compute.py" in files


@pytest.mark.process
def test_dev_wheel_has_local_stack_and_demo(dev_wheel: zipfile.ZipFile) -> None:
    files = files_of(DEV_FOLDERS)
    assert files == {name for name in dev_wheel.namelist() if ".dist-info/" not in name}
    assert "tidegate_dev/jars.lock" in files
    (name,) = [name for name in dev_wheel.namelist() if name.endswith("METADATA")]
    asked = Parser().parsestr(dev_wheel.read(name).decode()).get_all("Requires-Dist")
    assert asked == [f"tidegate[airflow,quality]=={tidegate.__version__}"]


def test_it_has_its_licence_and_its_entry_points(wheel: zipfile.ZipFile) -> None:
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert "Apache License" in wheel.read(f"{info}/licenses/LICENSE").decode()[:200]
    entries = wheel.read(f"{info}/entry_points.txt").decode()
    assert "tidegate = tidegate.cli:main" in entries
    assert "provider_info = tidegate_airflow.provider:get_provider_info" in entries
    assert "tidegate = tidegate_airflow.plugin:TidegatePlugin" in entries


def test_core_requires_neither_airflow_nor_spark(
    requirements: list[str],
) -> None:
    core = {
        re.split(r"[^\w.-]", requirement)[0] for requirement in requirements if "extra ==" not in requirement
    }
    assert not core & {
        "apache-airflow",
        "pyspark",
        "pyspark-client",
        "great-expectations",
        "pandas",
        "obstore",
    }
    assert not {name for name in core if name.startswith(("psycopg", "apache", "setuptools"))}
    extras = {
        match
        for requirement in requirements
        for match in re.findall(r"extra == ['\"](\w+)['\"]", requirement)
    }
    assert extras - {"dev"} == EXTRAS
    assert [
        requirement
        for requirement in requirements
        if "==" in requirement.split(";")[0] and "dev" not in requirement
    ] == []


def test_all_that_it_asks_for_is_locked(requirements: list[str]) -> None:
    locked = set(re.findall(r"^([\w.-]+)==", (REPOSITORY / "requirements.lock").read_text(), re.MULTILINE))
    asked = {
        re.split(r"[^\w.-]", requirement)[0]
        for requirement in requirements
        if not re.search(r"extra == .dev.", requirement)
    }
    assert asked - {"tidegate"} <= locked


def test_its_version_is_that_of_the_package() -> None:
    assert version("tidegate") == version("tidegate-dev") == tidegate.__version__ == tidegate_dev.__version__
