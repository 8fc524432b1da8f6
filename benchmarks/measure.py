"""Processes with all that they start: wall seconds, processor seconds, memory, bytes read. Linux only.

A measured command gets a session of its own; whatever belongs to that session counts, and is ended with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

WORKERS = "tidegate.spark.daemon"
"""The module that Spark's Python workers run."""

_SAMPLE_S = 0.1
_LEAVE_S = 10.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)  # idle, and waiting for a disk
_TOLD_TWICE = 8  # guests' time, which is in their host's already


class CommandFailed(Exception):
    """The measured command ended with an error; the text has beginning and end of what it wrote."""


@dataclass(frozen=True)
class Usage:
    """The time and memory that a command took.

    `peak_tree_bytes` is the largest sum of resident memory over all its processes that two samples in a row,
    100 ms apart, have seen: at the moment of a fork one sees the parent twice. Pages that processes share
    count once for each. `peak_process_bytes` is the most that any one of them held, whenever that was, and
    `peak_worker_bytes` the most that any of Spark's Python workers did. `cpu_seconds` is of all of them, and
    `worker_read_bytes` of the workers' reads of files, up to the last sample of each.

    `load` is how many processors others had meanwhile: neither the command, nor what the benchmark runs for
    it, such as the broker. It includes what a virtual machine's host took.
    """

    seconds: float
    cpu_seconds: float
    peak_tree_bytes: int
    peak_process_bytes: int
    peak_worker_bytes: int = 0
    worker_read_bytes: int = 0
    load: float = 0.0


def run_measured(command: Sequence[str], env: Mapping[str, str], folder: Path) -> tuple[Usage, str]:
    """Run a command in `folder` to its end: its usage, and what it printed. Raises CommandFailed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
        try:
            with _Watch(process.pid, began) as watch:
                process.wait()
            _wait_for_leaving(process.pid)
        finally:
            _kill_session(process)
        if process.returncode != 0:
            raise _failed(command, process, err)
        return watch.usage, _text(out)


class LastingCommand:
    """A command that stays, and answers each line with one that is a JSON object. A context manager."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self._command = command
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115 it is closed at the end of the block
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._err,
            env=env,
            cwd=folder,
            start_new_session=True,
            text=True,
        )

    def __enter__(self) -> LastingCommand:
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _kill_session(self._process)
        for pipe in (self._process.stdin, self._process.stdout, self._err):
            with suppress(OSError):  # a line that it did not take
                if pipe is not None:
                    pipe.close()

    @property
    def pid(self) -> int:
        """Its process, and the session that it leads."""
        return self._process.pid

    def ask(self, line: str) -> tuple[Usage, str]:
        """Send a line, and return what the command took until its answer, and the answer. Raises
        CommandFailed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with _Watch(self.pid, time.perf_counter()) as watch:
            with suppress(BrokenPipeError):
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
            answer = next((text for text in self._process.stdout if text.startswith("{")), None)
        if answer is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LEAVE_S)
            raise _failed(self._command, self._process, self._err)
        return watch.usage, answer


class Process(NamedTuple):
    """A living process: processor ticks so far, resident bytes.

    `ended_ticks` are those of its children that have ended, and of theirs.
    """

    pid: int
    parent: int
    session: int
    ticks: int
    ended_ticks: int
    bytes: int


class _Watch:
    """Samples a session in a thread for as long as its block runs; `usage` is there after it."""

    def __init__(self, session: int, began: float) -> None:
        self._session = session
        self._began = began
        self._busy = busy_ticks()
        self._before: dict[int, int] = {}  # ticks that processes had at the first sample
        self._ticks: dict[int, int] = {}
        self._kin_ticks: dict[int, int] = {}
        self._read: dict[int, int] = {}
        self._read_before: dict[int, int] = {}
        self._peak = self._last_sum = self._largest = self._largest_worker = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Watch:
        for process in processes():
            self._before[process.pid] = process.ticks
            if process.session == self._session:
                self._read_before[process.pid] = _read_bytes(process.pid)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._began
        busy = busy_ticks() - self._busy
        self._stop.set()
        self._thread.join()
        ours, kin = self._spent(self._ticks), self._spent(self._kin_ticks)
        reads = {pid: read - self._read_before.get(pid, 0) for pid, read in self._read.items()}
        self.usage = Usage(
            seconds=seconds,
            cpu_seconds=ours / TICKS_PER_S,
            peak_tree_bytes=self._peak,
            peak_process_bytes=self._largest,
            peak_worker_bytes=self._largest_worker,
            worker_read_bytes=sum(reads.values()),
            load=max(busy - ours - kin, 0) / TICKS_PER_S / seconds,
        )

    def _spent(self, ticks: Mapping[int, int]) -> int:
        return sum(now - self._before.get(pid, 0) for pid, now in ticks.items())

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            self._sample(list(processes()))

    def _sample(self, processes: Sequence[Process]) -> None:
        family = descendants(processes, os.getpid())
        members = [process for process in processes if process.session == self._session]
        for process in processes:
            if process.session == self._session:
                self._ticks[process.pid] = process.ticks
            elif process.pid in family:
                self._kin_ticks[process.pid] = process.ticks
        for process in members:
            high = _high_water_bytes(process.pid)
            self._largest = max(self._largest, high)
            if _is_worker(process.pid):
                self._largest_worker = max(self._largest_worker, high)
                self._read[process.pid] = _read_bytes(process.pid)
        sum_ = sum(process.bytes for process in members)
        self._peak = max(self._peak, min(self._last_sum, sum_))
        self._last_sum = sum_


def processes() -> Iterator[Process]:
    """Yield all processes of this machine."""
    for folder in filter(lambda folder: folder.name.isdigit(), Path("/proc").iterdir()):
        with suppress(OSError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] != "Z":
                parent, session = int(fields[1]), int(fields[3])
                user, system, ended_user, ended_system = map(int, fields[11:15])
                ticks, ended, size = user + system, ended_user + ended_system, int(fields[21]) * _PAGE_BYTES
                yield Process(int(folder.name), parent, session, ticks, ended, size)


def _members(session: int) -> Iterator[Process]:
    return (process for process in processes() if process.session == session)


def descendants(processes: Sequence[Process], ancestor: int) -> set[int]:
    """A process and all that it started, and those again."""
    children: dict[int, list[int]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process.pid)
    tree, open_ = {ancestor}, [ancestor]
    while open_:
        new = children.get(open_.pop(), [])
        tree.update(new)
        open_ += new
    return tree


def busy_ticks() -> int:
    """Processor ticks of the whole machine that were not idle, since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(ticks) for place, ticks in enumerate(fields[:_TOLD_TWICE]) if place not in _IDLE)


def _high_water_bytes(pid: int) -> int:
    """The most that a process has held; `getrusage` would give that of its parent, if that was more."""
    return _number(pid, "status", "VmHWM:") * 1024


def _read_bytes(pid: int) -> int:
    """Return how many bytes a process has read from files so far, whether they were in memory or not."""
    return _number(pid, "io", "rchar:")


def _number(pid: int, file: str, name: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0


def command_line(pid: int) -> str:
    """A process's command, or the title that it has given itself; empty of one that has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    return ""


def _is_worker(pid: int) -> bool:
    """Whether a process is one of Spark's Python workers, which are forks of their daemon."""
    return f"-m {WORKERS} " in command_line(pid)


def _wait_for_leaving(session: int) -> None:
    """A JVM goes a moment after the program that used it; the next measurement must not meet it."""
    deadline = time.monotonic() + _LEAVE_S
    while any(_members(session)) and time.monotonic() < deadline:
        time.sleep(0.05)


def _kill_session(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    while members := list(_members(process.pid)):
        for member in members:
            with suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    process.poll()


def _failed(
    command: Sequence[str],
    process: subprocess.Popen[bytes] | subprocess.Popen[str],
    err: IO[str],
) -> CommandFailed:
    return CommandFailed(f"{command[0]} ended with {process.returncode}:\n{_excerpt(_text(err))}")


def _excerpt(text: str) -> str:
    """Beginning and end: Spark tells the cause first and the consequences last."""
    return text if len(text) <= 8000 else f"{text[:4000]}\n…\n{text[-4000:]}"


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
