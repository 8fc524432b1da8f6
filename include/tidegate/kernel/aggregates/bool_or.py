"""`bool_or(x)`: whether any argument is true."""

from __future__ import annotations

from tidegate.kernel.aggregates.function import booleans

FUNCTION = booleans(neutral=False)
