"""Shares of a core for processes, by the kernel's control groups. Needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import SetupFailed

_PERIOD_US = 100_000
_GROUPS = Path("/sys/fs/cgroup")
_OF_VERSION_2 = _GROUPS / "cgroup.controllers"
"""A file that only the second version of control groups has. The first has a folder for each resource."""


@dataclass(frozen=True)
class Share:
    """A control group. `processes` is the file that takes the number of a process."""

    processes: Path

    def take(self, process: int) -> None:
        """Let a process, and those that it starts from now on, compute within the share."""
        self.processes.write_text(str(process))

    def command(self, command: list[str]) -> list[str]:
        """Return a command whose process puts itself into the share first."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.processes), *command]


@contextmanager
def share_of_core(name: str, cores: float) -> Iterator[Share]:
    """Yield a share, such as 0.5 of a core. Its processes must end within the block.

    Raises SetupFailed if this user cannot make control groups.
    """
    quota_us = round(cores * _PERIOD_US)
    is_version_2 = _OF_VERSION_2.is_file()
    folder = (_GROUPS if is_version_2 else _GROUPS / "cpu") / f"tidegate-{os.getpid()}-{name}"
    try:
        folder.mkdir()
        if is_version_2:
            (folder / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
    except OSError as error:
        raise SetupFailed(
            f"No share of a core can be given: {error}",
            "Run this as root, with control groups of the kernel.",
        ) from error
    try:
        yield Share(folder / "cgroup.procs")
    finally:
        folder.rmdir()
