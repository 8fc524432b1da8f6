"""The parameters that pages share: the pipeline, the generation and the batch that an address names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, HTTPException, Query, Request
from pydantic import BeforeValidator, Field

from tidegate import inspect
from tidegate.app import App
from tidegate.console.host import host_of
from tidegate.inspect import CatalogEntry
from tidegate.ledger import Stream

MOST_NUMBER = 2**62
"""Numbers in an address can be of any size; a column of the ledger has 64 bits."""
LONGEST_KEY = 10_000
"""The longest key that is searched, in characters."""
Generation = Annotated[int | None, Query(ge=0, le=MOST_NUMBER)]
# A browser sends a field of a form that is left empty as an empty text.
_EMPTY_IS_NONE = BeforeValidator(lambda value: None if value == "" else value)
Batch = Annotated[Annotated[int, Field(ge=1, le=MOST_NUMBER)] | None, _EMPTY_IS_NONE, Query()]


def refuse_null(request: Request) -> None:
    """Raise HTTPException (404) for a path with a NUL, since PostgreSQL refuses to look for it."""
    if "\0" in request.scope["path"]:
        raise HTTPException(404, "The address of this page has a character that no name has.")


def entry_of(app: App, dag_id: str) -> CatalogEntry:
    """Return the pipeline of a DAG. Raises HTTPException (404) if there is none."""
    return entry_in(inspect.catalog_entries(app), dag_id)


def entry_in(entries: Iterable[CatalogEntry], dag_id: str) -> CatalogEntry:
    """Return the entry of a DAG. Raises HTTPException (404) if there is none."""
    for entry in entries:
        if entry.dag_id == dag_id:
            return entry
    raise HTTPException(404, f"{dag_id} is no pipeline of tidegate.")


def readable_entries(request: Request, entries: Sequence[CatalogEntry]) -> list[CatalogEntry]:
    """Return the entries whose DAGs the user may read."""
    readable = host_of(request).readable_dags(request, [entry.dag_id for entry in entries])
    return [entry for entry in entries if entry.dag_id in readable]


def stream_of_entry(entry: CatalogEntry, generation: int | None) -> Stream:
    """Return a stream of the entry. Other pipelines' streams are refused: the right to read one DAG covers no
    other. Raises HTTPException (404) if the entry has no such generation.
    """
    for stream in entry.streams:
        if generation in (None, stream.generation):
            return stream
    raise HTTPException(404, f"{entry.name} has no generation {generation}.")


@dataclass(frozen=True)
class ViewedStream:
    """The stream that a page shows, of the pipeline and the generation that its address names."""

    app: App
    entry: CatalogEntry
    stream: Stream


def _viewed(request: Request, dag_id: str, generation: Generation = None) -> ViewedStream:
    app = host_of(request).open_app()
    entry = entry_of(app, dag_id)
    return ViewedStream(app, entry, stream_of_entry(entry, generation))


Viewed = Annotated[ViewedStream, Depends(_viewed)]
"""The parameter of a page about one stream. Raises HTTPException (404) if the pipeline has no such stream."""
