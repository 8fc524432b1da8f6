"""`latest` with `change` and `update`: each fact of the semantics, one test."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.kernel.rows_for_tests import Kernel, Record
from tidegate import kernel

BOTH = ("a", "b")


@pytest.fixture(params=[False, True], ids=["whole columns", "record by record"], autouse=True)
def one_by_one(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fact holds on both ways through the kernel (but `where`, which the first gets from Spark)."""
    if request.param and "where" in request.node.name:
        pytest.skip("the other way has a condition of its own")
    monkeypatch.setattr(Kernel, "one_by_one", request.param)


def value(a: float | None, b: str | None = "x") -> dict[str, Any]:
    return {"a": a, "b": b}


def history(*values: dict[str, Any] | None, key: str = "k") -> list[Record]:
    return [Record(key, value, 0, number, number) for number, value in enumerate(values)]


def changes(*values: dict[str, Any] | None, compared: tuple[str, ...] = BOTH) -> list[Any]:
    loop = Kernel(kernel.Change(compared))
    loop.apply(history(*values))
    return loop.emissions.get("k", [])


def test_the_first_value_goes_out() -> None:
    assert changes(value(1)) == [value(1)]


def test_an_equal_value_is_held_back() -> None:
    assert changes(value(1), value(1), value(2), value(2), value(1)) == [value(1), value(2), value(1)]


def test_null_equals_null_and_differs_from_a_value() -> None:
    assert changes(value(None), value(None), value(1), value(None)) == [value(None), value(1), value(None)]


def test_nan_is_equal_to_nan() -> None:
    assert len(changes(value(math.nan), value(math.nan), value(1), value(math.nan))) == 3


def test_minus_zero_equals_zero() -> None:
    assert len(changes(value(0.0), value(-0.0))) == 1


def test_only_the_compared_columns_count() -> None:
    out = changes(value(1, "x"), value(1, "y"), value(2, "z"), compared=("a",))
    assert out == [value(1, "x"), value(2, "z")]


def test_a_tombstone_emits_one_deletion() -> None:
    assert changes(value(1), None, None) == [value(1), None]


def test_a_tombstone_of_an_unknown_key_emits_nothing() -> None:
    assert changes(None) == []


def test_same_value_is_emitted_again_after_a_deletion() -> None:
    assert changes(value(1), None, value(1)) == [value(1), None, value(1)]


def test_a_deletion_is_remembered_by_the_next_batch() -> None:
    loop = Kernel(kernel.Change(BOTH))
    for number, content in enumerate([value(1), None, value(1)]):
        loop.apply([Record("k", content, 0, number, number)])
    assert loop.emissions["k"] == [value(1), None, value(1)]


def test_a_suppressed_record_writes_no_state() -> None:
    loop = Kernel(kernel.Change(BOTH))
    loop.apply(history(value(1)))
    loop.apply([Record("k", value(1), 0, 5, 5)])
    assert loop.changed_rows == 1
    assert loop.counts["state-rows"] == 1
    assert loop.counts["idempotent-update-skip"] == 1


@pytest.mark.parametrize("emit", [kernel.Change(BOTH), kernel.Update()], ids=["change", "update"])
def test_deleted_key_has_no_state_until_it_returns(emit: kernel.Emit) -> None:
    loop = Kernel(emit)
    rows = []
    for number, content in enumerate([value(1), None, None, value(2)]):
        loop.apply([Record("k", content, 0, number, number)])
        rows.append(loop.counts["state-rows"])
    assert rows == [1, 0, 0, 1]


def test_update_sends_every_value() -> None:
    loop = Kernel(kernel.Update())
    loop.apply(history(value(1), value(1), None, None, value(1)))
    assert loop.emissions["k"] == [value(1), value(1), None, value(1)]


@pytest.mark.parametrize(
    ("deletions", "emitted"), [("all", [None, value(1), None, None]), ("none", [value(1)])]
)
@pytest.mark.parametrize("cuts", [False, True], ids=["at once", "record by record"])
def test_update_sends_all_or_no_deletions(deletions: Any, emitted: list[Any], cuts: bool) -> None:
    loop = Kernel(kernel.Update(deletions=deletions))
    records = history(None, value(1), None, None)
    for batch in [[record] for record in records] if cuts else [records]:
        loop.apply(batch)
    assert loop.emissions["k"] == emitted


@pytest.mark.parametrize("cuts", [False, True], ids=["at once", "record by record"])
def test_value_after_an_unsent_deletion_is_a_change(cuts: bool) -> None:
    loop = Kernel(kernel.Update(deletions="none"))
    records = history(value(1), None, value(2))
    for batch in [[record] for record in records] if cuts else [records]:
        loop.apply(batch)
    assert (loop.counts["emitted.new"], loop.counts["emitted.changed"]) == (1, 1)


def test_value_that_where_rejects_is_not_compared() -> None:
    loop = Kernel(kernel.Change(BOTH))
    loop.apply(
        [
            Record("k", value(1), 0, 0, 0),
            Record("k", value(2), 0, 1, 1, passes=False),
            Record("k", value(1), 0, 2, 2),
        ]
    )
    assert loop.emissions["k"] == [value(1)]
    assert loop.counts["filtered"] == 1


def test_key_that_where_rejects_is_not_deleted() -> None:
    loop = Kernel(kernel.Update())
    loop.apply([Record("k", value(1), 0, 0, 0, passes=False), Record("k", None, 0, 1, 1)])
    assert loop.emissions == {}


def test_update_state_keeps_newest_and_last_emitted_value() -> None:
    loop = Kernel(kernel.Update())
    loop.apply([Record("k", value(1), 0, 0, 0), Record("k", value(2), 0, 1, 1, passes=False)])
    assert loop.state[-1]["accumulator"] == value(2)
    assert loop.state[-1]["emitted"] == value(1)


def test_record_at_or_before_the_state_is_dropped() -> None:
    loop = Kernel(kernel.Change(BOTH))
    loop.apply(history(value(1), value(2)))
    loop.apply(
        [Record("k", value(1), 0, 0, 0), Record("k", value(3), 0, 1, 1), Record("k", value(4), 0, 2, 2)]
    )
    assert loop.emissions["k"] == [value(1), value(2), value(4)]
    assert loop.counts["deduplicated"] == 2


def test_records_of_one_partition_follow_their_offsets() -> None:
    loop = Kernel(kernel.Update())
    loop.apply([Record("k", value(1), 0, 0, 900), Record("k", value(2), 0, 1, 100)])
    assert loop.emissions["k"] == [value(1), value(2)]


def test_records_of_several_partitions_go_by_timestamp() -> None:
    loop = Kernel(kernel.Update())
    loop.apply(
        [Record("k", value(1), 0, 0, 900), Record("k", value(2), 1, 0, 100), *history(value(7), key="z")]
    )
    assert loop.emissions["k"] == [value(2), value(1)]
    assert loop.counts["keys-in-several-partitions"] == 1


def test_quarantined_rows_pass_through_untouched_and_counted() -> None:
    loop = Kernel(kernel.Change(BOTH))
    bad = {
        "kind": kernel.QUARANTINED,
        "topic": "in",
        "partition": 0,
        "offset": 9,
        "input": {"reason": "malformed"},
    }
    loop.apply(history(value(1)), extra=[bad])
    assert [row["input"] for row in loop.quarantined] == [{"reason": "malformed"}]
    assert loop.counts["quarantined"] == 1
    assert loop.counts.accounted == 2


def test_reasons_say_new_changed_deleted() -> None:
    loop = Kernel(kernel.Change(BOTH))
    loop.apply(history(value(1), value(2), None, value(2)))
    assert [row["reason"] for row in loop.emitted_rows] == ["new", "changed", "deleted", "new"]


def test_ordinals_count_a_keys_emissions() -> None:
    loop = Kernel(kernel.Change(BOTH))
    loop.apply([*history(value(1), value(2), key="j"), *history(value(1), value(2), value(3))])
    assert [(row["key"], row["ordinal"]) for row in loop.emitted_rows] == [
        ("j", 0), ("j", 1), ("k", 0), ("k", 1), ("k", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("emit", [kernel.Change(BOTH), kernel.Update()], ids=["change", "update"])
def test_an_empty_batch_gives_only_counts(emit: kernel.Emit) -> None:
    loop = Kernel(emit)
    loop.apply([])
    assert loop.emissions == {}
    assert loop.counts.accounted == 0


EDITS = {"a heartbeat": kernel.Change(BOTH, heartbeat_ms=1000)} | {
    "bytes and timestamp": kernel.Change(BOTH, equal=kernel.Bytes(), timestamp=True)
}


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS.keys())
def test_edited_stage_finds_time_of_last_emission(edited: kernel.Emit) -> None:
    loop = Kernel(kernel.Change(BOTH))
    loop.apply([Record("k", value(1), 0, 0, timestamp=10_000)])
    loop.emit = edited
    loop.apply([Record("k", value(1), 0, 1, timestamp=10_000)])
    assert loop.emissions["k"] == [value(1)]
