"""The compiled form of a pipeline as a document: its format, and facts that can be read without the grammar.

`{"format": 1, "tidegate": "0.1.0", "pipeline": …}`, where a part of the pipeline is `{"is": CLASS, "of":
FIELDS}`. `tidegate.model.compiled` has the classes of the parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from tidegate import __version__
from tidegate.errors import PlanUnreadable
from tidegate.model.cron import longest_gap

FORMAT = 1
"""The version of the stored form."""

Read = TypeVar("Read")


def write_document(body: Any) -> str:
    """Return the document of a compiled pipeline, in the newest format.

    Args:
        body: The compiled parts, which `json.dumps` accepts.
    """
    return json.dumps({"format": FORMAT, "tidegate": __version__, "pipeline": body}, separators=(",", ":"))


def read_document(compiled: str, label: str, read: Callable[[Any], Read]) -> Read:
    """Decode a document and return the result of `read` for its pipeline.

    Args:
        compiled: The JSON document.
        label: What an error calls the owner, such as `batch 7 of levels/1`.
        read: Converts the document's `pipeline`.

    Raises PlanUnreadable if the document is damaged, or has a format that this tidegate cannot read.
    """
    try:
        document = json.loads(compiled)
        # Checked before anything else is read: a newer format may use known names with another meaning.
        if document["format"] == FORMAT:
            return read(document["pipeline"])
    # A damaged document can fail in any of the readers; each of these errors means that it cannot be read.
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise PlanUnreadable(
            f"The pipeline of {label} cannot be read from the ledger: {type(error).__name__}: {error}",
            "Restore the ledger from a backup, or raise `generation` to start over.",
        ) from error
    raise PlanUnreadable(
        f"The pipeline of {label} was planned by tidegate {document.get('tidegate')} in format "
        f"{document['format']}, which tidegate {__version__} does not know",
        f"Run it with tidegate {document.get('tidegate')} or a newer one.",
    )


def stage_names(compiled: str, label: str) -> list[str]:
    """Return the names of a compiled pipeline's stages, in order.

    Raises PlanUnreadable as `read_document` does.
    """
    return read_document(compiled, label, _stage_names)


def source_connection(compiled: str, label: str) -> str | None:
    """Return the Kafka connection of a compiled pipeline's source; None is the one without a name.

    Raises PlanUnreadable as `read_document` does.
    """
    return read_document(compiled, label, _source_connection)


def output_count(compiled: str, label: str) -> int:
    """Return the number of sinks and topics of dead letters that a compiled pipeline publishes to.

    Raises PlanUnreadable as `read_document` does.
    """
    return read_document(compiled, label, _output_count)


def longest_schedule_gap(compiled: str, label: str) -> timedelta | None:
    """Return the longest time between two runs by a compiled pipeline's schedule; None if it has no cron.

    Raises PlanUnreadable as `read_document` does.
    """
    cron = read_document(compiled, label, _cron)
    return None if cron is None else longest_gap(cron)


def _output_count(body: Any) -> int:
    quarantine = body["of"].get("quarantine")
    has_dead_letters = quarantine is not None and quarantine["of"].get("topic") is not None
    # The topic of dead letters is published like a sink, and counts as one.
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
