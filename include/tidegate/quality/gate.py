"""Run Great Expectations on the rows of a batch: from an audit to a verdict and a page of Data Docs.

A suite is evaluated over any number of rows, each expectation in the smallest parts that it allows.
"""

from __future__ import annotations

import importlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import pyarrow as pa

from tidegate.errors import SettingsInvalid
from tidegate.quality import builtin as _  # noqa: F401  # registers their types
from tidegate.quality.audit import Audit, AuditedRows
from tidegate.quality.facts import provide_facts
from tidegate.quality.measure import Frame, Measurement
from tidegate.quality.pages import page_of
from tidegate.quality.site import publish_page
from tidegate.quality.splitting import PART_ROWS, Parts, Split
from tidegate.quality.suite import Suite
from tidegate.quality.verdict import MOST_FAILING_ROWS, ExpectationResult, Verdict, cut
from tidegate.storage.schema import KEY, WINDOW


def check(audit: Audit, part_rows: int = PART_ROWS) -> Verdict:
    """Evaluate the suite of an audit. Write its page and results if the audit has a place.

    Args:
        part_rows: See `evaluate`.

    Raises SettingsInvalid if a module cannot be imported, LakeDamaged if a file is missing or changed,
    LakeUnavailable if the store does not answer.

    Example::

        verdict = check(Audit("orders on emissions", suite, rows))
        verdict.stops  # whether a critical expectation is not met
    """
    # The import registers their types; the suite is evaluated with these by name.
    for module in audit.modules:
        _import(module)
    with provide_facts(audit.facts):
        evaluated = evaluate(audit.suite, audit.rows, audit.parameters, part_rows)
    verdict = Verdict(audit.title, tuple(map(_result, evaluated)))
    if audit.place is None:
        return verdict
    page = page_of(audit, evaluated, verdict)
    return replace(verdict, page=publish_page(audit.place, audit.suite.name, verdict, page))


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:  # the module is the user's: its code can raise anything
        raise SettingsInvalid(
            f"The module {module} of `quality` cannot be imported: {type(error).__name__}: {error}",
            "Install it where this Python finds it, or correct `modules`.",
        ) from error


def _result(evaluated: Evaluation) -> ExpectationResult:
    spec, raw = evaluated.measurement.spec, evaluated.result.result or {}
    share = raw.get("unexpected_percent")
    return ExpectationResult(
        number=spec.number,
        type=spec.type,
        columns=spec.columns,
        severity=spec.severity,
        passed=bool(evaluated.result.success),
        observed="" if evaluated.error else _observed(raw),
        rows=raw.get("element_count"),
        unexpected=raw.get("unexpected_count"),
        share=None if share is None else share / 100,
        failing=tuple(map(_row, raw.get("partial_unexpected_index_list") or ()))[:MOST_FAILING_ROWS],
        error=evaluated.error,
        note=evaluated.note,
    )


def _observed(raw: Mapping[str, Any]) -> str:
    """Return the observed value of an expectation that does not count rows, as a text."""
    if raw.get("observed_value") is not None:
        return _as_text(raw["observed_value"])
    if "element_count" in raw:
        return ""
    # expectations on distinct values return lists in place of `observed_value`
    lists = (("not in the set:", "partial_unexpected_list"), ("missing:", "partial_missing_list"))
    parts = [f"{what} {_as_text(raw[name])}" for what, name in lists if raw.get(name)]
    return "; ".join(parts)


def _row(row: Any) -> dict[str, str]:
    """A failing row, the key's columns first."""
    if not isinstance(row, Mapping):
        return {"row": str(row)}
    names = sorted(row, key=lambda name: name not in ("key", "window_start", "window_end"))
    return {str(name): _as_text(row[name]) for name in names}


def _as_text(value: Any) -> str:
    # numpy's scalars cannot be written as JSON
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, (list, tuple, set, frozenset)):
        plain = [item.item() if hasattr(item, "item") else item for item in plain]
    if isinstance(plain, str):
        return cut(plain)
    return cut(json.dumps(plain, ensure_ascii=False, default=str))


@dataclass(frozen=True)
class Evaluation:
    """The result of one expectation.

    Args:
        measurement: The expectation and its metrics.
        result: The validation result of Great Expectations.
        note: How the rows were split, for people; empty if they were evaluated at once.
    """

    measurement: Measurement
    result: Any
    note: str

    @property
    def error(self) -> str | None:
        """The reason why the expectation could not be evaluated; None if it was."""
        return self.measurement.error


def evaluate(
    suite: Suite, rows: AuditedRows, parameters: Mapping[str, Any], part_rows: int = PART_ROWS
) -> list[Evaluation]:
    """Evaluate each expectation, and return the results in the suite's order.

    Args:
        parameters: name -> value; they override the parameters of the suite's file.
        part_rows: About as many rows are in memory at a time, unless an expectation needs its columns as a
            whole.

    Raises LakeDamaged if a file is missing or changed, LakeUnavailable if the store does not answer.
    """
    parts = Parts(rows, part_rows)
    # a stage without windows has columns of type null, which say nothing about the row
    shown = [name for name in (KEY, *WINDOW) if name in rows.schema.names and not _is_null(rows, name)]
    values = {**suite.parameters, **parameters}
    measurements = [Measurement(spec, values, shown, parts) for spec in suite.expectations]
    results = _in_one_pass([m for m in measurements if _is_in_first_pass(m, parts)], parts)
    by_value: dict[tuple[str, ...], list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        if id(measurement) not in results and measurement.split is Split.VALUES and measurement.is_evaluated:
            # Rows are distributed by these columns: expectations on the same ones share that pass.
            by_value[measurement.spec.columns].append(measurement)
    for columns, group in by_value.items():
        results |= _by_value(columns, group, parts, shown)
    for measurement in measurements:
        if id(measurement) not in results:
            results[id(measurement)] = _whole(measurement, parts, shown)
    return [
        Evaluation(
            measurement,
            results[id(measurement)],
            "" if parts.is_one else f"evaluated {measurement.split.value}",
        )
        for measurement in measurements
    ]


def _is_null(rows: AuditedRows, name: str) -> bool:
    return bool(pa.types.is_null(rows.schema.field(name).type))


def _is_in_first_pass(measurement: Measurement, parts: Parts) -> bool:
    # if all rows are one part, that part is the whole for every expectation
    is_whole = parts.is_one and not _makes_doubles(measurement, parts)
    return measurement.is_evaluated and (is_whole or measurement.split is Split.ROWS)


def _makes_doubles(measurement: Measurement, parts: Parts) -> bool:
    """Return whether Great Expectations would convert decimals to doubles for this expectation.

    It converts them in the table itself, which other expectations use, too, and fails if there is a null.
    Such an expectation gets a table of its own.
    """
    return measurement.computes_with_doubles and any(
        pa.types.is_decimal(parts.rows.schema.field(name).type)
        for name in parts.existing(measurement.spec.columns)
    )


def _in_one_pass(measurements: Sequence[Measurement], parts: Parts) -> dict[int, Any]:
    """Evaluate expectations in one pass; rows become frames only where their rules are not enough."""
    frame = Frame(parts.untyped)
    # if all rows are one part, the frame that tells the types has them
    read = [m for m in measurements if m.needs_rows and (m.rule is not None or not parts.is_one)]
    for rows in parts.split(_columns_of(read)) if any(m.needs_rows for m in measurements) else ():
        left = [m for m in measurements if m.needs_rows and not m.add_by_rule(rows)]
        if left:
            # one frame for all of them: a metric that several expectations use is computed once
            frame.load(_rows_for(left, rows, parts))
            frame.measure(left)
    return {id(measurement): measurement.result(frame) for measurement in measurements}


def _rows_for(measurements: Sequence[Measurement], rows: pa.Table, parts: Parts) -> pd.DataFrame:
    if parts.is_one:
        return parts.typed
    return parts.frame(rows.select(parts.existing(_columns_of(measurements))))


def _columns_of(measurements: Sequence[Measurement]) -> list[str] | None:
    columns: dict[str, None] = {}
    for measurement in measurements:
        if measurement.columns is None:
            return None
        columns |= dict.fromkeys(measurement.columns)
    return list(columns) or None  # a table without columns has no number of rows


def _by_value(
    columns: Sequence[str], group: Sequence[Measurement], parts: Parts, shown: Sequence[str]
) -> dict[int, Any]:
    frame = Frame(parts.typed)
    if parts.existing(columns) != list(columns):
        frame.measure(group)  # Great Expectations reports which column is missing
        return {id(measurement): measurement.result(frame) for measurement in group}
    try:
        for rows in parts.by_value(parts.existing(_columns_of(group)), columns):
            frame.load(rows)
            for measurement in group:
                measurement.show([name for name in shown if name in rows.columns])
            frame.measure([measurement for measurement in group if measurement.is_evaluated])
    except TypeError as error:  # lists and maps cannot be hashed
        for measurement in group:
            measurement.error = f"its values have no hash: {error}"
    return {id(measurement): measurement.result(frame) for measurement in group}


def _whole(measurement: Measurement, parts: Parts, shown: Sequence[str]) -> Any:
    """Evaluate an expectation on all rows of its own columns.

    The columns that identify failing rows are read afterwards, by the rows' positions, to save memory.
    """
    if not measurement.is_evaluated:
        return measurement.result(Frame(parts.untyped))
    measurement.show(())
    frame = Frame(parts.whole(measurement.columns, _makes_doubles(measurement, parts)))
    frame.measure([measurement])
    result = measurement.result(frame)
    # Positions count from the first row of the first file, as `Parts.at` does.
    places = result.result.get("partial_unexpected_index_list") if result.result else None
    if places and all(isinstance(place, int) for place in places):
        columns = [*shown, *(name for name in measurement.spec.columns if name not in shown)]
        result.result["partial_unexpected_index_list"] = parts.at(places, columns)
    return result
