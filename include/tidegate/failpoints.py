"""Named places where a test can make the process fail. Switched on by the environment only.

`TIDEGATE_FAILPOINTS` is a list like `commit.before=kill,publish.chunk_sent=raise@2`: an action, and at
which hit it happens (1 when not said). `TIDEGATE_FAILPOINTS_FIRED` names a file to which each one that
fires is written first; a failpoint that stands in it does not fire again, so a retry gets past it, and
a test can assert that the fault really happened.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

_hits: Counter[str] = Counter()


class FailpointRaised(Exception):
    """The action `raise`."""


def failpoint(name: str) -> None:
    """Fail here if the environment says so. Costs one look-up when it does not."""
    wanted = os.environ.get("TIDEGATE_FAILPOINTS")
    if not wanted:
        return
    for entry in wanted.split(","):
        point, _, action = entry.strip().partition("=")
        if point == name:
            action, _, hit = action.partition("@")
            _hits[name] += 1
            if _hits[name] == int(hit or 1):
                _fire(name, action)


def _fire(name: str, action: str) -> None:
    record = os.environ.get("TIDEGATE_FAILPOINTS_FIRED")
    if record:
        fired = Path(record)
        if fired.exists() and name in fired.read_text().split():
            return
        with fired.open("a") as file:
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "raise":
        raise FailpointRaised(name)
    raise ValueError(f"TIDEGATE_FAILPOINTS: {name}={action}: the action must be kill or raise")
