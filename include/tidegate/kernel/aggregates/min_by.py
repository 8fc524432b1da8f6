"""`min_by(x, y)`: the x of the record with the smallest y."""

from __future__ import annotations

from tidegate.kernel.aggregates.function import chosen_by
from tidegate.kernel.aggregates.min import smaller

FUNCTION = chosen_by(smaller)
