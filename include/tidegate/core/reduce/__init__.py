"""Reduces: how records fold into a value. One file each; `values` has what they have in common."""

from tidegate.core.reduce.aggregates import Aggregate, Aggregates
from tidegate.core.reduce.collect import Collect
from tidegate.core.reduce.latest import Latest

__all__ = ["Aggregate", "Aggregates", "Collect", "Latest"]
