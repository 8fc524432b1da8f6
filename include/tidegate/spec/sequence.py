"""`source.sequence`: the columns that order the changes of a key, if the order of the log does not."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate.expressions.types import INTEGERS, Type
from tidegate.formats.registry import formats
from tidegate.spec.columns import Column, parse_columns, parse_type
from tidegate.spec.durations import Duration
from tidegate.spec.mistakes import as_mistake, mistake
from tidegate.spec.scope import Model, distinct, require_filled, scope_of, suggest_column

_ORDERED = (*INTEGERS, "string", "date", "timestamp")
_EXAMPLE = 'Write `columns: [version]`, or of Debezium the fields of `source`: `source: "lsn bigint"`.'


def _check_type(name: str, type_: Type | None) -> None:
    """Raise a mistake for a type whose values have no order, or several spellings."""
    if type_ is None or type_.kind in _ORDERED:
        return
    if type_.kind == "decimal" and type_.text.endswith(",0)"):
        return
    fix = "Use whole numbers, `decimal(38,0)`, `string`, `date` or `timestamp`."
    raise mistake(f"`{name}` is {type_.text}, which cannot order changes", fix)


def _check_column(name: str, info: Info) -> str:
    columns = scope_of(info).columns
    if columns is None:
        return name
    if name not in columns:
        raise mistake(f"the column `{name}` does not exist", suggest_column(name, columns))
    _check_type(name, columns[name])
    return name


def _read_fields(written: Any) -> Any:
    """Parse the fields of `source`, which are written as DDL."""
    if not isinstance(written, str):
        raise mistake("the fields must be one text", 'Write `source: "lsn bigint"`.')
    columns, faults = parse_columns(written)
    if faults:
        raise as_mistake(faults)
    for column in columns:
        _check_type(column.name, parse_type(column.type))
    return columns


class Sequence(Model):
    """The order of a key's changes. A change that is not later than its key's last one has no effect.

    Columns or fields are compared in the order of the list: a later one counts if the earlier ones are equal.
    """

    columns: (
        Annotated[
            tuple[Annotated[str, AfterValidator(_check_column)], ...],
            BeforeValidator(require_filled),
            AfterValidator(distinct),
        ]
        | None
    ) = Field(default=None, description="Columns that rise with each change of a key.")
    source: (
        Annotated[tuple[Column, ...], BeforeValidator(_read_fields), WithJsonSchema({"type": "string"})]
        | None
    ) = Field(
        default=None,
        description="With Debezium: fields of the envelope's `source` that rise with each change, as "
        "`name type, …`.",
    )
    keep_ms: Duration | None = Field(
        alias="keep",
        default=None,
        description="For how long a deletion drops older changes, by timestamps. Null: forever.",
    )


def check_sequence(sequence: Sequence | None, info: Info) -> Sequence | None:
    """Check that the format has the columns or fields, and that no other option deduplicates.

    Returns the sequence.
    """
    if sequence is None:
        return None
    data = info.data
    # Both or neither.
    if (sequence.columns is None) == (sequence.source is None):
        raise mistake("a sequence is made of `columns`, or of fields of Debezium's `source`", _EXAMPLE)
    format_ = formats().get(data.get("format", ""))
    if format_ is not None and format_.has_envelope and sequence.columns is not None:
        fix = 'Use the position in the log of the database: `source: "lsn bigint"`.'
        raise mistake("a deletion has no row, and so no `columns` that could order it", fix)
    if format_ is not None and not format_.has_envelope and sequence.source is not None:
        raise mistake("only `format: debezium` has an envelope with `source`", "Use `columns: [version]`.")
    if data.get("explode") is not None:
        fix = "Explode in a second pipeline, on what this one sends."
        raise mistake("`sequence` does not go with `explode`: all elements of a record have the same", fix)
    if data.get("deduplicate", "offset") != "offset":
        fix = "Leave `deduplicate` out: a change that comes again is not later than itself."
        raise mistake("`sequence` and `deduplicate` both drop repetitions", fix)
    return sequence
