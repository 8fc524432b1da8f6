"""A kind of database, as the SQL sink needs to know it. The defaults are those of the SQL standard.

A subclass has a file of its own here. Whatever differs between databases is in these files alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import (
    ARRAY,
    REAL,
    URL,
    BigInteger,
    Boolean,
    Connection,
    Date,
    DateTime,
    Double,
    Engine,
    Float,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    Table,
    Text,
    bindparam,
    exists,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.types import TypeEngine, UserDefinedType

from tidegate.kernel.equality import widens
from tidegate.kernel.json_text import json_texts

if TYPE_CHECKING:
    from tidegate.sinks.sql.dialects.copy import ShardTables

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
IS_DELETION = "tidegate_is_deletion"
"""The column of a shard's table that says whether a row deletes its key."""
Row = Mapping[str, Any]
"""A row as parameters of a statement: key of the column -> value."""


class Unusable(NamedTuple):
    """A fault of an existing table, as the end of a sentence, and what a person does about it."""

    why: str
    fix: str


class Writer(Protocol):
    """Changes a table. Each method returns the number of rows that changed, or -1 where that is unknown.

    The columns of rows are named by the keys of the table's columns.
    """

    def insert(self, rows: pa.RecordBatch) -> int: ...

    def upsert(self, key: Sequence[str], rows: pa.RecordBatch) -> int: ...

    def insert_missing(self, key: Sequence[str], rows: pa.RecordBatch) -> None: ...

    def delete(self, keys: pa.RecordBatch) -> int: ...


_SCALARS: Sequence[tuple[Callable[[pa.DataType], bool], type[TypeEngine[Any]]]] = (
    (pa.types.is_boolean, Boolean),
    (pa.types.is_int8, SmallInteger),
    (pa.types.is_int16, SmallInteger),
    (pa.types.is_int32, Integer),
    (pa.types.is_int64, BigInteger),
    (pa.types.is_float32, REAL),
    (pa.types.is_float64, Double),
    (pa.types.is_date, Date),
    (pa.types.is_binary, LargeBinary),
    (pa.types.is_large_binary, LargeBinary),
)


class NamedType(UserDefinedType[Any]):
    """A type by its name in the database."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


class Json(NamedType):
    """A type of JSON. Values are JSON texts, which SQLAlchemy's own type would quote again."""


# SQLSTATE classes of errors that pass: connection, rollback, resources, operator's doing, system; and single
# ones of PostgreSQL: the server is read-only, a session was idle for too long, a lock was not to be had
_PASSING = ("08", "40", "53", "57", "58", "25006", "25P03", "55P03")


class SqlDialect:
    """A kind of database that SQLAlchemy has a dialect for.

    An instance has no state. This class itself stands for a database without a class of its own: rows are
    replaced by a deletion and an insertion.
    """

    title: ClassVar[str] = "this database"
    driver: ClassVar[str | None] = None
    """The driver of a URL that names none, such as `psycopg`."""
    plugin: ClassVar[str | None] = None
    """The module that brings SQLAlchemy the dialect; None: SQLAlchemy has it itself."""
    package: ClassVar[str | None] = None
    """The package with that module, if no extra of tidegate installs it."""
    has_transactional_ddl: ClassVar[bool] = True
    """Whether a transaction covers the creation and the change of tables."""
    has_indexes: ClassVar[bool] = True
    """Whether a table can have indexes."""
    is_file: ClassVar[bool] = False
    """Whether the database is a file, which connecting would create."""
    add_column: ClassVar[str] = "ADD COLUMN"
    """What stands before a new column in ALTER TABLE."""
    refused_in_names: ClassVar[str] = ""
    """The characters that no name of a table or column can have."""
    ignores_case: ClassVar[bool] = False
    """Whether names of columns that differ in case only are one, also in quotes."""
    taken_names: ClassVar[frozenset[str]] = frozenset()
    """The names that no column can have, since each table has such columns already."""
    longest_name: ClassVar[int | None] = None
    """The longest name of a table or column in bytes, where a database cuts longer ones or refuses them."""
    longest_key: ClassVar[int | None] = None
    """The longest key that an index takes, in bytes or characters."""
    measures_bytes: ClassVar[bool] = True
    """Whether `longest_key` is in bytes; otherwise in characters."""
    counts_upserts: ClassVar[bool] = True
    """Whether the number of rows that an upsert reports is that of the rows that it took."""
    has_zero_character: ClassVar[bool] = True
    """Whether a text can have the character with the code 0."""
    has_shard_tables: ClassVar[bool] = False
    """Whether tasks can load the shards of a batch side by side."""
    most_values: ClassVar[int] = 900
    """The most values that one statement compares with: Oracle takes 1,000, SQL Server 2,100 parameters."""
    can_try_rows: ClassVar[bool] = False
    """Whether rows can be tried under savepoints, and `refuses_row` says which errors are about a row."""
    json_name: ClassVar[str | None] = None
    """The type of JSON; None: JSON is stored as text."""
    deepest_json: ClassVar[int | None] = None
    """How deep JSON can be nested; None: deeper than any text that tidegate parses."""
    has_arrays: ClassVar[bool] = False
    """Whether a column can have arrays."""
    has_nan: ClassVar[bool] = True
    """Whether a number can be NaN."""
    has_infinity: ClassVar[bool] = True
    """Whether a number can be infinite."""

    def connect_options(self, url: URL, wait_s: float) -> dict[str, Any]:
        """Return the driver's options."""
        del url, wait_s
        return {}

    def prepare(self, engine: Engine) -> None:
        """Let each new connection have the settings that the sink depends on."""

    def begin(self, connection: Connection, wait_s: float, idle_s: float) -> None:
        """Limit how long a new transaction waits for locks, and how long it may do nothing."""

    def lock_for_changes(self, connection: Connection) -> None:
        """Let a second process that creates the same tables wait here, until this transaction ends."""

    def is_temporary(self, error: DBAPIError) -> bool:
        """Return whether the same statement can succeed later."""
        state = sqlstate(error)
        return state.startswith(_PASSING) if state else isinstance(error, OperationalError)

    def refuses_row(self, error: DBAPIError) -> bool:
        """Return whether the database refuses a row for its values, so that it may take other rows."""
        del error
        return False

    def begin_trial(self, connection: Connection) -> None:
        """Let a transaction that is rolled back check at once what it would check when it commits."""

    def column_type(self, type_: pa.DataType) -> TypeEngine[Any]:
        """Return the type of a column with values of an Arrow type: scalars have their own types, nested
        values are arrays or JSON, all other values are text.
        """
        if self.is_array(type_):
            return ARRAY(self.column_type(type_.value_type))
        if pa.types.is_nested(type_) and self.json_name is not None:
            return Json(self.json_name)
        if pa.types.is_decimal(type_):
            return Numeric(type_.precision, type_.scale)
        if pa.types.is_timestamp(type_):
            return DateTime(timezone=type_.tz is not None)
        return next((make() for matches, make in _SCALARS if matches(type_)), Text())

    def is_array(self, type_: pa.DataType) -> bool:
        """Return whether values of a type are stored as arrays. Arrays of nested values are JSON."""
        return self.has_arrays and pa.types.is_list(type_) and not pa.types.is_nested(type_.value_type)

    def stored(self, values: pa.Array, type_: pa.DataType) -> pa.Array:
        """Return a column's values as they are stored: nested ones as JSON texts, unless `type_`, the type
        that they are stored as, is an array.
        """
        if not pa.types.is_nested(values.type) or self.is_array(type_):
            return values
        return json_texts(values)

    def name_type(self, engine_dialect: Any, longest: int | None) -> TypeEngine[Any]:
        """Return the type of a text that is compared exactly, such as a key.

        Args:
            engine_dialect: SQLAlchemy's dialect; connected, it knows the server.
            longest: The most characters that an index has to take; None for a column without an index.
        """
        del engine_dialect, longest
        return Text()

    def lengths(self, texts: pa.Array) -> pa.Array:
        """Return the length of each text, in the unit of `longest_key`."""
        return pc.binary_length(texts) if self.measures_bytes else pc.utf8_length(texts)

    def is_other_kind(self, existing: TypeEngine[Any], type_: pa.DataType) -> bool:
        """Return whether a column has values of another kind than a type, so that rows would differ in form.
        Other differences are left to the database, since a person may have made the table.
        """
        if pa.types.is_timestamp(type_):
            return isinstance(existing, Integer | Numeric | Float)
        return isinstance(existing, ARRAY) != self.is_array(type_)

    def lacks_room(self, existing: TypeEngine[Any], type_: pa.DataType) -> bool:
        """Return whether a column of the same kind cannot store each value of a type."""
        if isinstance(existing, ARRAY):
            return self.lacks_room(existing.item_type, type_.value_type)
        stored = self.arrow_type(existing)
        return stored is not None and stored != type_ and widens(stored, type_)

    def arrow_type(self, type_: TypeEngine[Any]) -> pa.DataType | None:
        """Return the type whose values fit into a column of numbers; None for other columns, or if all
        numbers fit.
        """
        # SmallInteger and BigInteger are subclasses of Integer, so Integer comes last.
        sizes = ((SmallInteger, pa.int16()), (BigInteger, pa.int64()), (Integer, pa.int32()))
        if isinstance(type_, Integer):
            return next(arrow for kind, arrow in sizes if isinstance(type_, kind))
        if isinstance(type_, Float):
            return pa.float32() if isinstance(type_, REAL) else pa.float64()
        if isinstance(type_, Numeric) and type_.precision is not None:
            return pa.decimal128(min(type_.precision, 38), type_.scale or 0)
        return None

    def widening(self, table: str, column: str, type_: str) -> str:
        """Return what a person does to give a column a wider type."""
        del table, column
        return f"Let it have the type {type_}; then run again, nothing is lost."

    def check_existing(self, connection: Connection, table: Table, mode: str) -> Unusable | None:
        """Return why an existing table cannot be written to exactly once; None if it can."""
        del connection, table, mode
        return None

    def columns(self, connection: Connection, table: Table) -> Mapping[str, TypeEngine[Any]]:
        """Return the columns of an existing table: name -> type."""
        existing = inspect(connection).get_columns(table.name, table.schema)
        return {column["name"]: column["type"] for column in existing}

    def unique_columns(self, connection: Connection, table: Table) -> Iterator[Sequence[str | None]]:
        """Yield the columns of the primary key, and of each unique constraint and index."""
        inspector = inspect(connection)
        yield inspector.get_pk_constraint(table.name, table.schema)["constrained_columns"]
        unique = inspector.get_unique_constraints(table.name, table.schema)
        yield from (constraint["column_names"] for constraint in unique)
        indexes = inspector.get_indexes(table.name, table.schema)
        yield from (index["column_names"] for index in indexes if index["unique"])

    def add_key(self, name: str, table: str, columns: str) -> str:
        """Return the statement that gives an existing table a key. All arguments are quoted names."""
        return f"CREATE UNIQUE INDEX {name} ON {table} ({columns})"

    def upsert(self, table: Table, key: Sequence[str]) -> Any | None:
        """Return the statement that inserts a row or replaces that with the same key; None if there is
        none.

        Args:
            key: The keys of the columns that identify a row.
        """
        del table, key
        return None

    def insert_missing(self, table: Table, key: Sequence[str]) -> Any:
        """Return the statement that inserts a row unless the table has one with the same key."""
        row = select(*(bindparam(column.key, type_=column.type) for column in table.c))
        exists_already = exists().where(*(table.c[column] == bindparam(column) for column in key))
        return insert(table).from_select([column.key for column in table.c], row.where(~exists_already))

    def inserted(self, connection: Connection, table: Table, row: Row) -> bool:
        """Insert a row, and return whether its primary key was free. Of two transactions that insert the
        same key, one waits for the other.
        """
        try:
            connection.execute(insert(table).values(row))
        except IntegrityError:
            return False
        return True

    def updated(self, connection: Connection, statement: Any) -> int:
        """Execute an UPDATE, and return the number of rows that it matches."""
        return connection.execute(statement).rowcount

    def bulk_writer(self, connection: Connection, table: Table, rows: int) -> Writer | None:
        """Return what writes so many rows faster than statement by statement; None if nothing does."""
        del connection, table, rows
        return None

    def shard_tables(self, connection: Connection, table: Table) -> ShardTables | None:
        """Return the tables of a batch's shards; None if the driver has no way to load them."""
        del connection, table
        return None


def parameters(rows: pa.RecordBatch) -> list[Row]:
    """Return rows as parameters of statements."""
    columns = (_values(column) for column in rows.columns)
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        values: list[Any] = column.to_pylist()
        return values
    # Arrow looks the zone up for each value, which takes ten times as long.
    micros = column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64()).to_pylist()
    return [None if value is None else _EPOCH + timedelta(microseconds=value) for value in micros]


def has_type(type_: pa.DataType, matches: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type, or one that is nested in it, matches."""
    if matches(type_):
        return True
    return any(has_type(type_.field(number).type, matches) for number in range(type_.num_fields))


def replacing(statement: Any, table: Table, key: Sequence[str]) -> Any:
    """Return an INSERT of PostgreSQL or SQLite that replaces the row with the same key."""
    changed = {column.key: statement.excluded[column.key] for column in table.c if column.key not in key}
    return statement.on_conflict_do_update(index_elements=[table.c[column] for column in key], set_=changed)


def inserting(statement: Any, table: Table, key: Sequence[str]) -> Any:
    """Return an INSERT of PostgreSQL or SQLite that leaves a row with the same key as it is."""
    return statement.on_conflict_do_nothing(index_elements=[table.c[column] for column in key])


def sqlstate(error: DBAPIError) -> str:
    """Return the SQLSTATE of an error; empty if the driver has none."""
    return str(getattr(error.orig, "sqlstate", None) or "")
