"""Reduces: how records fold into a value. One file each; `values` has what they have in common."""

from tidegate.kernel.reduce.aggregates import Aggregate, Aggregates
from tidegate.kernel.reduce.collect import Collect
from tidegate.kernel.reduce.latest import Latest

__all__ = ["Aggregate", "Aggregates", "Collect", "Latest"]
