"""Dockerfile and .dockerignore, read as files: what goes into the image, and that it is where others look."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.compose.model import OURS, ROOT, environment_of, mounts_of, services
from tidegate.spark import java

Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """(INSTRUCTION, its arguments on one line), without comments."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name, arguments) for name, arguments in pairs]


def arguments_of(instruction: str) -> list[str]:
    """The arguments of every instruction of that name, in order."""
    return [arguments for name, arguments in instructions() if name == instruction]


def variables() -> dict[str, str]:
    """Return the variables that the image adds to every process's environment."""
    return dict(pair.split("=", 1) for arguments in arguments_of("ENV") for pair in arguments.split())


def copied() -> list[str]:
    """Return the paths that COPY takes from the checkout."""
    return [source for arguments in arguments_of("COPY") for source in arguments.split()[:-1]]


def let_in() -> set[str]:
    """The top of what .dockerignore lets into the build."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    return {rule[1:] for rule in rules if rule.startswith("!")}


def test_the_base_is_pinned() -> None:
    (base,) = arguments_of("FROM")
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base)


def test_only_known_instructions_are_used() -> None:
    """ADD fetches URLs, an ARG can hold a secret that stays in the image's history."""
    assert {name for name, _ in instructions()} <= {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER"}


def test_it_ends_as_a_user_without_rights() -> None:
    assert instructions()[-1][0] == "USER"
    user, group = instructions()[-1][1].split(":")
    assert int(user) > 1000
    assert int(group) > 1000
    assert f"useradd --uid {user} " in arguments_of("RUN")[0]


@pytest.mark.parametrize("source", copied())
def test_what_is_copied_is_there_and_let_in(source: str) -> None:
    assert (ROOT / source).exists()
    assert source.split("/")[0] in let_in()


def test_nothing_is_let_in_that_is_not_copied() -> None:
    assert let_in() == {source.split("/")[0] for source in copied()}


def test_packages_come_from_the_locks_with_their_hashes() -> None:
    installs = [
        part.strip() for run in arguments_of("RUN") for part in run.split("&&") if "pip install" in part
    ]
    assert len(installs) == 3
    for install in installs:
        assert "--no-deps" in install
        assert "--require-hashes" in install or install.endswith("--no-build-isolation .")


def test_pyspark_build_tool_is_in_the_lock() -> None:
    """The Dockerfile cuts these lines out of requirements.lock with sed."""
    match = re.search(r"^setuptools==.*?^    # via", (ROOT / "requirements.lock").read_text(), re.M | re.S)
    assert match is not None
    assert "--hash=sha256:" in match[0]
    assert len(match[0].splitlines()) < 6


def test_java_home_is_the_wrapper_for_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/usr/local")
    assert Path(variables()["JAVA_HOME"]) == java._wrapper_path().parent.parent


def test_java_is_found_while_the_image_builds() -> None:
    assert f"python -m {java.__name__}" in " ".join(arguments_of("RUN"))


def test_executors_have_the_packages_that_the_wheel_needs() -> None:
    """One image for driver and executors, with the locked packages in the Python that Spark starts."""
    locked = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements.lock").read_text(), re.M))
    assert {"confluent-kafka", "deltalake", "msgspec", "numpy", "pyarrow", "xxhash"} <= locked
    assert variables()["PYSPARK_PYTHON"] == "/usr/local/bin/python"
    assert services()["spark-worker"]["image"] == services()["airflow-scheduler"]["image"] == OURS


def test_volumes_are_mounted_on_folders_of_the_user() -> None:
    (made,) = re.findall(r"install --directory --owner=tidegate .*", arguments_of("RUN")[0])
    for service in services().values():
        if service["image"] == OURS:
            assert set(mounts_of(service)) <= set(made.split())


@pytest.mark.parametrize(
    "variable", ["AIRFLOW__CORE__DAGS_FOLDER", "AIRFLOW__CORE__PLUGINS_FOLDER", "TIDEGATE_PIPELINES"]
)
def test_image_has_the_folders_of_the_stack(variable: str) -> None:
    assert arguments_of("WORKDIR") == ["/opt/tidegate"]
    folder = Path(environment_of(services()["airflow-scheduler"])[variable]).relative_to("/opt/tidegate")
    assert (ROOT / folder).is_dir()
    assert folder.parts[0] in copied()


def test_build_sources_precede_the_package_build() -> None:
    (building,) = [at for at, (_, arguments) in enumerate(instructions()) if "isolation . " in arguments]
    before = " ".join(arguments for name, arguments in instructions()[:building] if name == "COPY").split()
    sources = {
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
        "dags",
        "include",
        "plugins",
        "spark_jobs",
    }
    assert sources <= set(before)
