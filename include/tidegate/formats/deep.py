"""Make room on Python's stack for values that are nested as deep as formats allow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FRAMES = 10_000
"""A value of 100 levels takes up to 30 frames per level; a thread's stack of 8 MB has room for all of
them.
"""


@contextmanager
def room_on_stack() -> Iterator[None]:
    """Allow more than Python's default of 1,000 frames; a deeper recursion still raises RecursionError."""
    frames = sys.getrecursionlimit()
    sys.setrecursionlimit(max(frames, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(frames)
