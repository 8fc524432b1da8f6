"""The compiled form of a pipeline as a document: its format, and its stages' names, without the grammar.

`{"format": 1, "tidegate": "0.1.0", "pipeline": …}`, where a part of the pipeline is
`{"is": its class, "of": its fields}`. What the parts are is known to `tidegate.spec.compiled`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from tidegate import __version__
from tidegate.errors import PlanUnreadable
from tidegate.spec.cron import longest_gap

FORMAT = 1
"""The version of the stored form."""

Read = TypeVar("Read")


def write_document(body: Any) -> str:
    """A compiled pipeline, in the newest format."""
    return json.dumps({"format": FORMAT, "tidegate": __version__, "pipeline": body}, separators=(",", ":"))


def read_document(compiled: str, whose: str, read: Callable[[Any], Read]) -> Read:
    """Return what `read` makes of the document's pipeline. Raises PlanUnreadable.

    `whose` is what the error calls it, such as `batch 7 of levels/1`.
    """
    try:
        document = json.loads(compiled)
        if document["format"] == FORMAT:
            return read(document["pipeline"])
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise PlanUnreadable(
            f"The pipeline of {whose} cannot be read from the ledger: {type(error).__name__}: {error}",
            "Restore the ledger from a backup, or raise `generation` to begin anew.",
        ) from error
    raise PlanUnreadable(
        f"The pipeline of {whose} was planned by tidegate {document.get('tidegate')} in format "
        f"{document['format']}, which tidegate {__version__} does not know",
        f"Run it with tidegate {document.get('tidegate')} or a newer one.",
    )


def stage_names(compiled: str, whose: str) -> list[str]:
    """The names of a compiled pipeline's stages, in their order. Raises PlanUnreadable."""
    return read_document(compiled, whose, _stage_names)


def source_connection(compiled: str, whose: str) -> str | None:
    """The name of the Kafka connection of a compiled pipeline's source. Raises PlanUnreadable."""
    return read_document(compiled, whose, _source_connection)


def output_count(compiled: str, whose: str) -> int:
    """Return how many sinks, and topics of dead letters, a compiled pipeline publishes to. Raises
    PlanUnreadable.
    """
    return read_document(compiled, whose, _output_count)


def longest_schedule_gap(compiled: str, whose: str) -> timedelta | None:
    """Return the longest time between two runs by a compiled pipeline's schedule; None: it has no cron.

    Raises PlanUnreadable.
    """
    cron = read_document(compiled, whose, _cron)
    return None if cron is None else longest_gap(cron)


def _output_count(body: Any) -> int:
    quarantine = body["of"].get("quarantine")
    has_dead_letters = quarantine is not None and quarantine["of"].get("topic") is not None
    return len(body["of"]["sinks"]) + has_dead_letters


def _cron(body: Any) -> str | None:
    schedule = body["of"].get("schedule")
    cron: str | None = schedule["of"].get("cron") if isinstance(schedule, dict) else schedule
    return cron


def _source_connection(body: Any) -> str | None:
    name: str | None = body["of"]["source"]["of"].get("connection")
    return name


def _stage_names(body: Any) -> list[str]:
    return [stage["of"]["name"] for stage in body["of"]["stages"]]
