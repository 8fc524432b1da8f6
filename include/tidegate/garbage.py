"""Times at which Python searches for no garbage: it would look through many new objects again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_collected() -> Iterator[None]:
    """Do not search for cycles of objects within the block. Objects in no cycle are freed as always.

    Example: `with not_collected(): decode_many_records()`
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
