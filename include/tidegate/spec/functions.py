"""Which of Spark's functions an expression may call.

`sql_functions.txt` lists them, and the reasons for all others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from tidegate.spec.mistakes import Fault, did_you_mean

CALLABLE = ("allowed", "grammar")
_HEAD = re.compile(r"\[(?P<group>\w+)\]\s*(?P<why>[^|]*?)\s*(?:\|\s*(?P<fix>.*))?")


@dataclass(frozen=True)
class Group:
    """Functions that are allowed, or refused for the same reason (`why`) and with the same fix."""

    name: str
    why: str
    fix: str


@lru_cache(maxsize=1)
def classified() -> dict[str, Group]:
    """Return the group of every function that `sql_functions.txt` lists, by its name in lower case."""
    result: dict[str, Group] = {}
    group: Group | None = None
    text = resources.files("tidegate.spec").joinpath("sql_functions.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if head := _HEAD.fullmatch(line):
            group = Group(head["group"], head["why"], head["fix"] or "")
        elif group:
            result.update(dict.fromkeys(line.split(), group))
    return result


@lru_cache(maxsize=1)
def allowed() -> frozenset[str]:
    """Return the names of the functions that an expression may call, in lower case."""
    return frozenset(name for name, group in classified().items() if group.name in CALLABLE)


def refusal(name: str) -> Fault | None:
    """Return the fault of calling a function; None if an expression may call it.

    Example: `refusal("rand")` is a fault, `refusal("upper")` is None.
    """
    group = classified().get(name.lower())
    if group is None:
        # A function that the list lacks is refused: it may be newer than the list, or a user's own.
        fix = did_you_mean(name, allowed(), "Use one of Spark SQL's built-in functions.")
        return Fault(f"`{name}` is not a function of Spark 4.1", fix)
    if group.name in CALLABLE:
        return None
    return Fault(f"`{name}` {group.why}", group.fix)
