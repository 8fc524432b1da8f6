"""Import Great Expectations without the modules that a suite over a table in memory does not need.

This halves the time of the import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any

from tidegate.arrow import hidden

_OTHER_ENGINES = ("pyspark", "sqlalchemy")
"""Engines that Great Expectations also supports. It works without them if they are not installed; here it
uses pandas, so they are hidden while it is imported.
"""

_SELDOM = frozenset({"altair", "scipy.stats"})
"""Modules that a few expectations need: charts, and tests of distributions."""


class _SeldomUsed:
    """An import finder that lets `importlib.util.LazyLoader` execute these modules when they are first
    used.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in _SELDOM else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def _lazily() -> Iterator[None]:
    finder: Any = _SeldomUsed()
    # First, since the first finder that knows a module decides how it is loaded.
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


# Send no usage statistics. Great Expectations reads the variable when it is imported, so set it before.
os.environ["GX_ANALYTICS_ENABLED"] = "False"

with _lazily(), hidden(*_OTHER_ENGINES):
    import great_expectations as gx
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )
    from great_expectations.core.suite_parameters import build_suite_parameters
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metrics.column_aggregate_metrics.column_distinct_values import (
        _coerce_value_set_to_column_type as as_column_type,
    )
    from great_expectations.validator.validation_graph import ExpectationValidationGraph, ValidationGraph

__all__ = [
    "gx",
    "ExpectationConfiguration",
    "ExpectationSuiteValidationResult",
    "ExpectationValidationGraph",
    "ExpectationValidationResult",
    "PandasExecutionEngine",
    "ValidationGraph",
    "as_column_type",
    "build_suite_parameters",
]
