"""An audit: a suite, the rows that it is evaluated on, and the place of the results. It can be pickled.

The rows are those of a batch's files, as a flat table, read in parts; or all state, or a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.quality.facts import StageFacts
from tidegate.quality.suite import Suite
from tidegate.storage import DataFile, Store
from tidegate.storage.datafile import data_errors, leaf_numbers, open_data, stored_schema
from tidegate.storage.evolution import conformed
from tidegate.storage.schema import (
    DUE_AT,
    KEY,
    KEY_COLUMNS,
    LIVE,
    PENDING,
    PLACE,
    TIMESTAMP,
    UPDATED_SEQ,
    VALUE,
    window_columns,
)
from tidegate.storage.state import StateReader

if TYPE_CHECKING:
    from tidegate.model.pipeline import Pipeline
    from tidegate.model.quality import QualityCheck
    from tidegate.model.stage import Stage

DELETED = "deleted"
"""Column of emissions: whether the emission is a deletion, whose emitted columns are all null."""
FOLDED, EMITTED = "value", "emitted"
"""Structs of a state row: the value folded so far, shown as `value.x`, and the value last emitted,
`emitted.x`.
"""


@dataclass(frozen=True)
class Origin:
    """The origin of a column that a suite names: a stored column, or a field of a stored struct.

    Example::

        Origin("value", "price").path  # "value.price"
    """

    column: str
    field: str | None = None

    @property
    def path(self) -> str:
        """The column's path as Parquet names it."""
        return self.column if self.field is None else f"{self.column}.{self.field}"


@dataclass(frozen=True)
class AuditedRows:
    """Rows of some files under the names that suites use. They can be pickled.

    Args:
        columns: name -> origin, in the order in which the suite sees the columns.
        schema: The types of these columns, and of `deleted` where it is shown.
        only_values: Leave out deletions, which are rows whose `value` is null.
        shows_deleted: Add a boolean column `deleted`.
    """

    store: Store
    files: tuple[DataFile, ...]
    columns: Mapping[str, Origin]
    schema: pa.Schema
    only_values: bool = False
    shows_deleted: bool = False

    @property
    def most_rows(self) -> int:
        """The number of rows in the files. Deletions that are left out are counted, too."""
        return sum(file.rows for file in self.files)

    def parts(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, a row group of a file at a time, always in the same order.

        Args:
            names: Read and return only these columns; None returns all.

        Raises LakeDamaged if a file is missing or changed, LakeUnavailable if the store does not answer.
        """
        requested = self.schema.names if names is None else list(names)
        for file in self.files:
            with open_data(self.store, file) as parquet:
                # For each file anew: files of before an edit lack some of the columns.
                stored = self._stored([*leaf_numbers(parquet)], requested)
                for group in range(parquet.num_row_groups):
                    with data_errors(self.store, file):
                        rows = parquet.read_row_group(group, columns=stored)
                    yield self._shown(rows, requested)

    def table(self, names: Sequence[str] | None = None) -> pa.Table:
        """Return all rows in memory, with the columns `names` (None: all). Raises as `parts` does."""
        requested = self.schema.names if names is None else list(names)
        schema = pa.schema([self.schema.field(name) for name in requested])
        return pa.concat_tables([schema.empty_table(), *self.parts(requested)])

    def _stored(self, paths: Sequence[str], requested: Sequence[str]) -> list[str]:
        """Return the Parquet paths to read from a file."""
        origins = [self.columns[name].path for name in requested if name in self.columns]
        # Parquet stores a struct only as its leaves. Any one leaf is enough to see whether the struct is
        # null.
        if self.only_values or DELETED in requested:
            origins.append(next(path for path in paths if path.split(".")[0] == VALUE))
        return list(dict.fromkeys(origins))

    def _shown(self, rows: pa.Table, requested: Sequence[str]) -> pa.Table:
        # A deletion has no values: an expectation such as `not_be_null` would fail for each of them.
        if self.only_values:
            rows = rows.filter(pc.is_valid(rows[VALUE]))
        columns = {name: self._column(rows, name) for name in requested}
        schema = pa.schema([self.schema.field(name) for name in requested])
        shown = pa.table({name: column for name, column in columns.items() if column is not None})
        return conformed(shown, schema) if requested else rows.select([])

    # None: the file is older than the column. `conformed` fills it with nulls.
    def _column(self, rows: pa.Table, name: str) -> pa.ChunkedArray | None:
        if name == DELETED and self.shows_deleted:
            return pc.is_null(rows[VALUE])
        origin = self.columns[name]
        if origin.column not in rows.column_names:
            return None
        column = rows[origin.column]
        if origin.field is None:
            return column
        return (
            pc.struct_field(column, origin.field) if column.type.get_field_index(origin.field) >= 0 else None
        )


def audited_rows(
    pipeline: Pipeline, check: QualityCheck, store: Store, files: Sequence[DataFile]
) -> AuditedRows:
    """Return the rows of a stage's outbox or state under the names that a check's suite uses.

    Without files, the types are those that the pipeline file declares, and `string` where it declares none.

    Args:
        check: Its `of` chooses: `values` and `emissions` read the outbox, `state` reads the state.
        files: The files of the stage's outbox or state.

    Raises LakeDamaged if a file is missing or changed, LakeUnavailable if the store does not answer.

    Example::

        rows = audited_rows(pipeline, check, store, manifest_files)
        rows.table(["key", "quantity"])
    """
    stage = pipeline.checked_stage(check)
    stored = (
        stored_schema(store, files) if files else _declared_schema(pipeline, stage, check.rows == "state")
    )
    columns = _of_state(stored) if check.rows == "state" else _of_outbox(pipeline, check, stored)
    fields = [pa.field(name, _type_of(stored, origin)) for name, origin in columns.items()]
    shows_deleted = check.rows == "emissions"
    if shows_deleted:
        fields.append(pa.field(DELETED, pa.bool_()))
    return AuditedRows(
        store, tuple(files), columns, pa.schema(fields), check.rows == "values", shows_deleted=shows_deleted
    )


def _of_outbox(pipeline: Pipeline, check: QualityCheck, stored: pa.Schema) -> dict[str, Origin]:
    """Return key, timestamp, window, the key's columns and the emitted columns.

    A check of a sink sees the key's columns only if the sink sends them.
    """
    stage, sink = pipeline.checked_stage(check), pipeline.checked_sink(check)
    names = [KEY, TIMESTAMP, *window_columns(stage.window is not None)]
    columns = {name: Origin(name) for name in names}
    structs = (KEY_COLUMNS, VALUE) if sink is None or sink.with_key else (VALUE,)
    for struct in structs:
        columns |= _fields(stored, struct)
    return columns


def _of_state(stored: pa.Schema) -> dict[str, Origin]:
    names = [KEY, LIVE, *window_columns(True), "timestamp", *PLACE, "offset", PENDING, DUE_AT, UPDATED_SEQ]
    # `digest` replaces `emitted` where the stage has `state: hash`
    columns = {name: Origin(name) for name in (*names, "digest") if name in stored.names}
    for struct, prefix in ((FOLDED, "value."), (EMITTED, "emitted.")):
        if struct in stored.names:
            columns |= {f"{prefix}{name}": origin for name, origin in _fields(stored, struct).items()}
    return columns


def _fields(stored: pa.Schema, struct: str) -> dict[str, Origin]:
    return {field.name: Origin(struct, field.name) for field in stored.field(struct).type}


def _type_of(stored: pa.Schema, origin: Origin) -> pa.DataType:
    type_ = stored.field(origin.column).type
    return type_ if origin.field is None else type_.field(origin.field).type


def _declared_schema(pipeline: Pipeline, stage: Stage, is_state: bool) -> pa.Schema:
    values = pa.struct([pa.field(name, _declared_type(stage.types.get(name))) for name in stage.emitted])
    names = [KEY, "timestamp", *window_columns(True), LIVE, *PLACE, "offset", PENDING, DUE_AT, UPDATED_SEQ]
    types = {KEY: pa.string(), LIVE: pa.bool_(), "topic": pa.string(), "partition": pa.int32()}
    fields = [pa.field(name, types.get(name, pa.int64())) for name in names]
    if is_state:
        return pa.schema([*fields, pa.field(EMITTED, values)])
    from tidegate.model.sources import union_of

    source_types = {column.name: column.type for column in union_of(pipeline.sources_of(stage))}
    keys = pa.struct(
        [pa.field(name, _declared_type(source_types.get(name))) for name in pipeline.key_of(stage)]
    )
    return pa.schema([*fields, pa.field(KEY_COLUMNS, keys), pa.field(VALUE, values)])


def _declared_type(text: str | None) -> pa.DataType:
    # imported here, since the process that evaluates suites imports this module, and never needs the grammar
    from tidegate.expressions.arrow import arrow_type
    from tidegate.model.columns import BadType, parse_type

    try:
        return pa.string() if text is None else arrow_type(parse_type(text))
    except (BadType, KeyError):
        return pa.string()


@dataclass(frozen=True)
class StateRows(AuditedRows):
    """The newest row of each live entry of a stage's state, ordered by hash.

    Args:
        is_bounded: Whether the stage's buffer is bounded. If it is, the same key has an entry per
            topic-partition.
    """

    is_bounded: bool = False

    def parts(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield about a row group at a time, with the columns `names` (None: all).

        Raises LakeDamaged if a file is missing or changed, LakeUnavailable if the store does not answer.
        """
        requested = self.schema.names if names is None else list(names)
        if not self.files:
            return
        schema = stored_schema(self.store, self.files)
        with StateReader(self.store, self.files, schema, by_place=self.is_bounded) as state:
            for rows in state.scan(live_only=True):
                yield self._shown(rows, requested)

    @classmethod
    def from_files(cls, rows: AuditedRows, is_bounded: bool) -> StateRows:
        """Return the state rows of the files of `rows`, with its columns."""
        return cls(rows.store, rows.files, rows.columns, rows.schema, is_bounded=is_bounded)


@dataclass(frozen=True)
class TableRows(AuditedRows):
    """A table in memory.

    Example::

        rows = TableRows.from_stored(audited_rows(pipeline, check, store, files), [stored_table])
    """

    in_memory: pa.Table = field(default_factory=lambda: pa.table({}))

    @property
    def most_rows(self) -> int:
        """The number of rows of the table."""
        return int(self.in_memory.num_rows)

    def parts(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the table at once, with the columns `names` (None: all)."""
        yield self.in_memory if names is None else self.in_memory.select(list(names))

    @classmethod
    def from_stored(cls, rows: AuditedRows, stored: Iterable[pa.Table]) -> TableRows:
        """Return rows as `rows` would show them, from tables with the columns of stored files.

        Args:
            rows: Names and types of the columns.
            stored: Tables with the columns that data files have.
        """
        shown = (rows._shown(part, rows.schema.names) for part in stored)
        in_memory = pa.concat_tables([rows.schema.empty_table(), *shown])
        return cls(rows.store, (), rows.columns, rows.schema, in_memory=in_memory)


@dataclass(frozen=True)
class PagePlace:
    """The place of a check's page in Data Docs.

    Args:
        root: A folder or a bucket that contains the whole site.
        day: The day of the batch's clock, in UTC.
        number: The check's place among the checks of the pipeline, from 1 on.
        try_number: The batch's try, from 1 on.
    """

    root: str
    pipeline: str
    generation: int
    day: date
    seq: int
    number: int
    try_number: int

    @property
    def folder(self) -> str:
        """The folder of the day, below the root: `orders/g1/2026-01-31`."""
        return f"{self.pipeline}/g{self.generation}/{self.day.isoformat()}"


@dataclass(frozen=True)
class Audit:
    """A suite that is evaluated over rows.

    Args:
        title: The suite's name and what it is evaluated on, for people.
        rows: The rows; they are read only when the audit is evaluated.
        parameters: name -> value, for `$PARAMETER` in the suite.
        modules: Modules whose expectations the suite may have. They are imported, so they must be trusted.
        facts: What built-in expectations need of the batch; None for a suite without such expectations.
        place: Where the page is written; None writes no page.
    """

    title: str
    suite: Suite
    rows: AuditedRows
    parameters: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    facts: StageFacts | None = None
    place: PagePlace | None = None
