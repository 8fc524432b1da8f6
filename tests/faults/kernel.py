"""A failpoint for Spark's Python workers, which do not have a step's environment: it brings its own along."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pyspark.cloudpickle import register_pickle_by_value

from tidegate import failpoints
from tidegate.spark import decoding, kernel_task, written

WITH_FAILPOINTS = (decoding, kernel_task, written)
"""The modules whose failpoints workers meet."""
MET_BY_WORKERS = {
    "compute.read": 2,
    "compute.kernel": 2,
    "compute.files": 2,
    "compute.write_state": 2,
    "compute.write_outbox": 1,
    "compute.write_quarantine": 1,
}
"""Failpoint -> how often a batch that reads meets it at least."""
MET_IN_A_DRAIN = {
    "compute.kernel": 2,
    "compute.files": 2,
    "compute.write_state": 1,
    "compute.write_outbox": 1,
}
"""The same, of the batch that reads nothing."""


def arm_workers(failpoint: InWorker) -> None:
    """Send the functions of those modules whole, with this in place of `failpoint`."""
    for module in WITH_FAILPOINTS:
        module.failpoint = failpoint  # type: ignore[attr-defined]
        register_pickle_by_value(module)


@dataclass(frozen=True)
class InWorker:
    """A replacement of `failpoint` in the function that is sent to the workers.

    Which worker gets which task is chance, so each failpoint's hits are counted over all of them, for each
    `owner`: the process that sent it.
    """

    owner: str
    faults: str
    fired: str

    def __call__(self, name: str) -> AbstractContextManager[None]:
        failpoints._hits[name] = self._hits_before(name)
        os.environ["TIDEGATE_FAILPOINTS"] = self.faults
        os.environ["TIDEGATE_FAILPOINTS_FIRED"] = self.fired
        return failpoints.failpoint(name)

    def _hits_before(self, name: str) -> int:
        """A byte for each hit; where the own one went tells how many there were, whoever else writes."""
        hits = os.open(f"{self.fired}.{self.owner}.{name}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        try:
            os.write(hits, b".")
            return os.lseek(hits, 0, os.SEEK_CUR) - 1
        finally:
            os.close(hits)
