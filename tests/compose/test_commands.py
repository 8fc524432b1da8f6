"""Airflow's commands of the stack as plain processes: no container, but the same words and settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compose.model import OURS, environment_of, filled, resolved

pytestmark = pytest.mark.process

_BIN = Path(sys.executable).parent
_PATH = os.pathsep.join([str(_BIN), os.environ.get("PATH", os.defpath)])
SERVICES = resolved(filled())["services"]


def test_every_program_is_installed_by_the_lock() -> None:
    ours = [service for service in SERVICES.values() if service["image"] == OURS]
    programs = {service["command"][0] for service in ours} - {"bash"}
    assert programs == {"airflow", "spark-class", "spark-submit"}
    assert all((_BIN / program).exists() for program in programs)


def test_airflow_understands_its_commands(tmp_path: Path) -> None:
    commands = [service["command"][1:] for name, service in SERVICES.items() if name.startswith("airflow-")]
    script = next(command[-1] for command in commands if command[0] != "api-server" and "-euc" in command)
    words = [command for command in commands if "-euc" not in command]
    words += [line.split()[1:] for line in script.splitlines() if line.startswith("airflow ")]
    assert ["db", "migrate"] in words
    code = "import json, sys; from airflow.cli.cli_parser import get_parser\n"
    code += "for words in json.loads(sys.argv[1]): print(get_parser().parse_args(words).func.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(words)],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == len(words) == 5


def test_init_writes_the_login_for_its_owner(tmp_path: Path) -> None:
    passwords, migrations = tmp_path / "passwords.json", tmp_path / "airflow"
    migrations.write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/ran"\n')
    migrations.chmod(0o755)
    variables = {
        **environment_of(SERVICES["airflow-init"]),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "TIDEGATE_LEDGER": f"sqlite:///{tmp_path / 'ledger.db'}",
        "PATH": os.pathsep.join([str(tmp_path), _PATH]),
    }
    subprocess.run(SERVICES["airflow-init"]["command"], env=variables, check=True)
    assert (tmp_path / "ran").read_text() == "db migrate\n"
    assert (tmp_path / "ledger.db").exists()
    assert json.loads(passwords.read_text()) == {"admin": "secret-AIRFLOW_ADMIN_PASSWORD"}
    assert passwords.stat().st_mode & 0o777 == 0o600
