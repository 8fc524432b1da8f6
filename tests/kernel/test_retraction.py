"""Groups of a table whose rows change: after any batch, the aggregates are SQL's over the table as it is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernel.model import Emission, retraction
from tests.kernel.model.chain import Serial
from tests.kernel.model.grammar import settings_of
from tests.kernel.rows_for_tests import key_hash
from tests.model.files import made
from tidegate import kernel
from tidegate.kernel.aggregates import FUNCTIONS
from tidegate.kernel.aggregates.retraction import ExactSum, retracting
from tidegate.model.kernel_stages import kernel_stage

COLUMNS = {
    "n": "count(*)",
    "named": "count(q)",
    "total": "sum(q)",
    "mean": "avg(q)",
    "least": "min(q)",
    "most": "max(q)",
    "kinds": "count(distinct q)",
    "all": "collect_set(q)",
    "middle": "median(q)",
    "share": "coalesce(sum(q), 0) / count(*)",
}
SQL = {**COLUMNS, "all": "list(distinct q) filter (where q is not null)"}
VALUE = pa.struct([("store", pa.string()), ("q", pa.int64())])
INPUT = pa.struct([("reason", pa.string())])
CONNECTION = duckdb.connect()
SOURCE = {"columns": "id bigint, store string, q bigint"}

Row = tuple[str, "int | None"]
"""The store and the quantity of a product."""
Change = tuple[int, "Row | None"]
"""A product, and what it is from now on; None: it is deleted."""


MODELLED = {name: text for name, text in COLUMNS.items() if name not in ("all", "share")}
"""The columns that the naive model has: sets have no order, and its formulas call no functions."""


def pipeline(emit: dict[str, Any], columns: dict[str, str]) -> Any:
    grouped = {"key": ["store"], "retract": True, "reduce": columns, "emit": emit}
    return made({"emit": {"on": "change"}}, grouped, source=SOURCE)


class Groups:
    """The stage of groups, batch after batch, with what consumers have of each group."""

    def __init__(self, emit: dict[str, Any], columns: dict[str, str] = COLUMNS) -> None:
        parsed = pipeline(emit, columns)
        self._stage = kernel_stage(parsed, parsed.stages[1])
        self._arguments = {part.name: part.argument for part in self._stage.reduce}
        types = {
            name: pa.int32() if argument is None else pa.int64() for name, argument in self._arguments.items()
        }
        value = pa.struct(list(types.items()))
        reduce = self._stage.reduce
        shapes = (value, reduce.accumulator_type(value), reduce.output_type(value), INPUT)
        self._schema = kernel.input_schema(*shapes, retracts=True)
        self._state: list[dict[str, Any]] = []
        self.table: dict[int, Row] = {}
        self.latest: dict[str, Any] = {}
        self.emissions: list[tuple[str, Any]] = []
        self.reasons: list[tuple[str, int]] = []
        self.counts: dict[str, int] = {}
        self._offset = 0

    def apply(self, changes: Iterable[Change]) -> None:
        rows = [row for change in changes for row in self._rows(change)]
        table = pa.Table.from_pylist([*self._state, *rows], schema=self._schema)
        table = table.sort_by([(name, "ascending") for name in kernel.order(self._stage)]).combine_chunks()
        batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=self._schema)]
        changed, emitted = [], []
        for decided in kernel.decide(self._stage, batches, kernel.Batch(times={("t", 0): self._offset})):
            for row in decided.to_pylist():
                if row["kind"] == kernel.STATE:
                    changed.append({name: row[name] for name in self._schema.names if name in row})
                elif row["kind"] == kernel.EMISSION:
                    emitted.append((row["key"], row["value"]))
                    self.reasons.append((row["reason"], row["timestamp"]))
                elif row["kind"] == kernel.COUNTS:
                    self.counts = json.loads(row["counts"])
        newest = {row["key"]: {**row, "updated_seq": self._offset} for row in [*self._state, *changed]}
        self._state = list(newest.values())
        for key, value in emitted:
            self.latest[key] = value
            self.emissions.append((key, value))

    @property
    def groups(self) -> dict[str, Any]:
        """The groups that consumers have."""
        return {key: comparable(value) for key, value in self.latest.items() if value is not None}

    def values(self, key: str) -> list[Any]:
        """Return the emissions of a group, in order."""
        return [value for emitted_key, value in self.emissions if emitted_key == key]

    @property
    def live(self) -> set[str]:
        return {row["key"] for row in self._state if row["live"]}

    def _rows(self, change: Change) -> list[dict[str, Any]]:
        product, new = change
        old = self.table.pop(product, None)
        if new is not None:
            self.table[product] = new
        self._offset += 1
        stays = old is not None and new is not None and old[0] == new[0]
        rows = []
        if old is not None:
            taken = kernel.REPLACED if stays else kernel.DELETED if new is None else kernel.MOVED
            rows.append(self._row(old, taken, 0))
        if new is not None:
            rows.append(self._row(new, kernel.ADDED, 1))
        return rows

    def _row(self, row: Row, change: int, part: int) -> dict[str, Any]:
        store, quantity = row
        value = {name: 1 if argument is None else quantity for name, argument in self._arguments.items()}
        position = {"topic": "t", "partition": 0, "offset": self._offset, "turn": self._offset, "part": part}
        times = {"timestamp": self._offset, "time": self._offset - 1, "updated_seq": 0, "passes": True}
        own = {"kind": kernel.RECORD, "key": store, "hash": key_hash(store), "change": change, "value": value}
        return {**position, **times, **own}


def comparable(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "all": sorted(value["all"] or [])}


def expected(table: dict[int, Row]) -> dict[str, Any]:
    rows = pa.Table.from_pylist(
        [{"store": store, "q": q} for store, q in table.values()], pa.schema(list(VALUE))
    )
    columns = ", ".join(f'{sql} as "{name}"' for name, sql in SQL.items())
    CONNECTION.register("rows", rows)
    result = CONNECTION.sql(f"select store, {columns} from rows group by store").to_arrow_table()
    return {row.pop("store"): comparable(row) for row in result.to_pylist()}


CHANGES = st.lists(
    st.tuples(
        st.integers(1, 4), st.none() | st.tuples(st.sampled_from("ab"), st.none() | st.integers(-2, 2))
    ),
    max_size=9,
)


@given(changes=CHANGES, cuts=st.sets(st.integers(0, 8)), emit=st.sampled_from(["update", "change"]))
def test_groups_are_those_of_sql_after_each_batch(
    changes: Sequence[Change], cuts: set[int], emit: str
) -> None:
    cut, whole = Groups({"on": emit}), Groups({"on": emit})
    for at, change in enumerate(changes):
        cut.apply([change])
        if at in cuts:
            assert cut.groups == expected(cut.table)
    whole.apply(changes)
    assert cut.groups == whole.groups == expected(whole.table)
    assert cut.live == whole.live == {store for store, _ in whole.table.values()}
    for store in "ab":
        assert cut.values(store) == whole.values(store)


@given(changes=CHANGES, emit=st.sampled_from(["update", "change"]))
def test_emissions_are_those_of_the_naive_model(changes: Sequence[Change], emit: str) -> None:
    stage = {"reduce": MODELLED, "emit": {"on": emit}}
    table = [
        Emission(str(product), row and {"store": row[0], "q": row[1]}, at, None, "changed", at)
        for at, (product, row) in enumerate(changes, start=1)
    ]
    log = retraction.Groups(settings_of(stage, {}), "store").records(table, ("t", 0))
    model = Serial({**stage, "reduce": "latest"}).apply_all(log)
    groups = Groups({"on": emit}, MODELLED)
    for change in changes:
        groups.apply([change])
    for store in "ab":
        expected = [(row.value, row.reason, row.timestamp) for row in model if row.key == store]
        emitted = zip(groups.emissions, groups.reasons, strict=True)
        assert [(value, *reason) for (key, value), reason in emitted if key == store] == expected


def test_change_within_a_group_goes_out_once() -> None:
    groups = Groups({"on": "update"})
    groups.apply([(1, ("a", 5)), (1, ("a", 7))])
    assert [value["total"] for _, value in groups.emissions] == [5, 7]
    assert (groups.counts["used"], groups.counts["retracted"]) == (2, 1)


def test_move_changes_the_old_group_and_the_new() -> None:
    groups = Groups({"on": "update"})
    groups.apply([(1, ("a", 5)), (2, ("a", 1)), (1, ("b", 5))])
    assert [value["total"] for value in groups.values("a")] == [5, 6, 1]
    assert [value["total"] for value in groups.values("b")] == [5]
    assert (groups.counts["used"], groups.counts["retracted"]) == (3, 1)


def test_empty_group_is_deleted_and_leaves_the_state() -> None:
    groups = Groups({"on": "update"})
    groups.apply([(1, ("a", 5))])
    groups.apply([(1, None)])
    assert (groups.emissions[-1], groups.live) == (("a", None), set())
    groups.apply([(2, ("a", 3))])
    assert groups.emissions[-1][1]["total"] == 3


@pytest.mark.parametrize(
    "function", [name for name, function in FUNCTIONS.items() if function.takes_back != "never"]
)
@given(values=st.lists(st.integers(0, 3), max_size=6), more=st.lists(st.integers(0, 3), max_size=6))
def test_value_that_was_taken_back_was_never_there(function: str, values: list[int], more: list[int]) -> None:
    rule, plain = retracting(FUNCTIONS[function]), FUNCTIONS[function]

    def argument(value: int) -> Any:
        if rule.chooses:
            return {"value": value, "by": value}
        return bool(value) if rule.takes == "booleans" else value

    accumulator, only = rule.start(), plain.start()
    for value in [*more, *values]:
        accumulator = rule.load(rule.dump(rule.fold(accumulator, argument(value))))
    assert rule.retract is not None
    for value in more:
        accumulator = rule.load(rule.dump(rule.retract(accumulator, argument(value))))
    for value in values:
        only = plain.fold(only, argument(value))
    results = rule.finish(accumulator), plain.finish(only)
    if isinstance(results[0], list):
        results = tuple(sorted(result) for result in results)  # type: ignore[assignment]
    assert results[0] == (results[1] if results[1] is None else pytest.approx(results[1], rel=1e-9, abs=1e-9))


@given(st.lists(st.floats(-1e300, 1e300)), st.lists(st.floats(-1e300, 1e300)))
def test_sum_of_doubles_is_exact(values: list[float], taken: list[float]) -> None:
    total = ExactSum()
    for value in [*taken, *values]:
        total.add(value, 1)
    for value in taken:
        total.add(value, -1)
    assert Fraction(total.total) == Fraction(float(sum(map(Fraction, values))))


@pytest.mark.parametrize(("taken", "left"), [(math.inf, -math.inf), (-math.inf, math.inf), (math.nan, 0.3)])
def test_infinite_number_can_be_taken_back(taken: float, left: float) -> None:
    total = ExactSum().add(taken, 1).add(left, 1)
    assert math.isnan(total.total)
    assert ExactSum(**total.stored()).add(taken, -1).total == left


def test_sum_beyond_doubles_is_infinite_until_taken_back() -> None:
    total = ExactSum()
    for _ in range(3):
        total.add(-1.7e308, 1)
    assert ExactSum(**total.stored()).total == -math.inf
    for _ in range(2):
        total.add(-1.7e308, -1)
    assert total.total == -1.7e308


def test_replaced_value_needs_no_room_without_it() -> None:
    groups, large = Groups({"on": "update"}, {"total": "sum(q)"}), 9 * 10**18
    groups.apply([(1, ("a", large)), (2, ("a", -large)), (3, ("a", large))])
    groups.apply([(2, ("a", -large + 10**16))])
    assert groups.values("a")[-1]["total"] == large + 10**16
