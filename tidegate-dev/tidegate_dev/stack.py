"""The local stack of broker, Airflow and Spark: for the time of a `with` block, or detached until `down`.

A supervisor process runs a detached stack. It is alive as long as `home/stack.lock` is locked: the system
releases the lock when the process ends, in any way. `home/stack.json` has the addresses of the parts.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from tidegate.errors import SettingsInvalid, SetupFailed, TidegateError
from tidegate.settings import Variable
from tidegate.spark.java import find_java, java_home
from tidegate.spark_token import HOST
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.processes import MARKER, is_free, sweep
from tidegate_dev.spark_server import SparkServer

_DOWN_TIMEOUT_S = 30.0
_USUAL_PORTS = {"TIDEGATE_KAFKA_PORT": 9092, "TIDEGATE_AIRFLOW_PORT": 8080, "TIDEGATE_SPARK_PORT": 15002}
VARIABLES = (
    Variable(
        "TIDEGATE_KAFKA_PORT", "Port of the broker that `up` and `demo` start.", "9092, or any if it is taken"
    ),
    Variable(
        "TIDEGATE_AIRFLOW_PORT",
        "Port of the Airflow that `up` and `demo` start.",
        "8080, or any if it is taken",
    ),
    Variable(
        "TIDEGATE_SPARK_PORT",
        "Port of the Spark Connect server that `up` and `demo` start.",
        "15002, or any if it is taken",
    ),
)
"""The variables of the environment that only the local stack reads."""
_CHECKS_PER_MAINTENANCE = 60
_MAX_SICK_CHECKS = 4
"""Stop the stack after so many checks in a row find a component without a heartbeat. One check is not enough:
after a machine has slept, all heartbeats are old.
"""


@dataclass(frozen=True)
class StackInfo:
    """The addresses of a running stack, and the login of its Airflow. `pid` is the supervisor's process."""

    pid: int
    airflow_url: str
    username: str
    password: str
    bootstrap_servers: str
    spark_url: str | None


class Stack:
    """A broker and an Airflow with the environment that tidegate needs. Leaving the `with` block ends them.

    Args:
        home: The folder of the local stack.
        project: The checkout with `dags/`, `plugins/` and `include/pipelines/`.
        keeps_spark: Whether a Spark Connect server runs, in which batches compute. Otherwise each batch
            starts Spark.

    Raises SetupFailed if a part does not start. SettingsInvalid is raised if a port in the environment is
    invalid.
    """

    def __init__(self, home: Path, project: Path, *, keeps_spark: bool = False) -> None:
        self._home = home
        self._project = project
        self._exit = ExitStack()
        self.broker = KafkaBroker(home, port=_port("TIDEGATE_KAFKA_PORT"))
        self.spark = _spark_server(home) if keeps_spark else None
        self.airflow = AirflowStack(
            home, project / "dags", project / "plugins", port=_port("TIDEGATE_AIRFLOW_PORT")
        )

    def __enter__(self) -> Stack:
        with ExitStack() as undo:
            undo.enter_context(self.broker)
            if self.spark is not None:
                undo.callback(self.spark.stop)
                # Only launched: it becomes ready while Airflow starts, which takes longer.
                self.spark.launch()
            self.airflow.env.update(
                environment(self._home, self._project, self.broker.bootstrap_servers, self.spark)
            )
            undo.enter_context(self.airflow)
            if self.spark is not None:
                self.spark.wait_ready()
            self._exit = undo.pop_all()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._exit.close()

    @property
    def running(self) -> bool:
        return self.broker.running and self.airflow.running

    @property
    def info(self) -> StackInfo:
        airflow = self.airflow
        return StackInfo(
            *(os.getpid(), airflow.url, airflow.username, airflow.password, self.broker.bootstrap_servers),
            self.spark.url if self.spark is not None else None,
        )


def environment(
    home: Path, project: Path, bootstrap_servers: str, spark: SparkServer | None = None
) -> dict[str, str]:
    """Return the variables that tidegate, Airflow's connections and Spark need for a local stack.

    Values of `TIDEGATE_LEDGER`, `TIDEGATE_SQL` and `TIDEGATE_PIPELINES` that you have set are kept.

    Raises SetupFailed if there is no Java.
    """
    java = java_home(find_java())
    defaults = {
        "TIDEGATE_LEDGER": f"sqlite:///{home / 'ledger.db'}",
        "TIDEGATE_SQL": sink_url(home),
        "TIDEGATE_PIPELINES": str(project / "include" / "pipelines"),
    }
    return {
        **{name: os.environ.get(name) or value for name, value in defaults.items()},
        "TIDEGATE_HOME": str(home),
        "TIDEGATE_KAFKA": bootstrap_servers,
        "AIRFLOW_CONN_TIDEGATE_KAFKA": json.dumps(
            {"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap_servers}}
        ),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(_spark_connection(spark)),
        "JAVA_HOME": str(java),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "GX_ANALYTICS_ENABLED": "False",
    }


def _spark_connection(spark: SparkServer | None) -> dict[str, Any]:
    if spark is None:
        return {"conn_type": "spark", "host": "local[*]"}
    return {"conn_type": "spark_connect", "host": HOST, "port": spark.port}


def _spark_server(home: Path) -> SparkServer:
    settings = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    return SparkServer(
        home,
        os.environ.get("TIDEGATE_SPARK_MEMORY"),
        environment={**os.environ, **settings},
        port=_port("TIDEGATE_SPARK_PORT"),
    )


def sink_url(home: Path) -> str:
    """Return the URL of the default database for SQL sinks without a connection, if TIDEGATE_SQL is
    not set.
    """
    return f"sqlite:///{home / 'sink.db'}"


def up(home: Path, project: Path) -> tuple[StackInfo, bool]:
    """Start the stack in the background, and return when it can be used.

    Args:
        home: The folder of the local stack.
        project: The checkout with `dags/`, `plugins/` and `include/pipelines/`.

    Returns the stack's addresses, and whether it was running already. Raises SetupFailed if a part does not
    start.

    Example: `info, was_running = up(settings.home, Path.cwd())`
    """
    if info := status(home):
        return info, True
    log = home / "logs" / "stack.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    if not _is_locked(home):
        _info_path(home).unlink(missing_ok=True)
        log.unlink(missing_ok=True)
    # If another supervisor is starting at the same time, this one finds the lock taken and ends.
    supervisor = _spawn_supervisor(home, project, log)
    try:
        while not (info := status(home)):
            if supervisor.poll() is not None and not _is_locked(home):
                raise SetupFailed(
                    log.read_text().strip() or "The stack ended while starting", f"See {log.parent}."
                )
            time.sleep(0.1)
    except BaseException:
        # Ctrl-C does not reach the supervisor, which has a session of its own.
        supervisor.terminate()
        supervisor.wait()
        raise
    return info, False


def down(home: Path) -> bool:
    """End the detached stack, and processes that a crashed stack has left.

    Returns whether a stack was running.
    """
    was_up = _is_locked(home)
    if was_up:
        pid = int(_lock_path(home).read_text())
        _signal_until_free(home, pid)
    sweep(str(home))
    _info_path(home).unlink(missing_ok=True)
    return was_up


def status(home: Path) -> StackInfo | None:
    """Return the addresses of the detached stack; None if it is not running, or not ready yet."""
    with suppress(OSError, ValueError, TypeError):
        if _is_locked(home):
            return StackInfo(**json.loads(_info_path(home).read_text()))
    return None


def supervise(home: Path, project: Path) -> None:
    """Run the stack until SIGTERM. This is the main function of the supervisor process.

    Raises SetupFailed if another stack runs in `home`, or if a part of the stack ends by itself.
    """
    signal.signal(signal.SIGTERM, _leave)
    with _lock(home):
        sweep(str(home))
        with Stack(home, project, keeps_spark=True) as stack:
            _write_private(_info_path(home), json.dumps(asdict(stack.info)))
            try:
                hold(stack, home / "logs")
            finally:
                _info_path(home).unlink(missing_ok=True)


def hold(stack: Stack, logs: Path, seconds_between: float = 0.5) -> NoReturn:
    """Watch and maintain a running stack; it never returns.

    A component of Airflow, such as the scheduler, can end while the Airflow process continues. Then no DAG
    runs, though the process looks fine, so this also checks Airflow's health report.

    Args:
        stack: The running stack.
        logs: The folder that the message names.
        seconds_between: The time between two checks.

    Raises SetupFailed if a part of the stack has ended by itself, or hangs.
    """
    sick_checks = 0
    for check in count(1):
        if not stack.running:
            raise SetupFailed("A part of the stack ended by itself", f"See {logs}.")
        if check % _CHECKS_PER_MAINTENANCE == 0:
            if stack.spark is not None:
                stack.spark.maintain()
            sick = stack.airflow.sick_components()
            sick_checks = sick_checks + 1 if sick else 0
            if sick_checks == _MAX_SICK_CHECKS:
                raise SetupFailed(
                    f"Airflow's {', '.join(sick)} ended by itself, or hangs",
                    f"See {stack.airflow.log}, and run `tidegate up` again.",
                )
        time.sleep(seconds_between)
    raise AssertionError("the loop above never ends")


def _leave(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM must not interrupt the shutdown
    sys.exit(0)


def _spawn_supervisor(home: Path, project: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tidegate_dev.stack", str(home), str(project)]
    with log.open("ab") as sink:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env={**os.environ, MARKER: str(home)},
            start_new_session=True,
        )


def _signal_until_free(home: Path, pid: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + _DOWN_TIMEOUT_S
        while time.monotonic() < deadline:
            if not _is_locked(home):
                return
            time.sleep(0.05)


@contextmanager
def _lock(home: Path) -> Iterator[None]:
    """Hold the lock of the only supervisor in `home`, and write this process's id to the lock's file.

    Raises SetupFailed if another supervisor has it.
    """
    with _lock_path(home).open("a+") as file:
        for _ in range(20):  # `_is_locked` of another process takes the lock for a moment, too
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.05)
        else:
            raise SetupFailed(f"Another stack runs in {home}", "Run `make down` first.")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _is_locked(home: Path) -> bool:
    try:
        with _lock_path(home).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _lock_path(home: Path) -> Path:
    return home / "stack.lock"


def _info_path(home: Path) -> Path:
    return home / "stack.json"


def _write_private(path: Path, text: str) -> None:
    """Write a file atomically, and readable by its owner only: it contains a password."""
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)


def _port(setting: str) -> int | None:
    """Return the port of a setting; without it the usual port, or None (any port) if the usual port is taken.

    Raises SettingsInvalid if the setting is not a port.
    """
    requested = os.environ.get(setting, "")
    if not requested:
        usual = _USUAL_PORTS[setting]
        return usual if is_free(usual) else None
    if not requested.isdigit() or not 0 < int(requested) < 65_536:
        raise SettingsInvalid(f"{setting}={requested} is not a port", "Set it to a number from 1 to 65535.")
    return int(requested)


if __name__ == "__main__":
    try:
        supervise(Path(sys.argv[1]), Path(sys.argv[2]))
    except TidegateError as error:
        sys.exit(str(error))
