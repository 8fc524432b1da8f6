"""ksqlDB's functions that have an equivalent in Spark SQL: name -> types of arguments, expression, result.

A function that is not in the table is a remark. In an expression `{0}` is the first argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.ksql.translated import Translated, guarded, quoted_text
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
    "boolean": ("BOOLEAN",),
    "array": ("ARRAY",),
    "items": ("ARRAY",),
    "map": ("MAP",),
    "joined": ("ARRAY",),
    "scalar": ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "STRING"),
    "any": (
        *("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "STRING", "ARRAY", "STRUCT"),
        *("DATE", "TIME", "TIMESTAMP", "BYTES", "MAP"),
    ),
}
_LITERAL = "literal"
"""An argument that has to be a literal text."""


@dataclass(frozen=True)
class KsqlFunction:
    """A function.

    Args:
        takes: The kinds of its arguments; the last one repeats if it ends with `…`.
        sql: The expression.
        result: The type; `same` is that of the first argument, `item` that of an array's items.
        absorbs: Whether it has a result although an argument is null.
    """

    takes: str
    sql: str
    result: KsqlType | str
    absorbs: bool = False


_CONTROL = r"[\\x00-\\x20]"
_PADDED = "(case when {{1}} >= 0 and {{2}} <> '' then {}({{0}}, {{1}}, {{2}}) end)"
_TIME = re.compile(r"(?:[yMdHms]+|S{1,3}|[ .:/,_-]|'[^']+')+")
"""The patterns of times whose letters mean the same in Java and in Spark."""

FUNCTIONS: Mapping[str, Sequence[KsqlFunction]] = {
    "UCASE": [KsqlFunction("text", "upper({0})", STRING)],
    "LCASE": [KsqlFunction("text", "lower({0})", STRING)],
    "LEN": [KsqlFunction("text", "length({0})", INTEGER)],
    "TRIM": [
        KsqlFunction(
            "text", f"regexp_replace(regexp_replace({{0}}, '^{_CONTROL}+', ''), '{_CONTROL}+$', '')", STRING
        )
    ],
    "CONCAT": [KsqlFunction("text…", "concat_ws('', {*})", STRING, absorbs=True)],
    "CONCAT_WS": [KsqlFunction("text text…", "concat_ws({*})", STRING, absorbs=True)],
    "REPLACE": [KsqlFunction("text text text", "replace({0}, {1}, {2})", STRING)],
    "SUBSTRING": [
        KsqlFunction("text whole", "substring({0}, {start})", STRING),
        KsqlFunction("text whole whole", "substring({0}, {start}, {length})", STRING),
    ],
    "INSTR": [KsqlFunction("text text", "coalesce(instr({0}, {1}), 0)", INTEGER)],
    "LPAD": [KsqlFunction("text whole text", _PADDED.format("lpad"), STRING)],
    "RPAD": [KsqlFunction("text whole text", _PADDED.format("rpad"), STRING)],
    "SPLIT": [KsqlFunction("text literal", "split({0}, {regex})", LIST_OF_TEXTS)],
    "REGEXP_REPLACE": [KsqlFunction("text literal text", "regexp_replace({0}, {1}, {2})", STRING)],
    "REGEXP_EXTRACT": [
        KsqlFunction(
            "literal text", "(case when {1} rlike {0} then regexp_extract({1}, {0}, 0) end)", STRING
        ),
        KsqlFunction(
            "literal text whole", "(case when {1} rlike {0} then regexp_extract({1}, {0}, {2}) end)", STRING
        ),
    ],
    "ABS": [
        KsqlFunction("whole", "abs({0})", INTEGER),
        KsqlFunction("long", "abs({0})", BIGINT),
        KsqlFunction("double", "abs({0})", DOUBLE),
    ],
    "CEIL": [KsqlFunction("double", "cast(ceil({0}) as double)", DOUBLE)],
    "FLOOR": [KsqlFunction("double", "cast(floor({0}) as double)", DOUBLE)],
    "ROUND": [
        KsqlFunction("long", "cast({0} as bigint)", BIGINT),
        KsqlFunction("double", "cast(floor({0} + cast('0.5' as double)) as bigint)", BIGINT),
    ],
    "SQRT": [KsqlFunction("double", "sqrt({0})", DOUBLE)],
    "SIGN": [KsqlFunction("double", "cast(signum({0}) as int)", INTEGER)],
    "COALESCE": [KsqlFunction("any…", "coalesce({*})", "same", absorbs=True)],
    "IFNULL": [KsqlFunction("any any", "coalesce({0}, {1})", "same", absorbs=True)],
    "NULLIF": [KsqlFunction("scalar scalar", "nullif({0}, {1})", "same", absorbs=True)],
    "GREATEST": [KsqlFunction("scalar…", "greatest({*})", "same", absorbs=True)],
    "LEAST": [KsqlFunction("scalar…", "least({*})", "same", absorbs=True)],
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
    "TIMESTAMPTOSTRING": [KsqlFunction("long literal", "date_format(timestamp_millis({0}), {time})", STRING)],
    "DATETOSTRING": [KsqlFunction("whole literal", "date_format(date_from_unix_date({0}), {time})", STRING)],
    "AS_VALUE": [KsqlFunction("any", "{0}", "same")],
}
"""The functions that have an equivalent, by name, each with the forms that do."""

AGAINST = {
    "UUID": "UUID gives another value each time",
    "RANDOM": "RANDOM gives another value each time",
    "UNIX_TIMESTAMP": "UNIX_TIMESTAMP is the time of the machine, which no batch may depend on",
    "UNIX_DATE": "UNIX_DATE is the time of the machine, which no batch may depend on",
}
"""Functions for which there can be no equivalent, and why."""


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
    form = next((form for form in forms if _fits(form, arguments)), None)
    if form is None:
        kinds = ", ".join(argument.type.kind for argument in arguments)
        raise Untranslatable(f"{name} of ({kinds}) has no equivalent", "Cast the arguments to other types.")
    fails = tuple(failing for argument in arguments for failing in argument.fails)
    sql = _expression(form, arguments)
    return Translated(guarded(sql, fails) if form.absorbs else sql, _result(form, arguments), fails)


def _fits(form: KsqlFunction, arguments: Sequence[Translated]) -> bool:
    kinds = form.takes.split()
    if kinds[-1].endswith("…"):
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
    if kind == _LITERAL:
        return argument.literal is not None and argument.type == STRING
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


def _expression(form: KsqlFunction, arguments: Sequence[Translated]) -> str:
    texts = [argument.sql for argument in arguments]
    sql = form.sql.replace("{*}", ", ".join(texts))
    if "{start}" in sql:
        sql = sql.replace("{start}", _start(*arguments[:2]))
    if "{length}" in sql:
        is_literal = arguments[2].literal is not None
        length = str(max(int(arguments[2].literal or 0), 0)) if is_literal else f"greatest({texts[2]}, 0)"
        sql = sql.replace("{length}", length)
    if "{regex}" in sql:
        sql = sql.replace("{regex}", _quoted_regex(arguments[1].literal or ""))
    if "{time}" in sql:
        sql = sql.replace("{time}", _time(arguments[1]))
    for place, text in enumerate(texts):
        sql = sql.replace(f"{{{place}}}", text)
    return sql


def _start(text: Translated, place: Translated) -> str:
    """Return where a part of a text begins: from the end of a shorter text, it begins with the text."""
    from_end = f"greatest(length({text.sql}) + {place.sql}, 0) + 1"
    if place.literal is not None:
        return from_end if int(place.literal) < 0 else place.literal
    return f"(case when {place.sql} < 0 then {from_end} else {place.sql} end)"


def _quoted_regex(text: str) -> str:
    if not text or "\\E" in text:
        raise Untranslatable("SPLIT without a delimiter differs", "Split at a text of some characters.")
    return quoted_text(f"\\Q{text}\\E")


def _time(argument: Translated) -> str:
    if not _TIME.fullmatch(argument.literal or ""):
        raise Untranslatable(
            f"the pattern {argument.sql} of times differs", "Use the letters y, M, d, H, m, s, S."
        )
    return argument.sql
