"""The types of a condition's parts, by Spark's rules for mixing types.

A type is None if it is unknown. Then no mistake is reported here, and the value decides when the condition is
tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from tidegate.expressions import Tree


@dataclass(frozen=True)
class Type:
    """A parsed type.

    Args:
        text: The type in Spark's normal form.
        kind: Its first word, such as `bigint`, `decimal` or `struct`.
        fields: Name and type of each field of a struct.
        parts: The types of an array's element, or of a map's key and value.
    """

    text: str
    kind: str
    fields: tuple[tuple[str, Type], ...] = ()
    parts: tuple[Type, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the type of each of its parts is known, so that it is a type of Spark."""
        inner = (*self.parts, *(type_ for _, type_ in self.fields))
        return self.kind != ANY.kind and all(part.is_known for part in inner)


ANY = Type("any", "any")
"""The type of a field that exists, but whose type is unknown."""

ColumnTypes = Mapping[str, Type | None]
"""The columns that an expression may name, with their types; None if a type is unknown."""

NULL = Type("void", "void")
BOOLEAN = Type("boolean", "boolean")
TINYINT = Type("tinyint", "tinyint")
SMALLINT = Type("smallint", "smallint")
INT = Type("int", "int")
BIGINT = Type("bigint", "bigint")
FLOAT = Type("float", "float")
DOUBLE = Type("double", "double")
STRING = Type("string", "string")

_CONSTANTS = {type(None): NULL, bool: BOOLEAN, float: DOUBLE, str: STRING, date: Type("date", "date")}
INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Integer type, narrowest first -> the digits of the decimal to which Spark converts it when it
meets a decimal.
"""
_NESTED = ("array", "map", "struct")
_MAX_DIGITS = 38


class Typed(NamedTuple):
    """A part of a condition, with its type; None if the type is unknown."""

    tree: Tree
    type: Type | None


class Unfitting(Exception):
    """Types do not fit together: the `message`, and the `fix`."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


def group(type_: Type | None) -> str | None:
    """Return the group of types that are comparable with a type; None for null and unknown types.

    >>> group(INT), group(STRING), group(None)
    ('number', 'string', None)
    """
    if type_ is None or type_.kind in (ANY.kind, NULL.kind):
        return None
    if type_.kind in INTEGERS or type_.kind in ("float", "double", "decimal"):
        return "number"
    return "nested" if type_.kind in _NESTED else type_.kind


def decimal(digits: int, scale: int) -> Type:
    """Return the type of decimals.

    Args:
        digits: All digits.
        scale: The digits behind the point.
    """
    text = f"decimal({digits},{scale})"
    return Type(text, "decimal")


def constant(value: Any) -> Typed:
    """Return a constant with the type of its value."""
    return Typed(("literal", value), _type_of(value))


def integer_constant(value: int, kind: str) -> Typed:
    """Return a constant integer that was cast to the type `kind`.

    The tree has the type if the value implies another.
    """
    type_ = Type(kind, kind)
    return Typed(("literal", value) if _type_of(value) == type_ else ("literal", value, kind), type_)


def _type_of(value: Any) -> Type:
    """Return the type of a constant.

    As in Spark, an integer literal is an int, or a bigint if it needs more bits.
    """
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = -int(exponent)
        return decimal(max(len(digits), scale), scale)
    if isinstance(value, datetime):
        kind = "timestamp" if value.tzinfo else "timestamp_ntz"
        return Type(kind, kind)
    if isinstance(value, int) and not isinstance(value, bool):
        return INT if -(2**31) <= value < 2**31 else BIGINT
    return _CONSTANTS[type(value)]


def comparable(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Return both operands as they are compared: as doubles if one of them has a floating point.

    Raises Unfitting for operands of two groups, nested values, and decimals that no type of 38 digits can
    hold.
    """
    by_group = {group(operand.type): operand for operand in (left, right) if group(operand.type)}
    if "nested" in by_group:
        what = by_group["nested"].type
        raise Unfitting(f"{what and what.text} is compared as a whole", "Compare its fields or elements.")
    if len(by_group) > 1:
        first, second = (operand.type.text for operand in by_group.values() if operand.type)
        fix = "Compare numbers with numbers, texts with texts; `cast(x as bigint)` makes one of the other."
        raise Unfitting(f"{first} and {second} are compared", fix)
    if "number" in by_group and _floating([left, right]):
        return _as_double(left), _as_double(right)
    if "number" in by_group:
        _common_number([left, right])
    return left, right


def united(operands: list[Typed]) -> tuple[list[Typed], Type | None]:
    """Return alternative results in their common type, and that type: all are doubles if one is.

    Raises Unfitting if they have no common type.
    """
    groups = {group(operand.type): operand.type for operand in operands if group(operand.type)}
    if len(groups) > 1:
        texts = [type_.text for type_ in groups.values() if type_]
        raise Unfitting(f"the result is either {' or '.join(texts)}", "Make all results of one type.")
    non_null = [operand for operand in operands if operand.type is None or operand.type.kind != "void"]
    if not non_null:
        return operands, NULL
    if "number" in groups and (floating := _floating(non_null)):
        return [operand if operand.type == NULL else _as_double(operand) for operand in operands], floating
    if any(group(operand.type) is None for operand in non_null):
        return operands, None
    return operands, _common_number(non_null) if "number" in groups else non_null[0].type


def arithmetic(operator: str, left: Typed, right: Typed) -> Typed:
    """Return `+ - * / %` or `div` of two numbers.

    Raises Unfitting for other types, and for results that Spark rounds.
    """
    for operand in (left, right):
        _require_number(operand, operator)
    if operator == "/":
        return _division(left, right)
    if operator == "div":
        return _whole_division(left, right)
    if _floating([left, right]):
        return Typed((operator, _as_double(left).tree, _as_double(right).tree), DOUBLE)
    tree = (operator, left.tree, right.tree)
    if group(left.type) is None or group(right.type) is None:
        return Typed(tree, None)
    if left.type and right.type and {left.type.kind, right.type.kind} <= INTEGERS.keys():
        return fitted(tree, max(left.type, right.type, key=lambda type_: INTEGERS[type_.kind]))
    return Typed(tree, _decimal_result(operator, digits(left), digits(right)))


def fitted(tree: Tree, type_: Type | None) -> Typed:
    """Return a number with a check that it fits its integer type; 64 bits are always checked."""
    narrow = type_ is not None and type_.kind in INTEGERS and type_.kind != "bigint"
    return Typed(("fit", type_.kind, tree) if type_ and narrow else tree, type_)


def digits(number: Typed) -> tuple[int, int]:
    """Return the digits and the scale of a number when it is mixed with decimals."""
    assert number.type is not None
    if number.tree[0] == "literal" and isinstance(number.tree[1], int):
        return len(str(abs(number.tree[1]))), 0
    if number.type.kind in INTEGERS:
        return INTEGERS[number.type.kind], 0
    precision, scale = number.type.text.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def _kind(operand: Typed) -> str:
    return operand.type.kind if operand.type else "any"


def _floating(operands: list[Typed]) -> Type | None:
    """Return the common type of numbers if one has a floating point, otherwise None.

    Unknown types leave a float.
    """
    kinds = {_kind(operand) for operand in operands}
    if "double" in kinds or ("float" in kinds and kinds - {"float", "any", "void"}):
        return DOUBLE
    return FLOAT if "float" in kinds else None


def _as_double(operand: Typed) -> Typed:
    if _kind(operand) in ("double", "float"):
        return operand
    if operand.tree[0] == "literal":
        value = operand.tree[1]
        return Typed(("literal", None if value is None else float(value)), DOUBLE)
    return Typed(("call", "widened", operand.tree), DOUBLE)


def _require_number(operand: Typed, operator: str) -> None:
    if group(operand.type) not in ("number", None):
        fix = "Compute with numbers; of a text, write `cast(x as double)`."
        raise Unfitting(f"`{operator}` computes with {_kind(operand)}", fix)
    if _kind(operand) == "float":
        fix = "Write `cast(x as double)`."
        raise Unfitting(f"`{operator}` computes with float, which has half of a double's digits", fix)


def _division(left: Typed, right: Typed) -> Typed:
    kinds = {_kind(left), _kind(right)}
    if "decimal" in kinds and kinds <= {"decimal", *INTEGERS}:
        fix = (
            "Write `cast(x as double) / y`; two whole numbers give a double by themselves. A constant such "
            "as `100.0` is a decimal, and `1e2` a double."
        )
        raise Unfitting("it divides decimals, whose result Spark rounds by their declared types", fix)
    if "double" in kinds:
        left, right = _as_double(left), _as_double(right)
    return Typed(("/", left.tree, right.tree), DOUBLE)


def _whole_division(left: Typed, right: Typed) -> Typed:
    if not {_kind(left), _kind(right)} <= {*INTEGERS, "any", "void"}:
        raise Unfitting("`div` is of whole numbers here", "Write `floor(x / y)`, of doubles.")
    return Typed(("div", left.tree, right.tree), BIGINT)


def _decimal_result(operator: str, left: tuple[int, int], right: tuple[int, int]) -> Type:
    """Return Spark's type of a decimal result. Raises Unfitting if Spark would round the result."""
    integral, scale = max(left[0] - left[1], right[0] - right[1]) + 1, max(left[1], right[1])
    if operator == "*":
        integral, scale = left[0] - left[1] + right[0] - right[1] + 1, left[1] + right[1]
    elif operator == "%":
        integral = min(left[0] - left[1], right[0] - right[1])
    if integral + scale > _MAX_DIGITS and max(_MAX_DIGITS - integral, min(scale, 6)) < scale:
        fix = "Write `cast(x as double)`."
        raise Unfitting(f"`{operator}` gives decimals of more than {_MAX_DIGITS} digits", fix)
    return decimal(min(integral + scale, _MAX_DIGITS), scale)


def _common_number(operands: Iterable[Typed]) -> Type | None:
    """Return the widest type of the numbers. Raises Unfitting if no type can hold all decimals."""
    numbers = [number for number in operands if group(number.type) == "number"]
    kinds = {_kind(number) for number in numbers}
    if "decimal" not in kinds:
        return max((number.type for number in numbers if number.type), key=lambda type_: INTEGERS[type_.kind])
    sizes = [digits(number) for number in numbers]
    integral, scale = max(size - scale for size, scale in sizes), max(scale for _, scale in sizes)
    if integral + scale > _MAX_DIGITS:
        fix = "Write `cast(x as double)`."
        raise Unfitting(f"decimals meet of which no type of {_MAX_DIGITS} digits holds all", fix)
    return decimal(integral + scale, scale)


# columns


def column_type(path: list[str], columns: ColumnTypes | None) -> tuple[list[str], Type | None]:
    """Return declared names and type of an existing column or field; None: the type is unknown."""
    declared = {name.lower(): name for name in columns or ()}
    name = declared.get(path[0].lower(), path[0])
    names, type_ = [name], columns.get(name) if columns else None
    for field in path[1:]:
        fields = {field_name.lower(): field_name for field_name, _ in type_.fields} if type_ else {}
        names.append(fields.get(field.lower(), field))
        type_ = field_type(type_, field) if type_ else None
    return names, type_


def field_type(type_: Type, name: str) -> Type | None:
    """Return the type of `.name`: of an array, the elements' fields; of a map, its values."""
    if type_.kind == ANY.kind:
        return ANY
    if type_.kind == "map":
        return type_.parts[1]
    if type_.kind == "array":
        inner = field_type(type_.parts[0], name)
        return inner and Type(f"array<{inner.text}>", "array", parts=(inner,))
    return next((inner for field, inner in type_.fields if field.lower() == name.lower()), None)
