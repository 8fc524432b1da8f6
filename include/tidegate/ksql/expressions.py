"""Expressions of ksqlDB as expressions of Spark SQL with the same result, also for nulls and errors.

In ksqlDB an expression that fails is null as a whole, and a row whose condition fails is dropped. Arithmetic,
LIKE and boolean operators fail on a null; comparisons with a null are false, and not null. Some parts are
null alone if they fail: a cast, items of arrays, maps and structs, and a call or a field as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tidegate.ksql import types
from tidegate.ksql.functions import UNITS, WITH_UNIT
from tidegate.ksql.translated import (
    CASTS,
    INFINITY,
    Translated,
    as_decimal,
    as_double,
    as_time,
    as_type,
    common_type,
    comparable,
    failing,
    guarded,
    like,
    literal,
    quoted_text,
    text_of,
)
from tidegate.ksql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    KsqlType,
    Untranslatable,
    name_of,
)
from tidegate.model.names import quote

_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_MOST_DIGITS = 38
Call = Callable[[str, Callable[[], Sequence[Translated]]], Translated]


@dataclass(frozen=True)
class Translator:
    """Translates expressions over `columns`: name, also with its relation, -> what stands for it.

    Args:
        call: Translates a call of a function by its name, and by what translates its arguments.
    """

    columns: Mapping[str, Translated]
    call: Call
    relations: Sequence[str] = field(default=())

    def condition(self, node: exp.Expr) -> str:
        """Return a condition: what is not true drops the row, as in ksqlDB."""
        return self._boolean(node).sql

    def value(self, node: exp.Expr) -> Translated:
        """Return an expression. Raises Untranslatable, with the part that has no equivalent."""
        for kinds, translate in self._rules():
            if isinstance(node, kinds):
                return translate(node)
        raise Untranslatable(f"`{text_of(node)}` has no equivalent", "Compute it in the producer.")

    def _rules(self) -> Sequence[tuple[tuple[type, ...], Callable[..., Translated]]]:
        return (
            ((exp.Paren,), lambda node: self.value(node.this)),
            ((exp.Column,), self._column),
            ((exp.Identifier,), lambda node: self._column(exp.column(node.copy()))),  # within a lambda
            ((exp.Dot,), self._field),
            ((exp.Bracket,), self._item),
            ((exp.Literal,), literal),
            ((exp.Boolean,), lambda node: Translated(str(node.this).lower(), BOOLEAN, is_certain=True)),
            ((exp.Null,), lambda _: Translated("null", NULL)),
            ((exp.Neg,), self._negative),
            (tuple(_ARITHMETIC), self._arithmetic),
            (tuple(_COMPARISONS), self._comparison),
            ((exp.NullSafeEQ, exp.NullSafeNEQ), self._distinct),
            ((exp.And, exp.Or), self._logical),
            ((exp.Not,), self._not),
            ((exp.Is,), self._is_null),
            ((exp.In,), self._in),
            ((exp.Between,), self._between),
            ((exp.Like,), self._like),
            ((exp.Case,), self._case),
            ((exp.Cast,), self._cast),
            ((exp.Array,), self._array),
            ((exp.Anonymous,), self._function),
            ((exp.DPipe,), self._concatenation),
        )

    # names

    def _column(self, node: exp.Column) -> Translated:
        name = name_of(node.this)
        table = node.args.get("table")
        if table is not None:
            name = f"{name_of(table)}.{name}"
        if name not in self.columns:
            raise Untranslatable(f"there is no column `{name}`", "Correct the name.")
        return self.columns[name]

    def _field(self, node: exp.Dot) -> Translated:
        operand, identifier = self.value(node.this), node.expression
        name = name_of(identifier.this if isinstance(identifier, exp.Column) else identifier)
        type_ = dict(operand.type.fields).get(name)
        if type_ is None:
            raise Untranslatable(f"`{text_of(node.this)}` has no field `{name}`", "Correct the name.")
        return Translated(f"{operand.sql}.{quote(name)}", type_, operand.fails)

    def _item(self, node: exp.Bracket) -> Translated:
        operand, (index, *_) = self.value(node.this), map(self.value, node.expressions)
        if operand.type.kind == "MAP":
            return Translated(
                f"try_element_at({operand.sql}, {index.sql})",
                operand.type.parts[1],
                operand.fails + index.fails,
            )
        if operand.type.kind != "ARRAY":
            raise Untranslatable(f"`{text_of(node.this)}` has no items", "Use an array or a map.")
        # ksqlDB has no item 0, as no item beyond the end: both are null
        place = index.sql if index.literal is not None else f"nullif({index.sql}, 0)"
        if index.literal == "0":
            place = f"size({operand.sql}) + 1"
        fails = operand.fails + index.fails
        if not index.is_certain:
            # a place that is null fails, unless there is no array
            fails += (f"(case when {operand.sql} is null then 0 else {index.sql} end)",)
        return Translated(f"try_element_at({operand.sql}, {place})", operand.type.parts[0], fails)

    # numbers

    def _negative(self, node: exp.Neg) -> Translated:
        operand = self.value(node.this)
        if operand.literal is not None:
            return Translated(
                f"(-{operand.sql})", operand.type, is_certain=True, literal=f"-{operand.literal}"
            )
        return failing(f"(-{operand.sql})", operand.type, operand)

    def _arithmetic(self, node: exp.Binary) -> Translated:
        left, right = self.value(node.this), self.value(node.expression)
        if isinstance(node, exp.Add) and left.type == right.type == STRING:
            # Java's `+` writes a null as the text `null`
            texts = [
                text.sql if text.is_certain else f"coalesce({text.sql}, 'null')" for text in (left, right)
            ]
            fails = left.fails + right.fails
            return Translated(guarded(f"concat({', '.join(texts)})", fails), STRING, fails)
        kinds = {left.type.kind, right.type.kind}
        if not kinds <= set(types.NUMBERS):
            raise Untranslatable(f"`{text_of(node)}` does not compute with numbers", "Cast both sides.")
        if "DOUBLE" in kinds:
            return self._of_doubles(node, as_double(left), as_double(right))
        if "DECIMAL" in kinds:
            return self._of_decimals(node, left, right)
        type_ = BIGINT if "BIGINT" in kinds else INTEGER
        sign = _ARITHMETIC[type(node)]
        if isinstance(node, (exp.Div, exp.Mod)):
            divisor = right.sql if right.literal is not None else f"nullif({right.sql}, 0)"
            if right.literal == "0":
                divisor = f"nullif({left.sql} - {left.sql}, 0)"
            sign = "div" if sign == "/" else sign
            return failing(f"cast({left.sql} {sign} {divisor} as {type_.ddl})", type_, left, right)
        return failing(f"({left.sql} {sign} {right.sql})", type_, left, right)

    def _of_doubles(self, node: exp.Binary, left: Translated, right: Translated) -> Translated:
        sign = _ARITHMETIC[type(node)]
        sql = f"({left.sql} {sign} {right.sql})"
        if isinstance(node, (exp.Div, exp.Mod)) and right.literal in (None, "0", "0.0"):
            # Java divides by zero: the result is infinite, or not a number
            by_zero = f"{left.sql} * {INFINITY}" if sign == "/" else f"{left.sql} * ({INFINITY} - {INFINITY})"
            sql = f"cast(case when {right.sql} = 0 then {by_zero} else {sql} end as double)"
        return failing(sql, DOUBLE, left, right)

    def _of_decimals(self, node: exp.Binary, left: Translated, right: Translated) -> Translated:
        left_type, right_type = as_decimal(left.type), as_decimal(right.type)
        if isinstance(node, exp.Mul):
            precision, scale = (
                left_type.precision + right_type.precision + 1,
                left_type.scale + right_type.scale,
            )
        elif isinstance(node, (exp.Add, exp.Sub)):
            scale = max(left_type.scale, right_type.scale)
            precision = (
                max(left_type.precision - left_type.scale, right_type.precision - right_type.scale)
                + scale
                + 1
            )
        else:
            raise Untranslatable(
                "a division of decimals is rounded differently", "Cast both sides to DOUBLE."
            )
        if precision > _MOST_DIGITS:
            raise Untranslatable(f"a decimal of {precision} digits is rounded differently", "Cast to DOUBLE.")
        type_ = KsqlType("DECIMAL", precision=precision, scale=scale)
        sides = [
            f"cast({side.sql} as {decimal.ddl})" for side, decimal in ((left, left_type), (right, right_type))
        ]
        sign = _ARITHMETIC[type(node)]
        return failing(f"cast({sides[0]} {sign} {sides[1]} as {type_.ddl})", type_, left, right)

    # conditions

    def _boolean(self, node: exp.Expr) -> Translated:
        typed = self.value(node)
        if typed.type != BOOLEAN:
            raise Untranslatable(f"`{text_of(node)}` is no condition", "Compare it with a value.")
        return typed

    def _comparison(self, node: exp.Binary) -> Translated:
        left, right = self._sides(node)
        ordered = not isinstance(node, (exp.EQ, exp.NEQ))
        if ordered and any(side.type.is_nested or side.type == BOOLEAN for side in (left, right)):
            raise Untranslatable(f"`{text_of(node)}` compares what has no order", "Use `=` or `<>`.")
        sql = f"{left.sql} {_COMPARISONS[type(node)]} {right.sql}"
        fails = left.fails + right.fails
        if left.is_certain and right.is_certain:
            return Translated(f"({sql})", BOOLEAN, fails, is_certain=not fails)
        return Translated(guarded(f"coalesce({sql}, false)", fails), BOOLEAN, fails, is_certain=not fails)

    def _sides(self, node: exp.Binary) -> tuple[Translated, Translated]:
        left, right = self.value(node.this), self.value(node.expression)
        return comparable(
            as_time(left, right, node.expression.unnest()), as_time(right, left, node.this.unnest()), node
        )

    def _distinct(self, node: exp.Binary) -> Translated:
        left, right = self._sides(node)
        sign = "" if isinstance(node, exp.NullSafeEQ) else "not "
        fails = left.fails + right.fails
        sql = guarded(f"({sign}({left.sql} <=> {right.sql}))", fails)
        return Translated(sql, BOOLEAN, fails, is_certain=not fails)

    def _logical(self, node: exp.Connector) -> Translated:
        left, right = self._boolean(node.this), self._boolean(node.expression)
        return _joined(left, "and" if isinstance(node, exp.And) else "or", right)

    def _not(self, node: exp.Not) -> Translated:
        operand = self._boolean(node.this)
        return failing(f"(not {operand.sql})", BOOLEAN, operand)

    def _is_null(self, node: exp.Is) -> Translated:
        if not isinstance(node.expression, exp.Null):
            raise Untranslatable(f"`{text_of(node)}` has no equivalent", "Compare with `=`.")
        operand = self.value(node.this)
        return Translated(
            guarded(f"({operand.sql} is null)", operand.fails),
            BOOLEAN,
            operand.fails,
            is_certain=not operand.fails,
        )

    def _in(self, node: exp.In) -> Translated:
        operand, items = self.value(node.this), [self.value(item) for item in node.expressions]
        items = [item for item in items if item.type != NULL]
        if not items:
            return Translated("false", BOOLEAN, is_certain=True)
        pairs = [comparable(operand, item, node) for item in items]
        fails = operand.fails + tuple(failing for item in items for failing in item.fails)
        sql = f"coalesce({pairs[0][0].sql} in ({', '.join(item.sql for _, item in pairs)}), false)"
        return Translated(guarded(sql, fails), BOOLEAN, fails, is_certain=not fails)

    def _between(self, node: exp.Between) -> Translated:
        low = self._comparison(exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()))
        high = self._comparison(exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()))
        return _joined(low, "and", high)

    def _like(self, node: exp.Like) -> Translated:
        operand, pattern = self.value(node.this), self.value(node.expression)
        if operand.type != STRING or pattern.literal is None:
            raise Untranslatable(f"`{text_of(node)}` has no literal pattern", "Write the pattern itself.")
        sign = "not " if node.args.get("negate") else ""
        return failing(f"({sign}{like(operand.sql, pattern.literal)})", BOOLEAN, operand)

    def _case(self, node: exp.Case) -> Translated:
        if node.this is not None:
            raise Untranslatable("CASE with a value is not ksqlDB's", "Write CASE WHEN with conditions.")
        results = [self.value(branch.args["true"]) for branch in node.args["ifs"]]
        default = node.args.get("default")
        last = Translated("null", NULL) if default is None else self.value(default)
        type_ = common_type([*results, last], node)
        tests = [self._boolean(branch.this) for branch in node.args["ifs"]]
        fails: tuple[str, ...] = ()
        if not all(test.is_certain for test in tests) or any(result.fails for result in (*results, last)):
            # it fails where a test is null, or where the result fails that is taken
            fails = (_case(tests, [guarded("0", result.fails) for result in (*results, last)]),)
        sql = _case(tests, [as_type(result, type_).sql for result in (*results, last)])
        return Translated(sql, type_, fails)

    # casts and calls

    def _cast(self, node: exp.Cast) -> Translated:
        operand, to = self.value(node.this), types.type_of(node.args["to"])
        if operand.type in (to, NULL):
            return Translated(operand.sql if operand.type == to else f"cast(null as {to.ddl})", to)
        pair = (operand.type.kind, to.kind)
        if pair not in CASTS:
            raise Untranslatable(f"a cast of {pair[0]} to {pair[1]} differs", "Cast in the producer.")
        return Translated(CASTS[pair].format(operand.sql, to.ddl), to)

    def _array(self, node: exp.Array) -> Translated:
        items = [self.value(item) for item in node.expressions]
        type_ = common_type(items, node)
        sql = f"array({', '.join(as_type(item, type_).sql for item in items)})"
        return Translated(sql, KsqlType("ARRAY", (type_,)))

    def _function(self, node: exp.Anonymous) -> Translated:
        name = str(node.this).upper()
        if name in ("STRUCT", "MAP"):
            return self._built(name, node)
        if any(isinstance(argument, exp.Lambda) for argument in node.expressions):
            return self._of_items(name, node)
        units = node.expressions[:1] if name in WITH_UNIT else []
        return self.call(
            name,
            lambda: [*map(_unit, units), *map(self._argument, node.expressions[len(units) :])],
        )

    def _of_items(self, name: str, node: exp.Anonymous) -> Translated:
        """Return TRANSFORM or FILTER of an array by a lambda, which fails if the lambda fails for an item."""
        array, function = (*node.expressions, None)[:2]
        operand = self._argument(array)
        if name not in ("TRANSFORM", "FILTER") or len(node.expressions) != 2 or operand.type.kind != "ARRAY":
            raise Untranslatable(
                f"{name} with these lambdas has no equivalent", "Compute it in the producer."
            )
        parameter = name_of(function.expressions[0])
        item = Translated(quote(parameter), operand.type.parts[0])
        inner = replace(self, columns={**self.columns, parameter: item})
        result = inner.value(function.this) if name == "TRANSFORM" else inner._boolean(function.this)
        if result.type == NULL:
            raise Untranslatable(f"`{text_of(node)}` has no type", "Cast the null.")
        failing_items = result.fails if name == "TRANSFORM" or result.is_certain else (result.sql,)
        fails = operand.fails
        if failing_items:
            test = " or ".join(f"{sql} is null" for sql in failing_items)
            fails += (f"(case when exists({operand.sql}, {item.sql} -> {test}) then null else 0 end)",)
        sql = guarded(f"{name.lower()}({operand.sql}, {item.sql} -> {result.sql})", fails)
        type_ = KsqlType("ARRAY", (result.type,)) if name == "TRANSFORM" else operand.type
        return Translated(sql, type_, fails)

    def _concatenation(self, node: exp.Binary) -> Translated:
        return self.call("CONCAT", lambda: [self._argument(side) for side in (node.this, node.expression)])

    def _argument(self, node: exp.Expr) -> Translated:
        """Return an argument of a function. A call or a field that fails is a null argument."""
        argument = self.value(node)
        contains = isinstance(node.unnest(), (exp.Anonymous, exp.DPipe, exp.Dot))
        return replace(argument, fails=()) if contains else argument

    def _built(self, name: str, node: exp.Anonymous) -> Translated:
        pairs = [(part.this, self.value(part.expression)) for part in node.expressions]
        if name == "STRUCT":
            names = [name_of(key) for key, _ in pairs]
            parts = ", ".join(
                f"{quoted_text(key)}, {value.sql}" for key, (_, value) in zip(names, pairs, strict=True)
            )
            fields = tuple((key, value.type) for key, (_, value) in zip(names, pairs, strict=True))
            if len(set(names)) < len(names):
                raise Untranslatable("a STRUCT has a field twice, which ksqlDB refuses", "Rename it.")
            if not pairs or any(type_ == NULL for _, type_ in fields):
                raise Untranslatable("a STRUCT has a field without a type", "Cast the null.")
            return Translated(f"named_struct({parts})", KsqlType("STRUCT", fields=fields))
        values = [value for _, value in pairs]
        type_ = common_type(values, node)
        keys = [self.value(key) for key, _ in pairs]
        if any(key.literal is None or key.type != STRING for key in keys):
            raise Untranslatable("a MAP has keys that are no literal texts", "Write the keys themselves.")
        parts = ", ".join(
            f"{key.sql}, {as_type(value, type_).sql}" for key, value in zip(keys, values, strict=True)
        )
        return Translated(f"map({parts})", KsqlType("MAP", (STRING, type_)))


def _unit(node: exp.Expr) -> Translated:
    """Return the milliseconds of a unit of time."""
    ms = UNITS.get(name_of(node.this)) if isinstance(node, exp.Column) else None
    if ms is None:
        raise Untranslatable(f"`{text_of(node)}` is no unit of time", f"Use {', '.join(UNITS)}.")
    return Translated(f"{ms}L", BIGINT, is_certain=True, literal=str(ms))


def _joined(left: Translated, sign: str, right: Translated) -> Translated:
    """Return `and` or `or` of two conditions. ksqlDB looks at the left one first, and fails if it is null."""
    sql = f"({left.sql} {sign} {right.sql})"
    sql = sql if left.is_certain else f"(case when {left.sql} is null then null else {sql} end)"
    certain = left.is_certain and right.is_certain
    return Translated(sql, BOOLEAN, () if certain else (sql,), is_certain=certain)


def _case(tests: Sequence[Translated], results: Sequence[str]) -> str:
    """Return a CASE that is null where a test is null; the last result is that of ELSE."""
    branches = []
    for test, result in zip(tests, results, strict=False):
        if not test.is_certain:
            branches.append(f"when {test.sql} is null then null")
        branches.append(f"when {test.sql} then {result}")
    return f"(case {' '.join(branches)} else {results[-1]} end)"
