"""Fields of structs, which options name by a path such as `device.id`, as a column.

Names of columns have no dots, so a path is never a column itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.expressions.types import ANY, ColumnTypes, Type
from tidegate.model.columns import struct_type
from tidegate.model.mistakes import did_you_mean, listed, mistake
from tidegate.model.scope import suggest_column


class NamedByPath:
    """The part of a model whose `key` can name fields by their paths: of a source, and of a stage."""

    if TYPE_CHECKING:  # pydantic would take annotations for fields
        key: tuple[str, ...] | None
        _nested: dict[str, str]

    @property
    def nested(self) -> Mapping[str, str]:
        """Column of the key -> the path of the field that it is; only of fields."""
        return self._nested

    @property
    def key_paths(self) -> tuple[str, ...] | None:
        """The key as it was written: columns, and paths of fields."""
        return None if self.key is None else tuple(self._nested.get(name, name) for name in self.key)


def type_at(path: str, columns: ColumnTypes, alternatives: Sequence[str] = ()) -> Type | None:
    """Return the type of a column, or of a field in a column; None if that type is unknown.

    Raises a mistake if it does not exist. `alternatives` are further names that a fix can suggest.
    """
    name, *fields = path.split(".")
    if name not in columns:
        raise mistake(f"the column `{name}` does not exist", suggest_column(name, [*alternatives, *columns]))
    type_ = columns[name]
    for number, field in enumerate(fields):
        outer = ".".join([name, *fields[:number]])
        if type_ is None or type_.kind == ANY.kind:
            fix = f"Select the field in the stage before: `{fields[-1]}: {path}`, and name `{fields[-1]}`."
            raise mistake(f"the type of `{outer}`, and so its fields, cannot be told from this file", fix)
        type_ = _field(outer, type_, field)
    # a side of a join has fields of unknown types beside others
    return None if type_ == ANY else type_


def _field(path: str, type_: Type, name: str) -> Type:
    if type_.kind != "struct":
        raise mistake(
            f"`{path}` is {type_.text}, and has no fields", "Name a column, or a field of a struct."
        )
    fields = dict(type_.fields)
    if name not in fields:
        fix = did_you_mean(name, fields, f"Its fields are {listed(fields)}.")
        raise mistake(f"`{path}` has no field `{name}`", fix)
    return fields[name]


def with_type_at(path: str, columns: ColumnTypes, type_: Type) -> dict[str, Type | None]:
    """Return the columns, with another type of an existing column or field."""
    name, *fields = path.split(".")
    outer = columns[name]
    return {**columns, name: type_ if outer is None else _with_field(outer, fields, type_)}


def _with_field(outer: Type, fields: Sequence[str], type_: Type) -> Type:
    if not fields:
        return type_
    return struct_type(
        (name, _with_field(inner, fields[1:], type_) if name == fields[0] else inner)
        for name, inner in outer.fields
    )


def named_columns(paths: Sequence[str], columns: ColumnTypes | None) -> dict[str, str]:
    """Return the column that each path of a key becomes, as Spark names it, and its path.

    Raises a mistake if two have one name, or if there is another column of the name.

    Example: `named_columns(["device.id", "store"], columns)` is `{"id": "device.id", "store": "store"}`.
    """
    named: dict[str, str] = {}
    taken = {name.lower() for name in columns or ()}
    for path in paths:
        name = path.rpartition(".")[2]
        nested = name != path
        if nested and name.lower() in taken:
            fix = f"Select it in a stage before under another name, `{_other(path)}: {path}`, and name that."
            raise mistake(f"`{path}` would be the column `{name}`, which exists already", fix)
        if name in named:
            if named[name] == path:
                raise mistake(f"`{path}` is named twice", "Name it once.")
            fix = f"Select one in a stage before under another name, `{_other(path)}: {path}`, and name that."
            raise mistake(f"`{named[name]}` and `{path}` would both be the column `{name}`", fix)
        named[name] = path
    return named


def _other(path: str) -> str:
    return "_".join(path.split("."))
