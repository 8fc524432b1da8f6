"""What the demo must publish, computed from its input by a plain loop that shares nothing with the engine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tidegate.demo.events import Event

History = dict[str, list[Any]]
"""Key -> what is published for it, in order."""


def expected_availability(events: Iterable[Event]) -> History:
    """One entry whenever a product's availability differs from the last published; null for a deletion."""
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
    """(key, message) of a usable event; the message of a tombstone is None."""
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
