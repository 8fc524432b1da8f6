"""A compiled condition over the types that its columns really have, without its text."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.examples import share_of
from tests.expressions import test_type_pairs_in_spark as in_spark
from tests.expressions.conditions import COLUMNS, RandomCondition
from tidegate.expressions import Tree, rows
from tidegate.expressions.types import ColumnTypes, Unfitting
from tidegate.expressions.typing import OPERATIONS, typed_condition
from tidegate.model import lexis
from tidegate.model.columns import parse_columns, parse_type
from tidegate.model.condition import NAMES, parse_condition, read_expression

TYPES: ColumnTypes = {column.name: parse_type(column.type) for column in parse_columns(COLUMNS)[0]}


def tree_of(text: str, types: ColumnTypes) -> Tree | None:
    condition, _ = parse_condition(text, types)
    return condition and condition.tree


def over(text: str, types: ColumnTypes, keys: ColumnTypes | None = None) -> Tree:
    """A condition that was compiled where no type was known, over types."""
    condition, faults = parse_condition(text, dict.fromkeys(types), dict.fromkeys(keys or ()))
    assert condition is not None, faults
    return typed_condition(condition.tree, types, keys or {})


def test_every_operation_of_a_tree_has_its_types() -> None:
    assert OPERATIONS.keys() - {"refused"} == rows._FORMS.keys() | rows._OPERATORS.keys()


@pytest.mark.heavy
def test_every_function_is_compared_with_spark() -> None:
    of_parts, texts = in_spark.expressions_of_parts()
    compared = [text for text in in_spark.expressions() if read_expression(text, in_spark.TYPES) is not None]
    compared += [text for text in texts if read_expression(text, of_parts) is not None]
    called = {name.text for text in compared for name in lexis.calls(lexis.split(text)[0])[0]}
    assert set(NAMES) - called == set()


@pytest.mark.heavy
def test_operator_types_equal_those_of_the_text() -> None:
    unknown: ColumnTypes = dict.fromkeys(in_spark.TYPES)
    texts, compared = share_of(in_spark.expressions()), 0
    for text in texts:
        compiled = read_expression(text, unknown)
        if compiled is None:
            continue
        typed = read_expression(text, in_spark.TYPES)
        condition = ("null", compiled.tree)  # a condition, whatever the expression's type is
        if typed is None:
            with pytest.raises(Unfitting):
                typed_condition(condition, in_spark.TYPES, {})
        else:
            assert typed_condition(condition, in_spark.TYPES, {}) == ("null", typed.tree), text
            compared += 1
    assert compared > len(texts) / 8


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(20))
def test_compiled_condition_equals_its_text_over_types(seed: int) -> None:
    made = RandomCondition(random.Random(seed))
    compared = 0
    for _ in range(50):
        text = made.boolean(3)
        some: dict[str, Any] = {name: made.random.choice((None, type_)) for name, type_ in TYPES.items()}
        typed, compiled = tree_of(text, TYPES), tree_of(text, some)
        if compiled is None:
            continue
        compared += 1
        if typed is None:
            with pytest.raises(Unfitting):
                typed_condition(compiled, TYPES, {})
        else:
            assert typed_condition(compiled, TYPES, {}) == typed, text
    assert compared > 20


WIDE: ColumnTypes = {
    "n": parse_type("int"),
    "d": parse_type("decimal(38,0)"),
    "m": parse_type("map<string,int>"),
}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("n * 5 > 0", (">", ("fit", "int", ("*", ("column", "n"), ("literal", 5))), ("literal", 0))),
        # a constant is as wide as it was cast to, although its value does not tell
        (
            "n * cast(5 as bigint) > 0",
            (">", ("*", ("column", "n"), ("literal", 5, "bigint")), ("literal", 0)),
        ),
        ("n = 5Y", ("=", ("column", "n"), ("literal", 5, "tinyint"))),
        ("n = 1.5D", ("=", ("call", "widened", ("column", "n")), ("literal", 1.5))),
        ("m['a'] = 1", ("=", ("call", "of_key", ("column", "m"), ("literal", "a")), ("literal", 1))),
    ],
)
def test_numbers_are_as_wide_as_they_really_are(text: str, tree: Tree) -> None:
    assert over(text, WIDE) == tree


def test_key_columns_have_the_types_of_the_key() -> None:
    keys = {"zone": parse_type("int"), "shop": parse_type("string")}
    wide = ("fit", "int", ("*", ("key", "zone", "int"), ("column", "n")))
    assert over("zone * n > 0", WIDE, keys) == (">", wide, ("literal", 0))
    with pytest.raises(Unfitting, match=r"the key column `zone` is double"):
        over("zone * n > 0", WIDE, {**keys, "zone": parse_type("double")})


MANY: ColumnTypes = {
    name: parse_type(type_)
    for name, type_ in {
        "n": "int",
        "z": "string",
        "p": "boolean",
        "d": "date",
        "t": "timestamp",
        "u": "timestamp_ntz",
        "xs": "array<int>",
        "e": "decimal(9,2)",
        "f": "double",
        "s": "struct<city:int>",
    }.items()
}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("z > 1", r"int and string are compared|string and int are compared"),
        ("z", r"the condition is string, neither true nor false"),
        ("-z > 1", r"a minus stands before what is not a number"),
        ("n like 'a%'", r"`like` is of texts, not of int"),
        ("n = z", r"int and string are compared"),
        ("p = n", r"boolean and int are compared"),
        ("d = t", r"date and timestamp are compared"),
        ("t = u", r"timestamp and timestamp_ntz are compared"),
        ("xs < xs", r"array<int> is compared as a whole"),
        ("z + z > 1", r"`\+` computes with string"),
        ("d + 1 > 1", r"`\+` computes with date"),
        ("sqrt(p) > 1", r"`sqrt` takes a number, not boolean"),
        ("lower(n) = 'a'", r"`lower` takes a text, not int"),
        ("size(z) = 1", r"`size` takes an array or map, not string"),
        ("e / 3 = 1", r"it divides decimals"),
        ("cast(f as string) = 'a'", r"a number with a fraction is cast to string"),
        ("cast(z as bigint) = 1", r"cannot cast string to bigint"),
        ("s.zip = 1", r"the field `zip` is taken out of struct<city:int>"),
        ("not z", r"what `not` stands before is string"),
    ],
)
def test_types_that_do_not_fit_are_reported(text: str, says: str) -> None:
    with pytest.raises(Unfitting, match=says):
        over(text, MANY)


def test_a_column_that_is_not_there_is_reported() -> None:
    with pytest.raises(Unfitting, match="the column `n` does not exist"):
        typed_condition((">", ("column", "n"), ("literal", 1)), {}, {})
    with pytest.raises(Unfitting, match="the key column `zone` does not exist"):
        typed_condition(("=", ("key", "zone", "string"), ("literal", "a")), {}, {})
