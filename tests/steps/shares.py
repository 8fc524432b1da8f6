"""Shares that never come to an end, for the processes of producers."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tidegate.steps.producers import publish_shares


@dataclass(frozen=True)
class Endless:
    """In place of `producers.Share`. Its process leaves a file with its id as the name."""

    folder: Path

    def publish(self) -> int:
        (self.folder / str(os.getpid())).touch()
        time.sleep(600)
        return 0


class Stopped(Endless):
    """Its process stops, and goes on only when somebody continues it."""

    def publish(self) -> int:
        os.kill(os.getpid(), signal.SIGSTOP)
        return 0


def publish_for_ever(folder: str) -> None:
    """Two endless shares."""
    publish_shares([Endless(Path(folder)), Endless(Path(folder))])  # type: ignore[list-item]
