"""`threshold` with `max_bytes`: no message is larger, but for one event that is larger alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, Emission, Record
from tests.kernel.model.strategies import SELECTS, Case, histories
from tests.model.files import made
from tidegate import kernel
from tidegate.kernel.json_text import encoder
from tidegate.model.kernel_stages import kernel_stage

MAX_BYTES = 120


def kernel_of(select: dict[str, str], window: dict[str, str] | None) -> Kernel:
    emit = {"on": "threshold", "max_bytes": MAX_BYTES, "clock": "stream"}
    stage: dict[str, Any] = {"name": "out", "reduce": "collect", "select": select, "emit": emit}
    return Kernel(Case(stage if window is None else {**stage, "window": window}))


@examples(150)
@given(
    st.sampled_from(SELECTS),
    st.sampled_from([None, {"tumbling": "25ms"}, {"session": "8ms"}]),
    histories(one_partition_per_key=True),
)
def test_no_value_is_larger_unless_one_event_is(
    select: dict[str, str], window: dict[str, str] | None, batches: Sequence[Batch]
) -> None:
    loop = kernel_of(select, window)
    for batch in batches:
        loop.apply(batch)
    loop.drain()
    text = encoder(loop.schema.field("emitted").type)
    for emission in loop.emissions:
        assert emission.value is not None
        if len(emission.value["events"]) > 1:
            assert len(text(emission.value).encode()) <= MAX_BYTES


KEYED = {
    "one text": (["name"], 'q"é', {"name": 'q"é'}),
    "one number": (["id"], "-17", {"id": -17}),
    "several": (["name", "id"], '{"name":"é","id":17}', {"name": "é", "id": 17}),
}


@pytest.mark.parametrize("window", [None, (0, 3_600_000)], ids=["no window", "a window"])
@pytest.mark.parametrize(("columns", "key", "values"), KEYED.values(), ids=KEYED.keys())
def test_with_key_bytes_are_counted_exactly(
    columns: list[str], key: str, values: dict[str, Any], window: tuple[int, int] | None
) -> None:
    stage = {"reduce": "collect", "emit": {"on": "threshold", "max_bytes": 100}}
    hour = {"window": {"tumbling": "1h"}} if window else {}
    sink = {"kind": "kafka", "topic": "t", "with_key": True}
    pipeline = made({**stage, **hour}, source={"key": columns}, sinks=[sink])
    emit = kernel_stage(pipeline, pipeline.stages[0]).emit
    assert isinstance(emit, kernel.Threshold)
    bounds = dict(zip(("window_start", "window_end"), window, strict=True)) if window else {}
    plain, whole = (
        json.dumps({**more, "events": []}, separators=(",", ":"), ensure_ascii=False).encode()
        for more in ({}, values | bounds)
    )
    assert emit.envelope.json_bytes(key, window) == len(whole) - len(plain)


def test_time_key_counts_as_its_longest_text() -> None:
    column = kernel.KeyColumn("at", "time")
    assert column.json_bytes("2026-01-31 10:30:00") == len('"2026-01-31T10:30:00.000000Z"')


@pytest.mark.parametrize("sink", [{"kind": "sql", "table": "t"}, {"kind": "kafka", "topic": "t"}], ids=str)
def test_other_sinks_add_nothing(sink: dict[str, Any]) -> None:
    stage = {"reduce": "collect", "emit": {"on": "threshold", "max_bytes": 100}}
    pipeline = made(stage, sinks=[sink | {"with_key": sink["kind"] == "sql"}])
    emit = kernel_stage(pipeline, pipeline.stages[0]).emit
    assert isinstance(emit, kernel.Threshold)
    assert emit.envelope is None


def test_counted_value_is_the_text_of_events() -> None:
    type_ = kernel.Collect().output_type(pa.struct([("x", pa.int64())]))
    assert encoder(type_)({"events": [{"x": 1}, {"x": 22}]}) == '{"events":[{"x":1},{"x":22}]}'


def late_batch(since: str) -> list[Emission]:
    """1,500 events of 300 keys, up to 35 s older than the clock of the batch before, with `after: 10s`."""
    emit = {"on": "threshold", "count": 100, "after": "10s", "since": since, "clock": "run"}
    loop = Kernel(Case({"name": "out", "reduce": "collect", "select": {"i": "i"}, "emit": emit}))
    events = tuple(
        Record(f"k{number % 300}", {"i": number}, "in", 0, number, 25_000 + number * 20)
        for number in range(1, 1501)
    )
    loop.apply(Batch((), clock=60_000))
    loop.apply(Batch(events, clock=120_000))
    return loop.emissions


def test_late_events_gather_until_after_since_arrival() -> None:
    emissions = late_batch("arrival")
    assert [len(emission.value["events"]) for emission in emissions if emission.value] == [5] * 300
    assert {emission.at for emission in emissions} == {70_000}


def test_first_event_emits_each_overdue_event_alone() -> None:
    assert len(late_batch("first_event")) > 300


@examples(150)
@given(histories(one_partition_per_key=True), st.sampled_from(["3ms", "12ms", "30ms"]))
def test_arrival_makes_no_more_batches_than_first_event(batches: Sequence[Batch], after: str) -> None:
    counts = []
    for since in ("arrival", "first_event"):
        emit = {"on": "threshold", "after": after, "since": since, "clock": "run"}
        loop = Kernel(Case({"name": "out", "reduce": "collect", "select": {"i": "i"}, "emit": emit}))
        for batch in batches:
            loop.apply(batch)
        loop.drain()
        counts.append(len(loop.emissions))
    assert counts[0] <= counts[1]
