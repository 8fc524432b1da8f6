"""The JVM of a local driver starts by the noted command, unless Spark is configured on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.processes import is_alive, until
from tests.spark import early, staying
from tidegate.errors import SetupFailed
from tidegate.spark import driver as driver_module
from tidegate.spark import java as java_module
from tidegate.spark.driver import DriverJvm, DriverSettings, driver_settings
from tidegate.spark.java import JavaRuntime, find_java, forget_launch, note_launch, noted_launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNTIME = JavaRuntime(17, Path("/home/of/java"))
OPTIONS = ["-Da=b", "--add-modules=jdk.incubator.vector"]


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that writes its arguments where a JVM writes its address, and ends; its launch is noted."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(java_module, "_spark_jar", lambda: tmp_path / "spark-core.jar")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-De=f")
    monkeypatch.setattr(driver_module, "_is_configured", lambda: False)
    monkeypatch.setattr(driver_module, "_has_gateway", lambda: False)
    (tmp_path / "spark-core.jar").touch()
    program = tmp_path / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> "$(dirname "$0")/arguments"\n')
    program.chmod(0o755)
    note_launch(program, RUNTIME, f"{tmp_path}/spark-core.jar{os.pathsep}other.jar", OPTIONS)
    return program


def settings(java: Path, memory: str = "1g") -> DriverSettings:
    return DriverSettings(java, ("-Dc=d",), memory, {"spark.master": "local[*]"})


def started(java: Path) -> list[str]:
    """The arguments of all programs that were started, each after the other."""
    path = java.with_name("arguments")
    return path.read_text().splitlines() if path.exists() else []


def test_launch_is_noted_without_the_vector_module(java: Path) -> None:
    launch = noted_launch(java)
    assert launch is not None
    assert (launch.options, launch.runtime) == (("-Da=b",), RUNTIME)


def test_noted_java_is_not_asked_again(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_candidates", lambda: [("PATH", java)])
    assert find_java() == RUNTIME.home / "bin" / "java"
    assert started(java) == []
    forget_launch(java)
    with pytest.raises(SetupFailed, match="PATH has no working Java"):
        find_java()


def test_forgotten_launch_starts_no_jvm(java: Path) -> None:
    forget_launch(java)
    assert noted_launch(java) is None
    with DriverJvm() as jvm:
        jvm.start(settings(java))
        with jvm.attached():
            pass
    assert started(java) == []


def test_launch_for_jars_elsewhere_is_ignored(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = java.with_name("moved.jar")
    os.link(java.with_name("spark-core.jar"), moved)
    monkeypatch.setattr(java_module, "_spark_jar", lambda: moved)
    assert noted_launch(java) is None


def test_jvm_that_ends_at_once_fails_the_setup(java: Path) -> None:
    with DriverJvm() as jvm:
        jvm.start(settings(java))
        with pytest.raises(SetupFailed, match="Java did not start"), jvm.attached():
            pass
    arguments = started(java)
    assert arguments[:1] == ["-cp"]
    assert arguments[2:6] == ["-Xmx1g", "-De=f", "-Dc=d", "-Da=b"]
    assert arguments[-3:] == ["--conf", "spark.master=local[*]", "pyspark-shell"]


def test_jvm_starts_anew_for_other_settings_only(java: Path) -> None:
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    note_launch(java, RUNTIME, f"{java.parent}/spark-core.jar", OPTIONS)
    with DriverJvm() as jvm:
        processes = []
        for memory in ("1g", "1g", "2g"):
            jvm.start(settings(java, memory))
            processes.append(jvm._process)
        first, same, second = processes
        assert first is same
        assert second is not first
        assert [process.poll() is None for process in (first, second) if process] == [False, True]
    assert second is not None
    assert second.poll() is not None


def test_user_settings_reach_the_jvm(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "find_java", lambda: java)
    options = "-Dg=h '-Di=j k'"
    more = {"spark.driver.extraJavaOptions": options, "spark.app.name": "orders", "spark.driver.memory": "2g"}
    settings = driver_settings("local[2]", None, 0, ("-Dc=d",), more)
    assert settings.memory == "2g"
    assert settings.java_options[-2:] == ("-Dg=h", "-Di=j k")
    assert (settings.conf["spark.app.name"], settings.conf["spark.master"]) == ("orders", "local[2]")
    assert driver_settings("local[2]", "3g", 0, (), more).memory == "3g"


def test_user_paths_are_left_to_spark_submit(java: Path) -> None:
    conf = {"spark.driver.extraClassPath": "/jars/*"}
    with DriverJvm() as jvm:
        jvm.start(DriverSettings(java, (), "1g", conf))
        with jvm.attached():
            pass
    assert started(java) == []


@pytest.mark.parametrize(
    "variable", ["SPARK_CONF_DIR", "SPARK_DRIVER_MEMORY", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR"]
)
def test_configured_spark_is_left_to_spark_submit(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert not driver_module._is_configured()
    monkeypatch.setenv(variable, "set")
    assert driver_module._is_configured()


@pytest.mark.spark
def test_session_has_no_functions_of_mllib(spark: SparkSession) -> None:
    registry = "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$"
    functions = getattr(getattr(spark.sparkContext._jvm, registry), "MODULE$").internal()
    names = functions.listFunction().mkString(" ").split()
    assert "timestampadd" in names
    assert "vector_to_array" not in names


@pytest.mark.spark
def test_started_jvm_opens_a_session_by_itself() -> None:
    # PySpark leaves variables to the processes of this one.
    environment = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    done = subprocess.run(
        [sys.executable, early.__file__],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert json.loads(done.stdout) == {
        "opened before": True,
        "started by PySpark": False,
        "accumulator": None,
        "setting": "NO_CODEGEN",
        "rows": 3,
        "daemons": 1,  # that of the first job, which the next one found
    }
    assert done.stderr == ""  # nothing of Spark's is on the user's screen


@pytest.mark.spark
def test_jvm_ends_with_its_killed_driver() -> None:
    environment = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    command = [sys.executable, staying.__file__]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        jvm = int(process.stdout.readline())
        assert is_alive(jvm)
        process.kill()
    until(lambda: not is_alive(jvm), "the JVM has ended", 30)


def test_context_has_the_defaults_of_pyspark() -> None:
    from pyspark.core.context import DEFAULT_CONFIGS

    assert {name: str(value) for name, value in DEFAULT_CONFIGS.items()} == driver_module._PYSPARK_DEFAULTS


@pytest.mark.process
def test_driver_imports_no_pyspark() -> None:
    asked = "import sys, tidegate.spark.driver; print(*({'pyspark', 'py4j'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
