"""The processes of a stack: which is which, which stand still, and how they end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tidegate_dev.processes import TIMEOUT_S
from tidegate_dev.warden import living_below

Result = TypeVar("Found")


def until(look: Callable[[], Result | None], what: str, timeout_s: float = TIMEOUT_S) -> Result:
    """Return the first true result of `look`. Raises AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (result := look()):
        assert time.monotonic() < deadline, f"not after {timeout_s:.0f} s: {what}"
        time.sleep(0.1)
    return result


def is_alive(pid: int) -> bool:
    """Whether it still is a process, and not just what is left of one."""
    return _stat(pid)[:1] not in ([], ["Z"])


def parent_of(pid: int) -> int:
    """Return the parent of a process, or 0 if the process has ended."""
    return int(_stat(pid)[1]) if _stat(pid) else 0


def command_of(pid: int) -> str:
    """Its arguments with spaces, or the title that it has given itself."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def stopped() -> int | None:
    """The process of ours that a failpoint has stopped."""
    return next((pid for pid in living_below(os.getpid()) if _stat(pid)[:1] == ["T"]), None)


def running(end_of_command: str) -> int | None:
    """The topmost process of ours whose command ends so."""
    pids = [pid for pid in living_below(os.getpid()) if _is(pid, end_of_command)]
    return next((pid for pid in pids if parent_of(pid) not in pids), None)


def kill(*pids: int) -> None:
    """Send SIGKILL, and wait until the processes have ended."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(is_alive, pids)), f"{pids} have ended")


def _is(pid: int, end_of_command: str) -> bool:
    command = command_of(pid)
    return command.endswith(end_of_command) and "warden.py" not in command


def _stat(pid: int) -> list[str]:
    """State and parent, or nothing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return []
