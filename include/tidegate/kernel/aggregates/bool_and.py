"""`bool_and(x)`: whether all arguments are true."""

from __future__ import annotations

from tidegate.kernel.aggregates.function import booleans

FUNCTION = booleans(neutral=True)
