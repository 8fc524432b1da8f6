"""Read files of several schemas as files of one: columns and fields that were added, removed, widened or
renamed.

An edit of the pipeline file never rewrites a stored file. A reader names the columns that it takes, and gets
them under their current or older names: null if the file has none; as the wider type if the file has a
narrower one. Columns that the reader does not name are left out. `storage.compatibility` decides which edits
are allowed; an edit that only the files show to be impossible raises SchemaChanged here.

Older names of a stage's columns: a file has the names of its time, and later files declare how its columns
are called now, so a renamed column rewrites no file. Only what was declared after a file applies to it: a
name that is free again may belong to another column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.errors import LakeDamaged, SchemaChanged
from tidegate.kernel.equality import widens
from tidegate.kernel.reduce.collect import EVENTS
from tidegate.storage.layout import Name
from tidegate.storage.manifest import DataFile

if TYPE_CHECKING:
    from tidegate.model.stage import Stage


@dataclass(frozen=True)
class Aliases:
    """Older names of a stage's columns: column -> its older names, the newest first.

    `within` is the struct, or the list of structs, whose fields have these names, as the events of `reduce:
    collect`; None: they are columns of the value itself.

    Example: `Aliases({"amount": ("price", "cost")})` reads `cost` of an old file as `amount`.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    within: str | None = None

    @classmethod
    def from_text(cls, text: str) -> Aliases:
        """Decode aliases as manifests have them, beside the files that were written with them. Raises
        ValueError and KeyError for any other text.
        """
        document = json.loads(text)
        names = {name: tuple(older) for name, older in document["names"].items()}
        return cls(names, document["within"])

    @property
    def text(self) -> str | None:
        """The aliases as a manifest has them, the inverse of `from_text`; None if there are none."""
        if not self.names:
            return None
        return json.dumps(
            {"names": {name: [*older] for name, older in self.names.items()}, "within": self.within}
        )

    def updated(self, newer: Aliases) -> Aliases:
        """Return these aliases together with those of a later edit. The later edit wins if both name a
        column.
        """
        # An older name that the later edit gives to another column no longer belongs to the column that had
        # it.
        taken = {old for older in newer.names.values() for old in older}
        remaining = {name: older for name, older in self.names.items() if name not in taken}
        names = {
            name: (*newer.names.get(name, ()), *(old for old in older if old not in taken))
            for name, older in remaining.items()
        }
        return Aliases(dict(newer.names) | names, newer.within if newer.names else self.within)

    def stored_name(self, name: str, struct: pa.StructType) -> str | None:
        """Return the name under which a struct has a column; None if it does not have it.

        A column of the struct with that very name is another column, if it has been renamed since, or was
        removed before this one got its name. So the oldest name counts: no later file has it.
        """
        names = self.names if self.within is None else {}
        if any(name in older for other, older in names.items() if other != name):
            return None
        candidates = (*reversed(names.get(name, ())), name)
        return next((candidate for candidate in candidates if struct.get_field_index(candidate) >= 0), None)

    def inside(self, name: str) -> Aliases:
        """Return the aliases of the fields of a column, or of its elements; none unless the column is
        `within`.
        """
        return Aliases(self.names) if name == self.within else NO_ALIASES


NO_ALIASES = Aliases()


def state_aliases(stage: Stage) -> Aliases:
    """Return the older names that a stage of the pipeline file declares; with `reduce: collect`, names of its
    events' fields.
    """
    return Aliases(stage.aliases, EVENTS if stage.reduce.lists_events else None)


def batch_of(file: DataFile) -> int:
    """Return the batch that wrote a state file, or after which it was folded.

    Raises LakeDamaged if the file's folder has no name of an attempt or a snapshot.
    """
    name = file.path.split("/")[-2]
    parsed = Name.parse(name)
    if parsed is None:
        raise LakeDamaged(
            f"No attempt and no snapshot has the name {name}, which a manifest's file has",
            "Use the version of tidegate that wrote the lake, or a newer one.",
        )
    return parsed.seq


def aliases_in(files: Sequence[DataFile], newest: Aliases = NO_ALIASES) -> Callable[[DataFile], Aliases]:
    """Return a function that gives the aliases to read a file with: those that later files declare, and
    `newest`.

    `newest` are aliases of the pipeline file, which no stored file may declare yet. Raises LakeDamaged if the
    folder of a file has an unknown name.
    """
    # Most files of a batch declare the same; a set decodes each declaration once.
    declared = {(batch_of(file), file.aliases) for file in files if file.aliases is not None}
    by_age = [(seq, Aliases.from_text(text)) for seq, text in sorted(declared)]

    def aliases_for(file: DataFile) -> Aliases:
        # In most streams no column was ever renamed: then no name has to be parsed.
        if not by_age:
            return newest
        written = batch_of(file)
        aliases_since = NO_ALIASES
        for seq, aliases in by_age:
            aliases_since = aliases_since.updated(aliases) if seq > written else aliases_since
        return aliases_since.updated(newest)

    return aliases_for


def declared_aliases(files: Sequence[DataFile]) -> Aliases:
    """Return all aliases that the files declare together: a file that replaces them has to declare them, too.

    Raises LakeDamaged if the folder of a file has an unknown name.
    """
    declared = {(batch_of(file), file.aliases) for file in files if file.aliases is not None}
    merged = NO_ALIASES
    for _, text in sorted(declared):
        merged = merged.updated(Aliases.from_text(text))
    return merged


VALUES = ("value", "emitted")
"""The columns of state files with a stage's own fields: structs of its value, and of what it emitted last."""


def conformed(rows: pa.Table, schema: pa.Schema, aliases: Aliases = NO_ALIASES) -> pa.Table:
    """Return stored rows with the columns of `schema` and exactly the values that were stored.

    Raises SchemaChanged if a column or field was stored with a type that its type in `schema` does not widen.

    Example: rows with `value: struct<n: int32>` conform to `value: struct<n: int64, tag: string>`; `tag` is
    null.
    """
    if rows.schema.equals(schema) and not aliases.names:
        return rows
    return pa.table([_conformed_column(rows, field, aliases) for field in schema], schema)


def _conformed_column(rows: pa.Table, field: pa.Field, aliases: Aliases) -> pa.ChunkedArray:
    if field.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    stored = rows[field.name]
    # Users can rename only what they have named: columns inside of a value.
    renames = aliases if field.name in VALUES else NO_ALIASES
    if stored.type == field.type and not renames.names:
        return stored
    return pa.chunked_array([_converted(field.name, stored.combine_chunks(), field.type, renames)])


def _converted(name: str, values: pa.Array, type_: pa.DataType, aliases: Aliases) -> pa.Array:
    """Return the values in another type."""
    if values.type == type_ and not aliases.names:
        return values
    if pt.is_struct(values.type) and pt.is_struct(type_):
        return _struct(values, type_, aliases)
    if pt.is_list(values.type) and pt.is_list(type_):
        # `flatten` leaves out the items of null lists, so the offsets are computed anew.
        items = _converted(name, values.flatten(), type_.value_type, aliases)
        return pa.ListArray.from_arrays(_offsets(values), items, type=type_, mask=values.is_null())
    if pt.is_map(values.type) and pt.is_map(type_):
        return _map(name, values, type_)
    if not widens(values.type, type_):
        raise column_changed(name, values.type, type_)
    return values.cast(type_)


def _struct(values: pa.StructArray, type_: pa.StructType, aliases: Aliases) -> pa.StructArray:
    parts = []
    for part in type_:
        stored = aliases.stored_name(part.name, values.type)
        parts.append(
            pa.nulls(len(values), part.type)
            if stored is None
            else _converted(part.name, pc.struct_field(values, stored), part.type, aliases.inside(part.name))
        )
    return pa.StructArray.from_arrays(parts, fields=list(type_), mask=values.is_null())


def _map(name: str, values: pa.MapArray, type_: pa.MapType) -> pa.MapArray:
    pairs = pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)]))
    entries = values.cast(pairs)
    keys, items = entries.flatten().flatten()
    converted = [
        _converted(name, part, part_type, NO_ALIASES)
        for part, part_type in ((keys, type_.key_type), (items, type_.item_type))
    ]
    return pa.MapArray.from_arrays(_offsets(entries), *converted, type=type_, mask=values.is_null())


def _offsets(values: pa.ListArray) -> pa.Int32Array:
    """Return offsets for the items that `flatten` gives, which has no items of lists that are null or cut
    off.
    """
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))


def column_changed(name: str, stored: pa.DataType | str, now: pa.DataType | str) -> SchemaChanged:
    """Return the error for a column whose type does not fit the stored state."""
    return SchemaChanged(
        f"The column {name} was {stored} in the state and is {now}, which not all such values fit into",
        "Raise `generation` in the pipeline file: it starts with a state of its own. Or give the "
        "column its type back, or a wider one.",
    )


def merged_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return all columns that any schema has, and all fields of their structs, in the order of first
    appearance, each with the widest type that it has anywhere.

    Raises SchemaChanged if a column has two types of which neither is wider.
    """
    return pa.schema(_merged_fields(column for schema in schemas for column in schema))


def _merged_fields(fields: Iterable[pa.Field]) -> Iterator[pa.Field]:
    merged: dict[str, pa.Field] = {}
    for part in fields:
        before = merged.setdefault(part.name, part)
        if before.type != part.type:
            merged[part.name] = before.with_type(merged_type(part.name, before.type, part.type))
    return iter(merged.values())


def merged_type(name: str, before: pa.DataType, after: pa.DataType) -> pa.DataType:
    """Return the type that takes all values of both types. Raises SchemaChanged if there is none."""
    if pt.is_struct(before) and pt.is_struct(after):
        return pa.struct(list(_merged_fields([*before, *after])))
    if pt.is_list(before) and pt.is_list(after):
        return pa.list_(merged_type(name, before.value_type, after.value_type))
    if pt.is_map(before) and pt.is_map(after):
        return pa.map_(
            merged_type(name, before.key_type, after.key_type),
            merged_type(name, before.item_type, after.item_type),
        )
    if widens(before, after):
        return after
    if widens(after, before):
        return before
    raise column_changed(name, before, after)


def renamed_schema(schema: pa.Schema, aliases: Aliases) -> pa.Schema:
    """Return a file's columns under their current names."""
    if not aliases.names:
        return schema
    return pa.schema(
        [
            column.with_type(_renamed_type(column.type, aliases)) if column.name in VALUES else column
            for column in schema
        ]
    )


def _renamed_type(type_: pa.DataType, aliases: Aliases) -> pa.DataType:
    """Return the type with the newest names of its columns."""
    if not aliases.names:
        return type_
    if pt.is_list(type_):
        return pa.list_(_renamed_type(type_.value_type, aliases))
    if not pt.is_struct(type_):
        return type_
    newest = {aliases.stored_name(name, type_): name for name in aliases.names}
    # An older name is retired, and a present one of another column, which was removed before.
    names = {name for column, older in aliases.names.items() for name in (column, *older)}
    retired = names if aliases.within is None else set()
    return pa.struct(
        [
            pa.field(newest.get(part.name, part.name), _renamed_type(part.type, aliases.inside(part.name)))
            for part in type_
            if part.name in newest or part.name not in retired
        ]
    )
