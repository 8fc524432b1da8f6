"""`max_by(x, y)`: the x of the record with the largest y."""

from __future__ import annotations

from tidegate.kernel.aggregates.function import chosen_by
from tidegate.kernel.aggregates.max import larger

FUNCTION = chosen_by(larger)
