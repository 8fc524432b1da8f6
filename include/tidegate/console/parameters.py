"""The parameters that pages share: the pipeline and the generation that an address names."""

from __future__ import annotations

from typing import Annotated

from fastapi import HTTPException, Query

from tidegate import inspect
from tidegate.app import App
from tidegate.inspect import CatalogEntry
from tidegate.ledger import Stream

MOST_NUMBER = 2**62
"""Numbers in an address can be of any size; a column of the ledger has 64 bits."""
LONGEST_KEY = 10_000
"""The longest key that is searched, in characters."""
Generation = Annotated[int | None, Query(ge=0, le=MOST_NUMBER)]


def entry_of(app: App, dag_id: str) -> CatalogEntry:
    """Return the pipeline of a DAG. Raises HTTPException (404) if there is none."""
    for entry in inspect.catalog_entries(app):
        if entry.dag_id == dag_id:
            return entry
    raise HTTPException(404, f"{dag_id} is no pipeline of tidegate.")


def stream_of_entry(entry: CatalogEntry, generation: int | None) -> Stream:
    """Return a stream of the entry. Other pipelines' streams are refused: the right to read one DAG covers no
    other.
    """
    for stream in entry.streams:
        if generation in (None, stream.generation):
            return stream
    raise HTTPException(404, f"{entry.name} has no generation {generation}.")
