"""When two values are the same: by value, whatever order a map came in, and numbers never as floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate import kernel
from tidegate.errors import ConditionFailed
from tidegate.kernel.equivalence import Equivalence

GIVEN = pa.struct([("reason", pa.string())])
V = ("v",)
MAP = pa.map_(pa.string(), pa.int64())
AB, BA = [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]


def let_out(
    equal: Equivalence, type_: pa.DataType, *values: Any, hashed: bool = False, trace: bool = False
) -> list[Any]:
    """Return the emissions of one key with these values, one after the other."""
    value = pa.struct([("v", type_)])
    schema = kernel.input_schema(value, value, value, GIVEN)
    rows = [
        {
            "kind": kernel.RECORD,
            "hash": 0,
            "key": "k",
            "updated_seq": 0,
            "topic": "in",
            "partition": 0,
            "offset": n,
        }
        | {"offset": n, "turn": n, "part": 0, "timestamp": n, "passes": True, "value": {"v": content}}
        for n, content in enumerate(values)
    ]
    batch = pa.Table.from_pylist(rows, schema=schema).combine_chunks().to_batches()
    stage = kernel.Stage(kernel.Latest(), kernel.Change(V, equal=equal, state="hash" if hashed else "value"))
    decided = kernel.decide(stage, batch, kernel.Batch(trace=trace))
    return [
        row["value"]["v"] for part in decided for row in part.to_pylist() if row["kind"] == kernel.EMISSION
    ]


WAYS = {
    "exact, on whole columns": (kernel.Exact(), {}),
    "exact, record by record": (kernel.Exact(), {"trace": True}),
    "exact, by hash": (kernel.Exact(), {"hashed": True}),
    "bytes": (kernel.Bytes(), {}),
    "bytes, by hash": (kernel.Bytes(), {"hashed": True}),
    "python": (kernel.PythonEqual("operator:eq"), {}),
}
MAPS: dict[str, tuple[pa.DataType, Any, Any, Any]] = {
    "a map": (MAP, AB, BA, [("a", 1), ("b", 3)]),
    "one key more": (MAP, AB, BA, [("a", 1)]),
    "in a struct": (pa.struct([("m", MAP)]), {"m": AB}, {"m": BA}, {"m": None}),
    "in an array": (pa.list_(MAP), [AB, None], [BA, None], [None, AB]),
    "in a map": (pa.map_(pa.string(), MAP), [("x", AB)], [("x", BA)], [("y", AB)]),
    "with whole numbers as keys": (pa.map_(pa.int64(), pa.int64()), [(2, 0), (10, 1)], [(10, 1), (2, 0)], []),
    "with doubles as keys": (
        pa.map_(pa.float64(), pa.float64()),
        [(0.5, 2.0), (-1.0, 1.0)],
        [(-1.0, 1.0), (0.5, 2.0)],
        [(0.5, 1.0), (-1.0, 2.0)],
    ),
    "with times as keys": (
        pa.map_(pa.timestamp("us", "UTC"), pa.int64()),
        [(datetime(2026, 1, 1, tzinfo=timezone.utc), 1), (datetime(2026, 1, 2, tzinfo=timezone.utc), 2)],
        [(datetime(2026, 1, 2, tzinfo=timezone.utc), 2), (datetime(2026, 1, 1, tzinfo=timezone.utc), 1)],
        [(datetime(2026, 1, 1, 0, 0, 0, 1, timezone.utc), 1)],
    ),
    "with structs as keys": (
        pa.map_(pa.struct([("p", pa.int64()), ("q", pa.string())]), pa.int64()),
        [({"p": 1, "q": None}, 1), ({"p": 1, "q": "x"}, 2)],
        [({"p": 1, "q": "x"}, 2), ({"p": 1, "q": None}, 1)],
        [({"p": 1, "q": "x"}, 1), ({"p": 1, "q": None}, 2)],
    ),
}


@pytest.mark.parametrize(("equal", "options"), WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize(("type_", "first", "turned", "other"), MAPS.values(), ids=MAPS.keys())
def test_order_of_map_entries_is_no_change(
    equal: Equivalence, options: dict[str, bool], type_: pa.DataType, first: Any, turned: Any, other: Any
) -> None:
    emitted = let_out(equal, type_, first, turned, other, first, **options)
    assert emitted == [first, other, first]


def test_map_is_emitted_in_its_original_order() -> None:
    assert let_out(kernel.Bytes(), MAP, BA) == [BA]


def test_map_values_compare_nan_and_zero_like_columns() -> None:
    type_ = pa.map_(pa.float64(), pa.float64())
    turned = [[(0.0, math.nan), (-1.0, 0.0)], [(-1.0, -0.0), (-0.0, math.nan)]]
    for hashed, trace in ((False, False), (False, True), (True, False)):
        assert len(let_out(kernel.Exact(), type_, *turned, hashed=hashed, trace=trace)) == 1


def test_the_order_of_an_array_is_a_change() -> None:
    pairs = pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64())]))
    first = [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
    for equal, options in WAYS.values():
        assert len(let_out(equal, pairs, first, first[::-1], **options)) == 2


def test_bytes_are_those_of_the_message() -> None:
    bytes_ = kernel.Bytes()
    assert len(let_out(bytes_, pa.float64(), 0.0, -0.0)) == 2
    assert len(let_out(bytes_, pa.float64(), math.nan, math.nan)) == 1
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert len(let_out(bytes_, pa.timestamp("us", "UTC"), moment, moment.replace(microsecond=1))) == 2


# within

DECIMAL, BIG = pa.decimal128(38, 3), 10**18


def within(amount: str, percent: bool = False) -> kernel.Within:
    return kernel.Within({"v": kernel.Amount(Decimal(amount), percent)})


def decimals(*texts: str) -> Sequence[Decimal]:
    return [Decimal(text) for text in texts]


@pytest.mark.parametrize(
    ("tolerance", "type_", "values", "emissions"),
    [
        (within("0.1"), DECIMAL, decimals("0.3", "0.4", "0.401"), 2),
        (within("0.1"), pa.float64(), [0.3, 0.4, 0.2, 0.41], 2),
        (within("1"), pa.int64(), [BIG, BIG + 1, BIG + 60], 2),
        (within("1"), pa.int64(), [-(2**63), 2**63 - 1, 2**63 - 2], 2),
        (within("0.001"), DECIMAL, decimals("9" * 35 + ".001", "9" * 35 + ".002", "9" * 35 + ".003"), 2),
        (within("10", True), DECIMAL, decimals("0.3", "0.33", "0.331"), 2),
        (within("10", True), pa.int64(), [-BIG, -BIG - BIG // 10, -BIG - BIG // 10 - 1], 2),
        (within("1", True), pa.int64(), [0, 0, 1], 2),
        (within("1e-300"), pa.float64(), [1e308, math.nextafter(1e308, 0)], 2),
        (within("0.12345678901234567890"), DECIMAL, decimals("0", "0.123", "0.124"), 2),
    ],
    ids=str,
)
def test_numeric_distance_is_exact_as_written(
    tolerance: kernel.Within, type_: pa.DataType, values: Sequence[Any], emissions: int
) -> None:
    assert len(let_out(tolerance, type_, *values)) == emissions


@pytest.mark.parametrize("tolerance", [within("1"), within("1", True)], ids=["amount", "percent"])
def test_an_infinite_value_is_near_nothing_but_itself(tolerance: kernel.Within) -> None:
    values = [1.0, math.inf, math.inf, 5.0, -math.inf, math.inf, math.nan, math.nan, math.inf, None, None]
    out = let_out(tolerance, pa.float64(), *values)
    assert repr(out) == "[1.0, inf, 5.0, -inf, inf, nan, inf, None]"


@pytest.mark.parametrize("type_", [pa.string(), pa.bool_(), pa.list_(pa.int64())], ids=str)
def test_what_is_no_number_has_no_distance(type_: pa.DataType) -> None:
    values = {pa.string(): ["1", "2"], pa.bool_(): [True, False]}.get(type_, [[1], [2]])
    with pytest.raises(ConditionFailed, match=r"which is no number \(at the record in/0/1\)"):
        let_out(within("5"), type_, *values)
