"""Records that repeat the one of their key before them can be dropped before the kernel sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model.equivalences import below
from tests.kernel.model.strategies import ARE_NUMBERS, SELECTS, Case, histories
from tests.kernel.test_against_model import assert_alike, filled
from tidegate import kernel
from tidegate.kernel import repeats
from tidegate.kernel.repeats import Repeats, has_hidden_values

VALUE = pa.struct([("x", pa.float64()), ("s", pa.string())])
SCHEMA = pa.schema(
    [
        *(("kind", pa.int8()), ("hash", pa.int64()), ("key", pa.string()), ("time", pa.int64())),
        *(("timestamp", pa.int64()), ("passes", pa.bool_()), ("value", VALUE)),
    ]
)


def rows(*records: tuple[str, Any], kind: int = kernel.RECORD) -> pa.RecordBatch:
    """Records of (key, value of x)."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "kind": kind,
                "hash": ord(key) % 2,
                "key": key,
                "time": 5,
                "timestamp": 3,
                "passes": True,
                "value": None if x is None else {"x": x, "s": str(place)},
            }
            for place, (key, x) in enumerate(records)
        ],
        SCHEMA,
    )


def remaining(
    batches: Sequence[pa.RecordBatch], counts: kernel.Counts | None = None
) -> list[tuple[str, Any]]:
    own = Repeats(("x",), kernel.Counts() if counts is None else counts)
    left = [row for batch in batches for row in own.without(batch).to_pylist()]
    return [(row["key"], row["value"] and row["value"]["x"]) for row in left]


def test_value_that_differs_from_its_predecessor_stays() -> None:
    given_rows = rows(("a", 1), ("b", 1), ("a", 1), ("a", 2), ("b", 1), ("a", 1))
    assert remaining([given_rows]) == [("a", 1), ("b", 1), ("a", 2), ("a", 1)]


def test_keys_of_one_hash_are_told_apart() -> None:
    assert remaining([rows(("a", 1), ("c", 1), ("a", 1), ("c", 1))]) == [
        ("a", 1),
        ("c", 1),
        ("a", 1),
        ("c", 1),
    ]


def test_repetitions_are_found_across_blocks() -> None:
    assert remaining([rows(("a", 1), ("b", 2)), rows(("b", 2), ("a", 3)), rows(("a", 3))]) == [
        ("a", 1),
        ("b", 2),
        ("a", 3),
    ]


def test_deletions_and_what_follows_them_stay() -> None:
    assert remaining([rows(("a", 1), ("a", None), ("a", None), ("a", 1))]) == [
        ("a", 1),
        ("a", None),
        ("a", None),
        ("a", 1),
    ]


def test_nan_repeats_nan_and_zeros_are_equal() -> None:
    nan = float("nan")
    assert len(remaining([rows(("a", nan), ("a", nan), ("b", 0.0), ("b", -0.0))])) == 2


def test_records_in_quarantine_stay() -> None:
    unusable = rows(("a", None), ("a", None), kind=kernel.QUARANTINED)
    assert len(remaining([unusable])) == 2


def test_dropped_records_have_the_counts_of_suppressed_ones() -> None:
    counts = kernel.Counts()
    remaining([rows(("a", 1), ("a", 1), ("a", 1))], counts)
    assert counts["used"] == counts["idempotent-update-skip"] == counts["record-lateness-count"] == 2
    assert counts["record-lateness-sum"] == 4


def test_full_memory_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MOST_REMEMBERED_ROWS", 1)
    assert remaining([rows(("a", 1), ("b", 1)), rows(("a", 1))]) == [("a", 1), ("b", 1), ("a", 1)]


@pytest.mark.parametrize("metric", ["keys-in-several-partitions", "deduplicated"])
def test_partitions_and_applied_records_may_hide_values(metric: str) -> None:
    assert has_hidden_values({metric: 1})
    assert not has_hidden_values({metric: 0, "used": 1})


@st.composite
def exact_changes(draw: st.DrawFn) -> Case:
    """A stage that ignores repeated values, whichever of its options it has."""
    select = draw(st.sampled_from(SELECTS))
    emit: dict[str, Any] = {"on": "change", "clock": draw(st.sampled_from(["stream", "run"]))}
    if draw(st.booleans()):
        emit["columns"] = [draw(st.sampled_from(sorted(select)))]
    if draw(st.booleans()):
        emit["state"] = "hash"
    stage: dict[str, Any] = {"name": "out", "reduce": "latest", "select": select, "emit": emit}
    numbers = [name for name in select if name in ARE_NUMBERS]
    if draw(st.booleans()):
        column, limit = draw(st.sampled_from(numbers)), draw(st.integers(1, 6))
        stage["where"] = f"{column} < {limit}"
        return Case(stage, "offset", {stage["where"]: below(column, limit)})
    return Case(stage)


@pytest.mark.heavy
@examples(500)
@given(exact_changes(), st.data(), st.integers(1, 7))
def test_the_kernel_decides_the_same_without_repetitions(
    case: Case, data: st.DataObject, arrow_rows: int
) -> None:
    batches = data.draw(histories(one_partition_per_key=data.draw(st.booleans())))
    without, model = Kernel(case, arrow_rows, sparing=True, dropping=True), case.model()
    assert without.stage.ignores_repeats
    filled(model, batches)
    filled(without, batches)
    assert_alike(without, model, ordered=True)


@pytest.mark.parametrize(
    "part",
    [
        {"window": {"tumbling": "1h"}},
        {"on_error": "quarantine"},
        {"emit": {"on": "change", "heartbeat": "1h"}},
        {"emit": {"on": "change", "equal": "bytes"}},
        {"emit": {"on": "change", "equal": {"within": {"x": 1}}}},
        {"emit": {"on": "update"}},
    ],
)
def test_stage_that_looks_at_each_record_gets_each(part: dict[str, Any]) -> None:
    exact = {"name": "out", "reduce": "latest", "select": {"x": "x"}, "emit": {"on": "change"}}
    assert Kernel(Case(exact)).stage.ignores_repeats
    assert not Kernel(Case(exact | part)).stage.ignores_repeats
    assert not Kernel(Case(exact, deduplicate="root")).stage.ignores_repeats
