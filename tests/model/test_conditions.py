"""Conditions that can be tested between records, and the messages about all others."""

from __future__ import annotations

import pickle
from decimal import Decimal

import pytest

from tests.expressions.conditions import COLUMNS
from tidegate.expressions import Condition
from tidegate.model.columns import parse_columns, parse_type
from tidegate.model.condition import MAX_DEPTH, NAMES, expression_type, parse_condition
from tidegate.model.mistakes import Fault

TYPES = {column.name: parse_type(column.type) for column in parse_columns(COLUMNS)[0]}
TYPES["z"] = None  # its type is not known


def read(text: str) -> Condition:
    condition, faults = parse_condition(text, TYPES)
    assert condition is not None, faults
    return condition


def faults(text: str) -> list[Fault]:
    condition, problems = parse_condition(text, TYPES)
    assert condition is None
    assert all(fault.message and fault.fix.endswith((".", "?")) for fault in problems)
    return problems


def test_a_negative_constant_keeps_its_digits() -> None:
    digits = "1." + "7" * 29
    assert read(f"d > -{digits}").tree == (">", ("column", "d"), ("literal", Decimal(f"-{digits}")))


def test_condition_tuples_can_be_printed_and_pickled() -> None:
    condition = read("a > 1 and not (s like 'a%' or n.b is null)")
    assert condition.tree == (
        "and",
        (">", ("column", "a"), ("literal", 1)),
        ("not", ("or", ("like", ("column", "s"), "a%", "\\"), ("null", ("column", "n", "b")))),
    )
    assert pickle.loads(pickle.dumps(condition)) == condition
    assert eval(repr(condition.tree)) == condition.tree


def test_names_are_those_that_were_declared() -> None:
    assert read("A > N.DEEP.X").tree == (
        ">",
        ("call", "widened", ("column", "a")),
        ("column", "n", "deep", "x"),
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_function_on_offer_is_there(name: str) -> None:
    arguments = {
        "if": "p, a, b",
        "nvl2": "a, b, 1",
        "get": "xs, 1",
        **dict.fromkeys(("substring", "substr"), "s, 1, 1"),
        "size": "xs",
        "concat": "s, t",
        **dict.fromkeys(("startswith", "endswith", "contains"), "s, t"),
        **dict.fromkeys(("length", "char_length", "lower", "upper", "trim"), "s"),
        **dict.fromkeys(("nullif", "nvl", "ifnull", "least", "greatest", "coalesce"), "a, b"),
    }
    call = f"{name}({arguments.get(name, 'x')})"
    assert read(f"{call} <=> {call}").evaluate(ROW) is True


ROW = {"a": 1, "b": 2, "x": 0.5, "s": "s", "t": "t", "p": True, "xs": [1], "z": None}

REFUSED = [
    # what check_expression says, too
    ("", "the expression is empty"),
    ("a >", "cannot be read"),
    ("aa > 1", "`aa` does not exist"),
    ("n.c > 1", "`n` has no field `c`"),
    ("rand() > 1", "`rand` gives another value"),
    ("a in (select 1)", "another table"),
    # what is not tested between records
    ("sha2(s, 256) = 'x'", "a condition cannot call `sha2`"),
    ("xs[a] = 1", "the number of an array's element is bigint"),
    ("s[0] = 1", "an element by its number is taken out of string"),
    ("x div 2 = 1", "`div` is of whole numbers"),
    ("a & 1 = 1", "(bitwiseand)"),
    ("s || t = 'x'", "(dpipe)"),
    ("s ilike 'x'", "(ilike)"),
    # what Java and Arrow compute differently, or only one of them
    ("s rlike '^a'", "(regexplike)"),
    ("regexp_like(s, '^a')", "a condition cannot call `regexp_like`"),
    ("pow(x, 2) > 1", "a condition cannot call `pow`"),
    ("power(x, 2) > 1", "a condition cannot call `power`"),
    ("log(x) > 1", "a condition cannot call `log`"),
    ("array_contains(xs, a)", "a condition cannot call `array_contains`"),
    ("element_at(xs, 1) = 1", "a condition cannot call `element_at`"),
    ("try_element_at(xs, 1) = 1", "a condition cannot call `try_element_at`"),
    ("cast(s as bigint) = 1", "a condition cannot cast string to bigint"),
    ("cast(s as double) = 1", "a condition cannot cast string to double"),
    ("cast(s as boolean)", "a condition cannot cast string to boolean"),
    ("exists(xs, v -> v > 1)", "a condition cannot call `exists`"),
    ("array(1, 2)[0] = a", "a condition cannot call `array`"),
    ("named_struct('b', a).b = 1", "a field is taken out of what is not a column"),
    ("x'41' = s", "(hexstring)"),
    ("extract(year from s) = 1", "(extract)"),
    ("substring(s, a, 2) = 'a'", "the number of a text's character is bigint"),
    ("substring(a, 1) = 'a'", "`substring` takes a text, not bigint"),
    ("trim(both 'x' from s) = 'a'", "`trim` removes blanks only"),
    ("try_cast(s as bigint) = 1", "a condition cannot call `try_cast`"),
    ("cast(s as date) = s", "a condition cannot cast to date"),
    ("date'2026-01-01' = s", "date and string are compared"),
    ("date'2026-02-30' = z", "'2026-02-30' is not a date here"),
    ("timestamp'2026-1-1' = z", "'2026-1-1' is not a timestamp here"),
    ("timestamp_ntz'2026-01-01 00:00:00Z' = z", "is not a timestamp_ntz here"),
    ("1.5BD = d", "a condition cannot cast to decimal"),
    ("cast(3e9 as int) = 1", "too large for `int`"),
    ("cast(x as string) = 'a'", "a number with a fraction is cast to string"),
    ("cast(coalesce(z, 1) as string) = 'a'", "what may be a number with a fraction"),
    ("s like t", "`like` needs a text in quotes"),
    ("s like any ('a', 'b')", "`any`"),
    ("s like 'a' escape 'ab'", "`like` needs a text in quotes"),
    ("s like 'a!b' escape '!'", "'!' has to stand before"),
    ("s like 'a\\\\'", "has to stand before"),
    ("a like '1'", "`like` is of texts, not of bigint"),
    ("a between symmetric 1 and 2", "`symmetric` is not used"),
    ("floor(x, 1) > 1", "`floor` takes 1 arguments, not 2"),
    ("least(a) > 1", "`least` takes 2 or more arguments, not 1"),
    ("substring(s) = 'x'", "`substring` takes 2 or 3 arguments, not 1"),
    ("99999999999999999999 > a", "a number is too large for `bigint`"),
    (f"0.{'1' * 39} > a", "more than 38 digits"),
    # types that do not go together
    ("a", "the condition is bigint, neither true nor false"),
    ("a and p", "a side of `and` is bigint"),
    ("not s", "what `not` stands before is string"),
    ("s is true", "what stands before `is` is string"),
    ("if(a, p, q)", "what `when` or `if` tests is bigint"),
    ("case when a then p end", "what `when` or `if` tests is bigint"),
    ("case a when 'x' then p end", "bigint and string are compared"),
    ("a = s", "bigint and string are compared"),
    ("p = 1", "boolean and int are compared"),
    ("a in (1, 'x')", "bigint and string are compared"),
    ("a between 1 and 'x'", "bigint and string are compared"),
    ("nullif(a, 'x') > 1", "bigint and string are compared"),
    ("coalesce(a, s) = 1", "the result is either bigint or string"),
    ("least(a, s) = 1", "the result is either bigint or string"),
    ("if(p, a, s) = 1", "the result is either bigint or string"),
    ("xs = xs", "array<bigint> is compared as a whole"),
    ("n <=> n", "is compared as a whole"),
    ("greatest(xs, xs) is null", "`greatest` takes single values"),
    ("s + 1 > 2", "`+` computes with string"),
    ("-s = 'a'", "a minus stands before what is not a number"),
    ("f + 1 > 2", "`+` computes with float"),
    ("d / 2 > 1", "it divides decimals"),
    ("0.5 / a > 1", "it divides decimals"),
    ("d * 1.0000000000 * 1.0000000000 * 1.0000000000 > 1", "`*` gives decimals of more than 38 digits"),
    ("lower(a) = 'a'", "`lower` takes a text, not bigint"),
    ("concat(s, a) = 'a'", "`concat` takes a text, not bigint"),
    ("sqrt(s) > 1", "`sqrt` takes a number, not string"),
    ("size(s) > 1", "`size` takes an array or map, not string"),
    ("size(n) > 1", "`size` takes an array or map, not struct"),
    ("cast(xs as string) = 'a'", "a condition cannot cast array<bigint> to string"),
    # what parsers do not agree on
    ("a = b < a", "it can be read in two ways"),
    ("p = q is null", "it can be read in two ways"),
    ("p <=> q = p", "it can be read in two ways"),
    ("s = t like 'a' escape '!'", "it can be read in two ways"),
    ("p = not q", "it can be read in two ways"),
    ("a in (1) = p", "it can be read in two ways"),
    ("a is not null = p", "it can be read in two ways"),
    ("p is distinct from q = p", "it can be read in two ways"),
    # size
    (" + ".join(["a"] * (MAX_DEPTH + 5)) + " > 1", "it is nested too deeply"),
]


@pytest.mark.parametrize(("text", "part"), REFUSED, ids=[text[:50] or "empty" for text, _ in REFUSED])
def test_is_refused_with_a_fix(text: str, part: str) -> None:
    assert any(part in fault.message for fault in faults(text)), faults(text)


def test_unknown_name_lists_the_existing_ones() -> None:
    ((fix),) = {fault.fix for fault in faults("sha2(s, 256) = 'x'")}
    assert all(name in fix for name in NAMES)
    assert "+ - * / %" in fix
    assert "Compute everything else in `select`, which Spark does" in fix


def test_all_faults_of_a_condition_are_reported() -> None:
    assert [fault.message for fault in faults("sha2(s, 256) = 'x' and a = s and not s")] == [
        "a condition cannot call `sha2`",
        "bigint and string are compared",
        "what `not` stands before is string, neither true nor false",
    ]


@pytest.mark.parametrize(
    "text", ["z > 1", "z = 'a'", "z", "z.a.b is null", "lower(z) like 'a%'", "z + 1 < z / 2"]
)
def test_unknown_type_does_not_refuse_a_condition(text: str) -> None:
    assert read(text)


def test_parentheses_make_one_reading() -> None:
    assert read("(a = b) = p")
    assert read("(p = q) is null")
    assert read("((a)) in ((1), (2))")


def test_a_long_chain_is_not_too_deep() -> None:
    text = " and ".join(["a > 0"] * 500)
    assert read(text).evaluate({"a": 1}) is True


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("a", "bigint"),
        ("`A`", "bigint"),
        ("n.deep.x", "double"),
        ("a > 1", "boolean"),
        ("a + i", "bigint"),
        ("a + 0.5", "decimal(22,1)"),
        ("d * 2", "decimal(12,2)"),
        ("a / 2", "double"),
        ("coalesce(a, x)", "double"),
        ("if(p, s, null)", "string"),
        ("sha2(s, 256)", None),
        ("cast(sha2(s, 256) as string)", "string"),
        ("cast(hour(s) as int)", "int"),
        ("(cast(pi() as decimal(5,3)))", "decimal(5,3)"),
        ("cast(sha2(s, 256) as date)", None),
        ("null", None),
        ("z", None),
    ],
)
def test_expression_type_is_reported_where_possible(text: str, type_: str | None) -> None:
    parsed = expression_type(text, TYPES)
    assert (parsed and parsed.text) == type_
