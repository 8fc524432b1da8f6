"""The whole local stack, broker, Airflow and Spark: for as long as a block runs, or detached until `down`.

Detached, a supervisor holds the stack. A lock on `home/stack.lock`, which the system takes away from a
process that ends in whatever way, says whether it lives; `home/stack.json` says where things are.
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
from tidegate.local.airflow import AirflowStack
from tidegate.local.broker import KafkaBroker
from tidegate.local.java import find_java, java_home
from tidegate.local.processes import MARKER, is_free, sweep
from tidegate.local.spark_server import SparkServer
from tidegate.spark_token import HOST

_UP_TIMEOUT_S = 240.0
_DOWN_TIMEOUT_S = 30.0
_USUAL_PORTS = {"TIDEGATE_KAFKA_PORT": 9092, "TIDEGATE_AIRFLOW_PORT": 8080, "TIDEGATE_SPARK_PORT": 15002}
_LOOKS_PER_MAINTENANCE = 60
_MOST_SICK_LOOKS = 4
"""So many looks in a row at a component without a sign of life: a machine that slept is no cause to end."""


@dataclass(frozen=True)
class StackInfo:
    """Where a running stack is reached."""

    pid: int
    airflow_url: str
    username: str
    password: str
    bootstrap_servers: str
    spark_url: str | None


class Stack:
    """Broker and Airflow with the environment that tidegate needs; leaving the block ends both.

    `project` is the checkout with `dags/`, `plugins/` and `include/pipelines/`. With `keeps_spark` there is a
    Spark Connect server, in which batches compute; without, each one starts a Spark of its own.
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
                self.spark.launch()  # it is ready before Airflow is
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
    """What tidegate, Airflow's connections and Spark need to know; what the caller has set already stays."""
    java = java_home(find_java())
    chosen = {
        "TIDEGATE_LEDGER": f"sqlite:///{home / 'ledger.db'}",
        "TIDEGATE_SQL": sink_url(home),
        "TIDEGATE_PIPELINES": str(project / "include" / "pipelines"),
    }
    return {
        **{name: os.environ.get(name) or value for name, value in chosen.items()},
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
        return {"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}
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
    """The database of the SQL sinks that name none, where the caller has set none."""
    return f"sqlite:///{home / 'sink.db'}"


def up(home: Path, project: Path) -> tuple[StackInfo, bool]:
    """Start the stack in the background; return when it can be used, with True if it was up already."""
    if found := status(home):
        return found, True
    log = home / "logs" / "stack.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    if not _is_held(home):
        _info_path(home).unlink(missing_ok=True)
        log.unlink(missing_ok=True)
    # where another is just starting, this one finds the lock taken and ends
    supervisor = _spawn_supervisor(home, project, log)
    deadline = time.monotonic() + _UP_TIMEOUT_S
    while not (found := status(home)):
        if supervisor.poll() is not None and not _is_held(home):
            raise SetupFailed(
                log.read_text().strip() or "The stack ended while starting", f"See {log.parent}."
            )
        if time.monotonic() > deadline:
            down(home)
            raise SetupFailed(f"The stack was not ready after {_UP_TIMEOUT_S:.0f} s", f"See {log.parent}.")
        time.sleep(0.1)
    return found, False


def down(home: Path) -> bool:
    """End the detached stack, and whatever one that crashed has left; False when none was up."""
    was_up = _is_held(home)
    if was_up:
        pid = int(_lock_path(home).read_text())
        _signal_until_free(home, pid)
    sweep(str(home))
    _info_path(home).unlink(missing_ok=True)
    return was_up


def status(home: Path) -> StackInfo | None:
    """Where the detached stack is reached; None when it is not up, or not yet."""
    with suppress(OSError, ValueError, TypeError):
        if _is_held(home):
            return StackInfo(**json.loads(_info_path(home).read_text()))
    return None


def supervise(home: Path, project: Path) -> None:
    """Hold the stack until SIGTERM, or until a part of it ends by itself."""
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
    """Maintain a running stack. Raise SetupFailed when a part of it has ended by itself, or hangs.

    A component of Airflow's ends without Airflow, so that DAGs stand still while all looks well.
    """
    sick_looks = 0
    for look in count(1):
        if not stack.running:
            raise SetupFailed("A part of the stack ended by itself", f"See {logs}.")
        if look % _LOOKS_PER_MAINTENANCE == 0:
            if stack.spark is not None:
                stack.spark.maintain()
            sick = stack.airflow.sick_components()
            sick_looks = sick_looks + 1 if sick else 0
            if sick_looks == _MOST_SICK_LOOKS:
                raise SetupFailed(
                    f"Airflow's {', '.join(sick)} ended by itself, or hangs",
                    f"See {stack.airflow.log}, and run `tidegate up` again.",
                )
        time.sleep(seconds_between)
    raise AssertionError("it is held until it ends")


def _leave(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the ending
    sys.exit(0)


def _spawn_supervisor(home: Path, project: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tidegate.local.stack", str(home), str(project)]
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
            if not _is_held(home):
                return
            time.sleep(0.05)


@contextmanager
def _lock(home: Path) -> Iterator[None]:
    """Be the one supervisor below `home`; the lock's file says who."""
    with _lock_path(home).open("a+") as file:
        for _ in range(20):  # a look at the lock takes it for a moment, too
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


def _is_held(home: Path) -> bool:
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
    """Write whole or not at all, for the owner's eyes: there is a password in it."""
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)


def _port(setting: str) -> int | None:
    """The port that was asked for, else the usual one if it is free, else any."""
    wanted = os.environ.get(setting, "")
    if not wanted:
        usual = _USUAL_PORTS[setting]
        return usual if is_free(usual) else None
    if not wanted.isdigit() or not 0 < int(wanted) < 65_536:
        raise SettingsInvalid(f"{setting}={wanted} is no port", "Set it to a number from 1 to 65535.")
    return int(wanted)


if __name__ == "__main__":
    try:
        supervise(Path(sys.argv[1]), Path(sys.argv[2]))
    except TidegateError as error:
        sys.exit(str(error))
