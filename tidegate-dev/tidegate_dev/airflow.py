"""A real Airflow on this machine, which only this machine can reach. tidegate starts it as a process and
never imports it here, so `tidegate` works without Airflow.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import secrets
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from tidegate.errors import SetupFailed
from tidegate_dev.airflow_client import AirflowClient
from tidegate_dev.processes import TIMEOUT_S, Supervised, claim_port, free_port

_USERNAME = "admin"
# Airflow needs seconds of the processor to start, and a report of its health takes some of them.
_POLL_S = 0.5
_GRACE_S = 5.0
_COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")

_SETTINGS = {
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__PARALLELISM": "4",
    # Tasks are forks of a process that has imported what they need; Great Expectations alone takes seconds.
    "AIRFLOW__SCHEDULER__MP_START_METHOD": "forkserver",
    "AIRFLOW__SCHEDULER__MP_FORKSERVER_PRELOAD": "tidegate_airflow.preload",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "1",
    "AIRFLOW__API__HOST": "127.0.0.1",
    "AIRFLOW__API__WORKERS": "1",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
    "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    # Airflow notices a killed task by its missing heartbeat: after a minute here, after five by default.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
    "AIRFLOW__LOGGING__UVICORN_LOGGING_LEVEL": "WARNING",
    "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
    "NO_COLOR": "1",
}


class AirflowStack(AirflowClient):
    """`airflow standalone` with its files in `home/airflow`, and a client that is logged in to it.

    Airflow generates the password at its first start; `wait_ready` reads it.

    Args:
        home: The folder of the local stack.
        dags_folder: Airflow's DAGs.
        plugins_folder: Airflow's plugins; None for an empty folder.
        env: Added to the environment of every component and task.
        port: The port of the API server; None for any free port.

    Raises SetupFailed if the port is taken, or if Airflow does not start.
    """

    def __init__(
        self,
        home: Path,
        dags_folder: Path,
        plugins_folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__("", _USERNAME, "")
        self._home = home
        self._dags_folder = dags_folder
        self._plugins_folder = plugins_folder or home / "airflow" / "plugins"
        self.env = dict(env or {})
        self.python = sys.executable
        """The Python in whose environment this Airflow is installed."""
        self._port = port
        self._process: Supervised | None = None
        self._secret = secrets.token_urlsafe(64)
        self._started_at = datetime.now(timezone.utc)

    def __enter__(self) -> AirflowStack:
        self.start()
        self.wait_ready()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def log(self) -> Path:
        """The file with the output of all components. The logs of tasks are in `home/airflow/logs`."""
        return self._home / "logs" / "airflow.log"

    def start(self) -> None:
        """Start the processes and return at once. Call `wait_ready` before you use Airflow.

        Raises SetupFailed if the port is taken.
        """
        self._port = claim_port(self._port, "TIDEGATE_AIRFLOW_PORT") if self._port else free_port()
        self.url, self._token = f"http://127.0.0.1:{self._port}", ""
        self._started_at = datetime.now(timezone.utc)
        command = [self.python, "-m", "airflow", "standalone"]
        self._process = Supervised("Airflow", command, self.log, self.environment(), _GRACE_S)
        self._process.start()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def wait_ready(self, timeout_s: float = TIMEOUT_S) -> None:
        """Return when every component has sent a heartbeat since the start.

        Raises SetupFailed after `timeout_s`, or if another Airflow answers at the port.
        """
        if self._process is None:
            raise SetupFailed("Airflow was not started", "Call start() first.")
        try:
            self._process.wait_ready(self._is_healthy, timeout_s, _POLL_S)
            self.password = self._read_password()
            self._require_own()
        except BaseException:
            self.stop()
            raise

    def _pause_until(self, deadline: float, complaint: str) -> None:
        if not self.running:
            raise SetupFailed("Airflow is not running any more", f"See {self.log}.")
        super()._pause_until(deadline, complaint)

    def sick_components(self) -> list[str]:
        """Return the names of components that have ended or hang: Airflow reports their last heartbeat as too
        old.
        """
        health = self._health()
        if health is None:
            return ["api-server"]
        return [name for name in _COMPONENTS if health[name]["status"] != "healthy"]

    def _health(self) -> Mapping[str, Any] | None:
        """Return Airflow's health report, by component; None if Airflow does not answer."""
        try:
            status, health = self._http("GET", "/api/v2/monitor/health")
        except SetupFailed:
            return None
        return health if status == 200 else None

    def _is_healthy(self) -> bool:
        health = self._health()
        return health is not None and all(self._has_reported(name, health[name]) for name in _COMPONENTS)

    def _require_own(self) -> None:
        """Raise SetupFailed if another Airflow answers at the port.

        Another one can take the port after `claim_port` and before the API server starts. Its health looks
        the same, but it does not sign tokens with the secret of this start, even if both homes have the same
        password.
        """
        try:
            is_own = is_signed(self._log_in(), self._secret)
        except SetupFailed:
            is_own = False
        if not is_own:
            raise SetupFailed(
                f"Another Airflow answers at {self.url}",
                "Another stack took the port. Run it again, or set TIDEGATE_AIRFLOW_PORT to a free port.",
            )

    def _has_reported(self, name: str, report: Mapping[str, str | None]) -> bool:
        """Return whether a component is healthy by a heartbeat of this start.

        Airflow counts a recent heartbeat of an earlier stack as healthy, too. The database has no heartbeat.
        """
        heartbeat = report.get(f"latest_{name}_heartbeat")
        is_recent = heartbeat is not None and datetime.fromisoformat(heartbeat) > self._started_at
        return report["status"] == "healthy" and (is_recent or name == "metadatabase")

    def _read_password(self) -> str:
        path = self._home / "airflow" / "simple_auth_manager_passwords.json.generated"
        try:
            return str(json.loads(path.read_text())[_USERNAME])
        except (OSError, ValueError, KeyError) as error:
            raise SetupFailed(f"No password in {path}", "Delete the file, and start again.") from error

    def environment(self) -> dict[str, str]:
        """Return the environment of each component.

        A process that you start with it belongs to this Airflow.
        """
        # AIRFLOW_HOME and settings of the user's own Airflow would make this one use that one's database.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        own = {
            "AIRFLOW_HOME": str(self._home / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._dags_folder),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self._plugins_folder),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__PORT": str(self._port),
            # Airflow generates a secret that is so short that each request logs a warning.
            "AIRFLOW__API_AUTH__JWT_SECRET": self._secret,
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
            "PATH": os.pathsep.join([str(Path(self.python).parent), os.environ.get("PATH", os.defpath)]),
        }
        return {**inherited, **_SETTINGS, **own, **self.env}


def is_signed(token: str, secret: str) -> bool:
    """Return whether a JWT is signed with a secret, as Airflow signs: HMAC with SHA-512."""
    content, _, signature = token.rpartition(".")
    expected = hmac.digest(secret.encode(), content.encode(), "sha512")
    return hmac.compare_digest(base64.urlsafe_b64encode(expected).rstrip(b"="), signature.encode())
