"""Expressions that may be run, and the messages about all others."""

import pytest

from tests.model.expressions import ALLOWED, COLUMNS, REFUSED
from tidegate.model.columns import parse_columns, parse_type
from tidegate.model.names import quote
from tidegate.model.sql import check_expression

TYPES = {column.name: parse_type(column.type) for column in parse_columns(COLUMNS)[0]}


@pytest.mark.parametrize("expression", ALLOWED)
def test_safe_sql_expression_is_allowed(expression: str) -> None:
    assert check_expression(expression, TYPES) == []


@pytest.mark.parametrize(("expression", "part"), REFUSED, ids=[text[:40] or "empty" for text, _ in REFUSED])
def test_unsafe_sql_expression_is_refused(expression: str, part: str) -> None:
    messages = [fault.message for fault in check_expression(expression, TYPES)]
    assert any(part in message for message in messages), messages


@pytest.mark.parametrize(("expression", "_part"), REFUSED, ids=[text[:40] or "empty" for text, _ in REFUSED])
def test_every_refusal_has_a_fix(expression: str, _part: str) -> None:
    assert all(fault.fix.endswith((".", "?")) for fault in check_expression(expression, TYPES))


def test_all_faults_of_an_expression_are_reported() -> None:
    faults = check_expression("quantty > rand() and nested.c = 1 and uper(name) = 'x'", TYPES)
    assert [fault.message for fault in faults] == [
        "`rand` gives another value each time",
        "`uper` is not a function of Spark 4.1",
        "the column `quantty` does not exist",
        "`nested` has no field `c`",
    ]


def test_a_misspelt_function_is_suggested() -> None:
    assert [fault.fix for fault in check_expression("uper(name)", TYPES)] == ["Did you mean `upper`?"]


def test_a_misspelt_column_is_suggested() -> None:
    assert [fault.fix for fault in check_expression("quantty", TYPES)] == ["Did you mean `quantity`?"]


def test_a_misspelt_field_is_suggested() -> None:
    assert [fault.fix for fault in check_expression("nested.dep", TYPES)] == ["Did you mean `deep`?"]


def test_unknown_columns_allow_any_name_but_no_function() -> None:
    assert check_expression("whatever.it + `is`", None) == []
    assert check_expression("whatever + rand()", None) != []


def test_field_of_an_untyped_column_is_allowed() -> None:
    assert check_expression("a.b", {"a": None}) == []


def test_a_long_chain_is_not_too_deep() -> None:
    assert check_expression(" and ".join(["quantity > 0"] * 500), TYPES) == []


def test_quote_makes_an_identifier_of_any_name() -> None:
    assert quote("a`b") == "`a``b`"
    assert check_expression(quote("odd-name"), TYPES) == []
