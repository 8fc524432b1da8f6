"""ksqlDB's types, and the types of columns in pipeline files that stand for them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tidegate.model.names import quote

_DDL = {
    "BOOLEAN": "boolean",
    "INTEGER": "int",
    "BIGINT": "bigint",
    "DOUBLE": "double",
    "STRING": "string",
    "BYTES": "binary",
    # In JSON and DELIMITED, ksqlDB writes times as numbers: days, or milliseconds.
    "DATE": "int",
    "TIME": "int",
    "TIMESTAMP": "bigint",
}
_NAMES = {
    "INT": "INTEGER",
    "VARCHAR": "STRING",
    "TEXT": "STRING",
    "TIMESTAMPNTZ": "TIMESTAMP",
    "BOOLEAN": "BOOLEAN",
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP",
    "VARBINARY": "BYTES",
}
INTEGERS = ("INTEGER", "BIGINT")
NUMBERS = (*INTEGERS, "DECIMAL", "DOUBLE")


@dataclass(frozen=True)
class KsqlType:
    """A type of ksqlDB.

    Args:
        kind: BOOLEAN, INTEGER, BIGINT, DOUBLE, DECIMAL, STRING, BYTES, DATE, TIME, TIMESTAMP, ARRAY, MAP,
            STRUCT, or NULL, the type of the literal.
        parts: The types of items, or of keys and values.
        fields: The names and types of a STRUCT.
    """

    kind: str
    parts: tuple[KsqlType, ...] = ()
    fields: tuple[tuple[str, KsqlType], ...] = ()
    precision: int = 0
    scale: int = 0

    @property
    def ddl(self) -> str:
        """The type in a pipeline file."""
        if self.kind == "DECIMAL":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "STRUCT":
            return f"struct<{', '.join(f'{quote(name)}: {type_.ddl}' for name, type_ in self.fields)}>"
        if self.parts:
            return f"{self.kind.lower()}<{', '.join(part.ddl for part in self.parts)}>"
        return _DDL[self.kind]

    @property
    def is_nested(self) -> bool:
        """Whether it is an ARRAY, a MAP or a STRUCT."""
        return self.kind in ("ARRAY", "MAP", "STRUCT")

    @property
    def inner(self) -> tuple[KsqlType, ...]:
        """It, and all types within it."""
        parts = (*self.parts, *(type_ for _, type_ in self.fields))
        return (self, *(inner for part in parts for inner in part.inner))


BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING, NULL = (
    KsqlType(kind) for kind in ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "STRING", "NULL")
)
LIST_OF_TEXTS = KsqlType("ARRAY", (STRING,))


def name_of(identifier: exp.Expr) -> str:
    """Return a name as ksqlDB knows it: in upper case, unless it is quoted."""
    text = str(identifier.this)
    return text if identifier.args.get("quoted") else text.upper()


def type_of(node: exp.Expr) -> KsqlType:
    """Return the type that a node of sqlglot names. Raises Untranslatable for a type that is none."""
    kind = node.this.value if isinstance(node.this, exp.DataType.Type) else str(node.this)
    parts = node.expressions
    if kind == "USERDEFINED" and str(node.args.get("kind")).upper() == "BYTES":
        return KsqlType("BYTES")
    if kind == "DECIMAL" and parts:
        numbers = [int(str(part.this.this)) for part in parts]
        return KsqlType("DECIMAL", precision=numbers[0], scale=numbers[1] if len(numbers) > 1 else 0)
    if kind in ("ARRAY", "MAP") and parts:
        return _checked(KsqlType(kind, tuple(type_of(part) for part in parts)))
    if kind == "STRUCT":
        return KsqlType(
            kind, fields=tuple((name_of(field.this), type_of(field.args["kind"])) for field in parts)
        )
    if kind not in _NAMES:
        raise Untranslatable(f"the type {node.sql()} is unknown", "Write the type in place of its name.")
    return KsqlType(_NAMES[kind])


def _checked(type_: KsqlType) -> KsqlType:
    if type_.kind == "MAP" and type_.parts[0] != STRING:
        raise Untranslatable("a map has keys that are no texts", "Use MAP<STRING, …>.")
    return type_


class Untranslatable(Exception):
    """A statement, or a part of one, has no equivalent. It becomes a Remark.

    Example: `Untranslatable("UUID gives another value each time", "Let the producer make the id.")`
    """

    def __init__(self, why: str, instead: str) -> None:
        super().__init__(why)
        self.why = why
        self.instead = instead


@dataclass(frozen=True)
class Remark:
    """A statement that is not imported as it is.

    Args:
        line: The line at which the statement begins.
        statement: Its first words.
        why: What has no equivalent.
        instead: What to do instead.
        imported: Whether a pipeline is written all the same, whose result differs as `why` says.
    """

    file: str
    line: int
    statement: str
    why: str
    instead: str
    imported: bool = False

    def __str__(self) -> str:
        """Return the remark as one line."""
        return f"{self.file}:{self.line}: {self.statement}: {self.why}. {self.instead}"
