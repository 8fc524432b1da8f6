"""Expressions of ksqlDB as expressions of Spark SQL with the same result, also for nulls and errors.

In ksqlDB an expression that fails is null as a whole, and a row whose condition fails is dropped. Arithmetic,
LIKE and boolean operators fail on a null; comparisons with a null are false, and not null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from tidegate.ksql import types
from tidegate.ksql.remarks import Untranslatable
from tidegate.ksql.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, STRING, Type, name_of, quoted


@dataclass(frozen=True)
class Typed:
    """An expression of Spark SQL with its type in ksqlDB.

    Args:
        sql: A text that stands for itself: a name, a call, or something in brackets.
        fails: Expressions that are null where ksqlDB fails: then the whole expression is null there.
        is_certain: Whether it is never null.
        literal: The text of a literal; None for others.
    """

    sql: str
    type: Type
    fails: tuple[str, ...] = ()
    is_certain: bool = False
    literal: str | None = None


_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_MOST_DIGITS = 38
Call = Callable[[str, Callable[[], Sequence[Typed]]], Typed]


def guarded(sql: str, fails: Sequence[str]) -> str:
    """Return an expression that is null where one of `fails` is null."""
    if not fails:
        return sql
    return f"(case when {' or '.join(f'{failing} is null' for failing in fails)} then null else {sql} end)"


@dataclass(frozen=True)
class Translator:
    """Translates expressions over `columns`: name, also with its relation, -> what stands for it.

    Args:
        call: Translates a call of a function by its name, and by what translates its arguments.
    """

    columns: Mapping[str, Typed]
    call: Call
    relations: Sequence[str] = field(default=())

    def condition(self, node: exp.Expression) -> str:
        """Return a condition: what is not true drops the row, as in ksqlDB."""
        return self._boolean(node).sql

    def value(self, node: exp.Expression) -> Typed:
        """Return an expression. Raises Untranslatable, with the part that has no equivalent."""
        for kinds, translate in self._rules():
            if isinstance(node, kinds):
                return translate(node)
        raise Untranslatable(f"`{_text(node)}` has no equivalent", "Compute it in the producer.")

    def _rules(self) -> Sequence[tuple[tuple[type, ...], Callable[..., Typed]]]:
        return (
            ((exp.Paren,), lambda node: self.value(node.this)),
            ((exp.Column,), self._column),
            ((exp.Dot,), self._field),
            ((exp.Bracket,), self._item),
            ((exp.Literal,), _literal),
            ((exp.Boolean,), lambda node: Typed(str(node.this).lower(), BOOLEAN, is_certain=True)),
            ((exp.Null,), lambda _: Typed("null", NULL)),
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
        )

    # names

    def _column(self, node: exp.Column) -> Typed:
        name = name_of(node.this)
        table = node.args.get("table")
        if table is not None:
            name = f"{name_of(table)}.{name}"
        if name not in self.columns:
            raise Untranslatable(f"there is no column `{name}`", "Correct the name.")
        return self.columns[name]

    def _field(self, node: exp.Dot) -> Typed:
        of, identifier = self.value(node.this), node.expression
        name = name_of(identifier.this if isinstance(identifier, exp.Column) else identifier)
        type_ = dict(of.type.fields).get(name)
        if type_ is None:
            raise Untranslatable(f"`{_text(node.this)}` has no field `{name}`", "Correct the name.")
        return Typed(f"{of.sql}.{quoted(name)}", type_, of.fails)

    def _item(self, node: exp.Bracket) -> Typed:
        of, (index, *_) = self.value(node.this), map(self.value, node.expressions)
        if of.type.kind == "MAP":
            return Typed(f"try_element_at({of.sql}, {index.sql})", of.type.parts[1], of.fails + index.fails)
        if of.type.kind != "ARRAY":
            raise Untranslatable(f"`{_text(node.this)}` has no items", "Use an array or a map.")
        # ksqlDB has no item 0, as no item beyond the end: both are null
        place = index.sql if index.literal not in (None, "0") else f"nullif({index.sql}, 0)"
        return Typed(f"try_element_at({of.sql}, {place})", of.type.parts[0], of.fails + index.fails)

    # numbers

    def _negative(self, node: exp.Neg) -> Typed:
        of = self.value(node.this)
        if of.literal is not None:
            return Typed(f"(-{of.sql})", of.type, is_certain=True, literal=f"-{of.literal}")
        return _failing(f"(-{of.sql})", of.type, of)

    def _arithmetic(self, node: exp.Binary) -> Typed:
        left, right = self.value(node.this), self.value(node.expression)
        if isinstance(node, exp.Add) and left.type == right.type == STRING:
            # Java's `+` writes a null as the text `null`
            texts = [f"coalesce({text.sql}, 'null')" for text in (left, right)]
            fails = left.fails + right.fails
            return Typed(guarded(f"concat({', '.join(texts)})", fails), STRING, fails)
        kinds = {left.type.kind, right.type.kind}
        if not kinds <= set(types.NUMBERS):
            raise Untranslatable(f"`{_text(node)}` does not compute with numbers", "Cast both sides.")
        if "DOUBLE" in kinds:
            return self._of_doubles(node, _as_double(left), _as_double(right))
        if "DECIMAL" in kinds:
            return self._of_decimals(node, left, right)
        type_ = BIGINT if "BIGINT" in kinds else INTEGER
        sign = _ARITHMETIC[type(node)]
        if isinstance(node, (exp.Div, exp.Mod)):
            divisor = right.sql if right.literal not in (None, "0") else f"nullif({right.sql}, 0)"
            sign = "div" if sign == "/" else sign
            return _failing(f"cast({left.sql} {sign} {divisor} as {type_.ddl})", type_, left, right)
        return _failing(f"({left.sql} {sign} {right.sql})", type_, left, right)

    def _of_doubles(self, node: exp.Binary, left: Typed, right: Typed) -> Typed:
        sign = _ARITHMETIC[type(node)]
        sql = f"({left.sql} {sign} {right.sql})"
        if isinstance(node, (exp.Div, exp.Mod)) and right.literal in (None, "0", "0.0"):
            # Java divides by zero: the result is infinite, or not a number
            by_zero = f"{left.sql} * cast('Infinity' as double)" if sign == "/" else f"{left.sql} * cast('NaN' as double)"
            sql = f"cast(case when {right.sql} = 0 then {by_zero} else {sql} end as double)"
        return _failing(sql, DOUBLE, left, right)

    def _of_decimals(self, node: exp.Binary, left: Typed, right: Typed) -> Typed:
        one, other = _as_decimal(left.type), _as_decimal(right.type)
        if isinstance(node, exp.Mul):
            precision, scale = one.precision + other.precision + 1, one.scale + other.scale
        elif isinstance(node, (exp.Add, exp.Sub)):
            scale = max(one.scale, other.scale)
            precision = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
        else:
            raise Untranslatable("a division of decimals is rounded differently", "Cast both sides to DOUBLE.")
        if precision > _MOST_DIGITS:
            raise Untranslatable(f"a decimal of {precision} digits is rounded differently", "Cast to DOUBLE.")
        type_ = Type("DECIMAL", precision=precision, scale=scale)
        sides = [f"cast({side.sql} as {decimal.ddl})" for side, decimal in ((left, one), (right, other))]
        sign = _ARITHMETIC[type(node)]
        return _failing(f"cast({sides[0]} {sign} {sides[1]} as {type_.ddl})", type_, left, right)

    # conditions

    def _boolean(self, node: exp.Expression) -> Typed:
        typed = self.value(node)
        if typed.type != BOOLEAN:
            raise Untranslatable(f"`{_text(node)}` is no condition", "Compare it with a value.")
        return typed

    def _comparison(self, node: exp.Binary) -> Typed:
        left, right = _comparable(self.value(node.this), self.value(node.expression), node)
        sql = f"{left.sql} {_COMPARISONS[type(node)]} {right.sql}"
        fails = left.fails + right.fails
        if left.is_certain and right.is_certain:
            return Typed(f"({sql})", BOOLEAN, fails, is_certain=not fails)
        return Typed(guarded(f"coalesce({sql}, false)", fails), BOOLEAN, fails, is_certain=not fails)

    def _distinct(self, node: exp.Binary) -> Typed:
        left, right = _comparable(self.value(node.this), self.value(node.expression), node)
        sign = "" if isinstance(node, exp.NullSafeEQ) else "not "
        fails = left.fails + right.fails
        sql = guarded(f"({sign}({left.sql} <=> {right.sql}))", fails)
        return Typed(sql, BOOLEAN, fails, is_certain=not fails)

    def _logical(self, node: exp.Connector) -> Typed:
        left, right = self._boolean(node.this), self._boolean(node.expression)
        sign = "and" if isinstance(node, exp.And) else "or"
        sql = f"({left.sql} {sign} {right.sql})"
        certain = left.is_certain and right.is_certain
        # ksqlDB looks at the left side first, and fails if it is null
        sql = sql if left.is_certain else f"(case when {left.sql} is null then null else {sql} end)"
        return Typed(sql, BOOLEAN, () if certain else (sql,), is_certain=certain)

    def _not(self, node: exp.Not) -> Typed:
        of = self._boolean(node.this)
        return Typed(f"(not {of.sql})", BOOLEAN, of.fails, is_certain=of.is_certain)

    def _is_null(self, node: exp.Is) -> Typed:
        if not isinstance(node.expression, exp.Null):
            raise Untranslatable(f"`{_text(node)}` has no equivalent", "Compare with `=`.")
        of = self.value(node.this)
        return Typed(guarded(f"({of.sql} is null)", of.fails), BOOLEAN, of.fails, is_certain=not of.fails)

    def _in(self, node: exp.In) -> Typed:
        of, items = self.value(node.this), [self.value(item) for item in node.expressions]
        items = [item for item in items if item.type != NULL]
        if not items:
            return Typed("false", BOOLEAN, is_certain=True)
        pairs = [_comparable(of, item, node) for item in items]
        fails = of.fails + tuple(failing for item in items for failing in item.fails)
        sql = f"coalesce({pairs[0][0].sql} in ({', '.join(item.sql for _, item in pairs)}), false)"
        return Typed(guarded(sql, fails), BOOLEAN, fails, is_certain=not fails)

    def _between(self, node: exp.Between) -> Typed:
        low = self._comparison(exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()))
        high = self._comparison(exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()))
        fails = low.fails + high.fails
        return Typed(f"({low.sql} and {high.sql})", BOOLEAN, fails, is_certain=not fails)

    def _like(self, node: exp.Like) -> Typed:
        of, pattern = self.value(node.this), self.value(node.expression)
        if of.type != STRING or pattern.literal is None:
            raise Untranslatable(f"`{_text(node)}` has no literal pattern", "Write the pattern itself.")
        # In Spark a backslash escapes; in ksqlDB nothing does. `.` of Java's pattern is no line end.
        text = pattern.literal.replace("\\", "\\\\")
        return _failing(f"({of.sql} like {quoted_text(text)})", BOOLEAN, of)

    def _case(self, node: exp.Case) -> Typed:
        if node.this is not None:
            raise Untranslatable("CASE with a value is not ksqlDB's", "Write CASE WHEN with conditions.")
        results = [self.value(branch.args["true"]) for branch in node.args["ifs"]]
        default = node.args.get("default")
        last = Typed("null", NULL) if default is None else self.value(default)
        type_ = _common([*results, last], node)
        branches = []
        for branch, result in zip(node.args["ifs"], results, strict=True):
            test = self._boolean(branch.this)
            if not test.is_certain:
                branches.append(f"when {test.sql} is null then null")
            branches.append(f"when {test.sql} then {_as_type(result, type_).sql}")
        return Typed(f"(case {' '.join(branches)} else {_as_type(last, type_).sql} end)", type_)

    # casts and calls

    def _cast(self, node: exp.Cast) -> Typed:
        of, to = self.value(node.this), types.type_of(node.args["to"])
        if of.type in (to, NULL):
            return Typed(of.sql if of.type == to else f"cast(null as {to.ddl})", to, of.fails)
        pair = (of.type.kind, to.kind)
        if pair not in _CASTS:
            raise Untranslatable(f"a cast of {pair[0]} to {pair[1]} differs", "Cast in the producer.")
        return Typed(_CASTS[pair].format(of.sql, to.ddl), to, of.fails)

    def _array(self, node: exp.Array) -> Typed:
        items = [self.value(item) for item in node.expressions]
        type_ = _common(items, node)
        fails = tuple(failing for item in items for failing in item.fails)
        sql = f"array({', '.join(_as_type(item, type_).sql for item in items)})"
        return Typed(guarded(sql, fails), Type("ARRAY", (type_,)), fails)

    def _function(self, node: exp.Anonymous) -> Typed:
        name = str(node.this).upper()
        if name in ("STRUCT", "MAP"):
            return self._built(name, node)
        return self.call(name, lambda: [self.value(argument) for argument in node.expressions])

    def _built(self, name: str, node: exp.Anonymous) -> Typed:
        pairs = [(part.this, self.value(part.expression)) for part in node.expressions]
        fails = tuple(failing for _, value in pairs for failing in value.fails)
        if name == "STRUCT":
            names = [name_of(key) for key, _ in pairs]
            parts = ", ".join(
                f"{quoted_text(key)}, {value.sql}" for key, (_, value) in zip(names, pairs, strict=True)
            )
            fields = tuple((key, value.type) for key, (_, value) in zip(names, pairs, strict=True))
            if not pairs or any(type_ == NULL for _, type_ in fields):
                raise Untranslatable("a STRUCT has a field without a type", "Cast the null.")
            return Typed(guarded(f"named_struct({parts})", fails), Type("STRUCT", fields=fields), fails)
        values = [value for _, value in pairs]
        type_ = _common(values, node)
        keys = [self.value(key) for key, _ in pairs]
        if any(key.literal is None or key.type != STRING for key in keys):
            raise Untranslatable("a MAP has keys that are no literal texts", "Write the keys themselves.")
        parts = ", ".join(
            f"{key.sql}, {_as_type(value, type_).sql}" for key, value in zip(keys, values, strict=True)
        )
        return Typed(guarded(f"map({parts})", fails), Type("MAP", (STRING, type_)), fails)


_WHOLE = {"INTEGER": "int", "BIGINT": "bigint"}
_CASTS: Mapping[tuple[str, str], str] = {
    ("BOOLEAN", "STRING"): "cast({0} as string)",
    ("INTEGER", "BIGINT"): "cast({0} as bigint)",
    ("INTEGER", "DOUBLE"): "cast({0} as double)",
    ("BIGINT", "DOUBLE"): "cast({0} as double)",
    ("DECIMAL", "DOUBLE"): "cast({0} as double)",
    ("INTEGER", "STRING"): "cast({0} as string)",
    ("BIGINT", "STRING"): "cast({0} as string)",
    ("DOUBLE", "STRING"): "cast({0} as string)",
    ("INTEGER", "DECIMAL"): "try_cast({0} as {1})",
    ("BIGINT", "DECIMAL"): "try_cast({0} as {1})",
    ("DECIMAL", "DECIMAL"): "try_cast({0} as {1})",
    ("DOUBLE", "INTEGER"): "cast({0} as int)",
    ("DOUBLE", "BIGINT"): "cast({0} as bigint)",
    ("BIGINT", "INTEGER"): "cast({0} as int)",
    ("STRING", "INTEGER"): r"(case when {0} rlike '^[\\x00-\\x20]*[+-]?[0-9]+[\\x00-\\x20]*$' "
    "then try_cast({0} as int) end)",
    ("STRING", "BIGINT"): r"(case when {0} rlike '^[\\x00-\\x20]*[+-]?[0-9]+[\\x00-\\x20]*$' "
    "then try_cast({0} as bigint) end)",
    ("STRING", "DOUBLE"): r"(case when {0} rlike "
    r"'^[\\x00-\\x20]*[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?[\\x00-\\x20]*$' "
    "then try_cast({0} as double) end)",
}
"""(from, to) -> the expression. A text that is no number fails in ksqlDB, and is null here."""


def _text(node: exp.Expression) -> str:
    return node.sql()


def quoted_text(text: str) -> str:
    """Return a literal of Spark SQL, in which a backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _literal(node: exp.Literal) -> Typed:
    text = str(node.this)
    if node.is_string:
        return Typed(quoted_text(text), STRING, is_certain=True, literal=text)
    if text.isdigit():
        small = int(text) < 2**31
        sql = text if small else f"{text}L"
        return Typed(sql, INTEGER if small else BIGINT, is_certain=True, literal=text)
    if "E" in text.upper():
        return Typed(f"cast('{text}' as double)", DOUBLE, is_certain=True, literal=text)
    whole, _, fraction = text.partition(".")
    digits = max(len((whole + fraction).lstrip("0")), len(fraction), 1)
    return Typed(
        f"{text}BD", Type("DECIMAL", precision=digits, scale=len(fraction)), is_certain=True, literal=text
    )


def _failing(sql: str, type_: Type, *operands: Typed) -> Typed:
    """Return an operation that fails on a null operand, or has no result."""
    fails = () if all(operand.is_certain for operand in operands) and "/" not in sql else (sql,)
    return Typed(sql, type_, fails, is_certain=not fails)


def _as_double(of: Typed) -> Typed:
    if of.type == DOUBLE:
        return of
    sql = f"cast('{of.literal}' as double)" if of.literal is not None else f"cast({of.sql} as double)"
    return Typed(sql, DOUBLE, of.fails, of.is_certain, of.literal)


def _as_decimal(type_: Type) -> Type:
    if type_.kind == "DECIMAL":
        return type_
    return Type("DECIMAL", precision=10 if type_ == INTEGER else 19)


def _comparable(left: Typed, right: Typed, node: exp.Expression) -> tuple[Typed, Typed]:
    """Return both sides in a form that Spark compares as ksqlDB does."""
    kinds = {left.type.kind, right.type.kind}
    if "DOUBLE" in kinds and kinds <= set(types.NUMBERS):
        return _as_double(left), _as_double(right)
    same = left.type == right.type and "MAP" not in {inner.kind for inner in left.type.inner}
    if same or kinds <= {*types.INTEGERS, "DECIMAL"} or "NULL" in kinds:
        return left, right
    raise Untranslatable(
        f"`{_text(node)}` compares {left.type.kind} with {right.type.kind}", "Cast both sides to one type."
    )


def _common(items: Sequence[Typed], node: exp.Expression) -> Type:
    """Return the one type of all items; nulls have any."""
    found = {item.type for item in items if item.type != NULL}
    if found and found <= {INTEGER, BIGINT, DOUBLE}:
        return next(type_ for type_ in (DOUBLE, BIGINT, INTEGER) if type_ in found)
    if len(found) != 1:
        raise Untranslatable(f"`{_text(node)}` has values of several types", "Cast them to one type.")
    return found.pop()


def _as_type(of: Typed, type_: Type) -> Typed:
    return of if of.type in (type_, NULL) else Typed(f"cast({of.sql} as {type_.ddl})", type_, of.fails)
