"""What a pipeline promises, as expectations that any suite may contain.

They check more than a table of values: deletions, the order of emissions, the batch's counts, and earlier
batches. A `StageFacts` contains this; the code that evaluates a suite passes it with `provide_facts`. The
decisions are pure functions (`neighbours`, `finals`, `keys`, `shares`). Only `expectations` imports Great
Expectations, and makes them usable in suite files by their types.
"""

from tidegate.quality.builtin.facts import BatchCounts, StageFacts, provide_facts
from tidegate.quality.builtin.types import BUILTIN_TYPES, Needs, needs_of

__all__ = ["BUILTIN_TYPES", "BatchCounts", "Needs", "StageFacts", "provide_facts", "needs_of"]
