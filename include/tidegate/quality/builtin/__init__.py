"""What a pipeline promises, as expectations that any suite may have.

They look at more than a table of values: at deletions and the order in which emissions went out, at the
batch's counts, and at the batches before. That is a `StageFacts`; whoever evaluates a suite gives it with
`known_facts`. The decisions are pure functions (`neighbours`, `finals`, `keys`, `shares`); `expectations`
alone imports Great Expectations, and makes them usable in suite files by their types.
"""

from tidegate.quality.builtin.facts import BatchCounts, StageFacts, known_facts
from tidegate.quality.builtin.types import BUILTIN_TYPES, Needs, needs_of

__all__ = ["BUILTIN_TYPES", "BatchCounts", "Needs", "StageFacts", "known_facts", "needs_of"]
