"""`median(x)`: `percentile(x, 0.5)`."""

from __future__ import annotations

from dataclasses import replace

from tidegate.kernel.aggregates.percentile import FUNCTION as PERCENTILE

FUNCTION = replace(PERCENTILE, parameter=None)
