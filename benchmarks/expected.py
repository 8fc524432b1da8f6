"""How many changes a load has: a plain loop that shares no code with what is measured."""

from __future__ import annotations

from benchmarks.events import Load, draw

_NOTHING, _SOLD_OUT, _AVAILABLE = range(3)


class Availability:
    """The availability of `keys` products: unknown in the beginning, or `initial` for all of them."""

    def __init__(self, keys: int, initial: bool | None = None) -> None:
        first = _NOTHING if initial is None else _AVAILABLE if initial else _SOLD_OUT
        self._states = bytearray([first]) * keys

    def changes(self, load: Load) -> int:
        """Count the next events that change the availability of their product."""
        states, count = self._states, 0
        for _, products, quantities in draw(load):
            for product, quantity in zip(products, quantities, strict=True):
                available = _AVAILABLE if quantity else _SOLD_OUT
                if states[product] != available:
                    states[product] = available
                    count += 1
        return count
