"""What a record leaves as it was is the key's last value, however the log is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.rows_for_tests import SCHEMA, Kernel, Record, record_row
from tidegate import kernel

NULLS = kernel.Unchanged()
TEXT = kernel.Unchanged("?")
CHANGE = kernel.Change(("a", "b"))


@pytest.fixture(params=[False, True], ids=["whole columns", "record by record"], autouse=True)
def one_by_one(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fact holds on both ways through the kernel."""
    monkeypatch.setattr(Kernel, "one_by_one", request.param)


def value(a: float | None, b: str | None) -> dict[str, Any]:
    return {"a": a, "b": b}


def out(unchanged: kernel.Unchanged, emit: kernel.Emit, *batches: list[Any]) -> list[Any]:
    """The emissions of one key's values, batch by batch."""
    loop = Kernel(emit, unchanged=unchanged)
    offset = 0
    for batch in batches:
        loop.apply([Record("k", value, 0, offset + at, 0) for at, value in enumerate(batch)])
        offset += len(batch)
    return loop.emissions.get("k", [])


def test_null_is_the_last_value_of_its_column() -> None:
    values = [value(1, "x"), value(None, "y"), value(2, None)]
    expected = [value(1, "x"), value(1, "y"), value(2, "y")]
    assert out(NULLS, CHANGE, values) == expected
    assert out(NULLS, CHANGE, *([value] for value in values)) == expected


def test_a_record_that_changes_nothing_changes_nothing() -> None:
    assert out(NULLS, CHANGE, [value(1, "x"), value(None, None)], [value(None, "x")]) == [value(1, "x")]


def test_a_deletion_forgets_what_was() -> None:
    values = [value(1, "x"), None, value(None, "y")]
    expected = [value(1, "x"), None, value(None, "y")]
    assert (
        out(NULLS, CHANGE, values) == out(NULLS, kernel.Update(), *([value] for value in values)) == expected
    )


def test_what_was_never_known_stays_as_it_stands() -> None:
    assert out(NULLS, CHANGE, [value(None, "x")]) == [value(None, "x")]
    assert out(TEXT, CHANGE, [value(1, "?")]) == [value(1, "?")]


def test_with_a_text_a_null_is_a_value() -> None:
    values = [value(1, "x"), value(None, "?"), value(2, None), value(3, "?")]
    expected = [value(1, "x"), value(None, "x"), value(2, None), value(3, None)]
    assert out(TEXT, CHANGE, values) == out(TEXT, CHANGE, *([value] for value in values)) == expected


def test_key_inherits_nothing_from_the_previous_key() -> None:
    loop = Kernel(CHANGE, unchanged=NULLS)
    loop.apply([Record(key, value(None, key), 0, at, 0) for at, key in enumerate("abcdef")])
    assert loop.emissions == {key: [value(None, key)] for key in "abcdef"}


def test_a_record_that_was_applied_already_says_nothing() -> None:
    loop = Kernel(CHANGE, unchanged=NULLS)
    loop.apply([Record("k", value(1, "x"), 0, 5, 0)])
    loop.apply([Record("k", value(9, "z"), 0, 5, 0), Record("k", value(None, "y"), 0, 6, 0)])
    assert loop.emissions["k"] == [value(1, "x"), value(1, "y")]
    assert loop.counts["deduplicated"] == 1


def test_rows_without_anything_to_fill_are_the_rows() -> None:
    batch = pa.RecordBatch.from_pylist([record_row(Record("k", value(1, "x"), 0, 0, 0))], schema=SCHEMA)
    assert NULLS.fill(batch) is batch


def expected_emissions(
    unchanged: kernel.Unchanged, emits_changes: bool, records: list[Record]
) -> dict[str, list[Any]]:
    """The model: a value for each key, record after record."""
    last_rows: dict[str, dict[str, Any]] = {}
    emissions: dict[str, list[Any]] = {}
    for record in records:
        before = last_rows.get(record.key)
        if record.value is None:
            last_rows.pop(record.key, None)
            if before is not None:
                emissions.setdefault(record.key, []).append(None)
            continue
        now = {
            name: before[name] if before is not None and asks(unchanged, field) else field
            for name, field in record.value.items()
        }
        last_rows[record.key] = now
        if not emits_changes or now != before:
            emissions.setdefault(record.key, []).append(now)
    return emissions


def asks(unchanged: kernel.Unchanged, field: Any) -> bool:
    return field is None if unchanged.text is None else bool(field == unchanged.text)


values = st.none() | st.builds(
    value, st.none() | st.integers(1, 2).map(float), st.sampled_from([None, "?", "x", "y"])
)
histories = st.lists(st.tuples(st.sampled_from("abcd"), values), max_size=14)


@examples(100)
@given(histories, st.lists(st.integers(0, 14), max_size=4), st.sampled_from([NULLS, TEXT]), st.booleans())
def test_unchanged_columns_equal_the_model_for_any_cut(
    history: list[tuple[str, Any]], cuts: list[int], unchanged: kernel.Unchanged, emits_changes: bool
) -> None:
    records = [Record(key, value, 0, offset, 0) for offset, (key, value) in enumerate(history)]
    loop = Kernel(CHANGE if emits_changes else kernel.Update(), unchanged=unchanged)
    bounds = [0, *sorted(cuts), len(records)]
    for start, end in pairwise(bounds):
        loop.apply(records[start:end])
    assert loop.emissions == expected_emissions(unchanged, emits_changes, records)
