"""Run generations of a pipeline side by side: begin, compare, promote, roll back and drop them."""

from tidegate.generations.compare import (
    Difference,
    GenerationDifference,
    SinkDifference,
    compare_generations,
)
from tidegate.generations.lifecycle import begin_from, drop_generation, open_generation, require_generation
from tidegate.generations.promotion import (
    Approval,
    Promoted,
    needs_approval,
    promote,
    replaced_stream,
    rollback,
)
from tidegate.generations.restate import Restatement, plan_restatement, restate

__all__ = [
    "Approval",
    "Difference",
    "GenerationDifference",
    "Promoted",
    "Restatement",
    "SinkDifference",
    "begin_from",
    "compare_generations",
    "drop_generation",
    "needs_approval",
    "open_generation",
    "plan_restatement",
    "promote",
    "replaced_stream",
    "require_generation",
    "restate",
    "rollback",
]
