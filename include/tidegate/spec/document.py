"""The compiled form of a pipeline as a document: its format, and its stages' names, without the grammar.

`{"format": 1, "tidegate": "0.1.0", "pipeline": …}`, where a part of the pipeline is
`{"is": its class, "of": its fields}`. What the parts are is known to `tidegate.spec.compiled`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from tidegate import __version__
from tidegate.errors import PlanUnreadable

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


def _source_connection(body: Any) -> str | None:
    name: str | None = body["of"]["source"]["of"].get("connection")
    return name


def _stage_names(body: Any) -> list[str]:
    return [stage["of"]["name"] for stage in body["of"]["stages"]]
