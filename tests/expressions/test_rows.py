"""A condition has a result for each row. `test_conditions_in_spark.py` shows that Spark agrees."""

from __future__ import annotations

import math
import pickle
import re
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from tidegate.errors import ConditionFailed
from tidegate.expressions import Condition

Tree = tuple[Any, ...]
A: Tree = ("column", "a")
B: Tree = ("column", "b")


def literal(value: Any) -> Tree:
    return ("literal", value)


def given(tree: Tree, **row: Any) -> Any:
    """The result for a row, as the left side of `<=>` with what it should be."""
    condition = Condition("the text", tree)
    return condition.evaluate(row)


def failure(tree: Tree, **row: Any) -> ConditionFailed:
    with pytest.raises(ConditionFailed) as caught:
        Condition("the text", tree).evaluate(row)
    assert "`the text`" in caught.value.what
    assert caught.value.fix
    return caught.value


def test_a_condition_is_true_false_or_null() -> None:
    assert given((">", A, literal(1)), a=2) is True
    assert given((">", A, literal(1)), a=1) is False
    assert given((">", A, literal(1)), a=None) is None


@pytest.mark.parametrize("left", [True, False, None])
@pytest.mark.parametrize("right", [True, False, None])
def test_and_or_and_not_have_three_values(left: bool | None, right: bool | None) -> None:
    both, unknown = (left, right), None in (left, right)
    assert given(("and", A, B), a=left, b=right) is (False if False in both else None if unknown else True)
    assert given(("or", A, B), a=left, b=right) is (True if True in both else None if unknown else False)
    assert given(("not", A), a=left) is (None if left is None else not left)


def test_what_decides_ends_the_evaluation() -> None:
    divides = (">", ("/", literal(1), B), literal(0))
    assert given(("and", A, divides), a=False, b=0) is False
    assert given(("or", A, divides), a=True, b=0) is True
    assert given(("case", (A, A), divides), a=True, b=0) is True


def test_nan_equals_itself_and_exceeds_everything() -> None:
    assert given(("=", A, B), a=math.nan, b=math.nan) is True
    assert given((">", A, B), a=math.nan, b=math.inf) is True
    assert given(("<", A, B), a=math.nan, b=math.nan) is False
    assert given((">=", A, B), a=math.nan, b=math.nan) is True
    assert given(("<", A, B), a=5, b=math.nan) is True


def test_zero_equals_minus_zero() -> None:
    assert given(("=", A, B), a=0.0, b=-0.0) is True


def test_null_safe_equality_is_never_null() -> None:
    assert given(("<=>", A, B), a=None, b=None) is True
    assert given(("<=>", A, B), a=None, b=1) is False
    assert given(("<=>", A, B), a=1, b=1) is True


def test_numbers_of_all_types_are_compared() -> None:
    assert given(("=", A, B), a=1, b=1.0) is True
    assert given(("=", A, B), a=Decimal("0.10"), b=0.1) is True
    assert given(("=", A, B), a=Decimal("1.00"), b=1) is True
    assert given(("=", A, B), a=2**53 + 1, b=float(2**53)) is True, "Spark makes doubles of both"


def test_single_values_of_other_types_are_compared() -> None:
    assert given(("<", A, B), a=date(2026, 1, 1), b=date(2026, 1, 2)) is True
    assert given(("<", A, B), a=b"a", b=b"b") is True
    assert given(("<", A, B), a=False, b=True) is True
    assert given(("<", A, B), a="Z", b="a") is True


def test_decimals_are_computed_exactly() -> None:
    tenth = literal(Decimal("0.1"))
    assert given(("=", ("+", tenth, literal(Decimal("0.2"))), literal(Decimal("0.3")))) is True
    assert given(("=", ("*", A, tenth), literal(Decimal("0.3"))), a=3) is True
    wide = Decimal("12345678901234567890.123456789012345678")
    assert given(("=", ("negative", ("negative", A)), A), a=wide) is True


def test_a_decimal_beside_a_double_is_a_double() -> None:
    assert given(("=", ("*", A, B), literal(0.15000000000000002)), a=Decimal("0.1"), b=1.5) is True


def test_division_gives_a_double() -> None:
    assert given(("=", ("/", A, B), literal(3.5)), a=7, b=2) is True
    assert given(("=", ("/", A, B), literal(3.5)), a=Decimal("7.0"), b=2.0) is True


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, Decimal("0.00")])
@pytest.mark.parametrize("operator", ["/", "%"])
def test_division_by_zero_fails_and_names_the_text(zero: Any, operator: str) -> None:
    error = failure(("=", (operator, A, B), literal(1)), a=1.5, b=zero)
    assert error.what == "`the text` has no result: it divides by zero"
    assert "nullif" in error.fix


def test_null_divided_by_zero_is_null() -> None:
    assert given(("=", ("/", A, B), literal(1)), a=None, b=0) is None


def test_remainder_has_the_sign_of_the_dividend() -> None:
    for left, right, rest in [
        (-7, 3, -1),
        (7, -3, 1),
        (-7.5, 2.0, -1.5),
        (Decimal("-0.7"), 1, Decimal("-0.7")),
    ]:
        assert given(("=", ("%", A, B), literal(rest)), a=left, b=right) is True
    assert given(("call", "isnan", ("%", A, B)), a=math.inf, b=2.0) is True
    assert given(("=", ("%", A, B), literal(-1)), a=-(2**62) - 1, b=2) is True, "exact beyond doubles"


@pytest.mark.parametrize(
    ("tree", "row"),
    [
        (("+", A, B), {"a": 2**63 - 1, "b": 1}),
        (("*", A, B), {"a": 2**62, "b": -4}),
        (("negative", A), {"a": -(2**63)}),
        (("call", "abs", A), {"a": -(2**63)}),
        (("*", A, B), {"a": Decimal("1e20"), "b": Decimal("1e20")}),
        (("cast", "bigint", A), {"a": 1e30}),
        (("cast", "int", A), {"a": 2**31}),
    ],
)
def test_what_spark_cannot_hold_is_an_overflow(tree: Tree, row: dict[str, Any]) -> None:
    assert re.search("`bigint`|`int`|38 digits", failure(("=", tree, A), **row).what)


def test_a_result_that_is_no_boolean_fails() -> None:
    assert "neither true nor false" in failure(A, a=5).what


def test_in_is_null_if_only_null_could_match() -> None:
    items = (literal(1), literal(None))
    assert given(("in", A, *items), a=1) is True
    assert given(("in", A, *items), a=2) is None
    assert given(("in", A, literal(1)), a=2) is False
    assert given(("in", A, literal(1)), a=None) is None


@pytest.mark.parametrize(
    ("text", "pattern", "matches"),
    [
        ("abc", "a%", True),
        ("abc", "a_c", True),
        ("abc", "a_", False),
        ("a\nb", "a_b", True),
        ("A", "a", False),
        ("50%", "50\\%", True),
        ("50x", "50\\%", False),
        ("a.c", "a.c", True),
        ("abc", "a.c", False),
        ("", "%", True),
    ],
)
def test_like_knows_two_wildcards_and_an_escape(text: str, pattern: str, matches: bool) -> None:
    assert given(("like", A, pattern, "\\"), a=text) is matches
    assert given(("like", A, pattern, "\\"), a=None) is None


def test_case_takes_the_first_true_branch() -> None:
    tree = ("=", ("case", (A, literal(1)), (B, literal(2)), literal(3)), literal(2))
    assert given(tree, a=None, b=True) is True
    assert given(tree, a=True, b=True) is False


def test_least_and_greatest_pass_over_nulls() -> None:
    assert given(("=", ("least", A, B), literal(1)), a=None, b=1) is True
    assert given(("null", ("greatest", A, B)), a=None, b=None) is True
    assert given(("call", "isnan", ("greatest", A, B)), a=math.nan, b=math.inf) is True


def test_is_true_is_never_null() -> None:
    assert [given(("is", A, True), a=value) for value in (True, False, None)] == [True, False, False]
    assert [given(("is", A, False), a=value) for value in (True, False, None)] == [False, True, False]


def test_fields_are_taken_out_of_structs() -> None:
    path = ("column", "old", "place", "zip")
    assert given(("=", path, literal(1)), old={"place": {"zip": 1}}) is True
    assert given(("null", path), old={"place": None}) is True
    assert given(("null", path), old=None) is True


CALLS: list[tuple[str, list[Any], Any]] = [
    ("abs", [-1.5], 1.5),
    ("abs", [Decimal("-1.50")], Decimal("1.50")),
    ("floor", [-0.5], -1),
    ("round", [2.5], 3.0),
    ("round", [1.005, 2], 1.01),
    ("round", [math.inf, 2], math.inf),
    ("round", [7, 2], 7),
    ("round", [Decimal("-0.25"), 1], Decimal("-0.3")),
    ("floor", [1e30], 2**63 - 1),
    ("floor", [math.nan], 0),
    ("floor", [Decimal("-0.5")], Decimal("-1")),
    ("ceil", [0.1], 1),
    ("ceil", [-math.inf], -(2**63)),
    ("sqrt", [4], 2.0),
    ("sqrt", [-1], math.nan),
    ("sign", [-3], -1.0),
    ("sign", [math.nan], math.nan),
    ("length", ["ä😀"], 2),
    ("lower", ["ÄA"], "äa"),
    ("upper", ["ß"], "SS"),
    ("trim", [" \ta "], "\ta"),
    ("concat", ["a", "", "b"], "ab"),
    ("startswith", ["abc", "ab"], True),
    ("endswith", ["abc", ""], True),
    ("contains", ["abc", "x"], False),
    ("size", [[1, None]], 2),
    ("isnan", [1], False),
    ("isnan", [None], False),
    ("abs", [None], None),
    ("concat", ["a", None], None),
]


@pytest.mark.parametrize(("name", "arguments", "result"), CALLS, ids=[f"{n}{a}" for n, a, _ in CALLS])
def test_functions_give_what_spark_gives(name: str, arguments: list[Any], result: Any) -> None:
    assert given(("<=>", ("call", name, *map(literal, arguments)), literal(result))) is True


CASTS: list[tuple[str, Any, Any]] = [
    ("string", True, "true"),
    ("string", -5, "-5"),
    ("bigint", -7.9, -7),
    ("bigint", True, 1),
    ("double", False, 0.0),
    ("boolean", math.nan, True),
    ("double", Decimal("1.10"), 1.1),
    ("boolean", 0.0, False),
    ("tinyint", -128.9, -128),
    ("int", None, None),
]


@pytest.mark.parametrize(("kind", "value", "result"), CASTS, ids=[f"{k} of {v}" for k, v, _ in CASTS])
def test_casts_give_what_spark_gives(kind: str, value: Any, result: Any) -> None:
    assert given(("<=>", ("cast", kind, literal(value)), literal(result))) is True


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_cast_of_no_whole_number_fails(value: float) -> None:
    assert "is not a whole number" in failure(("null", ("cast", "bigint", A)), a=value).what


def test_condition_can_be_pickled_after_its_use() -> None:
    condition = Condition("a > 1", (">", A, literal(1)))
    assert condition.evaluate({"a": 2}) is True
    again = pickle.loads(pickle.dumps(condition))
    assert (again, again.evaluate({"a": 2})) == (condition, True)


def test_whole_numbers_fit_their_type() -> None:
    doubled = ("fit", "int", ("*", A, literal(2)))
    assert given(("=", doubled, literal(2**31 - 2)), a=2**30 - 1) is True
    assert given(("=", doubled, literal(-(2**31))), a=-(2**30)) is True
    assert "too large for `int`" in failure(("=", doubled, literal(0)), a=2**30).what


def test_key_with_date_beyond_python_names_a_remedy() -> None:
    error = failure((">", ("key", None, "date"), literal(date(2020, 1, 1))), __key="+10000-01-01")
    assert "+10000-01-01 is no date of the years 1 to 9999" in error.what


def test_key_column_is_read_from_the_canonical_key() -> None:
    assert given(("=", ("key", None, "bigint"), literal(7)), __key="7") is True
    several = '{"id":7,"on":true,"day":"2026-01-01","price":1.50}'
    assert given(("=", ("key", "price", "decimal"), literal(Decimal("1.50"))), __key=several) is True
    assert given(("=", ("key", "day", "date"), literal(date(2026, 1, 1))), __key=several) is True
    assert given(("key", "on", "boolean"), __key=several) is True
