"""Mistakes in a pipeline file: each has a message, and a fix that a person can apply."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticCustomError

MISTAKE = "mistake"
"""The type of the errors that `mistake` makes. It distinguishes them from pydantic's own errors."""


@dataclass(frozen=True)
class Fault:
    """A problem in a text of the file, such as an expression: the message, and the fix."""

    message: str
    fix: str


def mistake(message: str, fix: str) -> PydanticCustomError:
    """Return an error for a validator to raise.

    Example: `raise mistake("a pipeline needs at least one sink", "Write `sinks: [{kind: kafka, topic:
    t}]`.")`
    """
    return as_mistake([Fault(message, fix)])


def as_mistake(faults: Iterable[Fault]) -> PydanticCustomError:
    """Return several faults of one text as a single error; `faults_of` returns the faults again."""
    # pydantic gives each raised error a single place, so all faults of a text travel in one error's context.
    distinct = list(dict.fromkeys(faults))
    text = "; ".join(fault.message for fault in distinct)
    return PydanticCustomError(MISTAKE, "{text}", {"text": text, "faults": distinct})


def faults_of(context: Mapping[str, Any] | None) -> list[Fault]:
    """Return the faults in the context (`ctx`) of an error that `mistake` or `as_mistake` made.

    Example: `faults_of(details.get("ctx"))` for `details` of pydantic's `ValidationError.errors()`
    """
    return list((context or {})["faults"])


def did_you_mean(word: str, candidates: Iterable[str], otherwise: str = "") -> str:
    """Return a suggestion if a candidate is similar to `word`, otherwise `otherwise`. Case does not count.

    >>> did_you_mean("quantty", ["quantity", "price"])
    'Did you mean `quantity`?'
    """
    # Compared in lower case, and suggested as it is written.
    names = {name.lower(): name for name in candidates}
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return f"Did you mean `{names[close[0]]}`?" if close else otherwise


def listed(words: Iterable[str]) -> str:
    """Return the words in backticks, with commas. A list of more than twelve is cut.

    >>> listed(["a", "b"])
    '`a`, `b`'
    """
    names = [f"`{word}`" for word in words]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def shown(value: Any) -> str:
    """Return a value for a message: a container by its kind, others as text of at most 60 characters."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    # As the file writes it: `true` and `null`, not Python's `True` and `None`.
    if value is None or isinstance(value, bool):
        return str(json.dumps(value))
    return repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "…"
