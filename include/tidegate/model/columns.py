"""`columns`: the names and types of columns, and their former names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from tidegate.expressions.arrow import arrow_type
from tidegate.expressions.types import Type
from tidegate.formats.registry import formats
from tidegate.model import names
from tidegate.model.mistakes import Fault, as_mistake, did_you_mean, faults_of, listed, mistake
from tidegate.model.names import check_column, quote, repeated_name
from tidegate.model.scope import distinct, require_filled, suggest_column

_PLAIN = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"),
    *("string", "binary", "date", "timestamp", "timestamp_ntz"),
)
SCALARS = (
    {name: name for name in _PLAIN}
    | {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
    | {"timestamp_ltz": "timestamp"}
)
"""Spark's names of types without parameters, and the normal form of each."""

DECIMALS = ("decimal", "dec", "numeric")
NESTED = ("array", "map", "struct")

REFUSED = {
    "interval": ("is not stored by Delta", "Use `bigint` with a unit in the column's name."),
    "void": ("holds nothing", "Name the type that is meant."),
    "variant": (
        "cannot be compared",
        "Name the fields: `struct<a:int>`, or read the whole value: `format: string`.",
    ),
    "time": ("is not switched on in Spark 4.1", "Use `string`, or `bigint` for milliseconds."),
    "char": ("is not kept by Spark outside of tables", "Use `string`."),
    "character": ("is not kept by Spark outside of tables", "Use `string`."),
    "varchar": ("is not kept by Spark outside of tables", "Use `string`."),
    "geometry": ("cannot be read from JSON", "Use `string` or `binary`."),
    "geography": ("cannot be read from JSON", "Use `string` or `binary`."),
}
# Types of other databases and languages -> the type to suggest.
_ELSEWHERE = (
    {"text": "string", "str": "string", "uuid": "string", "json": "string", "bytes": "binary"}
    | {"bool": "boolean", "number": "decimal(38,18)", "float64": "double", "float32": "float"}
    | {"int8": "bigint", "int4": "int", "int2": "smallint", "int64": "bigint", "int32": "int"}
    | {"datetime": "timestamp", "timestamptz": "timestamp", "object": "struct<…>", "list": "array<…>"}
)
MAX_DEPTH = 30

_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<word>[A-Za-z0-9_]+)|(?P<mark>[<>(),:]))")


class Column(BaseModel):
    """A column: its name as written, and its type in Spark's normal form, such as `array<bigint>`."""

    model_config = ConfigDict(frozen=True)

    name: str
    type: str


class BadType(Exception):
    """A text is not a type, or not a list of columns; `fault` has the message and the fix."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def parse_columns(text: str) -> tuple[tuple[Column, ...], list[Fault]]:
    """Parse the columns of a DDL text. Returns the usable columns, and all problems.

    >>> parse_columns("id long")
    ((Column(name='id', type='bigint'),), [])
    """
    try:
        parser = _Parser(list(_tokens(text)))
        fields = parser.columns()
    except BadType as error:
        return (), [error.fault]
    faults = parser.faults
    if any(_has_other_keys(parsed) for _, parsed in fields):
        fix = "Write `map<string,…>`."
        faults.append(Fault("the keys of a map in JSON are text", fix))
    if (name := repeated_name(name for name, _ in fields)) is not None:
        faults.append(
            Fault(f"the column `{name}` appears twice", "Column names must differ in more than case.")
        )
    return tuple(Column(name=name, type=parsed.text) for name, parsed in fields), faults


def read_columns(written: Any, message: str, fix: str) -> tuple[Column, ...]:
    """Return the columns of an option. Raises a mistake: with `message` and `fix` if it is not a text."""
    if not isinstance(written, str):
        raise mistake(message, fix)
    columns, faults = parse_columns(written)
    if faults:
        raise as_mistake(faults)
    return columns


def read_type(text: str) -> Type:
    """Return the type that an option names. Raises a mistake if it does not name one."""
    try:
        return parse_type(text)
    except BadType as error:
        raise as_mistake([error.fault]) from None


def _has_other_keys(type_: Type) -> bool:
    """Return whether the type contains a map with keys that JSON cannot have."""
    if type_.kind == "map" and type_.parts[0].text != "string":
        return True
    return any(map(_has_other_keys, (*type_.parts, *(inner for _, inner in type_.fields))))


def parse_type(text: str) -> Type:
    """Parse a single type, such as the type of a column or of a cast. Raises BadType if it is not one.

    >>> parse_type("map<string, long>").text
    'map<string,bigint>'
    """
    parser = _Parser(list(_tokens(text)))
    result = parser.type(0)
    parser.expect_end()
    if parser.faults:
        raise BadType(parser.faults[0])
    return result


def _tokens(text: str) -> Iterator[str]:
    at = 0
    # Each token takes the blanks before it, so those at the end would match none.
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if not match:
            character = text[at:].strip()[:1]
            raise BadType(Fault(f"{character!r} does not belong here", "Put unusual names into backticks."))
        yield match.group().strip()
        at = match.end()


@dataclass
class _Parser:
    """A recursive-descent parser.

    A problem that ends parsing is raised as BadType, others are added to `faults`.
    """

    tokens: list[str]
    at: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.next
        self.at += 1
        return token

    def expect(self, mark: str, after: str) -> None:
        if self.next != mark:
            instead = f"not `{self.next}`" if self.next else "but the text ends"
            raise BadType(
                Fault(f"after `{after}` comes `{mark}`, {instead}", "Write `name type, name type`.")
            )
        self.at += 1

    def expect_end(self) -> None:
        if self.next:
            raise BadType(Fault(f"`{self.next}` after the type", "Write the type alone."))

    def columns(self) -> list[tuple[str, Type]]:
        fields = [self.field(0)]
        while self.next == ",":
            self.at += 1
            fields.append(self.field(0))
        if self.next.lower() in ("not", "comment", "default", "generated"):
            name = fields[-1][0]
            raise BadType(Fault(f"`{name}` has more than a name and a type", f"Leave out `{self.next} …`."))
        if self.next:
            raise BadType(Fault(f"`{self.next}` where a comma should be", "Write `name type, name type`."))
        return fields

    def field(self, depth: int) -> tuple[str, Type]:
        name = self.name()
        # Spark writes `name:type` inside of a struct, and people write `name type`; both are read.
        if self.next == ":":
            self.at += 1
        return name, self.type(depth, name)

    def name(self) -> str:
        token = self.take()
        if not token or token in "<>(),:":
            place = f"before `{token}`" if token else "at the end"
            raise BadType(Fault(f"a column's name is missing {place}", "Write `name type, name type`."))
        name = token[1:-1].replace("``", "`") if token.startswith("`") else token
        try:
            return check_column(name)
        except PydanticCustomError as error:
            raise BadType(faults_of(error.context)[0]) from None

    def type(self, depth: int, name: str = "") -> Type:
        """Parse a type with its parameters.

        Args:
            depth: The number of types around it.
            name: The column, for messages.
        """
        # The parser recurses per level: without a bound a text could exhaust Python's stack.
        if depth > MAX_DEPTH:
            raise BadType(Fault(f"types are nested more than {MAX_DEPTH} deep", "Use `string` inside."))
        kind = self.take().lower()
        if kind in SCALARS:
            return Type(SCALARS[kind], SCALARS[kind])
        if kind in DECIMALS:
            return self.decimal()
        if kind in NESTED:
            return self.nested(kind, depth)
        return self.unknown(kind, name)

    def decimal(self) -> Type:
        # Spark's default for a plain `decimal`.
        precision, scale = 10, 0
        if self.next == "(":
            self.at += 1
            precision = self.number()
            if self.next == ",":
                self.at += 1
                scale = self.number()
            self.expect(")", "decimal")
        if not (1 <= precision <= 38 and scale <= precision):
            fix = "The first number is 1 to 38 digits in all, the second those after the point."
            self.faults.append(Fault(f"`decimal({precision},{scale})` does not exist", fix))
        return Type(f"decimal({precision},{scale})", "decimal")

    def number(self) -> int:
        token = self.take()
        if not re.fullmatch(r"[0-9]{1,4}", token):
            raise BadType(Fault(f"`{token}` is not a number of digits", "Write `decimal(10,2)`."))
        return int(token)

    def nested(self, kind: str, depth: int) -> Type:
        self.expect("<", kind)
        if kind == "struct":
            return self.struct(depth)
        parts = [self.type(depth + 1)]
        if kind == "map":
            self.expect(",", "map<" + parts[0].text)
            parts.append(self.type(depth + 1))
        self.expect(">", kind)
        return Type(f"{kind}<{','.join(part.text for part in parts)}>", kind, parts=tuple(parts))

    def struct(self, depth: int) -> Type:
        fields = [self.field(depth + 1)]
        while self.next == ",":
            self.at += 1
            fields.append(self.field(depth + 1))
        self.expect(">", "struct")
        if (name := repeated_name(name for name, _ in fields)) is not None:
            self.faults.append(Fault(f"the field `{name}` appears twice", "Rename or remove one."))
        return struct_type(fields)

    def unknown(self, kind: str, name: str) -> Type:
        """Note why the type cannot be used, and go on, so that later mistakes are reported, too."""
        of_column = f" of `{name}`" if name else ""
        if not kind or kind in "<>(),:":
            raise BadType(Fault(f"the type{of_column} is missing", "Write `name type, name type`."))
        self.skip_parameters()
        if kind in REFUSED:
            why, fix = REFUSED[kind]
            self.faults.append(Fault(f"the type{of_column}, `{kind}`, {why}", fix))
        else:
            self.faults.append(Fault(f"the type{of_column}, `{kind}`, is unknown", _type_advice(kind)))
        return Type(kind, kind)

    def skip_parameters(self) -> None:
        # `interval day to second` is a type of several words.
        while self.next.lower() in ("day", "hour", "minute", "second", "year", "month", "to"):
            self.at += 1
        if self.next == "(":
            while self.next and self.take() != ")":
                pass


def _type_advice(kind: str) -> str:
    if spark_type := _ELSEWHERE.get(kind):
        return f"Did you mean `{spark_type}`?"
    normal_forms = [*_PLAIN, "decimal", *NESTED]
    return did_you_mean(kind, [*SCALARS, *DECIMALS, *NESTED], f"Use one of {listed(normal_forms)}.")


def struct_type(fields: Iterable[tuple[str, Type]]) -> Type:
    """Return the type of a struct of these fields."""
    named = tuple(fields)
    # Types are compared by their texts, so these must not depend on how names were quoted.
    text = ",".join(f"{_plain(name)}:{type_.text}" for name, type_ in named)
    return Type(f"struct<{text}>", "struct", fields=named)


def _plain(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else quote(name)


def check_fields(columns: Iterable[Column], what: str = "a field of CSV") -> None:
    """Raise a mistake for a column of a nested type: a field of CSV, or an attribute, is a single value."""
    for column in columns:
        if parse_type(column.type).kind in NESTED:
            message = f"`{column.name}` is {column.type}, and {what} is a single value"
            raise mistake(message, "Declare it as `string`.")


def require_single(format_: str, columns: Iterable[Column]) -> None:
    """Raise a mistake unless a format of one column has one, of a type that it has bytes for."""
    single, columns = formats()[format_].single, tuple(columns)
    if not single:
        return
    if len(columns) != 1:
        raise mistake(f"`{format_}` has one column, not {len(columns)}", 'Write for example `"id bigint"`.')
    if columns[0].type not in single:
        message = f"`{columns[0].name}` is {columns[0].type}, and Kafka's clients have no serializer for it"
        raise mistake(message, f"Use {listed(single)}.")


ColumnAliases = Annotated[
    tuple[Annotated[str, AfterValidator(names.check_column)], ...],
    BeforeValidator(require_filled),
    AfterValidator(distinct),
]
"""The older names of one column."""


def check_aliases(
    aliases: Mapping[str, tuple[str, ...]], columns: Iterable[str] | None
) -> dict[str, tuple[str, ...]]:
    """Check that each alias belongs to an existing column, and that no name belongs to two columns.

    Args:
        aliases: Column -> its older names.
        columns: The columns that exist; None if they have mistakes, so that nothing can be said about them.

    Returns the aliases. Raises a mistake otherwise.

    Example: `check_aliases({"quantity": ("qty",)}, ["id", "quantity"])`
    """
    existing = None if columns is None else [*columns]
    # Every name, present or former -> the column that has it; a name may belong to one column only.
    owners = {name: name for name in existing or ()}
    for column, older in aliases.items():
        if existing is not None and column not in existing:
            raise mistake(f"the column `{column}` does not exist", suggest_column(column, existing))
        for name in older:
            if (owner := owners.get(name)) is not None:
                what = "a column itself" if owner == name else f"an older name of `{owner}` already"
                fix = "Name what the column was called before; a name that is in use belongs to one column."
                raise mistake(f"`{name}`, an older name of `{column}`, is {what}", fix)
            owners[name] = column
    return dict(aliases)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of a source's columns, with the types by which Spark exchanges data with Arrow.

    Raises BadType if the type of a column cannot be parsed.
    """
    return pa.schema([pa.field(column.name, arrow_type(parse_type(column.type))) for column in columns])
