"""Evaluate a suite over audited rows of any number, each expectation in the smallest parts that it allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.quality.audited import AuditedRows
from tidegate.quality.frames import PART_ROWS, Parts
from tidegate.quality.measure import Frame, Measurement
from tidegate.quality.splitting import Split
from tidegate.quality.suite import Suite
from tidegate.storage.schema import KEY, WINDOW


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
    # By the manifest's numbers of rows, so nothing is read to find out.
    fits_in_memory = parts.number <= part_rows
    typed = parts.whole() if fits_in_memory else parts.empty()
    measurements = [Measurement(spec, values, shown, typed) for spec in suite.expectations]
    if fits_in_memory:
        return _evaluated_at_once(measurements, Frame(typed), parts)
    return _evaluated_in_parts(measurements, parts, shown)


def _is_null(rows: AuditedRows, name: str) -> bool:
    return bool(pa.types.is_null(rows.schema.field(name).type))


def _evaluated_at_once(measurements: Sequence[Measurement], frame: Frame, parts: Parts) -> list[Evaluation]:
    by_number = {
        measurement.spec.number: measurement for measurement in measurements if measurement.is_evaluated
    }
    separate = [measurement for measurement in by_number.values() if _makes_doubles(measurement, parts)]
    frame.measure([measurement for measurement in by_number.values() if measurement not in separate])
    # one frame for all the others: a metric that several expectations use is computed once
    frames = dict.fromkeys(measurements, frame)
    for measurement in separate:
        frames[measurement] = Frame(parts.whole(measurement.columns, decimals_as_floats=True))
        frames[measurement].measure([measurement])
    return [
        Evaluation(measurement, measurement.result(frames[measurement]), "") for measurement in measurements
    ]


def _makes_doubles(measurement: Measurement, parts: Parts) -> bool:
    """Return whether Great Expectations would convert decimals to doubles for this expectation.

    It converts them in the table itself, which other expectations use, too, and fails if there is a null.
    Such an expectation gets a table of its own.
    """
    return measurement.computes_with_doubles and any(
        pa.types.is_decimal(parts.rows.schema.field(name).type)
        for name in parts.existing(measurement.spec.columns)
    )


def _evaluated_in_parts(
    measurements: Sequence[Measurement], parts: Parts, shown: Sequence[str]
) -> list[Evaluation]:
    last = Frame(parts.empty())
    # first all expectations that need only counts per row: they share one pass over the rows
    by_row = [
        measurement
        for measurement in measurements
        if measurement.split is Split.ROWS and measurement.is_evaluated
    ]
    if by_row:
        for rows in parts.split(_columns_of(by_row)):
            last = Frame(rows)
            last.measure([measurement for measurement in by_row if measurement.is_evaluated])
    results = {id(measurement): measurement.result(last) for measurement in by_row}
    del last  # free its rows before the next passes
    by_value: dict[tuple[str, ...], list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        if measurement.split is Split.VALUES and measurement.is_evaluated:
            # Rows are distributed by these columns: expectations on the same ones share that pass.
            by_value[measurement.spec.columns].append(measurement)
    for columns, group in by_value.items():
        results |= _by_value(columns, group, parts, shown)
    for measurement in measurements:
        if id(measurement) not in results:
            results[id(measurement)] = _whole(measurement, parts, shown)
    return [
        Evaluation(measurement, results[id(measurement)], f"evaluated {measurement.split.value}")
        for measurement in measurements
    ]


def _columns_of(measurements: Sequence[Measurement]) -> list[str] | None:
    columns: dict[str, None] = {}
    for measurement in measurements:
        if measurement.columns is None:
            return None
        columns |= dict.fromkeys(measurement.columns)
    return list(columns)


def _by_value(
    columns: Sequence[str], group: Sequence[Measurement], parts: Parts, shown: Sequence[str]
) -> dict[int, Any]:
    frame = Frame(parts.empty())
    if parts.existing(columns) != list(columns):
        frame.measure(group)  # Great Expectations reports which column is missing
        return {id(measurement): measurement.result(frame) for measurement in group}
    try:
        for rows in parts.by_value(parts.existing(_columns_of(group)), columns):
            frame = Frame(rows)
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
        return measurement.result(Frame(parts.empty()))
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
