"""A whole process, with all that it starts: wall seconds, processor seconds, memory. Linux only.

The command gets a session of its own; whatever belongs to that session counts, and is ended with it.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_SAMPLE_S = 0.1
_LEAVE_S = 10.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class CommandFailed(Exception):
    """The measured command ended with an error; the text has beginning and end of what it wrote."""


@dataclass(frozen=True)
class Usage:
    """What a command took.

    `peak_tree_bytes` is the largest sum of resident memory over all its processes that two samples in a row,
    100 ms apart, have seen: at the moment of a fork one sees the parent twice. Pages that processes share
    count once for each. `peak_process_bytes` is the most that any one of them held, whenever that was, and
    `peak_worker_bytes` the most that any of Spark's Python workers did. `cpu_seconds` is of all of them, up
    to the last sample of each.
    """

    seconds: float
    cpu_seconds: float
    peak_tree_bytes: int
    peak_process_bytes: int
    peak_worker_bytes: int = 0


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
            with _Watch(process.pid) as watch:
                process.wait()
                seconds = time.perf_counter() - began
            _wait_for_leaving(process.pid)
        finally:
            _kill_session(process)
        if process.returncode != 0:
            raise CommandFailed(f"{command[0]} ended with {process.returncode}:\n{_excerpt(_text(err))}")
        usage = Usage(
            seconds, watch.cpu_seconds, watch.peak_bytes, watch.largest_bytes, watch.largest_worker_bytes
        )
        return usage, _text(out)


@dataclass
class _Watch:
    """Samples a session in a thread for as long as its block runs."""

    session: int
    peak_bytes: int = 0
    largest_bytes: int = 0
    largest_worker_bytes: int = 0
    ticks: dict[int, int] = field(default_factory=dict)

    def __enter__(self) -> _Watch:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        return sum(self.ticks.values()) / _TICKS_PER_S

    def _run(self) -> None:
        before = 0
        while not self._stop.wait(_SAMPLE_S):
            sizes = []
            for pid, ticks, size in _members(self.session):
                self.ticks[pid] = ticks
                sizes.append(size)
                high = _high_water_bytes(pid)
                self.largest_bytes = max(self.largest_bytes, high)
                if _is_worker(pid):
                    self.largest_worker_bytes = max(self.largest_worker_bytes, high)
            self.peak_bytes = max(self.peak_bytes, min(before, sum(sizes)))
            before = sum(sizes)


def _members(session: int) -> Iterator[tuple[int, int, int]]:
    """(pid, processor ticks, resident bytes) of each living process of a session."""
    wanted = str(session)
    for folder in filter(lambda folder: folder.name.isdigit(), Path("/proc").iterdir()):
        with suppress(OSError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[3] == wanted and fields[0] != "Z":
                yield int(folder.name), int(fields[11]) + int(fields[12]), int(fields[21]) * _PAGE_BYTES


def _high_water_bytes(pid: int) -> int:
    """The most that a process has held; `getrusage` would give that of its parent, if that was more."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _is_worker(pid: int) -> bool:
    """Whether a process is one of Spark's Python workers, which are forks of their daemon."""
    with suppress(OSError):
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _wait_for_leaving(session: int) -> None:
    """A JVM goes a moment after the program that used it; the next measurement must not meet it."""
    deadline = time.monotonic() + _LEAVE_S
    while any(_members(session)) and time.monotonic() < deadline:
        time.sleep(0.05)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    while members := [pid for pid, _, _ in _members(process.pid)]:
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)


def _excerpt(text: str) -> str:
    """Beginning and end: Spark tells the cause first and the consequences last."""
    return text if len(text) <= 8000 else f"{text[:4000]}\n…\n{text[-4000:]}"


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
