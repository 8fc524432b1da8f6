"""The expected output of the demo's first pipeline, computed by a plain loop that shares no code with the
engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tidegate_dev.demo.events import Event

History = dict[str, list[Any]]
"""Key -> the values that are published for it, in order."""


def expected_availability(events: Iterable[Event]) -> History:
    """Return the availability changes of each product: a value whenever it differs from the last published
    one.

    A deletion is None.
    """
    published: History = {}
    for event in events:
        change = _availability(event)
        if change is None:
            continue
        key, value = change
        history = published.setdefault(key, [])
        last = history[-1] if history else None
        if value != last:
            history.append(value)
    return {key: history for key, history in published.items() if history}


def _availability(event: Event) -> tuple[str, Any] | None:
    """Return (key, value) of an event, with None as the value of a tombstone; None if the event is
    unusable.
    """
    if event.value is None:
        return (event.key.decode(), None) if event.key else None
    try:
        stock = json.loads(event.value)
        store, product, quantity = stock["storeId"], stock["id"], stock["quantity"]
    except (ValueError, TypeError, KeyError):
        return None
    if not (isinstance(product, int) and isinstance(quantity, int)):
        return None
    key = f'{{"storeId":"{store}","id":{product}}}'
    return key, {"storeId": store, "id": product, "isAvailable": quantity > 0}
