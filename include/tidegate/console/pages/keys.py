"""The page of a key: its state now and after any batch, and a timeline of why it was emitted or not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from tidegate.console.host import host_of
from tidegate.console.parameters import LONGEST_KEY, Batch, Viewed
from tidegate.console.render import render
from tidegate.errors import TidegateError
from tidegate.inspect import CatalogEntry
from tidegate.inspect.explain import key_records
from tidegate.inspect.key_history import KeyHistory, KeyState, key_history, key_states, readable_states
from tidegate.ledger import Stream

if TYPE_CHECKING:
    from tidegate.spark.explain import TraceEvent

router = APIRouter()


@router.get("/keys")
def key_page(
    request: Request,
    dag_id: str,
    viewed: Viewed,
    key: Annotated[str, Query(max_length=LONGEST_KEY)] = "",
    batch: Batch = None,
    before: Batch = None,
    records: Batch = None,
) -> Response:
    """A key: its state, its emissions, its records in quarantine, and the decisions in words.

    Raises HTTPException (404) if there is no state after the batch.
    """
    app, entry, stream = viewed.app, viewed.entry, viewed.stream
    readable = readable_states(app, stream)
    if batch is not None and batch not in readable:
        span = f"from {readable[0]} to {readable[-1]}" if readable else "of no batch yet"
        raise HTTPException(404, f"{stream} has no state after batch {batch}: it has those {span}.")
    states = key_states(app, stream, key, batch) if key else []
    history = key_history(app, stream, key, before) if key else None
    return render(
        request,
        "key.html",
        title=f"{dag_id}: key {key}" if key else f"{dag_id}: keys",
        dag_id=dag_id,
        stream=stream,
        key=key,
        batch=batch,
        before=before,
        readable=readable,
        states=states,
        history=history,
        lanes=_lanes(states, history),
        records=records,
        trace=_trace(request, entry, stream, key, records) if key and records else None,
    )


@dataclass(frozen=True)
class Trace:
    """The events of a key in a batch, which was decided again from Kafka's records.

    Args:
        lanes: Stage -> its events, in order.
        error: Why there are none; None if there are.
        starts_spark: Whether this server can decide a batch again; otherwise the page names the command.
    """

    lanes: Mapping[str, Sequence[TraceEvent]] = field(default_factory=dict)
    error: TidegateError | None = None
    starts_spark: bool = True


def _trace(request: Request, entry: CatalogEntry, stream: Stream, key: str, seq: int) -> Trace:
    host = host_of(request)
    app = host.connected(host.open_app(), [entry])
    open_session = host.open_session(app)
    if open_session is None:
        return Trace(starts_spark=False)
    try:
        events = key_records(app, stream, key, seq, open_session)
    # The rest of the page needs neither Kafka nor Spark.
    except TidegateError as error:
        return Trace(error=error)
    lanes: defaultdict[str, list[TraceEvent]] = defaultdict(list)
    for event in events:
        lanes[event.stage].append(event)
    return Trace(lanes)


def _lanes(states: Sequence[KeyState], history: KeyHistory | None) -> list[str]:
    """Return the stages that show something of the key: a stage that regroups has other keys."""
    concerned = {state.stage for state in states if state.entries or state.keys}
    for item in history.batches if history is not None else ():
        concerned |= {lane.stage for lane in item.stages if lane.changed or lane.emissions}
    return [state.stage for state in states if state.stage in concerned] or [
        state.stage for state in states[:1]
    ]
