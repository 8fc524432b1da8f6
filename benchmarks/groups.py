"""What the parts of a running stack take: processor seconds and memory of groups of processes. Linux only."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.measure import (
    TICKS_PER_S,
    WORKERS,
    Process,
    busy_ticks,
    command_line,
    descendants,
    processes,
)
from tidegate_dev.processes import own_share_bytes

OTHER_PROCESSES = "others on this machine"
OWN = "the benchmark"
GROUPS = {
    "kafka.Kafka": "broker",
    f"-m {WORKERS}": "Spark's Python workers",
    "SparkConnectServer": "Spark's JVM",
    # of the scheduler's: the executor's workers and the tasks are forks of it
    "multiprocessing.forkserver": "Airflow's tasks",
    "airflow scheduler": "Airflow's scheduler",
    "airflow dag-processor": "Airflow's DAG processor",
    "airflow api": "Airflow's API server",
    "airflow triggerer": "Airflow's triggerer",
    "airflow standalone": "Airflow, the rest",
}
"""Words of a command -> the group of that process, and of all that it started, unless they have their own."""

_Top = tuple[str, int]
"""A group, and the first of its processes in a branch of the tree."""

_WARDEN = "warden.py"
_SAMPLE_S = 1.0
_SAMPLES_PER_MEMORY = 30  # to add up shared pages takes the kernel long


@dataclass(frozen=True)
class GroupUsage:
    """The processor seconds of a group while it was watched, and the largest memory of a sample.

    Pages that processes share are divided among them. The memory is None if no sample was taken.
    """

    group: str
    cpu_seconds: float
    processes: int
    peak_bytes: int | None


@dataclass
class Groups:
    """Watches all that this process started, in a thread, for as long as its block runs.

    A process that ends between two samples is not missed: the kernel adds its time to that of its parent.
    """

    usages: list[GroupUsage] = field(default_factory=list)
    seconds: float = 0.0

    def __enter__(self) -> Groups:
        self._peak: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self._busy, self._began = busy_ticks(), time.monotonic()
        self._ticks: dict[_Top, int] = {}
        self._sample()
        self._before = dict(self._ticks)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="groups of processes", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()
        self.seconds = time.monotonic() - self._began
        busy = busy_ticks() - self._busy
        spent: Counter[str] = Counter()
        for top, ticks in self._ticks.items():
            spent[top[0]] += ticks - self._before.get(top, 0)
        spent[OTHER_PROCESSES] = max(busy - spent.total(), 0)
        self.usages = [
            GroupUsage(name, spent[name] / TICKS_PER_S, self._most.get(name, 0), self._peak.get(name))
            for name in (*GROUPS.values(), OWN, OTHER_PROCESSES)
        ]

    def _run(self) -> None:
        sample = 0
        while not self._stop.wait(_SAMPLE_S):
            self._sample(with_memory=sample % _SAMPLES_PER_MEMORY == 0)
            sample += 1

    def _sample(self, with_memory: bool = False) -> None:
        family = _family()
        parents = {process.pid: process.parent for process in family}
        commands = {process.pid: command_line(process.pid) for process in family}
        groups = group_by_command(parents, commands)
        ticks: Counter[_Top] = Counter()
        memory: Counter[str] = Counter()
        for process in family:
            group = groups[process.pid]
            # What an ended server took is known already; its warden and this process hear of it again.
            waits_for_servers = group == OWN or _WARDEN in commands[process.pid]
            ended = 0 if waits_for_servers else process.ended_ticks
            ticks[group, _top(process.pid, parents, groups)] += process.ticks + ended
            if with_memory:
                memory[group] += own_share_bytes(process.pid)
        for top, now in ticks.items():
            # between a process's end and its parent's hearing of it, its time is nowhere
            self._ticks[top] = max(self._ticks.get(top, 0), now)
        for group, size in memory.items():
            self._peak[group] = max(self._peak.get(group, 0), size)
        for group, number in Counter(groups.values()).items():
            self._most[group] = max(self._most.get(group, 0), number)


def _family() -> list[Process]:
    """This process, and all that it started."""
    living = list(processes())
    ids = descendants(living, os.getpid())
    return [process for process in living if process.pid in ids]


def group_by_command(parents: Mapping[int, int], commands: Mapping[int, str]) -> dict[int, str]:
    """Process -> its group: by its own command, else by that of the nearest above it that tells."""

    def group(pid: int) -> str:
        while pid in parents:
            command = commands.get(pid, "")
            for words, name in GROUPS.items():
                if words in command:
                    return name
            pid = parents[pid]
        return OWN

    return {pid: group(pid) for pid in parents}


def _top(pid: int, parents: Mapping[int, int], groups: Mapping[int, str]) -> int:
    """The highest process above one, with only such of its group in between."""
    while groups.get(parents[pid]) == groups[pid]:
        pid = parents[pid]
    return pid
