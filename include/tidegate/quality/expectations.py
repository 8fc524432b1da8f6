"""Import Great Expectations without the modules that a suite over a table in memory does not need.

This halves the time of the import.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from tidegate.imports import Later, hidden, postponed

_OTHER_ENGINES = ("pyspark", "sqlalchemy")
"""Engines that Great Expectations also supports. It works without them if they are not installed; here it
uses pandas, so they are hidden while it is imported.
"""

_SELDOM = frozenset({"altair", "jsonschema", "mistune", "scipy.stats"})
"""Libraries that a few expectations need: charts, JSON Schema, texts in Markdown, tests of distributions."""

_CORE = "great_expectations.expectations.core"
_FLUENT = "great_expectations.datasource.fluent"
_OF_ONE_CLASS = re.compile(rf"{re.escape(_CORE)}\.expect_\w+|{re.escape(_FLUENT)}\.(fabric|\w+_datasource)")
"""Modules of one expectation or data source each. Their packages import all of them, which takes half of the
whole import: most of it to build classes for readers of pandas and for databases, which no audit uses."""

_FOR_ALL = frozenset({f"{_FLUENT}.invalid_datasource"})
"""Modules that are named in this way, but that the others need."""

_LAYOUT_IS_KNOWN = version("great_expectations").startswith("1.24.")
"""Another release may need these modules for itself, so it is imported with all of them."""


def _has_one_class(module: str) -> bool:
    return _OF_ONE_CLASS.fullmatch(module) is not None and module not in _FOR_ALL


def _is_postponed(module: str) -> bool:
    return module in _SELDOM or (_LAYOUT_IS_KNOWN and _has_one_class(module))


def _execute_on_demand() -> None:
    """Let the modules that were left out be executed when somebody asks for what they contain, or makes a
    context, which offers all data sources.
    """
    for name in (_CORE, _FLUENT, "great_expectations.expectations"):
        package = sys.modules[name]
        later = {name: value for name, value in vars(package).items() if isinstance(value, Later)}
        for attribute in later:
            delattr(package, attribute)
        package.__getattr__ = partial(_find, later)  # type: ignore[method-assign]
    registry._registered_expectations = _Registered(registry._registered_expectations)
    initialise = DataSourceManager.__init__
    DataSourceManager.__init__ = _with_all_sources(initialise)  # type: ignore[method-assign]


def _execute(module: str) -> None:
    with hidden(*_OTHER_ENGINES):
        import_module(module)


def _find(later: Mapping[str, Later], name: str) -> Any:
    if name not in later:
        raise AttributeError(f"no attribute {name!r}", name=name)
    _execute(later[name].module)
    return later[name].find()


def _with_all_sources(initialise: Callable[..., None]) -> Callable[..., None]:
    """Return `initialise`, which then imports all data sources first."""

    @wraps(initialise)
    def importing(*args: Any, **kwargs: Any) -> None:
        for module in iter_modules(sys.modules[_FLUENT].__path__, f"{_FLUENT}."):
            if _has_one_class(module.name):
                _execute(module.name)
        initialise(*args, **kwargs)

    return importing


def import_expectations() -> None:
    """Import the classes of all expectations, which are otherwise imported when a suite names them."""
    registry._registered_expectations.items()


class _Registered(dict[str, Any]):
    """The classes of expectations by their types. A class of Great Expectations registers itself when its
    module is executed.
    """

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self and find_spec(f"{_CORE}.{name}") is not None:
            _execute(f"{_CORE}.{name}")
        return super().get(name, default)

    def items(self) -> Any:
        for module in iter_modules(sys.modules[_CORE].__path__):
            _execute(f"{_CORE}.{module.name}")
        return super().items()


# Send no usage statistics. Great Expectations reads the variable when it is imported, so set it before.
os.environ["GX_ANALYTICS_ENABLED"] = "False"

with postponed(_is_postponed), hidden(*_OTHER_ENGINES):
    import great_expectations as gx
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )
    from great_expectations.core.suite_parameters import build_suite_parameters
    from great_expectations.datasource.fluent.sources import DataSourceManager
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations import registry
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metrics.column_aggregate_metrics.column_distinct_values import (
        _coerce_value_set_to_column_type as as_column_type,
    )
    from great_expectations.validator.validation_graph import ExpectationValidationGraph, ValidationGraph

if _LAYOUT_IS_KNOWN:
    _execute_on_demand()

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
