"""Read conditions that tidegate evaluates between records (`where`, `equal: {sql: …}`).

They are the part of Spark's SQL that `tidegate.expressions` evaluates with the same results as Spark.
Everything else is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pydantic_core import PydanticKnownError
from sqlglot import exp

from tidegate.expressions import Condition, Expression, Tree
from tidegate.expressions.arrow import arrow_type
from tidegate.expressions.columns import typed_column
from tidegate.expressions.rows import like_pattern
from tidegate.expressions.types import ANY, NULL, ColumnTypes, Type, Typed
from tidegate.expressions.typing import typed_expression
from tidegate.model import lexis
from tidegate.model.mistakes import Fault, as_mistake
from tidegate.model.sql import check_expression, parse, path_of

MAX_DEPTH = 100
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_LOOSE = (*_COMPARISONS, exp.NullSafeNEQ, exp.Is, exp.In, exp.Between, exp.Like, exp.Escape, exp.Not)
_TIGHT = (*(kind for kind in _LOOSE if kind is not exp.Not), *_ARITHMETIC, exp.Neg)
_CASTS = {
    exp.DType.TEXT: "string",
    exp.DType.DOUBLE: "double",
    exp.DType.BOOLEAN: "boolean",
    exp.DType.BIGINT: "bigint",
    exp.DType.INT: "int",
    exp.DType.SMALLINT: "smallint",
    exp.DType.TINYINT: "tinyint",
}
_TIMES = {
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
    **dict.fromkeys((exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ), "timestamp"),
}
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
# All parts of sqlglot's nodes that this module reads. A node with another part is refused, as its meaning
# would differ.
_PARTS = (
    *("this", "expression", "expressions", "is_string", "table", "db", "catalog", "to", "position"),
    *("start", "length", "low", "high", "symmetric", "negate", "ifs", "default", "typed", "safe"),
)
_PARENTHESES = Fault("it can be read in two ways", "Put parentheses around the inner comparison.")

_MANY = 1000
_ARGUMENTS = {
    **dict.fromkeys(("abs", "sqrt", "sign", "isnan", "floor", "ceil", "isnull", "isnotnull"), (1, 1)),
    **dict.fromkeys(("length", "char_length", "lower", "upper", "trim", "size"), (1, 1)),
    **dict.fromkeys(("startswith", "endswith", "contains", "nullif", "nvl", "ifnull", "get"), (2, 2)),
    **dict.fromkeys(("substring", "substr"), (2, 3)),
    "round": (1, 2),
    **dict.fromkeys(("if", "nvl2"), (3, 3)),
    **dict.fromkeys(("least", "greatest"), (2, _MANY)),
    **dict.fromkeys(("coalesce", "concat"), (1, _MANY)),
}
_OPERATIONS = {"nvl": "coalesce", "ifnull": "coalesce"}
_OPERATIONS |= {name: name for name in ("coalesce", "nullif", "least", "greatest")}
_SPELLINGS = {"char_length": "length", "substr": "substring"}
NAMES = tuple(sorted(_ARGUMENTS))
"""Every function that a condition may call, besides `cast`."""

OFFER = (
    "It is tested between records, by tidegate itself. There are columns, fields, xs[0], m['key'], literals "
    "(of dates and timestamps, too), + - * / % div, comparisons, <=>, and, or, not, between, in, like, "
    "is null, is true, case, casts of numbers and booleans to each other and of whole numbers to string, and "
    f"{', '.join(NAMES)}. Compute everything else in `select`, which Spark does: of aggregates, in a stage "
    "that follows."
)
"""The fix for an expression that a condition cannot have."""


def parse_condition(
    text: str, columns: ColumnTypes | None, keys: ColumnTypes | None = None
) -> tuple[Condition | None, list[Fault]]:
    """Parse a condition. Returns the condition and no faults, or None and all faults.

    Args:
        text: The condition, in Spark SQL.
        columns: The columns that it may name, with their types; None if they could not be read.
        keys: All columns of the key, which it may name, too.

    Example: `condition, faults = parse_condition("total > 0", {"total": BIGINT})`
    """
    # First as any expression: then sqlglot and Spark read the text alike, and its tree can be trusted.
    if faults := check_expression(text, None if columns is None else {**(keys or {}), **columns}):
        return None, faults
    typed, faults = _typed(text, columns, keys or {}, condition=True)
    return (None, faults) if faults else (Condition(text, typed.tree), [])


def parse_expression(text: str, columns: ColumnTypes) -> tuple[Typed, list[Fault]]:
    """Return an expression that `check_expression` accepts with its type, and all faults because of which
    tidegate cannot compute it from single values.
    """
    return _typed(text, columns, {}, condition=False)


def _typed(
    text: str, columns: ColumnTypes | None, keys: ColumnTypes, condition: bool
) -> tuple[Typed, list[Fault]]:
    parsed = parse(text)
    typed, mistakes = typed_expression(_read(parsed), columns, keys, condition)
    faults = [Fault(mistake.message, mistake.fix) for mistake in mistakes]
    misread = _misread(text, parsed)
    # After another fault the tree lacks parts, and the count of parentheses would mislead.
    if misread is not None and (misread != _PARENTHESES or not faults):
        faults.append(misread)
    return typed, list(dict.fromkeys(faults))


def read_condition(written: Any, columns: ColumnTypes | None, keys: ColumnTypes | None = None) -> Condition:
    """Return the condition that is written in a field. Raises pydantic's error with all of its mistakes."""
    if not isinstance(written, str):
        raise PydanticKnownError("string_type")
    condition, faults = parse_condition(written, columns, keys)
    if condition is None:
        raise as_mistake(faults)
    return condition


def read_expression(text: str, columns: ColumnTypes | None) -> Typed | None:
    """Return an expression that `check_expression` accepts with its type; None if a condition
    cannot have it.

    Example: `read_expression("quantity + 1", {"quantity": INT})` has the type `int`.
    """
    expression, mistakes = typed_expression(_read(parse(text)), columns, {})
    return None if mistakes else expression


def expression_type(text: str, columns: ColumnTypes | None) -> Type | None:
    """Return the type of an expression that `check_expression` accepts, or of a cast to a single value; None
    if only Spark can tell it.

    Example: `expression_type("quantity > 0", {"quantity": INT})` is `BOOLEAN`; that of `hour(at)` is None,
    and that of `cast(hour(at) as bigint)` is `BIGINT`.
    """
    expression = read_expression(text, columns)
    if expression is None:
        return _type_of_cast(parse(text).unnest())
    return None if expression.type == NULL else expression.type


def _type_of_cast(node: exp.Expr) -> Type | None:
    if not isinstance(node, exp.Cast):
        return None
    if node.to.this == exp.DType.DECIMAL and len(node.to.expressions) == 2:
        return Type(node.to.sql("spark").lower().replace(" ", ""), "decimal")
    name = _CASTS.get(node.to.this)
    return None if name is None else Type(name, name)


def type_of_no_condition(text: str, columns: ColumnTypes | None) -> Type | None:
    """Return the type of an expression that is neither true nor false; None if it can be a condition.

    Example: `type_of_no_condition("quantity + 1", {"quantity": INT})` is `INT`.
    """
    type_ = expression_type(text, columns)
    return None if type_ is None or type_.kind in ("boolean", ANY.kind) else type_


def compiled_expression(text: str, columns: ColumnTypes | None) -> Expression | None:
    """Return an expression that `check_expression` accepts as tidegate computes it on whole columns of
    records; None if Spark has to compute it.

    Args:
        text: The expression, in Spark SQL.
        columns: The columns that it may name, with their types; None if they could not be read.

    Example: `compiled_expression("quantity > 0", {"quantity": INT})` has the type `boolean`.
    """
    parsed = parse(text)
    typed, mistakes = typed_expression(_read(parsed), columns, {})
    if columns is None or mistakes or _misread(text, parsed) is not None:
        return None
    if typed.type is None or typed.type == NULL or not typed.type.is_known:
        return None
    fields = [(name, arrow_type(type_)) for name, type_ in columns.items() if type_ and type_.is_known]
    # no rows: a part without a counterpart in Arrow for its types shows without values, too
    rows = pa.array([], pa.struct(fields))
    if typed_column(typed.tree, rows, arrow_type(typed.type)) is None:
        return None
    return Expression(text, typed.tree, typed.type.text)


def _misread(text: str, parsed: exp.Expr) -> Fault | None:
    """Return why Spark may read a text otherwise than its tree says, which only the text shows."""
    words, _ = lexis.split(text)
    names, _ = lexis.calls(words)
    # sqlglot has one node for both casts.
    if any(name.says("try_cast") for name in names):
        return Fault("a condition cannot call `try_cast`", OFFER)
    return _PARENTHESES if _has_other_parentheses(words, names, parsed) else None


def _has_other_parentheses(words: list[lexis.Word], names: list[lexis.Word], tree: exp.Expr) -> bool:
    """Return whether sqlglot added parentheses that the text lacks: Spark's parser may group otherwise."""
    called = {name.start for name in names}
    written = sum(
        word.says("(") and not (at and (words[at - 1].start in called or words[at - 1].says("in")))
        for at, word in enumerate(words)
    )
    return written != len(list(tree.find_all(exp.Paren)))


class _Refused(Exception):
    """A part that a condition cannot have."""

    def __init__(self, message: str, fix: str = OFFER) -> None:
        super().__init__(message, fix)


def _read(node: exp.Expr, depth: int = 1) -> Tree:
    """Return the tree of a part, without types; a part that cannot be used is `("refused", message, fix)`."""
    try:
        # The trees are typed and compiled by recursion, too, in each worker.
        if depth > MAX_DEPTH:
            raise _Refused("it is nested too deeply", "Split it.")
        kind = type(node).__name__.lower()
        if unknown_parts := [name for name, value in node.args.items() if value and name not in _PARTS]:
            raise _Refused(f"a condition cannot have this ({kind}, {unknown_parts[0]})")
        if isinstance(node, _TIGHT):
            _require_parentheses(node)
        for kinds, reader in _READERS:
            if isinstance(node, kinds):
                return reader(node, lambda part: _read(part, depth + 1))
        raise _Refused(f"a condition cannot have this ({kind})")
    except _Refused as refused:
        return ("refused", *refused.args)


Read = Callable[[exp.Expr], Tree]


def _require_parentheses(node: exp.Expr) -> None:
    """Refuse comparisons inside of comparisons without parentheses: parsers differ on `a = b < c`."""
    operands = [node.this, *(node.args.get(name) for name in ("expression", "low", "high"))]
    if not isinstance(node, exp.Escape) and any(isinstance(operand, _LOOSE) for operand in operands):
        raise _Refused(_PARENTHESES.message, _PARENTHESES.fix)


def _column(node: exp.Expr, read: Read) -> Tree:
    column = node
    while isinstance(column, exp.Dot):
        column = column.this
    # `xs[0].a`: a field of an element, which is not a path of names.
    if isinstance(node, exp.Dot) and isinstance(column, exp.Bracket):
        return ("field", read(node.this), node.expression.name)
    if not isinstance(column, exp.Column):
        raise _Refused("a field is taken out of what is not a column")
    return ("column", *path_of(column))


def _constant(node: exp.Expr, _: Read) -> Tree:
    if isinstance(node, exp.Null):
        return ("literal", None)
    if isinstance(node, exp.Boolean):
        return ("literal", bool(node.this))
    return ("literal", str(node.this) if node.is_string else _number(str(node.this)))


def _number(text: str) -> float | int | Decimal:
    # In Spark a literal with an exponent is a double, one with a point a decimal.
    if "e" in text.lower():
        return float(text)
    value = Decimal(text)
    if value >= 2**63:
        # Spark compares such a number with a bigint column without checking for nulls.
        raise _Refused("a number is too large for `bigint`", "Write it as a double, such as `1e20`.")
    if text.isdigit():
        return int(text)
    _, digits, exponent = value.as_tuple()
    if max(len(digits), -int(exponent)) > 38:
        raise _Refused("a number has more than 38 digits", "Shorten it.")
    return value


def _instant(written: str, kind: str) -> date:
    """Return a constant of the kind `date`, `timestamp` or `timestamp_ntz`."""
    parts = _TIME.fullmatch(written)
    day, time, zone = parts.groups() if parts else (None, None, None)
    with suppress(ValueError, OverflowError):  # OverflowError: in UTC the year is not one of 1 to 9999
        if kind == "date" and day and not time:
            return date.fromisoformat(day)
        if kind != "date" and day and (zone is None or kind == "timestamp"):
            form = "%Y-%m-%d %H:%M:%S.%f" if time and "." in time else "%Y-%m-%d %H:%M:%S"
            value = datetime.strptime(f"{day} {time or '00:00:00'}", form)
            if kind == "timestamp":
                value = datetime.fromisoformat(f"{value.isoformat()}{(zone or 'Z').replace('Z', '+00:00')}")
                value = value.astimezone(timezone.utc)
            return value
    example = "2026-01-31" if kind == "date" else "2026-01-31 10:30:00"
    raise _Refused(f"{written!r} is not a {kind} here", f"Write it as in `{kind}'{example}'`.")


def _negative(node: exp.Expr, read: Read) -> Tree:
    operand = read(node.this)
    # A negative literal is a constant of its own: -2147483648 is an int, and 2147483648 is not.
    if isinstance(node.this, exp.Literal) and not node.this.is_string and operand[0] == "literal":
        value = operand[1]
        # `-value` would round a decimal to the 28 digits of Python's context.
        return ("literal", value.copy_negate() if isinstance(value, Decimal) else -value)
    return ("negative", operand)


def _connected(node: exp.Expr, read: Read) -> Tree:
    return ("and" if isinstance(node, exp.And) else "or", *map(read, node.flatten()))


def _between(node: exp.Expr, read: Read) -> Tree:
    if node.args.get("symmetric"):
        raise _Refused("`symmetric` is not used here", "Write `x between low and high`.")
    value, low, high = (read(node.args[name]) for name in ("this", "low", "high"))
    return ("and", (">=", value, low), ("<=", value, high))


def _is(node: exp.Expr, read: Read) -> Tree:
    if isinstance(node.expression, exp.Null):
        return ("null", read(node.this))
    if isinstance(node.expression, exp.Boolean):
        return ("is", read(node.this), bool(node.expression.this))
    raise _Refused("`is` needs `null`, `true` or `false` behind it")


def _like(node: exp.Expr, read: Read) -> Tree:
    # Spark's default.
    escape: str | None = "\\"
    if isinstance(node, exp.Escape):
        escape, node = _text(node.expression), node.this
        _require_parentheses(node)
    pattern = _text(node.expression)
    if not isinstance(node, exp.Like) or pattern is None or escape is None or len(escape) != 1:
        fix = "Write `x like 'a%'`, or use `startswith`, `endswith` or `contains`."
        raise _Refused("`like` needs a text in quotes behind it", fix)
    try:
        like_pattern(pattern, escape)
    except ValueError as error:
        raise _Refused(str(error), f"Write {escape * 2} for the character itself.") from None
    tree = ("like", read(node.this), pattern, escape)
    return ("not", tree) if node.args.get("negate") else tree


def _case(node: exp.Expr, read: Read) -> Tree:
    subject = read(node.this) if node.this else None
    branches = []
    for branch in node.args["ifs"]:
        condition = read(branch.this) if subject is None else ("=", subject, read(branch.this))
        branches.append((condition, read(branch.args["true"])))
    default = node.args.get("default")
    return ("case", *branches, read(default) if default else ("literal", None))


def _cast(node: exp.Expr, read: Read) -> Tree:
    to = node.to.this  # type: ignore[attr-defined]
    if to in _TIMES and (written := _text(node.this)) is not None:
        return ("literal", _instant(written, _TIMES[to]))
    if to not in _CASTS or type(node) is not exp.TryCast:
        raise _Refused(f"a condition cannot cast to {node.to.sql('spark').lower()}")  # type: ignore[attr-defined]
    return ("cast", _CASTS[to], read(node.this))


def _trim(node: exp.Expr, read: Read) -> Tree:
    if node.expression or node.args.get("position"):
        raise _Refused("`trim` removes blanks only here", "Write `trim(x)`.")
    return ("call", "trim", read(node.this))


def _substring(node: exp.Expr, read: Read) -> Tree:
    # The parser fills these in without counting them.
    parts = (node.this, node.args.get("start"), node.args.get("length"))
    return _called("substring", [part for part in parts if part is not None], read)


def _bracket(node: exp.Expr, read: Read) -> Tree:
    if len(node.expressions) != 1:
        raise _Refused("brackets hold one number or key", "Write `xs[0]` or `m['key']`.")
    return ("call", "at", read(node.this), read(node.expressions[0]))


def _called(name: str, arguments: list[exp.Expr], read: Read) -> Tree:
    if name not in _ARGUMENTS:
        raise _Refused(f"a condition cannot call `{name}`")
    least, most = _ARGUMENTS[name]
    count = len(arguments)
    if not least <= count <= most:
        most_text = "more" if most == _MANY else most
        allowed = str(least) if least == most else f"{least} or {most_text}"
        raise _Refused(f"`{name}` takes {allowed} arguments, not {count}", "Write as many.")
    return _call_of(name, [read(argument) for argument in arguments])


def _call_of(name: str, operands: list[Tree]) -> Tree:
    """Return the tree of a call; several functions are other spellings of an operation."""
    if name == "if":
        return ("case", (operands[0], operands[1]), operands[2])
    if name == "nvl2":
        return ("case", (("not", ("null", operands[0])), operands[1]), operands[2])
    if name == "isnull":
        return ("null", operands[0])
    if name == "isnotnull":
        return ("not", ("null", operands[0]))
    if name in _OPERATIONS:
        return (_OPERATIONS[name], *operands)
    return ("call", _SPELLINGS.get(name, name), *operands)


def _text(node: exp.Expr) -> str | None:
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def _binary(names: dict[type[exp.Expr], str]) -> Callable[[Any, Read], Tree]:
    return lambda node, read: (names[type(node)], read(node.left), read(node.right))


_READERS: tuple[tuple[Any, Callable[[Any, Read], Tree]], ...] = (
    ((exp.Column, exp.Dot), _column),
    ((exp.Literal, exp.Boolean, exp.Null), _constant),
    (exp.Paren, lambda node, read: read(node.this)),
    (exp.Neg, _negative),
    (tuple(_ARITHMETIC), _binary(_ARITHMETIC)),
    (tuple(_COMPARISONS), _binary(_COMPARISONS)),
    (exp.NullSafeNEQ, lambda node, read: ("not", ("<=>", read(node.left), read(node.right)))),
    ((exp.And, exp.Or), _connected),
    (exp.Not, lambda node, read: ("not", read(node.this))),
    (exp.Between, _between),
    (exp.Is, _is),
    (exp.In, lambda node, read: ("in", *map(read, (node.this, *node.expressions)))),
    ((exp.Like, exp.Escape), _like),
    (exp.Substring, _substring),
    (exp.Bracket, _bracket),
    (exp.Case, _case),
    (exp.Cast, _cast),
    (exp.Trim, _trim),
    (exp.Anonymous, lambda node, read: _called(str(node.this).lower(), node.expressions, read)),
)
