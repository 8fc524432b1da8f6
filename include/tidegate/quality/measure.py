"""Measure an expectation over tables in memory, part by part, and compute the verdict on all parts."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from tidegate.errors import SettingsInvalid
from tidegate.quality.expectations import (
    ExpectationConfiguration,
    ExpectationValidationGraph,
    ExpectationValidationResult,
    PandasExecutionEngine,
    ValidationGraph,
    build_suite_parameters,
)
from tidegate.quality.rules import RowRule
from tidegate.quality.splitting import SAMPLES, Aggregate, Parts, Split, aggregate, joined, split_of
from tidegate.quality.suite import ExpectationSpec
from tidegate.quality.verdict import MOST_FAILING_ROWS

_NEEDS_ALL_COLUMNS = ("table.columns", "table.column_count", "table.column_types", "unexpected_rows_query.")
"""Prefixes of metrics that depend on which columns the table has."""

_BEFORE = ("previous_", "mean_", "min_", "max_")
"""Prefixes of parameters that are computed from earlier batches."""
_COMPUTED_WITH_DOUBLES = {"column.sum", "column.mean", "column.standard_deviation"}
"""Metrics for which Great Expectations converts decimals to doubles."""


class Measurement:
    """One expectation, and its metrics so far.

    The metrics of parts are joined as they come. The verdict is computed by Great Expectations itself.
    `error` is the reason why the expectation cannot be evaluated; None if it can.

    Example::

        measurement = Measurement(spec, parameters, ["key"], parts)
        for rows in tables:
            frame.load(rows)
            frame.measure([measurement])
        measurement.result(frame).success
    """

    def __init__(
        self, spec: ExpectationSpec, parameters: Mapping[str, Any], shown: Sequence[str], parts: Parts
    ) -> None:
        """Prepare the expectation; a failure is stored in `error`.

        Args:
            parameters: name -> value, for `$PARAMETER` in the expectation.
            shown: The columns that identify a failing row.
            parts: The rows.
        """
        self.spec = spec
        self.error: str | None = None
        self.split = Split.ROWS
        self.skipped = ""
        """The reason why the expectation is skipped and counts as met; empty if it is evaluated."""
        self.is_readable = False
        """Whether the expectation's class accepts the arguments of the suite."""
        self.rule: RowRule | None = None
        """The rule that needs no pandas; None if Great Expectations has to compute the metrics."""
        self._shown = list(shown)
        self._metrics: dict[str, Any] = {}
        self._partial: dict[str, Any] = {}
        self.configuration = ExpectationConfiguration(
            type=spec.type, kwargs=dict(spec.kwargs), meta=dict(spec.meta), severity=spec.severity.value
        )
        try:
            self._prepare(parameters, parts)
        except (
            Exception
        ) as error:  # its class can raise anything; an expectation that cannot be evaluated fails
            self.error = _words(error)

    def _prepare(self, parameters: Mapping[str, Any], parts: Parts) -> None:
        if missing := _of_batches_before(self.spec) - parameters.keys():
            self.skipped = f"not evaluated: no earlier batch has {', '.join(sorted(missing))}"
            return
        kwargs, _ = build_suite_parameters(dict(self.spec.kwargs), dict(parameters))
        self.configuration = ExpectationConfiguration(
            type=self.spec.type, kwargs=kwargs, meta=dict(self.spec.meta), severity=self.spec.severity.value
        )
        self._expectation = self.configuration.to_domain_obj()
        self.is_readable = True
        # a module of the user's may have a class of its own with this name
        if type(self._expectation).__module__.startswith("great_expectations."):
            self.rule = RowRule.from_suite(self.spec.type, kwargs, parts.rows.schema)
        # The metrics depend on the types of columns, and not on rows: an empty table is enough. Those of a
        # rule depend on neither, so no pass over the rows has to find the types that pandas needs.
        self._engine = Frame(parts.untyped if self.rule is not None else parts.typed).engine
        self._find_metrics()
        declared = getattr(type(self._expectation), "split", None)
        self.split = Split[declared.upper()] if isinstance(declared, str) else split_of(self._metrics)

    def show(self, columns: Sequence[str]) -> None:
        """Identify failing rows by these columns from now on; an empty list identifies them by position."""
        if self._shown != list(columns):
            self._shown = list(columns)
            self._find_metrics()

    @property
    def runtime(self) -> dict[str, Any]:
        """The runtime configuration of Great Expectations: the format of results."""
        return {
            "result_format": {
                "result_format": "SUMMARY",
                "partial_unexpected_count": MOST_FAILING_ROWS,
                # the query would be text for pandas with all positions, which may be millions
                "return_unexpected_index_query": False,
                **({"unexpected_index_column_names": self._shown} if self._shown else {}),
            },
            "catch_exceptions": True,
        }

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns that the expectation needs, with those that identify a failing row; None means all."""
        kwargs = self.configuration.kwargs
        if kwargs.get("row_condition") or any(name.startswith(_NEEDS_ALL_COLUMNS) for name in self._metrics):
            return None
        if not self._metrics and not self.spec.columns:
            return None
        # aggregates have no failing rows to identify
        counts_rows = any(aggregate(name) is None for name in self._metrics)
        return tuple(dict.fromkeys((*self.spec.columns, *(self._shown if counts_rows else ()))))

    @property
    def is_evaluated(self) -> bool:
        """Whether there is something to measure."""
        return self.error is None and not self.skipped

    @property
    def needs_rows(self) -> bool:
        """Whether it is evaluated on rows. The built-in expectations read files by themselves."""
        return self.is_evaluated and (bool(self._metrics) or self.split is Split.WHOLE)

    @property
    def computes_with_doubles(self) -> bool:
        """Whether all of its metrics convert decimals to doubles."""
        return bool(self._metrics) and self._metrics.keys() <= _COMPUTED_WITH_DOUBLES

    @property
    def requested_metrics(self) -> dict[str, Any]:
        """The metrics that Great Expectations has to compute of a part: name -> configuration."""
        return {name: metric for name, metric in self._metrics.items() if aggregate(name) is None}

    def aggregates(self, engine: Any) -> dict[str, Any]:
        """Return the metrics of a part that tidegate computes: name -> the result of `Aggregate.compute`.

        Raises SettingsInvalid if the part lacks the column.
        """
        rules = {name: aggregate(name) for name in self._metrics}
        return {name: self._aggregate_of(rule, engine) for name, rule in rules.items() if rule is not None}

    def add_by_rule(self, rows: pa.Table) -> bool:
        """Add the metrics of a part by the expectation's rule. Return whether that is possible: if not, the
        part has to become a `Frame`.
        """
        shown: Sequence[Any] = next(
            (value for name, value in self._partial.items() if name.endswith(SAMPLES)), []
        )
        has_enough = len(shown) >= MOST_FAILING_ROWS
        metrics = self.rule and self.rule.metrics(self._metrics, rows, with_samples=not has_enough)
        self.add(metrics or {})
        return metrics is not None

    def add(self, partials: Mapping[str, Any]) -> None:
        """Join the metrics of one more part: name -> value."""
        for name, partial in partials.items():
            if name not in self._partial:
                self._partial[name] = partial
                continue
            rule, before = aggregate(name), self._partial[name]
            self._partial[name] = (
                joined(name, before, partial) if rule is None else rule.join(before, partial)
            )

    def result(self, frame: Frame) -> ExpectationValidationResult:
        """Return Great Expectations' verdict over all parts that were added.

        Args:
            frame: The last part, for expectations of users that have no metrics, and look at rows.
        """
        if self.skipped:
            return ExpectationValidationResult(
                success=True, expectation_config=self.configuration, result={"observed_value": self.skipped}
            )
        if self.error is None:
            try:
                return self._result(frame.engine)
            except Exception as error:  # the class can raise anything here, too
                self.error = _words(error)
        information = {"raised_exception": True, "exception_message": self.error, "exception_traceback": ""}
        return ExpectationValidationResult(
            success=False, expectation_config=self.configuration, result={}, exception_info=information
        )

    def _result(self, engine: Any) -> ExpectationValidationResult:
        metrics = {}
        for name, configuration in self._metrics.items():
            rule = aggregate(name)
            partial = self._partial[name]
            metrics[configuration.id] = partial if rule is None else rule.value(partial)
        return self._expectation.metrics_validate(
            metrics=metrics, runtime_configuration=self.runtime, execution_engine=engine
        )

    def _find_metrics(self) -> None:
        # once, and not for each part: the library builds and hashes a model for each metric
        dependencies = self._expectation.get_validation_dependencies(
            execution_engine=self._engine, runtime_configuration=self.runtime
        )
        self._metrics = dependencies.metric_configurations

    def _aggregate_of(self, rule: Aggregate, engine: Any) -> Any:
        kwargs = self.configuration.kwargs
        domain = {key: kwargs[key] for key in ("row_condition", "condition_parser") if kwargs.get(key)}
        rows = engine.get_domain_records(domain_kwargs=domain)
        column = kwargs["column"]
        if column not in rows.columns:
            raise SettingsInvalid(
                f"There is no column {column}", "Correct the suite: docs/quality.md lists its columns."
            )
        values = rows[column]
        return rule.compute(values[values.notna()], len(values), kwargs.get("value_set") or ())


def _of_batches_before(spec: ExpectationSpec) -> set[str]:
    """Return the parameters that compare with earlier batches. The first batch has no value for them."""
    names = {name for text in spec.parameters for name in re.findall(r"[A-Za-z_]\w*", text)}
    return {name for name in names if name.startswith(_BEFORE)}


class Frame:
    """A table in memory, in the engine of Great Expectations, which holds no table and no metric before it.

    An engine for each table would stay in memory, with its table, until Python searches for cycles.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.engine = PandasExecutionEngine(caching=False)
        self.load(rows)

    def load(self, rows: pd.DataFrame) -> None:
        """Put another table in the place of the one before."""
        self.engine.load_batch_data("part", rows)

    def measure(self, measurements: Sequence[Measurement]) -> None:
        """Add the metrics of the table to each measurement. A metric that several of them need is
        computed once.
        """
        graphs, requested, aggregated, edges = {}, {}, {}, []
        for measurement in measurements:
            try:
                requested[measurement] = measurement.requested_metrics
                # before Great Expectations: to sum decimals, it converts them to doubles in the table itself
                aggregated[measurement] = measurement.aggregates(self.engine)
                graph = self._graph(list(requested[measurement].values()), measurement.runtime)
            except Exception as error:  # the other expectations are still evaluated; this one fails
                measurement.error = _words(error)
                continue
            graphs[measurement] = ExpectationValidationGraph(
                configuration=measurement.configuration, graph=graph
            )
            edges += graph.edges
        runtime = measurements[0].runtime if measurements else {}
        # one graph for all, since Great Expectations then resolves an equal metric only once
        whole = ValidationGraph(execution_engine=self.engine, edges=edges)
        resolved, aborted = whole.resolve(runtime_configuration=runtime, show_progress_bars=False)
        for measurement, graph in graphs.items():
            failures = graph.get_exception_info(metric_info=aborted) if aborted else {}
            if failures:
                measurement.error = _first_message(failures)
                continue
            values = {name: resolved[metric.id] for name, metric in requested[measurement].items()}
            measurement.add(values | aggregated[measurement])

    def _graph(self, metrics: Sequence[Any], runtime: dict[str, Any]) -> ValidationGraph:
        graph = ValidationGraph(execution_engine=self.engine)
        for metric in metrics:
            graph.build_metric_dependency_graph(
                metric_configuration=metric, runtime_configuration=copy.copy(runtime)
            )
        return graph


def _first_message(failures: Any) -> str:
    for information in failures.values() if isinstance(failures, dict) else failures:
        message = getattr(information, "exception_message", None) or str(information)
        return _first_line(message)
    return "it failed without a message"


def _words(error: Exception) -> str:
    return _first_line(str(error)) or type(error).__name__


def _first_line(text: str) -> str:
    """Return the text on one line, cut: in an error of pydantic, the point is in a later line."""
    return " ".join(text.split())[:500]
