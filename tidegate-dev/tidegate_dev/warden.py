"""Run a command, and end all its processes when the parent dies: `python warden.py PARENT GRACE_S COMMAND…`.

`processes.py` starts it as a process of its own, so it uses the standard library only, which starts quickly.
The parent has the other ends of standard input and output. It writes TERM or KILL to say how to end; if it
dies at any moment, by any signal, the pipe ends, which counts as TERM. On Linux the warden is the subreaper
of all processes that the command starts, so processes that move to another session stay its descendants.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")


def main(parent: int, grace_s: float, command: list[str]) -> int:
    """Run the command until it ends, or until the parent orders or dies.

    Args:
        parent: The process that started this one. `os.getppid()` is another one if it has died already.
        grace_s: The seconds between SIGTERM and SIGKILL.
        command: The program and its arguments.

    Returns the command's exit code; the negated number of the signal that ended it.
    """
    _adopt_orphans()
    wakeup = _wake_on_signals()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, start_new_session=True)
    try:
        with contextlib.suppress(BrokenPipeError):  # a parent that is dead does not read
            os.write(1, f"{child.pid}\n".encode())
        if _await_order(child, parent, wakeup) == "TERM":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGTERM)
            _await_end(child, time.monotonic() + grace_s)
    finally:
        _kill_all_below()
    code = child.wait()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass  # leave no zombies to the system's first process
    return code


def _await_order(child: subprocess.Popen[bytes], parent: int, wakeup: int) -> str:
    """Wait for an order.

    Returns TERM or KILL as the parent ordered, or EXITED if the command ended by itself.
    """
    while not _has_ended(child):
        ready, _, _ = select.select([0, wakeup], [], [], 1.0)
        if 0 in ready:
            return "KILL" if os.read(0, 64).startswith(b"KILL") else "TERM"
        if wakeup in ready and signal.SIGTERM in os.read(wakeup, 4096):
            return "TERM"
        if os.getppid() != parent:  # a forked copy of the parent can hold the pipe open after its death
            return "TERM"
    return "EXITED"


def _await_end(child: subprocess.Popen[bytes], deadline: float) -> None:
    """Wait until the command and its descendants have ended, at most until `deadline` (of
    `time.monotonic`).
    """
    while (not _has_ended(child) or living_below(os.getpid())) and time.monotonic() < deadline:
        time.sleep(0.05)


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Reap every child that ended, also adopted ones. Returns whether the command itself has ended."""
    while child.returncode is None:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return False
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
    return True


def _kill_all_below() -> None:
    # Repeat, because a process can start another one between the listing and the signal.
    while pids := living_below(os.getpid()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def living_below(top: int) -> list[int]:
    """Return the ids of all running descendants of the process `top`, without `top` itself."""
    children: dict[int, list[int]] = {}
    for pid, parent in _process_table():
        children.setdefault(parent, []).append(pid)
    descendants, pending = [], [top]
    while pending:
        next_children = children.get(pending.pop(), [])
        descendants += next_children
        pending += next_children
    return descendants


def _process_table() -> Iterator[tuple[int, int]]:
    """Yield (process id, parent's id) of every process that still runs; zombies have ended."""
    if not _PROC.is_dir():
        yield from _process_table_from_ps()
        return
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # bytes, because a program may name itself in any encoding
                state, parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    yield int(folder.name), int(parent)


def _process_table_from_ps() -> Iterator[tuple[int, int]]:
    command = ["ps", "-A", "-o", "pid=,ppid=,state="]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as ps:
        for pid, parent, state in map(bytes.split, ps.stdout or ()):
            if not state.startswith(b"Z") and int(pid) != ps.pid:
                yield int(pid), int(parent)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wake_on_signals() -> int:
    """Return a file descriptor that gets a byte per signal, so that one `select` waits for orders and
    signals.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return reader


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]) & 0xFF)
