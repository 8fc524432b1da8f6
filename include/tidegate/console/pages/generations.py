"""The page of generations: which one is in charge, how far each has read, and what a promotion would send."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response

from tidegate import inspect
from tidegate.app import App
from tidegate.console.host import host_of
from tidegate.console.parameters import Generation, entry_in, readable_entries
from tidegate.console.render import render
from tidegate.errors import Halted
from tidegate.generations import (
    GenerationDifference,
    GenerationStanding,
    PromotionPreview,
    bounded_difference,
    generation_standings,
    preview_promotion,
)
from tidegate.inspect import CatalogEntry
from tidegate.ledger import Stream

router = APIRouter()
MOST_PARTITIONS = 20
MOST_EXAMPLES = 10


@dataclass(frozen=True)
class Comparison:
    """The chosen generation beside the one in charge.

    Args:
        difference: None if it cannot be had, for the reason `obstacle`.
    """

    standing: GenerationStanding
    preview: PromotionPreview
    difference: GenerationDifference | None
    obstacle: Halted | None = None


@router.get("/generations")
def generations(request: Request, dag_id: str, compare: Generation = None) -> Response:
    """The generations of a pipeline.

    Args:
        compare: A generation: the page also shows what its promotion would change.
    """
    app = host_of(request).open_app()
    entries = inspect.catalog_entries(app)
    entry = entry_in(entries, dag_id)
    if not entry.streams:
        raise HTTPException(404, f"{entry.name} names no generation.")
    pipeline = entry.streams[0].pipeline
    dags = dict(_readable_generations(request, entries, pipeline))
    standings = generation_standings(app, sorted(dags, key=lambda stream: stream.generation))
    return render(
        request,
        "generations.html",
        title=f"{dag_id}: generations",
        dag_id=dag_id,
        stream=entry.streams[0],
        charge=app.ledger.charge(pipeline),
        standings=standings,
        dags=dags,
        most_partitions=MOST_PARTITIONS,
        most_examples=MOST_EXAMPLES,
        comparison=_comparison(app, standings, compare) if compare is not None else None,
    )


def _readable_generations(
    request: Request, entries: Sequence[CatalogEntry], pipeline: str
) -> Iterator[tuple[Stream, str]]:
    """Yield the generations whose records the user may read, each with the id of its DAG.

    A generation with a file of its own has a DAG of its own, and the right to another DAG does not cover it.
    """
    own = [entry for entry in entries if any(stream.pipeline == pipeline for stream in entry.streams)]
    # A generation without a file is in the entries of all other generations: any of them shows it.
    for entry in readable_entries(request, own):
        if host_of(request).reads_logs(request, entry.dag_id):
            for stream in entry.streams:
                yield stream, entry.dag_id


def _comparison(app: App, standings: list[GenerationStanding], generation: int) -> Comparison:
    chosen = next((row for row in standings if row.stream.generation == generation), None)
    leader = next((row for row in standings if row.role == "in charge"), None)
    if chosen is None or leader is None or chosen is leader:
        raise HTTPException(404, f"There is no generation {generation} to compare with the one in charge.")
    preview = preview_promotion(app, chosen, MOST_EXAMPLES)
    try:
        return Comparison(chosen, preview, bounded_difference(app, leader.stream, chosen.stream))
    except Halted as obstacle:
        return Comparison(chosen, preview, None, obstacle)
