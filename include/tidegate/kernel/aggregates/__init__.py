"""Aggregate functions: how each starts, folds, merges and finishes, its types, and its rule on whole columns.

One file each. The grammar, the kernel and the messages find them here.
"""

from importlib import import_module

from tidegate.kernel.aggregates.function import Function

_FILES = ("count", "sum", "min", "max", "avg", "first", "last", "collect_list", "collect_set")
"""A file contains the function of its name."""

FUNCTIONS: dict[str, Function] = {name: import_module(f"{__name__}.{name}").FUNCTION for name in _FILES}
"""Name in a pipeline file -> function."""
