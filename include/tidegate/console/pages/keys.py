"""The page of a key: its state now and after any batch, and a timeline of why it was emitted or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from tidegate.console.host import host_of
from tidegate.console.parameters import LONGEST_KEY, MOST_NUMBER, Generation, entry_of, stream_of_entry
from tidegate.console.render import render
from tidegate.inspect.key_history import KeyHistory, KeyState, key_history, key_states, readable_states

router = APIRouter()
Batch = Annotated[int | None, Query(ge=1, le=MOST_NUMBER)]


@router.get("/keys")
def key_page(
    request: Request,
    dag_id: str,
    generation: Generation = None,
    key: Annotated[str, Query(max_length=LONGEST_KEY)] = "",
    batch: Batch = None,
    before: Batch = None,
) -> Response:
    """A key: its state, its emissions, its records in quarantine, and the decisions in words."""
    app = host_of(request).open_app()
    stream = stream_of_entry(entry_of(app, dag_id), generation)
    readable = readable_states(app, stream)
    if batch is not None and batch not in readable:
        span = f"from {readable[0]} to {readable[-1]}" if readable else "of no batch yet"
        raise HTTPException(404, f"{stream} has no state after batch {batch}: it has those {span}.")
    states = key_states(app, stream, key, batch) if key else []
    history = key_history(app, stream, key, before) if key else None
    return render(
        request,
        "key.html",
        title=f"{key or 'keys'}: {dag_id}",
        dag_id=dag_id,
        stream=stream,
        key=key,
        batch=batch,
        before=before,
        readable=readable,
        states=states,
        history=history,
        lanes=_lanes(states, history),
    )


def _lanes(states: Sequence[KeyState], history: KeyHistory | None) -> list[str]:
    """Return the stages that show something of the key: a stage that regroups has other keys."""
    concerned = {state.stage for state in states if state.entries or state.keys}
    for item in history.batches if history is not None else ():
        concerned |= {lane.stage for lane in item.stages if lane.changed or lane.emissions}
    return [state.stage for state in states if state.stage in concerned] or [
        state.stage for state in states[:1]
    ]
