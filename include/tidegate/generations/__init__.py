"""Run generations of a pipeline side by side: begin, compare, promote, roll back and drop them."""

from tidegate.generations.compare import (
    GenerationDifference,
    SinkDifference,
    compare_generations,
)
from tidegate.generations.lifecycle import (
    begin_from,
    drop_generation,
    has_begun,
    open_generation,
    origin_of,
    require_batch,
    require_fitting,
    require_generation,
)
from tidegate.generations.promotion import (
    Approval,
    Promoted,
    promote,
    replaced_stream,
    rollback,
)
from tidegate.generations.recompute import Recomputation, is_edited, plan_recomputation
from tidegate.generations.restate import RepeatedBatches, Restatement, plan_restatement, repeat
from tidegate.generations.standing import (
    GenerationStanding,
    PromotionPreview,
    bounded_difference,
    generation_standings,
    preview_promotion,
)

__all__ = [
    "Approval",
    "GenerationDifference",
    "GenerationStanding",
    "Promoted",
    "PromotionPreview",
    "Recomputation",
    "RepeatedBatches",
    "Restatement",
    "SinkDifference",
    "begin_from",
    "bounded_difference",
    "compare_generations",
    "drop_generation",
    "generation_standings",
    "has_begun",
    "is_edited",
    "open_generation",
    "origin_of",
    "plan_recomputation",
    "plan_restatement",
    "preview_promotion",
    "promote",
    "repeat",
    "replaced_stream",
    "require_batch",
    "require_fitting",
    "require_generation",
    "rollback",
]
