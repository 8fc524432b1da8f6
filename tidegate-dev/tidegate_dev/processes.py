"""Supervised child processes and the ports they listen on."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tidegate.errors import SetupFailed
from tidegate_dev.warden import living_below

_WARDEN = Path(__file__).with_name("warden.py")
# Below the range of ephemeral ports. In that range the system can give a stopped server's port to the
# outgoing connection of a client that retries to reach the server, and the server could not start again.
_PORTS = range(20_000, 30_000)
_given_ports: set[int] = set()
MARKER = "TIDEGATE_STACK"
TIMEOUT_S = 600.0
"""A start or a run that takes longer hangs. One that fails is noticed at once; on a busy machine a good one
takes minutes."""

Server = TypeVar("Server", bound="LocalServer")


class Supervised:
    """A command with its log file. All its processes end after `stop`, and also if this process dies.

    Args:
        name: The name in messages, such as "The Kafka broker".
        command: The program and its arguments.
        log: The file to which the output is appended.
        env: The whole environment of the command.
        grace_s: The seconds between SIGTERM and SIGKILL.

    Example: `with Supervised("Airflow", command, log, os.environ) as process: process.wait_ready(probe)`
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str], grace_s: float = 10
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._env = dict(env)
        self._grace_s = grace_s
        self._warden: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.pid: int | None = None

    def __enter__(self) -> Supervised:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._warden is not None and self._warden.poll() is None

    def start(self) -> None:
        """Start the command, unless it is running. Raises SetupFailed if it cannot be started."""
        if self.running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        warden = [sys.executable, "-I", "-S", str(_WARDEN), str(os.getpid()), str(self._grace_s)]
        with self.log.open("ab") as sink:
            self._log_start = sink.tell()
            self._warden = subprocess.Popen(
                [*warden, *self.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=self._env,
                start_new_session=True,
            )
        assert self._warden.stdout is not None
        pid = self._warden.stdout.readline()
        if not pid:
            raise self._failed("could not be started")
        self.pid = int(pid)

    def wait_ready(
        self, probe: Callable[[], bool], timeout_s: float = TIMEOUT_S, poll_s: float = 0.05
    ) -> None:
        """Return when `probe()` is true. It is called every `poll_s`.

        Raises SetupFailed, with the last lines of the log, if the command ends or `timeout_s` has passed.
        """
        deadline = time.monotonic() + timeout_s
        while not probe():
            if not self.running:
                raise self._failed("ended while it was starting")
            if time.monotonic() > deadline:
                self.stop()
                raise self._failed(f"was not ready after {timeout_s:.0f} s")
            time.sleep(poll_s)

    def stop(self) -> None:
        """Send SIGTERM to the command's process group, and SIGKILL to processes that are left after
        `grace_s`.
        """
        self._end(b"TERM\n")

    def kill(self) -> None:
        """Send SIGKILL to the command and all processes that it started, at once."""
        self._end(b"KILL\n")

    def last_lines(self, count: int = 8) -> list[str]:
        """Return the last lines that the command has written since its last start."""
        with contextlib.suppress(OSError), self.log.open("rb") as source:
            source.seek(self._log_start)
            lines = source.read().decode(errors="replace").splitlines()
            return [line.rstrip()[:300] for line in lines if line.strip()][-count:]
        return []

    def _end(self, order: bytes) -> None:
        warden = self._warden
        if warden is None or warden.stdin is None or warden.stdout is None:
            return
        with contextlib.suppress(BrokenPipeError, ValueError):
            warden.stdin.write(order)
            warden.stdin.flush()
        # Close the pipe only after the warden has ended: it would read the end of the pipe as a second order.
        warden.wait()
        with contextlib.suppress(BrokenPipeError):
            warden.stdin.close()
        warden.stdout.close()

    def _failed(self, what: str) -> SetupFailed:
        tail = "".join(f"\n  {line}" for line in self.last_lines())
        return SetupFailed(f"{self.name} {what}" + (f":{tail}\n" if tail else ""), f"See {self.log}.")


class LocalServer(ABC):
    """A server on this machine: one supervised process.

    As a context manager it starts and stops the server.
    """

    _process: Supervised | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def __enter__(self: Server) -> Server:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Start the server, and return when clients can use it. Raises SetupFailed if it does not start."""

    def stop(self) -> None:
        """End the server and its child processes by SIGTERM, so that it can shut down cleanly."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """Send SIGKILL to the server and its child processes, as if the machine lost power."""
        if self._process is not None:
            self._process.kill()


def free_port() -> int:
    """Return a port on which nothing listens now. Each call returns another port, also before the first one
    is used.

    Raises SetupFailed if no port is free.
    """
    for port in random.sample(_PORTS, 200):
        if port not in _given_ports and is_free(port):
            _given_ports.add(port)
            return port
    raise SetupFailed("No free port found", "End some of the servers on this machine.")


def claim_port(port: int, setting: str) -> int:
    """Return `port`.

    Raises SetupFailed if it is taken; the message names the setting that changes the port.
    """
    if not is_free(port):
        raise SetupFailed(
            f"Port {port} is taken", f"End the program that uses it, or set {setting} to another port."
        )
    return port


def sweep(mark: str) -> int:
    """Kill the processes that a crashed stack has left, and return their number (Linux; elsewhere it does
    nothing).

    A process belongs to the stack if its environment has `TIDEGATE_STACK=mark`. Some programs write their
    title over their environment, so processes of the same session, and children, belong to it, too.

    Args:
        mark: The value of `TIDEGATE_STACK`: the stack's home.
    """
    entry, own = f"{MARKER}={mark}".encode(), os.getpid()
    marked = [pid for pid in _processes() if pid != own and entry in _environment_of(pid)]
    sessions = {_session_of(pid) for pid in marked} - {_session_of(own), None}
    doomed = {pid for pid in _processes() if _session_of(pid) in sessions}
    doomed |= {descendant for pid in marked for descendant in (pid, *living_below(pid))}
    for pid in doomed - {own}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(doomed - {own})


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _environment_of(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def _session_of(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return None


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def own_share_bytes(pid: int) -> int:
    """Return the memory of a process in bytes, with its share of shared pages (Linux's "proportional set
    size").

    It is 0 for a process that has ended, and on other systems.
    """
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return 0
