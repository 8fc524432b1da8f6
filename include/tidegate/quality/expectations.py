"""Great Expectations, imported without what a suite over a table in memory does not need: half the time."""

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
"""It evaluates there, too, and does without where they are not installed. Here it has pandas."""

_SELDOM = frozenset({"altair", "scipy.stats"})
"""What it imports for a few expectations: for their charts, and for tests of distributions."""


class _SeldomUsed:
    """Finds those modules so that `importlib.util.LazyLoader` executes them when they are first used."""

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
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


# No usage statistics leave the machine; must stand before the import.
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
