"""A failpoint for Spark's Python workers, which do not have a step's environment: it brings its own along."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tidegate import failpoints

_last = ""


@dataclass(frozen=True)
class InWorker:
    """Stands in place of `failpoint` in the function that is sent to the workers; `owner` tells the process
    that sent it, by which hits are counted."""

    owner: str
    faults: str
    fired: str

    def __call__(self, name: str) -> AbstractContextManager[None]:
        global _last
        if self.owner != _last:
            failpoints._hits.clear()
            _last = self.owner
        os.environ["TIDEGATE_FAILPOINTS"] = self.faults
        os.environ["TIDEGATE_FAILPOINTS_FIRED"] = self.fired
        return failpoints.failpoint(name)
