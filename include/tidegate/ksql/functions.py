"""ksqlDB's functions that have an equivalent in Spark SQL: name -> types of arguments, expression, result.

A function that is not in the table is a remark. In an expression `{0}` is the first argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.ksql.arguments import PARTS
from tidegate.ksql.translated import DAY_MS, INFINITY, Translated, guarded
from tidegate.ksql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    LIST_OF_TEXTS,
    NULL,
    STRING,
    KsqlType,
    Untranslatable,
)

_KINDS: Mapping[str, tuple[str, ...]] = {
    "text": ("STRING",),
    "whole": ("INTEGER",),
    "long": ("INTEGER", "BIGINT"),
    "double": ("INTEGER", "BIGINT", "DOUBLE"),
    "decimal": ("DECIMAL",),
    "boolean": ("BOOLEAN",),
    "array": ("ARRAY",),
    "items": ("ARRAY",),
    "map": ("MAP",),
    "joined": ("ARRAY",),
    "date": ("DATE",),
    "time": ("TIME",),
    "timestamp": ("TIMESTAMP",),
    "scalar": ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "STRING"),
    "any": (
        *("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "STRING", "ARRAY", "STRUCT"),
        *("DATE", "TIME", "TIMESTAMP", "BYTES", "MAP"),
    ),
}
_LITERALS = {"literal": STRING, "filled": STRING, "count": INTEGER, "unit": BIGINT}
"""Arguments that have to be literals: a text, a text that is not empty, a number, a unit of time."""


@dataclass(frozen=True)
class KsqlFunction:
    """A function.

    Args:
        takes: The kinds of its arguments; the last one repeats if it ends with `…`.
        sql: The expression.
        result: The type; `same` is that of the first argument, `item` that of an array's items.
        absorbs: Whether it has a result although an argument is null.
        fails: An expression that is null where ksqlDB fails, as for a null where Java has a type without one.
        fills: Whether it is never null if one of its arguments never is.
    """

    takes: str
    sql: str
    result: KsqlType | str
    absorbs: bool = False
    fails: str = ""
    fills: bool = False


_CONTROL = r"[\\x00-\\x20]"
_ONE_UNIT = r"[^\\x{10000}-\\x{10FFFF}]"
_PADDED = "(case when {{1}} >= 0 and {{2}} <> '' then {}({{0}}, {{1}}, {{2}}) end)"
_WHOLE_ABOVE = 2**53
"""From here on each double is a whole number, and Spark's CEIL and FLOOR have no number at the end."""
_TO_WHOLE = (
    f"(case when abs({{{{0}}}}) < {_WHOLE_ABOVE}L then cast({{}}({{{{0}}}}) as double) else {{{{0}}}} end)"
)
# ksqlDB rounds a half away from zero above zero, and towards it below. tidegate has these functions over the
# aggregates of windows, too.
_ROUND_TO_DIGITS = (
    "(case when {0} < 0 and {0} = round({0}, {more}) and round(abs({0}) * {power}) % 10 = 5 "
    "then round(round({0}, {digits}) + {unit}, {digits}) else round({0}, {digits}) end)"
)
_MASKED = (
    r"regexp_replace(regexp_replace(regexp_replace(regexp_replace({0}, '[^\\p{Lu}\\p{Ll}\\p{Nd}]', '-'), "
    r"'\\p{Lu}', 'X'), '\\p{Ll}', 'x'), '\\p{Nd}', 'n')"
)
_FINITE = f"if({{0}} is null or abs({{0}}) < {INFINITY}, 0, null)"
_MATH = (
    "ACOS",
    "ASIN",
    "ATAN",
    "CBRT",
    "COS",
    "COSH",
    "COT",
    "DEGREES",
    "RADIANS",
    "SIN",
    "SINH",
    "TAN",
    "TANH",
)
"""Functions of a double that Spark computes with the same method of Java's Math, to the last digit."""
UNITS = {"MILLISECONDS": 1, "SECONDS": 1_000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": DAY_MS}
"""The unit that is the first argument of TIMESTAMPADD and its like -> milliseconds."""
WITH_UNIT = ("DATEADD", "DATESUB", "TIMEADD", "TIMESUB", "TIMESTAMPADD", "TIMESTAMPSUB")
_IN_DAYS = f"cast(({{{{2}}}} * {DAY_MS}L {{}} {{{{1}}}} * {{{{0}}}}) div {DAY_MS} as int)"
_IN_DAY = f"cast(pmod({{{{2}}}} {{}} {{{{1}}}} * {{{{0}}}}, {DAY_MS}L) as int)"
_IN_ZONE = "date_format(from_utc_timestamp(timestamp_millis({0}), {zone}), {time})"

FUNCTIONS: Mapping[str, Sequence[KsqlFunction]] = {
    "UCASE": [KsqlFunction("text", "upper({0})", STRING)],
    "LCASE": [KsqlFunction("text", "lower({0})", STRING)],
    # in Java an emoji is two characters, in Spark it is one
    "LEN": [
        KsqlFunction("text", rf"(length({{0}}) + length(regexp_replace({{0}}, '{_ONE_UNIT}', '')))", INTEGER)
    ],
    "TRIM": [
        KsqlFunction(
            "text", f"regexp_replace(regexp_replace({{0}}, '^{_CONTROL}+', ''), '{_CONTROL}+$', '')", STRING
        )
    ],
    "INITCAP": [
        KsqlFunction(
            "text",
            r"array_join(transform(regexp_extract_all(lower({0}), '[^\\s]+\\s*', 0), "
            "word -> concat(upper(substring(word, 1, 1)), substring(word, 2))), '')",
            STRING,
        )
    ],
    "MASK": [KsqlFunction("text", _MASKED, STRING)],
    "MD5": [KsqlFunction("text", "md5({0})", STRING)],
    "CONCAT": [KsqlFunction("text…", "concat_ws('', {all})", STRING, absorbs=True)],
    "CONCAT_WS": [KsqlFunction("text text…", "concat_ws({all})", STRING, absorbs=True)],
    "REPLACE": [KsqlFunction("text filled text", "replace({0}, {1}, {2})", STRING)],
    "SUBSTRING": [
        KsqlFunction("text whole", "substring({0}, {start})", STRING),
        KsqlFunction("text whole whole", "substring({0}, {start}, {length})", STRING),
    ],
    "INSTR": [
        KsqlFunction("text text", "coalesce(if({0} <> '', instr({0}, {1}), 0), 0)", INTEGER, absorbs=True)
    ],
    "LPAD": [KsqlFunction("text whole text", _PADDED.format("lpad"), STRING)],
    "RPAD": [KsqlFunction("text whole text", _PADDED.format("rpad"), STRING)],
    "SPLIT": [KsqlFunction("text literal", "split({0}, {regex})", LIST_OF_TEXTS)],
    "REGEXP_REPLACE": [
        KsqlFunction("text literal literal", "regexp_replace({0}, {pattern}, {replacement})", STRING)
    ],
    "REGEXP_EXTRACT": [
        KsqlFunction(
            "literal text", "(case when {1} rlike {0} then regexp_extract({1}, {0}, {group}) end)", STRING
        ),
        KsqlFunction(
            "literal text count",
            "(case when {1} rlike {0} then regexp_extract({1}, {0}, {group}) end)",
            STRING,
        ),
    ],
    "ABS": [
        KsqlFunction("whole", "abs({0})", INTEGER),
        KsqlFunction("long", "abs({0})", BIGINT),
        KsqlFunction("double", "abs({0})", DOUBLE),
        KsqlFunction("decimal", "abs({0})", "same"),
    ],
    "CEIL": [
        KsqlFunction("long", "{0}", "same"),
        KsqlFunction("double", _TO_WHOLE.format("ceil"), DOUBLE),
    ],
    "FLOOR": [
        KsqlFunction("long", "{0}", "same"),
        KsqlFunction("double", _TO_WHOLE.format("floor"), DOUBLE),
    ],
    "ROUND": [
        KsqlFunction("long", "cast({0} as bigint)", BIGINT, fails="{0}"),
        # not `floor({0} + 0.5)`: the sum is rounded to 1 for the number below 0.5
        KsqlFunction(
            "double",
            "(floor({0}) + if({0} - floor({0}) between 5e-1 and 1, 1, 0))",
            BIGINT,
        ),
        KsqlFunction("double count", _ROUND_TO_DIGITS, DOUBLE, fails=_FINITE),
    ],
    "SQRT": [KsqlFunction("double", "sqrt({0})", DOUBLE)],
    "SIGN": [KsqlFunction("double", "cast(signum({0}) as int)", INTEGER)],
    "COALESCE": [KsqlFunction("any…", "coalesce({all})", "same", absorbs=True, fills=True)],
    "IFNULL": [KsqlFunction("any any", "coalesce({0}, {1})", "same", absorbs=True, fills=True)],
    "NULLIF": [KsqlFunction("scalar scalar", "nullif({0}, {1})", "same", absorbs=True)],
    "GREATEST": [KsqlFunction("scalar…", "greatest({all})", "same", absorbs=True)],
    "LEAST": [KsqlFunction("scalar…", "least({all})", "same", absorbs=True)],
    "ARRAY_CONTAINS": [
        KsqlFunction("array item", "coalesce(exists({0}, e -> e <=> {1}), false)", BOOLEAN, absorbs=True)
    ],
    "ARRAY_REMOVE": [KsqlFunction("array item", "filter({0}, e -> not (e <=> {1}))", "same", absorbs=True)],
    "ARRAY_CONCAT": [
        KsqlFunction(
            "array array",
            "(case when {0} is null then {1} when {1} is null then {0} else concat({0}, {1}) end)",
            "same",
            absorbs=True,
        )
    ],
    "ARRAY_JOIN": [
        KsqlFunction("joined", "array_join(cast({0} as array<string>), ',', 'null')", STRING),
        KsqlFunction("joined literal", "array_join(cast({0} as array<string>), {1}, 'null')", STRING),
    ],
    "ARRAY_LENGTH": [KsqlFunction("array", "(case when {0} is not null then size({0}) end)", INTEGER)],
    "ARRAY_MAX": [KsqlFunction("items", "array_max({0})", "item")],
    "ARRAY_MIN": [KsqlFunction("items", "array_min({0})", "item")],
    "ARRAY_DISTINCT": [KsqlFunction("items", "array_distinct({0})", "same")],
    "ARRAY_UNION": [KsqlFunction("items items", "array_union({0}, {1})", "same")],
    "ARRAY_EXCEPT": [KsqlFunction("items items", "array_except({0}, {1})", "same")],
    "ARRAY_INTERSECT": [KsqlFunction("items items", "array_intersect({0}, {1})", "same")],
    "TIMESTAMPTOSTRING": [
        KsqlFunction("long literal", "date_format(timestamp_millis({0}), {time})", STRING, fails="{0}"),
        KsqlFunction("long literal literal", _IN_ZONE, STRING, fails="{0}"),
    ],
    "FORMAT_TIMESTAMP": [
        KsqlFunction("timestamp literal", "date_format(timestamp_millis({0}), {time})", STRING),
        KsqlFunction("timestamp literal literal", _IN_ZONE, STRING),
    ],
    "FORMAT_DATE": [KsqlFunction("date literal", "date_format(date_from_unix_date({0}), {date})", STRING)],
    "FORMAT_TIME": [KsqlFunction("time literal", "date_format(timestamp_millis({0}), {clock})", STRING)],
    "FROM_UNIXTIME": [KsqlFunction("long", "cast({0} as bigint)", KsqlType("TIMESTAMP"))],
    "FROM_DAYS": [KsqlFunction("whole", "{0}", KsqlType("DATE"), fails="{0}")],
    "UNIX_TIMESTAMP": [KsqlFunction("timestamp", "{0}", BIGINT)],
    "UNIX_DATE": [KsqlFunction("date", "{0}", INTEGER)],
    "TIMESTAMPADD": [KsqlFunction("unit whole timestamp", "({2} + {1} * {0})", KsqlType("TIMESTAMP"))],
    "TIMESTAMPSUB": [KsqlFunction("unit whole timestamp", "({2} - {1} * {0})", KsqlType("TIMESTAMP"))],
    "DATEADD": [KsqlFunction("unit whole date", _IN_DAYS.format("+"), KsqlType("DATE"))],
    "DATESUB": [KsqlFunction("unit whole date", _IN_DAYS.format("-"), KsqlType("DATE"))],
    "TIMEADD": [KsqlFunction("unit whole time", _IN_DAY.format("+"), KsqlType("TIME"))],
    "TIMESUB": [KsqlFunction("unit whole time", _IN_DAY.format("-"), KsqlType("TIME"))],
    "DATETOSTRING": [
        KsqlFunction("whole literal", "date_format(date_from_unix_date({0}), {date})", STRING, fails="{0}")
    ],
    **{name: [KsqlFunction("double", f"{name.lower()}({{0}})", DOUBLE)] for name in _MATH},
    "PI": [KsqlFunction("", "pi()", DOUBLE)],
    "AS_VALUE": [KsqlFunction("any", "{0}", "same")],
}
"""The functions that have an equivalent, by name, each with the forms that do."""

AGAINST = {
    "UUID": "UUID gives another value each time",
    "RANDOM": "RANDOM gives another value each time",
}
"""Functions for which there can be no equivalent, and why."""
OF_THE_MACHINE = ("UNIX_TIMESTAMP", "UNIX_DATE")
"""Functions that read the clock if they have no argument."""


def call(name: str, translate: Callable[[], Sequence[Translated]]) -> Translated:
    """Translate a call. Raises Untranslatable if no form of the function takes the arguments.

    Args:
        translate: Returns the arguments.
    """
    if name in AGAINST:
        raise Untranslatable(AGAINST[name], "Let the producer write it into the record.")
    forms = FUNCTIONS.get(name)
    if forms is None:
        raise Untranslatable(f"the function {name} has no equivalent", "Compute it in the producer.")
    arguments = translate()
    if not arguments and name in OF_THE_MACHINE:
        raise Untranslatable(
            f"{name} is the time of the machine, which no batch may depend on", "Select a time of the record."
        )
    form = next((form for form in forms if _fits(form, arguments)), None)
    if form is None:
        kinds = ", ".join(argument.type.kind for argument in arguments)
        raise Untranslatable(f"{name} of ({kinds}) has no equivalent", "Cast the arguments to other types.")
    fails = tuple(failing for argument in arguments for failing in argument.fails)
    sql = _filled(form.sql, arguments)
    if form.fails and not arguments[0].is_certain:
        fails += (_filled(form.fails, arguments),)
    certain = form.fills and not fails and any(argument.is_certain for argument in arguments)
    sql = guarded(sql, fails) if form.absorbs else sql
    return Translated(sql, _result(form, arguments), fails, is_certain=certain)


def _fits(form: KsqlFunction, arguments: Sequence[Translated]) -> bool:
    kinds = form.takes.split()
    if kinds and kinds[-1].endswith("…"):
        kinds[-1] = kinds[-1].removesuffix("…")
        kinds += [kinds[-1]] * (len(arguments) - len(kinds))
    if len(kinds) != len(arguments) or not all(map(_is_of, arguments, kinds)):
        return False
    alike = [
        argument for argument, kind in zip(arguments, kinds, strict=True) if kind not in ("item", "whole")
    ]
    if "item" in kinds and arguments[1].type not in (arguments[0].type.parts[0], NULL):
        return False
    # Spark would convert other types to one of them
    same = form.result == "same" and len(alike) > 1
    return not same or len({argument.type for argument in alike if argument.type.kind != "NULL"}) == 1


def _is_of(argument: Translated, kind: str) -> bool:
    if kind in _LITERALS:
        is_literal = argument.literal is not None and argument.type == _LITERALS[kind]
        return is_literal and (argument.literal != "" or kind != "filled")
    if kind == "items" and "MAP" in {inner.kind for inner in argument.type.inner}:
        return False  # Spark does not compare maps
    if kind == "item":
        return not argument.type.is_nested
    if kind == "joined" and argument.type.kind == "ARRAY":
        return argument.type.parts[0].kind in ("BOOLEAN", "INTEGER", "BIGINT", "STRING")
    return argument.type.kind in _KINDS[kind] or (argument.type.kind == "NULL" and kind in ("any", "scalar"))


def _result(form: KsqlFunction, arguments: Sequence[Translated]) -> KsqlType:
    if isinstance(form.result, KsqlType):
        return form.result
    if form.result == "item":
        return arguments[0].type.parts[0]
    return next(argument.type for argument in arguments if argument.type.kind != "NULL")


def _filled(sql: str, arguments: Sequence[Translated]) -> str:
    """Return an expression of the table with the arguments in it."""

    def part(mark: re.Match[str]) -> str:
        name = mark[1]
        return arguments[int(name)].sql if name.isdigit() else PARTS[name](arguments)

    return re.sub(r"\{([0-9]|[a-z]+)\}", part, sql)  # once: a text among the arguments may look like a mark
