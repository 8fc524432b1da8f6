"""Processes forked from a parent that has imported everything and has no threads: one for each step, fast."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

_PR_SET_PDEATHSIG = 1
Result = TypeVar("Result")


@dataclass
class Child:
    """A forked process. `code` is its exit code, negative for a signal; None while it runs or is stopped."""

    pid: int
    code: int | None = None
    stopped: bool = False

    def poll(self) -> bool:
        """Whether it has ended, or stopped."""
        if self.code is not None:
            return True
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if pid:
            self.stopped = os.WIFSTOPPED(status)
            if not self.stopped and not os.WIFCONTINUED(status):
                self.code = os.waitstatus_to_exitcode(status)
        return self.stopped or self.code is not None

    def wait(self, seconds: float = 180.0) -> int | None:
        """Its exit code, or None when it has stopped. It is killed after `seconds`: that is an error."""
        deadline = time.monotonic() + seconds
        while not self.poll():
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"A process of the test did not end within {seconds:.0f} s")
            time.sleep(0.01)
        return self.code

    def pause(self) -> None:
        """Stop it, and wait for that; or for its end."""
        os.kill(self.pid, signal.SIGSTOP)
        while not self.poll():
            time.sleep(0.01)

    def go_on(self) -> None:
        """Continue it after it has stopped."""
        self.stopped = False
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it, whatever it does, and wait for that."""
        while self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.poll()


def fork(work: Callable[[], int], log: Path) -> Child:
    """Run `work` in a process of its own, whose exit code it gives; what it says goes to `log`.

    The process dies with its parent.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    gc.freeze()  # else the child's collector touches, and so copies, all that it shares with its parent
    pid = os.fork()
    if pid:
        return Child(pid)
    code = 70
    try:
        die_with(parent)
        _say_to(log)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def in_child(work: Callable[[], Result], log: Path) -> Result:
    """Run `work` in a process of its own and return its result: it would start threads in this one."""
    answer = log.with_suffix(".answer")

    def write_answer() -> int:
        answer.write_bytes(pickle.dumps(work()))
        return 0

    code = fork(write_answer, log).wait()
    if code != 0:
        raise RuntimeError(f"A helper process ended with {code}:\n{log.read_text()[-3000:]}")
    result: Any = pickle.loads(answer.read_bytes())
    answer.unlink()
    return result  # type: ignore[no-any-return]


def state_and_parent(pid: int) -> tuple[str, int]:
    """Return the state and the parent of a process from `/proc`: `T` is a process that stands still."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


def die_with(parent: int) -> None:
    """Be killed when the parent ends, also while stopped."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _say_to(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
