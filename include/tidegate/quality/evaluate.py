"""A suite over audited rows, however many: each expectation in the coarsest parts that its verdict allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.lake.outbox import WINDOW
from tidegate.lake.schema import KEY
from tidegate.quality.audited import AuditedRows
from tidegate.quality.frames import PART_ROWS, Parts
from tidegate.quality.measure import Frame, Measurement
from tidegate.quality.splitting import Split
from tidegate.quality.suite import Suite


@dataclass(frozen=True)
class Evaluation:
    """What Great Expectations says of an expectation, and how that came about. `error`: why it could not."""

    measurement: Measurement
    result: Any
    note: str

    @property
    def error(self) -> str | None:
        """Why it could not be evaluated."""
        return self.measurement.error


def evaluate(
    suite: Suite, rows: AuditedRows, parameters: Mapping[str, Any], part_rows: int = PART_ROWS
) -> list[Evaluation]:
    """The results, in the suite's order. Rows are in memory about `part_rows` at a time, unless an
    expectation needs its columns as a whole. Raises LakeDamaged, LakeUnavailable.
    """
    parts = Parts(rows, part_rows)
    shown = [name for name in (KEY, *WINDOW) if name in rows.schema.names and not _is_null(rows, name)]
    values = {**suite.parameters, **parameters}
    at_once = parts.number <= part_rows
    rows_or_none = parts.whole() if at_once else parts.empty()
    measurements = [Measurement(spec, values, shown, rows_or_none) for spec in suite.expectations]
    if at_once:
        return _evaluated_at_once(measurements, Frame(rows_or_none), parts)
    return _evaluated_in_parts(measurements, parts, shown)


def _is_null(rows: AuditedRows, name: str) -> bool:
    return bool(pa.types.is_null(rows.schema.field(name).type))


def _evaluated_at_once(measurements: Sequence[Measurement], frame: Frame, parts: Parts) -> list[Evaluation]:
    by_number = {each.spec.number: each for each in measurements if each.is_evaluated}
    apart = [each for each in by_number.values() if _makes_doubles(each, parts)]
    frame.measure([each for each in by_number.values() if each not in apart])
    frames = dict.fromkeys(measurements, frame)
    for measurement in apart:
        frames[measurement] = Frame(parts.whole(measurement.columns, decimals_as_floats=True))
        frames[measurement].measure([measurement])
    return [
        Evaluation(measurement, measurement.result(frames[measurement]), "") for measurement in measurements
    ]


def _makes_doubles(measurement: Measurement, parts: Parts) -> bool:
    """Of decimals. Great Expectations does so in the table itself, which others look at, and not where there
    is a null.
    """
    return measurement.computes_with_doubles and any(
        pa.types.is_decimal(parts.rows.schema.field(name).type)
        for name in parts.existing(measurement.spec.columns)
    )


def _evaluated_in_parts(
    measurements: Sequence[Measurement], parts: Parts, shown: Sequence[str]
) -> list[Evaluation]:
    last = Frame(parts.empty())
    by_row = [each for each in measurements if each.split is Split.ROWS and each.is_evaluated]
    if by_row:
        for rows in parts.split(_columns_of(by_row)):
            last = Frame(rows)
            last.measure([each for each in by_row if each.is_evaluated])
    results = {id(each): each.result(last) for each in by_row}
    del last
    by_value: dict[tuple[str, ...], list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        if measurement.split is Split.VALUES and measurement.is_evaluated:
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
        frame.measure(group)  # says which column is not there
        return {id(each): each.result(frame) for each in group}
    try:
        for rows in parts.by_value(parts.existing(_columns_of(group)), columns):
            frame = Frame(rows)
            for measurement in group:
                measurement.show([name for name in shown if name in rows.columns])
            frame.measure([each for each in group if each.is_evaluated])
    except TypeError as error:
        for measurement in group:
            measurement.error = f"its values have no hash: {error}"
    return {id(each): each.result(frame) for each in group}


def _whole(measurement: Measurement, parts: Parts, shown: Sequence[str]) -> Any:
    """Of its own columns; which rows fail is looked up afterwards by their places."""
    if not measurement.is_evaluated:
        return measurement.result(Frame(parts.empty()))
    measurement.show(())
    frame = Frame(parts.whole(measurement.columns, _makes_doubles(measurement, parts)))
    frame.measure([measurement])
    result = measurement.result(frame)
    places = result.result.get("partial_unexpected_index_list") if result.result else None
    if places and all(isinstance(place, int) for place in places):
        columns = [*shown, *(name for name in measurement.spec.columns if name not in shown)]
        result.result["partial_unexpected_index_list"] = parts.at(places, columns)
    return result
