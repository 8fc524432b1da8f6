"""How many changes a load has: a plain loop that shares no code with what is measured."""

from __future__ import annotations

from benchmarks.events import Load, draw

_NOTHING, _SOLD_OUT, _AVAILABLE = range(3)


class Availability:
    """What is known of `keys` products: nothing, or that all of them are `known` to be available or not."""

    def __init__(self, keys: int, known: bool | None = None) -> None:
        first = _NOTHING if known is None else _AVAILABLE if known else _SOLD_OUT
        self._known = bytearray([first]) * keys

    def changes(self, load: Load) -> int:
        """How many of the next events change what is known of their product."""
        known, count = self._known, 0
        for _, products, quantities in draw(load):
            for product, quantity in zip(products, quantities, strict=True):
                available = _AVAILABLE if quantity else _SOLD_OUT
                if known[product] != available:
                    known[product] = available
                    count += 1
        return count
