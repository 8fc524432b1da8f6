"""How the grammar says no: a message, and a fix that a person can apply."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticCustomError

MISTAKE = "mistake"
"""The type of the errors that `mistake` makes, by which they are told from pydantic's own."""


@dataclass(frozen=True)
class Fault:
    """Something wrong inside one text, such as an expression: what, and the remedy."""

    message: str
    fix: str


def mistake(message: str, fix: str) -> PydanticCustomError:
    """An error to raise inside a validator."""
    return as_mistake([Fault(message, fix)])


def as_mistake(faults: Iterable[Fault]) -> PydanticCustomError:
    """Several faults of one text as one error, out of which `faults_of` takes them again."""
    found = list(dict.fromkeys(faults))
    text = "; ".join(fault.message for fault in found)
    return PydanticCustomError(MISTAKE, "{text}", {"text": text, "faults": found})


def faults_of(context: Mapping[str, Any] | None) -> list[Fault]:
    """The faults in the context of an error that `mistake` or `as_mistake` made."""
    return list((context or {})["faults"])


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A suggestion when something known is close, else `otherwise`. Upper and lower case are the same."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return f"Did you mean `{names[close[0]]}`?" if close else otherwise


def listed(words: Iterable[str]) -> str:
    """`a`, `b`, `c`; long lists are cut."""
    names = [f"`{word}`" for word in words]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def shown(value: Any) -> str:
    """A value as the file's reader knows it, cut."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return str(json.dumps(value))
    return repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "…"
