"""Erase keys of a pipeline everywhere: in the lake, in the ledger, in Data Docs and at the sinks.

`plan_erasure` shows what would be done; `erase` does it, stream by stream.
"""

from tidegate.erasure.keys import ErasedKeys
from tidegate.erasure.plan import PlannedErasure, plan_erasure, requested_keys
from tidegate.erasure.steps import erase

__all__ = ["ErasedKeys", "PlannedErasure", "erase", "plan_erasure", "requested_keys"]
