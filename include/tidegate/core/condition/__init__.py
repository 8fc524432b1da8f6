"""SQL conditions that are evaluated between records: `where`, and `equal: {sql: …}`.

Spark cannot be asked there, so a small part of its SQL is evaluated here, with Spark's own results: nulls,
NaN and number types as under ANSI mode. `spec` checks the text and makes the tree; `compiler` knows its form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidegate.core.condition.compiler import Part, Tree, compiled
from tidegate.core.condition.values import Unfit
from tidegate.errors import ConditionFailed

__all__ = ["Condition", "Tree"]


@dataclass(frozen=True)
class Condition:
    """A condition: `text` as it was written, for messages, and `tree`, which is what it means."""

    text: str
    tree: Tree

    @cached_property
    def _root(self) -> Part:
        return compiled(self.tree)

    def evaluate(self, row: Mapping[str, Any]) -> bool | None:
        """True, False or null over the columns of a row; structs are mappings. Raises ConditionFailed."""
        try:
            result = self._root(row)
        except Unfit as unfit:
            raise ConditionFailed(f"`{self.text}` has no result: {unfit.what}", unfit.fix) from None
        if result is None or result is True or result is False:
            return result
        what = f"`{self.text}` gives {result!r}, which is neither true nor false"
        raise ConditionFailed(what, "Write a comparison, such as `total > 0`.")

    def __reduce__(self) -> tuple[type[Condition], tuple[str, Tree]]:
        # what it is compiled to cannot be pickled, and need not be
        return Condition, (self.text, self.tree)
