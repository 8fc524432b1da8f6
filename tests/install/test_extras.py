"""The core works without what the extras bring; what needs one of them says which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batch.committed import Committed
from tests.cli.test_reading import NUMBER, remember
from tidegate.extras import _EXTRAS, missing_extra

pytestmark = pytest.mark.process

ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Absent())
"""
# as if they were not installed
COMMAND = "from tidegate.cli import main; sys.argv = {arguments!r}; main()"
READ = "import tidegate; print(tidegate.read_state('visitors').num_rows)"


def without_extras(program: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE")}
    return subprocess.run(
        [sys.executable, "-c", ABSENT.format(names=sorted(_EXTRAS)) + program],
        env=inherited | environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def command(cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return without_extras(COMMAND.format(arguments=["tidegate", *arguments]), cwd, **environment)


def test_notebook_reads_state_with_the_core_alone(tmp_path: Path) -> None:
    made = Committed(tmp_path, "  - {kind: table}")
    made.commit(1, {"second": [("a", 1)]})
    remember(made, "second", NUMBER, {"key": "a", "value": {"m": 1}, "updated_seq": 1})
    done = without_extras(READ, tmp_path, **made.environment)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
    shown = command(tmp_path, "state", "visitors", "--json", **made.environment)
    assert [row["key"] for row in json.loads(shown.stdout)] == ["a"], shown.stderr
    status = command(tmp_path, "status", "--json", **made.environment)
    assert [row["batch"] for row in json.loads(status.stdout)] == [1], status.stderr


def test_core_alone_writes_and_checks_pipelines(tmp_path: Path) -> None:
    flags = (
        "--topic",
        "in",
        "--columns",
        "a string, b int",
        "--key",
        "a",
        "--emit",
        "change",
        "--sink",
        "kafka",
    )
    for arguments in (("init", "orders", *flags), ("validate",), ("schema",), ("--help",)):
        done = command(tmp_path, *arguments)
        assert done.returncode == 0, done.stderr


def test_core_and_spark_import_what_executors_unpickle() -> None:
    names = sorted(set(_EXTRAS) - {"pyspark", "py4j", "pandas"})
    program = ABSENT.format(names=names) + "import tidegate.spark.batch, tidegate.spark.kernel_task"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_that_needs_an_extra_names_it(tmp_path: Path) -> None:
    case = tmp_path / "case.yaml"
    case.write_text("name: a")
    done = command(tmp_path, "test", str(case))
    assert done.returncode == 2
    assert "pip install 'tidegate[spark]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("psycopg", "postgres"),
        ("pymysql.err", "mysql"),
        ("duckdb_engine", "duckdb"),
        ("great_expectations.core", "quality"),
        ("obstore", "s3"),
        ("fastavro", "formats"),
        ("authlib", "formats"),
        ("google.protobuf", "formats"),
    ],
)
def test_modules_of_an_extra_are_recognised(module: str, extra: str) -> None:
    error = missing_extra(ModuleNotFoundError("none", name=module))
    assert f"tidegate[{extra}]" in str(error)
    assert missing_extra(ModuleNotFoundError("none", name="shop.alerts")) is None


def test_provider_is_described_without_airflow(tmp_path: Path) -> None:
    program = "from tidegate_airflow.provider import get_provider_info; print(get_provider_info()['name'])"
    done = without_extras(program, tmp_path)
    assert done.stdout == "tidegate\n", done.stderr


def test_overwritten_spark_versions_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate import extras
    from tidegate.errors import SetupFailed

    versions = {"pyspark": "4.3.0", "pyspark-client": "4.2.0"}
    monkeypatch.setattr(extras, "_version", versions.get)
    with pytest.raises(SetupFailed) as caught:
        extras.check_spark_packages()
    assert "`pip install pyspark==4.2.0 pyspark-client==4.2.0`" in str(caught.value)


def test_missing_ledger_driver_names_the_extra(tmp_path: Path) -> None:
    url = "postgresql+psycopg://user:hunter2@127.0.0.1:1/database"
    done = command(tmp_path, "status", TIDEGATE_LEDGER=url)
    assert done.returncode == 2
    assert "pip install 'tidegate[postgres]'" in done.stderr
    assert "hunter2" not in done.stderr


def test_missing_sink_driver_names_the_extra(tmp_path: Path) -> None:
    program = (
        "from tidegate.errors import SetupFailed; from tidegate.sinks.sql.database import Database\n"
        "try: Database('postgresql+psycopg://user:hunter2@127.0.0.1:1/database', 'TIDEGATE_SQL')\n"
        "except SetupFailed as error: print(error)"
    )
    done = without_extras(program, tmp_path)
    assert "tidegate[postgres]" in done.stdout, done.stderr
    assert "hunter2" not in done.stdout + done.stderr
