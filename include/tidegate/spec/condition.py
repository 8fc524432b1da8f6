"""Conditions that tidegate evaluates between records (`where`, `equal: {sql: …}`).

They are the part of Spark's SQL that `tidegate.expressions` evaluates with the same results as Spark.
Everything else is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NoReturn

from pydantic_core import PydanticKnownError
from sqlglot import exp

from tidegate.expressions import Condition
from tidegate.expressions import calls as functions
from tidegate.expressions import typing as types
from tidegate.expressions.regex import java_pattern
from tidegate.expressions.rows import like_pattern
from tidegate.expressions.types import (
    BOOLEAN,
    NULL,
    ColumnTypes,
    Type,
    Typed,
    Unfitting,
    arithmetic,
    constant,
    group,
)
from tidegate.spec import lexis
from tidegate.spec.mistakes import Fault, as_mistake
from tidegate.spec.sql import check_expression, parse, path_of

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
_LOOSE = (
    *_COMPARISONS,
    exp.NullSafeNEQ,
    exp.Is,
    exp.In,
    exp.Between,
    exp.Like,
    exp.RegexpLike,
    exp.Escape,
    exp.Not,
)
_TIGHT = (*(kind for kind in _LOOSE if kind is not exp.Not), *_ARITHMETIC, exp.Neg)
_CASTS = {exp.DType.TEXT: "string", exp.DType.BIGINT: "bigint", exp.DType.DOUBLE: "double"}
_CASTS |= {exp.DType.BOOLEAN: "boolean", exp.DType.INT: "int", exp.DType.SMALLINT: "smallint"}
_CASTS |= {exp.DType.TINYINT: "tinyint"}
_TIMES = {exp.DType.DATE: "date", exp.DType.TIMESTAMPNTZ: "timestamp_ntz"}
_TIMES |= {exp.DType.TIMESTAMPTZ: "timestamp", exp.DType.TIMESTAMPLTZ: "timestamp"}
# All parts of sqlglot's nodes that this module reads. A node with another part is refused, as its meaning
# would differ.
_PARTS = (
    *("this", "expression", "expressions", "is_string", "table", "db", "catalog", "to", "position"),
    *("start", "length"),
    *("low", "high", "symmetric", "negate", "ifs", "default", "typed", "safe"),
)
_PARENTHESES = Fault("it can be read in two ways", "Put parentheses around the inner comparison.")

_PATTERNS = (
    "There are characters, . ^ $ |, classes, \\d \\w \\s, groups, and * + ? {n,m}, also lazy; "
    "compute everything else in `select`."
)
OFFER = (
    "It is tested between records, by tidegate itself. There are columns, fields, xs[0], m['key'], literals "
    "(of dates and timestamps, too), + - * / % div, comparisons, <=>, and, or, not, between, in, like, "
    "rlike, is null, is true, case, casts to string, whole numbers, double and boolean, and "
    f"{', '.join(functions.NAMES)}. Compute everything else in `select`."
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
    reader = _Reader(columns, keys or {})
    words, _ = lexis.split(text)
    names, _ = lexis.calls(words)
    tree = parse(text)
    result = reader.boolean(tree, "the condition")
    # sqlglot has one node for both casts, so only the text shows which one is meant.
    if any(name.says("try_cast") for name in names):
        reader.faults.append(Fault("a condition cannot call `try_cast`", OFFER))
    # Last: after another fault the tree lacks parts, and the count would mislead.
    if not reader.faults and _has_other_parentheses(words, names, tree):
        reader.faults.append(_PARENTHESES)
    if reader.faults:
        return None, list(dict.fromkeys(reader.faults))
    return Condition(text, result), []


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
    reader = _Reader(columns, {})
    expression = reader.read(parse(text))
    return None if reader.faults else expression


def expression_type(text: str, columns: ColumnTypes | None) -> Type | None:
    """Return the type of an expression that `check_expression` accepts; None if only Spark can tell it.

    Example: `expression_type("quantity > 0", {"quantity": INT})` is `BOOLEAN`; that of `hour(at)` is None.
    """
    expression = read_expression(text, columns)
    return None if expression is None or expression.type == NULL else expression.type


def _has_other_parentheses(words: list[lexis.Word], names: list[lexis.Word], tree: exp.Expr) -> bool:
    """Return whether sqlglot added parentheses that the text lacks: then Spark's parser may group
    differently.
    """
    called = {name.start for name in names}
    written = sum(
        word.says("(") and not (at and (words[at - 1].start in called or words[at - 1].says("in")))
        for at, word in enumerate(words)
    )
    return written != len(list(tree.find_all(exp.Paren)))


class _Reader:
    """Turns sqlglot's tree into a condition.

    A part that cannot be used is a fault, and null in the result.
    """

    def __init__(self, columns: ColumnTypes | None, keys: ColumnTypes) -> None:
        self.columns = columns
        self.keys = keys
        self.faults: list[Fault] = []
        self.depth = 0

    def boolean(self, node: exp.Expr, label: str) -> Any:
        """Return the tree of a part that must be boolean, which a fault calls `label`."""
        operand = self.read(node)
        try:
            types.require_boolean(operand, label)
        except Unfitting as unfitting:
            self.faults.append(Fault(unfitting.message, unfitting.fix))
        return operand.tree

    def read(self, node: exp.Expr) -> Typed:
        """Return a part of the tree with its type.

        A part that cannot be used is noted as a fault and is null.
        """
        self.depth += 1
        try:
            # The kernel compiles the tree by recursion, too, in each worker.
            if self.depth > MAX_DEPTH:
                self.refuse("it is nested too deeply", "Split it.")
            return self._read(node)
        except Unfitting as unfitting:
            self.faults.append(Fault(unfitting.message, unfitting.fix))
            # Null of an unknown type fits everywhere, so one mistake causes no others.
            return Typed(("literal", None), None)
        finally:
            self.depth -= 1

    def refuse(self, message: str, fix: str = OFFER) -> NoReturn:
        """Raise Unfitting for this part."""
        raise Unfitting(message, fix)

    def _read(self, node: exp.Expr) -> Typed:
        if unknown_parts := [name for name, value in node.args.items() if value and name not in _PARTS]:
            return self.refuse(
                f"a condition cannot have this ({type(node).__name__.lower()}, {unknown_parts[0]})"
            )
        if isinstance(node, _TIGHT):
            self._require_parentheses(node)
        for kinds, read in _READERS:
            if isinstance(node, kinds):
                return read(self, node)
        return self.refuse(f"a condition cannot have this ({type(node).__name__.lower()})")

    def _require_parentheses(self, node: exp.Expr) -> None:
        """Note a fault for comparisons inside of comparisons without parentheses: parsers differ on
        `a = b < c`.
        """
        operands = [node.this, *(node.args.get(name) for name in ("expression", "low", "high"))]
        if isinstance(node, exp.Escape):
            return
        if any(isinstance(operand, _LOOSE) for operand in operands):
            self.faults.append(_PARENTHESES)

    # leaves

    def column(self, node: exp.Expr) -> Typed:
        column = node
        while isinstance(column, exp.Dot):
            column = column.this
        # `xs[0].a`: a field of an element, which is not a path of names.
        if isinstance(node, exp.Dot) and isinstance(column, exp.Bracket):
            return functions.field(self.read(node.this), node.expression.name)
        if not isinstance(column, exp.Column):
            return self.refuse("a field is taken out of what is not a column")
        return types.column(path_of(column), self.columns, self.keys)

    def constant(self, node: exp.Literal | exp.Boolean | exp.Null) -> Typed:
        if isinstance(node, exp.Null):
            return constant(None)
        if isinstance(node, exp.Boolean):
            return constant(bool(node.this))
        return constant(str(node.this)) if node.is_string else self.number(str(node.this))

    def number(self, text: str) -> Typed:
        # In Spark a literal with an exponent is a double, one with a point a decimal.
        if "e" in text.lower():
            return constant(float(text))
        value = Decimal(text)
        if value >= 2**63:
            # Spark compares such a number with a bigint column without checking for nulls.
            return self.refuse("a number is too large for `bigint`", "Write it as a double, such as `1e20`.")
        if text.isdigit():
            return constant(int(text))
        _, digits, exponent = value.as_tuple()
        if max(len(digits), -int(exponent)) > 38:
            return self.refuse("a number has more than 38 digits", "Shorten it.")
        return constant(value)

    # operators

    def paren(self, node: exp.Paren) -> Typed:
        return self.read(node.this)

    def negative(self, node: exp.Neg) -> Typed:
        operand = self.read(node.this)
        # A negative literal is a constant of its own: -2147483648 is an int, and 2147483648 is not.
        if isinstance(node.this, exp.Literal) and group(operand.type) == "number":
            value = operand.tree[1]
            # `-value` would round a decimal to the 28 digits of Python's context.
            return constant(value.copy_negate() if isinstance(value, Decimal) else -value)
        return types.negated(operand)

    def arithmetic(self, node: exp.Binary) -> Typed:
        return arithmetic(_ARITHMETIC[type(node)], self.read(node.left), self.read(node.right))

    def comparison(self, node: exp.Binary) -> Typed:
        return types.compared(_COMPARISONS[type(node)], self.read(node.left), self.read(node.right))

    def differs(self, node: exp.NullSafeNEQ) -> Typed:
        same = types.compared("<=>", self.read(node.left), self.read(node.right))
        return Typed(("not", same.tree), BOOLEAN)

    def connected(self, node: exp.Connector) -> Typed:
        name = "and" if isinstance(node, exp.And) else "or"
        operands = [self.boolean(side, f"a side of `{name}`") for side in node.flatten()]
        return Typed((name, *operands), BOOLEAN)

    def negation(self, node: exp.Not) -> Typed:
        return Typed(("not", self.boolean(node.this, "what `not` stands before")), BOOLEAN)

    def between(self, node: exp.Between) -> Typed:
        if node.args.get("symmetric"):
            return self.refuse("`symmetric` is not used here", "Write `x between low and high`.")
        value, low, high = (self.read(node.args[name]) for name in ("this", "low", "high"))
        parts = types.compared(">=", value, low), types.compared("<=", value, high)
        return Typed(("and", *(part.tree for part in parts)), BOOLEAN)

    def is_(self, node: exp.Is) -> Typed:
        if isinstance(node.expression, exp.Null):
            return Typed(("null", self.read(node.this).tree), BOOLEAN)
        if isinstance(node.expression, exp.Boolean):
            value = self.boolean(node.this, "what stands before `is`")
            return Typed(("is", value, bool(node.expression.this)), BOOLEAN)
        return self.refuse("`is` needs `null`, `true` or `false` behind it")

    def in_(self, node: exp.In) -> Typed:
        return types.contained([self.read(item) for item in (node.this, *node.expressions)])

    def like(self, node: exp.Like | exp.Escape) -> Typed:
        # Spark's default.
        escape: str | None = "\\"
        if isinstance(node, exp.Escape):
            escape, node = _text(node.expression), node.this
            self._require_parentheses(node)
        pattern = _text(node.expression)
        value = self.read(node.this)
        if not isinstance(node, exp.Like) or pattern is None or escape is None or len(escape) != 1:
            fix = "Write `x like 'a%'`, or use `startswith`, `endswith` or `contains`."
            return self.refuse("`like` needs a text in quotes behind it", fix)
        types.require_text(value, "like")
        try:
            like_pattern(pattern, escape)
        except ValueError as error:
            return self.refuse(str(error), f"Write {escape * 2} for the character itself.")
        tree = ("like", value.tree, pattern, escape)
        return Typed(("not", tree) if node.args.get("negate") else tree, BOOLEAN)

    def rlike(self, node: exp.RegexpLike) -> Typed:
        return self.matched(self.read(node.this), node.expression)

    def matched(self, value: Typed, pattern_node: exp.Expr) -> Typed:
        pattern = _text(pattern_node)
        if pattern is None or group(value.type) not in ("string", None):
            return self.refuse("`rlike` is of a text, by a pattern in quotes", "Write `x rlike '^a+$'`.")
        try:
            java_pattern(pattern)
        except ValueError as error:
            return self.refuse(str(error), _PATTERNS)
        return Typed(("rlike", value.tree, pattern), BOOLEAN)

    # choices, casts and calls

    def case(self, node: exp.Case) -> Typed:
        subject = self.read(node.this) if node.this else None
        conditions = []
        for branch in node.args["ifs"]:
            if subject is None:
                conditions.append(self.boolean(branch.this, "what `when` stands before"))
            else:
                conditions.append(types.compared("=", subject, self.read(branch.this)).tree)
        results = [self.read(branch.args["true"]) for branch in node.args["ifs"]]
        default = node.args.get("default")
        results.append(self.read(default) if default else constant(None))
        return types.choice(conditions, results)

    def cast(self, node: exp.Cast) -> Typed:
        if node.to.this in _TIMES and (written := _text(node.this)) is not None:
            return functions.instant(written, _TIMES[node.to.this])
        to = _CASTS.get(node.to.this)
        if to is None or type(node) is not exp.TryCast:
            return self.refuse(f"a condition cannot cast to {node.to.sql('spark').lower()}")
        return functions.cast(self.read(node.this), to)

    def trim(self, node: exp.Trim) -> Typed:
        if node.expression or node.args.get("position"):
            return self.refuse("`trim` removes blanks only here", "Write `trim(x)`.")
        return functions.call("trim", [self.read(node.this)])

    def substring(self, node: exp.Substring) -> Typed:
        # the parser fills these in without counting them
        parts = (node.this, node.args.get("start"), node.args.get("length"))
        operands = [self.read(part) for part in parts if part is not None]
        functions.require_number_of_arguments("substring", len(operands))
        return functions.call("substring", operands)

    def bracket(self, node: exp.Bracket) -> Typed:
        if len(node.expressions) != 1:
            return self.refuse("brackets hold one number or key", "Write `xs[0]` or `m['key']`.")
        return functions.element(self.read(node.this), self.read(node.expressions[0]))

    def call(self, node: exp.Anonymous) -> Typed:
        name = str(node.this).lower()
        if name not in functions.NAMES:
            return self.refuse(f"a condition cannot call `{name}`")
        if name == "regexp_like" and len(node.expressions) == 2:
            return self.matched(self.read(node.expressions[0]), node.expressions[1])
        operands = [self.read(argument) for argument in node.expressions]
        functions.require_number_of_arguments(name, len(operands))
        if name == "if":
            return types.choice([self.boolean(node.expressions[0], "what `if` tests")], operands[1:])
        return functions.call(name, operands)


def _text(node: exp.Expr) -> str | None:
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


_READERS: tuple[tuple[Any, Callable[[_Reader, Any], Typed]], ...] = (
    ((exp.Column, exp.Dot), _Reader.column),
    ((exp.Literal, exp.Boolean, exp.Null), _Reader.constant),
    (exp.Paren, _Reader.paren),
    (exp.Neg, _Reader.negative),
    (tuple(_ARITHMETIC), _Reader.arithmetic),
    (tuple(_COMPARISONS), _Reader.comparison),
    (exp.NullSafeNEQ, _Reader.differs),
    ((exp.And, exp.Or), _Reader.connected),
    (exp.Not, _Reader.negation),
    (exp.Between, _Reader.between),
    (exp.Is, _Reader.is_),
    (exp.In, _Reader.in_),
    ((exp.Like, exp.Escape), _Reader.like),
    (exp.RegexpLike, _Reader.rlike),
    (exp.Substring, _Reader.substring),
    (exp.Bracket, _Reader.bracket),
    (exp.Case, _Reader.case),
    (exp.Cast, _Reader.cast),
    (exp.Trim, _Reader.trim),
    (exp.Anonymous, _Reader.call),
)
