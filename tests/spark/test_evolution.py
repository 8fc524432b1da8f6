"""Columns that are added, removed, widened and renamed between batches: what goes out, what is remembered.

The state's files are those of the data plane; of Spark there is nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.spark.evolving import ALL, Evolving, pipeline_of
from tidegate.errors import SchemaChanged
from tidegate.model.pipeline import Pipeline
from tidegate.spark.lookups import StateVersion
from tidegate.storage.compatibility import incompatible_changes
from tidegate.storage.evolution import state_aliases

CHANGE = {"on": "change"}
FOLDED = {"on": "change", "heartbeat": "999d"}
"""The same, but decided record by record."""
HASHED = {"on": "change", "state": "hash"}
WAITS = {"on": "time_limit", "after": "10s", "clock": "stream"}


@pytest.fixture
def stream(tmp_path: Path) -> Evolving:
    return Evolving(tmp_path)


def selecting(columns: str, emit: Mapping[str, Any] = CHANGE, **stage: Any) -> Pipeline:
    """A stage that emits all of its records' columns."""
    return pipeline_of(columns, {"emit": emit, **stage})


def aliased(columns: str, name: str, *older: str, **stage: Any) -> Pipeline:
    return selecting(columns, aliases={name: list(older)}, **stage)


@pytest.mark.parametrize("emit", [CHANGE, FOLDED], ids=["columns", "records"])
class TestChange:
    def test_added_column_is_null_in_earlier_emissions(
        self, stream: Evolving, emit: Mapping[str, Any]
    ) -> None:
        stream.batch(selecting("n int", emit), [("a", {"n": 1}), ("b", {"n": 1})])
        after = selecting("n int, more string", emit)
        records = [("a", {"n": 1, "more": None}), ("b", {"n": 1, "more": "x"})]
        assert stream.batch(after, records) == [("b", {"n": 1, "more": "x"})]
        assert stream.batch(after, records) == []

    def test_added_uncompared_column_emits_nothing(self, stream: Evolving, emit: Mapping[str, Any]) -> None:
        stream.batch(selecting("n int", emit), [("a", {"n": 1})])
        after = selecting("n int, more string", {**emit, "ignore": ["more"]})
        assert stream.batch(after, [("a", {"n": 1, "more": "x"})]) == []

    def test_removed_column_is_no_longer_compared(self, stream: Evolving, emit: Mapping[str, Any]) -> None:
        stream.batch(selecting("n int, more string", emit), [("a", {"n": 1, "more": "x"})])
        assert stream.batch(selecting("n int", emit), [("a", {"n": 1})]) == []
        assert stream.batch(selecting("n int", emit), [("a", {"n": 2})]) == [("a", {"n": 2})]

    def test_returning_column_is_compared_with_last_emission(
        self, stream: Evolving, emit: Mapping[str, Any]
    ) -> None:
        both = selecting("n int, more string", emit)
        records = [(key, {"n": 1, "more": "x"}) for key in "ab"]
        stream.batch(both, records)
        stream.batch(selecting("n int", emit), [("a", {"n": 2}), ("a", {"n": 1})])
        stream.compact(1)
        assert stream.batch(both, records) == [("a", {"n": 1, "more": "x"})]

    @pytest.mark.parametrize(
        ("before", "after", "old", "new"),
        [
            ("int", "bigint", 1, 1),
            ("tinyint", "decimal(12,2)", 1, Decimal("1.00")),
            ("int", "double", 1, 1.0),
            ("float", "double", 0.5, 0.5),
            ("decimal(10,2)", "decimal(14,4)", Decimal("1.10"), Decimal("1.1000")),
            ("array<int>", "array<bigint>", [1, None], [1, None]),
            ("map<string,int>", "map<string,double>", [("a", 1)], [("a", 1.0)]),
            ("array<struct<a:int>>", "array<struct<a:bigint,b:string>>", [{"a": 1}], [{"a": 1, "b": None}]),
            ("struct<a:int,b:int>", "struct<b:bigint>", {"a": 1, "b": 2}, {"b": 2}),
            ("struct<a:struct<b:int>>", "struct<a:struct<b:bigint>>", {"a": {"b": 1}}, {"a": {"b": 1}}),
        ],
        ids=lambda parameter: parameter if isinstance(parameter, str) else "",
    )
    def test_equal_value_stays_equal_in_wider_types(
        self, stream: Evolving, emit: Mapping[str, Any], before: str, after: str, old: Any, new: Any
    ) -> None:
        stream.batch(selecting(f"n {before}", emit), [("a", {"n": old}), ("b", {"n": None})])
        wider = selecting(f"n {after}", emit)
        assert stream.batch(wider, [("a", {"n": new}), ("b", {"n": None})]) == []
        assert stream.batch(wider, [("b", {"n": new})]) == [("b", {"n": new})]

    def test_float_fraction_differs_from_its_decimal_digits(
        self, stream: Evolving, emit: Mapping[str, Any]
    ) -> None:
        stream.batch(selecting("n float", emit), [("a", {"n": 0.1})])
        assert stream.batch(selecting("n double", emit), [("a", {"n": 0.1})]) == [("a", {"n": 0.1})]

    def test_renamed_column_is_compared_under_its_name(
        self, stream: Evolving, emit: Mapping[str, Any]
    ) -> None:
        stream.batch(selecting("qty int", emit), [("a", {"qty": 1})])
        renamed = aliased("quantity bigint", "quantity", "qty", emit=emit)
        assert stream.batch(renamed, [("a", {"quantity": 1})]) == []
        assert stream.batch(renamed, [("a", {"quantity": 2})]) == [("a", {"quantity": 2})]

    def test_column_renamed_without_alias_is_another(self, stream: Evolving, emit: Mapping[str, Any]) -> None:
        stream.batch(selecting("qty int", emit), [("a", {"qty": 1})])
        assert stream.batch(selecting("quantity int", emit), [("a", {"quantity": 1})]) == [
            ("a", {"quantity": 1})
        ]


@pytest.mark.parametrize("folded", [None, 1, 2, 3])
def test_twice_renamed_column_keeps_all_names(stream: Evolving, folded: int | None) -> None:
    stream.batch(selecting("a int"), [(key, {"a": 1}) for key in "xyz"])
    stream.batch(aliased("b int", "b", "a"), [("y", {"b": 2})])
    last = aliased("c int", "c", "b", "a")
    stream.batch(last, [("z", {"c": 3})])
    stream.compact(folded)
    assert stream.batch(last, [("x", {"c": 1}), ("y", {"c": 2}), ("z", {"c": 3})]) == []
    assert {key: row["emitted"] for key, row in stream.state().items()} == {
        "x": {"c": 1},
        "y": {"c": 2},
        "z": {"c": 3},
    }


@pytest.mark.parametrize("folded", [1, 2, 3, 4])
def test_reused_name_is_another_column(stream: Evolving, folded: int) -> None:
    stream.batch(selecting("a int, k int"), [(key, {"a": 1, "k": 0}) for key in "xyz"])
    stream.batch(aliased("b int, k int", "b", "a"), [("y", {"b": 2, "k": 0})])
    stream.batch(selecting("k int"), [("z", {"k": 1})])
    anew = selecting("a int, k int")
    assert stream.batch(anew, [("z", {"a": 3, "k": 1})]) == [("z", {"a": 3, "k": 1})]
    stream.compact(folded)
    records = [("x", {"a": 1, "k": 0}), ("y", {"a": None, "k": 0}), ("z", {"a": 3, "k": 1})]
    assert stream.batch(anew, records) == [("x", {"a": 1, "k": 0})]


@pytest.mark.parametrize("folded", [1, 2, 3])
def test_renamed_column_replaces_a_removed_one(stream: Evolving, folded: int) -> None:
    stream.batch(selecting("a int, b int"), [(key, {"a": 1, "b": 2}) for key in "xyz"])
    stream.batch(selecting("a int"), [("y", {"a": 3})])
    stream.compact(folded)
    renamed = aliased("b int", "b", "a")
    assert stream.batch(renamed, [("x", {"b": 1}), ("y", {"b": 3})]) == []
    stream.batch(renamed, [("y", {"b": 4})])
    stream.compact(folded)
    assert {key: row["emitted"] for key, row in stream.state().items()} == {
        "x": {"b": 1},
        "y": {"b": 4},
        "z": {"b": 1},
    }
    assert stream.batch(renamed, [("z", {"b": 2})]) == [("z", {"b": 2})]


def test_readers_see_widest_types_and_newest_names(
    stream: Evolving,
) -> None:
    stream.batch(selecting("qty int, gone string"), [("a", {"qty": 1, "gone": "x"})])
    renamed = aliased("quantity bigint, more double", "quantity", "qty")
    stream.batch(renamed, [("b", {"quantity": 2**40, "more": 0.5})])
    expected = {
        "a": {"quantity": 1, "gone": "x", "more": None},
        "b": {"quantity": 2**40, "gone": None, "more": 0.5},
    }
    assert {key: row["value"] for key, row in stream.state().items()} == expected
    stream.compact()
    assert {key: row["value"] for key, row in stream.state().items()} == expected


def test_hash_of_a_widened_integer_is_unchanged(stream: Evolving) -> None:
    before = selecting("n int, d decimal(10,2)", HASHED)
    stream.batch(before, [("a", {"n": 1, "d": Decimal("1.10")})])
    wider = selecting("n bigint, d decimal(20,2)", HASHED)
    assert stream.batch(wider, [("a", {"n": 1, "d": Decimal("1.10")})]) == []


def test_buffered_value_is_emitted_with_current_columns(stream: Evolving) -> None:
    stream.batch(selecting("qty int, gone int", WAITS), [("a", {"qty": 1, "gone": 2})])
    after = aliased("quantity double, more int", "quantity", "qty", emit=WAITS)
    emitted = stream.batch(after, [("b", {"quantity": 1.5, "more": 1})], timestamp=10_000)
    assert emitted == [("a", {"quantity": 1.0, "more": None})]


def test_buffered_events_have_current_fields(stream: Evolving) -> None:
    emit = {"on": "threshold", "count": 3}
    stream.batch(selecting("qty int, gone int", emit, reduce="collect"), [("a", {"qty": 1, "gone": 2})])
    after = aliased("quantity bigint, more int", "quantity", "qty", emit=emit, reduce="collect")
    assert stream.batch(after, [("a", {"quantity": 2**40, "more": 1})]) == []
    stream.compact()
    ((_, value),) = stream.batch(after, [("a", {"quantity": 3, "more": None})])
    assert value == {
        "events": [
            {"quantity": 1, "more": None},
            {"quantity": 2**40, "more": 1},
            {"quantity": 3, "more": None},
        ]
    }


def test_aggregates_survive_rename_widening_and_removal(stream: Evolving) -> None:
    reduce = {
        "most": "max(x)",
        "total": "sum(x)",
        "mean": "avg(x)",
        "n": "count(*)",
        "all": "collect_list(x)",
        "each": "collect_set(x)",
        "gone": "min(x)",
    }
    record = dict.fromkeys(("most", "total", "mean", "all", "each", "gone"), 1) | {"n": 1}
    update = {"on": "update"}
    stream.batch(pipeline_of("x int", {"reduce": reduce, "emit": update}), [("a", record)])
    del reduce["gone"], record["gone"]
    reduce["highest"], record["highest"] = reduce.pop("most"), record.pop("most")
    stage = {"reduce": reduce, "emit": update, "aliases": {"highest": ["most"]}}
    wider = pipeline_of("x bigint", stage)
    assert stream.batch(wider, [("a", record)]) == [
        ("a", {"highest": 1, "total": 2, "mean": 1.0, "n": 2, "all": [1, 1], "each": [1]})
    ]
    large = {name: 1 if name == "n" else 2**40 for name in record}
    ((_, value),) = stream.batch(wider, [("a", large)])
    assert (value["highest"], value["total"], value["n"], value["each"]) == (2**40, 2**40 + 2, 3, [1, 2**40])


@pytest.mark.parametrize(
    ("before", "after", "number"), [("int", "double", 100.0), ("bigint", "decimal(25,3)", Decimal("100.000"))]
)
def test_distinct_numbers_are_counted_once_in_wider_types(
    stream: Evolving, before: str, after: str, number: Any
) -> None:
    stage = {"reduce": {"n": "approx_count_distinct(x)"}, "emit": {"on": "update"}}
    stream.batch(pipeline_of(f"x {before}", stage), [("a", {"n": 100})])
    assert stream.batch(pipeline_of(f"x {after}", stage), [("a", {"n": number})]) == [("a", {"n": 1})]


def test_open_window_closes_with_current_columns(stream: Evolving) -> None:
    stage = {"window": {"tumbling": "10s"}, "emit": {"on": "window_close", "clock": "stream"}}
    stream.batch(pipeline_of("x int", {**stage, "reduce": {"most": "max(x)"}}), [("a", {"most": 5})])
    renamed = {**stage, "reduce": {"highest": "max(x)"}, "aliases": {"highest": ["most"]}}
    emitted = stream.batch(pipeline_of("x double", renamed), [("b", {"highest": 0.5})], timestamp=10_000)
    assert emitted == [("a", {"highest": 5.0})]


def test_another_type_that_only_the_files_tell_halts(stream: Evolving) -> None:
    stream.batch(selecting("n bigint, k int"), [("a", {"n": 1, "k": 1})])
    stream.batch(selecting("k int"), [("b", {"k": 1})])  # from now on the last plan says nothing of `n`
    with pytest.raises(SchemaChanged, match=r"column n was int64 in the state and is int32.*or a wider one"):
        stream.batch(selecting("n int, k int"), [("a", {"n": 1, "k": 1})])


def test_edit_that_may_not_fit_is_refused() -> None:
    before, after = selecting("n bigint"), selecting("n int")
    assert [change.field for change in incompatible_changes(before, after)] == ["stages.s.n"]


def test_state_lookup_has_the_newest_names(stream: Evolving) -> None:
    stream.batch(selecting("qty int"), [("a", {"qty": 1})])
    renamed = aliased("quantity bigint", "quantity", "qty")
    stream.batch(renamed, [("a", {"quantity": 1})])
    version = StateVersion(stream.store, tuple(stream.files), state_aliases(renamed.stages[0]))
    (rows,) = version.read(ALL)
    assert rows.select(["key", "quantity"]).to_pylist() == [{"key": "a", "quantity": 1}]
