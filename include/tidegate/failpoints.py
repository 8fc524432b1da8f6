"""Named places where a test can make the process fail. Switched on by the environment only.

A failpoint stands around an effect: a write, a commit, a message, the answer of another process.

    with failpoint("ledger.commit"):
        …

`TIDEGATE_FAILPOINTS` is a list like `ledger.commit=kill,publish.send=lose@2`: what happens, and at which
hit of the process (the first when not said).

=========== ==========================================================================
kill        the process is killed (SIGKILL) before the effect
kill_after  the same, after it
raise       an error comes in place of the effect
lose        the effect happens, but its answer does not arrive: an error comes after it
pause       the process stops (SIGSTOP) before the effect, until somebody continues it
pause_after the same, after it
=========== ==========================================================================

`TIDEGATE_FAILPOINTS_FIRED` names a file to which each entry that fires is written first. An entry that
stands in it does not fire again, so a retry gets past it, and a test can assert that the fault happened.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

BEFORE = ("kill", "raise", "pause")
AFTER = ("kill_after", "lose", "pause_after")

_NOTHING = nullcontext()
_hits: Counter[str] = Counter()


class FailpointRaised(Exception):
    """The action `raise`."""


class ReplyLost(ConnectionError):
    """The action `lose`."""


def failpoint(name: str) -> AbstractContextManager[None]:
    """Fail before or after what is done inside, if the environment says so. Else it costs one look-up."""
    return _armed(name) if os.environ.get("TIDEGATE_FAILPOINTS") else _NOTHING


@contextmanager
def _armed(name: str) -> Iterator[None]:
    due = _due(name)
    for entry, action in due:
        if action in BEFORE:
            _fire(entry, name, action)
    yield
    for entry, action in due:
        if action in AFTER:
            _fire(entry, name, action)


def _due(name: str) -> list[tuple[str, str]]:
    """The entries that are about this hit of a failpoint, and their actions."""
    _hits[name] += 1
    due = []
    for entry in os.environ["TIDEGATE_FAILPOINTS"].split(","):
        point, _, wanted = entry.strip().partition("=")
        action, _, hit = wanted.partition("@")
        if action not in BEFORE + AFTER:
            known = ", ".join(BEFORE + AFTER)
            raise ValueError(f"TIDEGATE_FAILPOINTS: {entry!r} is not one of {known} at a failpoint")
        if point == name and _hits[name] == int(hit or 1):
            due.append((entry.strip(), action))
    return due


def _fire(entry: str, name: str, action: str) -> None:
    if not _is_first(entry):
        return
    if action == "raise":
        raise FailpointRaised(name)
    if action == "lose":
        raise ReplyLost(f"The answer of {name} was lost")
    os.kill(os.getpid(), signal.SIGSTOP if action.startswith("pause") else signal.SIGKILL)


def _is_first(entry: str) -> bool:
    """Whether the entry fires for the first time; if so, that is written down."""
    record = os.environ.get("TIDEGATE_FAILPOINTS_FIRED")
    if not record:
        return True
    fired = Path(record)
    if fired.exists() and entry in fired.read_text().split():
        return False
    with fired.open("a") as file:
        file.write(f"{entry}\n")
        file.flush()
        os.fsync(file.fileno())
    return True
