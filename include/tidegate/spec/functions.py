"""Which of Spark's functions an expression may call: those of `sql_functions.txt`, and why not the others."""

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
    """Functions that share a fate."""

    name: str
    why: str
    fix: str


@lru_cache(maxsize=1)
def classified() -> dict[str, Group]:
    """Every function that is known, in lower case, and its group."""
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
    """The functions that may be called."""
    return frozenset(name for name, group in classified().items() if group.name in CALLABLE)


def refusal(name: str) -> Fault | None:
    """Why a function cannot be called, or None when it can."""
    group = classified().get(name.lower())
    if group is None:
        fix = did_you_mean(name, allowed(), "Use one of Spark SQL's built-in functions.")
        return Fault(f"`{name}` is not a function of Spark 4.1", fix)
    if group.name in CALLABLE:
        return None
    return Fault(f"`{name}` {group.why}", group.fix)
