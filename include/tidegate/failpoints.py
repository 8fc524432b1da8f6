"""Named places where a test can make the process fail. Only the environment switches them on.

A failpoint is around an effect: a write, a commit, a message, the answer of another process.

    with failpoint("ledger.commit"):
        …

`TIDEGATE_FAILPOINTS` is a list like `ledger.commit=kill,publish.send=lose@2`: failpoint, action, and the hit
of the process at which it fires (by default the first).

=========== ==========================================================================
kill        the process is killed (SIGKILL) before the effect
kill_after  the process is killed after the effect
raise       an error is raised in place of the effect
lose        the effect happens, but its answer does not arrive: an error is raised after it
pause       the process stops (SIGSTOP) before the effect, until it is continued (SIGCONT)
pause_after the process stops after the effect
=========== ==========================================================================

`TIDEGATE_FAILPOINTS_FIRED` names a file to which each entry is written before it fires. An entry of this file
does not fire again, so a retry gets past it, and a test can assert that the fault happened.
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
    """The error of the action `raise`."""


class ReplyLost(ConnectionError):
    """The error of the action `lose`. It is a ConnectionError, as a client raises when the server does not
    answer.
    """


def failpoint(name: str) -> AbstractContextManager[None]:
    """Return a context manager that fails before or after its block, if the environment says so.

    Without TIDEGATE_FAILPOINTS it costs one look-up. Raises FailpointRaised and ReplyLost for the actions
    `raise` and `lose`, ValueError if TIDEGATE_FAILPOINTS has an unknown action.
    """
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
    """Return the entries that fire at this hit of a failpoint, with their actions."""
    _hits[name] += 1
    due = []
    for entry in os.environ["TIDEGATE_FAILPOINTS"].split(","):
        point, _, setting = entry.strip().partition("=")
        action, _, hit = setting.partition("@")
        if action not in BEFORE + AFTER:
            actions = ", ".join(BEFORE + AFTER)
            raise ValueError(f"TIDEGATE_FAILPOINTS: {entry!r} is not one of {actions} at a failpoint")
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
    """Return whether the entry fires for the first time; if so, write it to the file."""
    record = os.environ.get("TIDEGATE_FAILPOINTS_FIRED")
    if not record:
        return True
    fired = Path(record)
    if fired.exists() and entry in fired.read_text().split():
        return False
    with fired.open("a") as file:
        file.write(f"{entry}\n")
        # The process may be killed next: without fsync the entry could be lost, and fire at every retry.
        file.flush()
        os.fsync(file.fileno())
    return True
