"""Traces: the fate of each record fits what the stage emitted and counted, and changes none of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel, records
from tests.kernel.model import Batch, Record
from tests.kernel.model.equivalences import below
from tests.kernel.model.strategies import Case, cases, histories
from tests.kernel.model.values import same
from tests.kernel.test_against_model import by_key, filled, plain
from tidegate import kernel

WITH_A_RECORD = ("new", "changed", "deleted", "count", "until", "heartbeat")
"""Reasons of emissions that come with a record, whose fate they are."""


class Traced(Kernel):
    """A kernel that traces each record."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.fates: list[dict[str, Any]] = []
        self.emitted: list[dict[str, Any]] = []

    def _decide(self, records: Sequence[dict[str, Any]], batch: kernel.Batch) -> None:
        super()._decide(records, replace(batch, trace=True))
        self.fates += [row for row in self.rows if row["kind"] == kernel.TRACE]
        self.emitted += [row for row in self.rows if row["kind"] == kernel.EMISSION]


@examples(300)
@given(cases(expecting=True) | cases(), st.data(), st.integers(1, 7))
def test_fate_of_each_record_fits_the_emissions(case: Case, data: st.DataObject, arrow_rows: int) -> None:
    batches = data.draw(histories(data.draw(st.booleans())))
    runner, plainly = Traced(case, arrow_rows=arrow_rows), Kernel(case, arrow_rows=arrow_rows)
    if filled(plainly, batches):
        return
    assert not filled(runner, batches)
    assert runner.counts == plainly.counts
    emitted, expected = by_key(runner.emissions), by_key(plainly.emissions)
    assert [*emitted] == [*expected]
    for key, emissions in expected.items():
        assert same([*map(plain, emitted[key])], [*map(plain, emissions)])
    by_clock = case.stage["emit"].get("clock") == "run"
    reasons = [reason for reason in WITH_A_RECORD if not (by_clock and reason == "heartbeat")]
    assert reasons_of(runner.fates, reasons) == reasons_of(runner.emitted, reasons)


def reasons_of(rows: Sequence[dict[str, Any]], reasons: Sequence[str]) -> set[tuple[Any, ...]]:
    """Return the reasons of rows with their records."""
    names = ("key", "topic", "partition", "offset", "reason")
    return {tuple(row[name] for name in names) for row in rows if row["reason"] in reasons}


def traced(stage: dict[str, Any], *records: Record) -> list[tuple[str, Any]]:
    """Return the fate of each record and each unsent value with its window, in order."""
    runner = Traced(Case({"name": "out", **stage}, conditions={stage.get("where", ""): below("n", 2)}))
    runner.apply(Batch(records))
    traces = [(row["reason"], json.loads(row["trace"])) for row in runner.fates]
    return [(fate, trace.get("window") if "unsent" in trace else None) for fate, trace in traces]


COUNTED = {"reduce": {"n": "count(*)"}, "where": "n < 2"}


def test_record_in_many_windows_is_traced_once() -> None:
    window = {"hopping": "20ms", "every": "5ms"}
    stage = {**COUNTED, "window": window, "emit": {"on": "window_close", "clock": "stream"}}
    assert traced(stage, *records((1, 50), (1, 51))) == [("held", None), ("held", None)]


def test_record_that_fills_a_rejected_buffer_is_filtered() -> None:
    stage = {**COUNTED, "emit": {"on": "threshold", "count": 2, "clock": "stream"}}
    assert traced(stage, *records((1, 50), (1, 51))) == [("held", None), ("filtered", None)]


def test_final_value_that_where_rejects_is_traced() -> None:
    stage = {**COUNTED, "window": {"tumbling": "10ms"}, "emit": {"on": "window_close", "clock": "stream"}}
    assert traced(stage, *records((1, 50), (1, 51), (1, 70))) == [("held", None)] * 3 + [
        ("filtered", [50, 60])
    ]


def test_unchanged_early_result_is_traced_as_suppressed() -> None:
    stage = {
        "reduce": {"n": "max(i)"},
        "window": {"tumbling": "20ms"},
        "emit": {"on": "window_close", "early": {"every": "5ms"}, "clock": "stream"},
    }
    assert traced(stage, *records((1, 41), (1, 46), (1, 52), (1, 57))) == [("held", None)] * 4 + [
        ("suppressed", [40, 60])
    ]
