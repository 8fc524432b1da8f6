"""`source.sequence`: what tells the order of a key's changes, where it is not the log's."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate.spec.columns import Column, Type, parse_columns, parse_type
from tidegate.spec.durations import Duration
from tidegate.spec.kinds import INTEGERS
from tidegate.spec.mistakes import as_mistake, mistake
from tidegate.spec.scope import Model, among, distinct, filled, scope_of

_ORDERED = (*INTEGERS, "string", "date", "timestamp")
_EXAMPLE = 'Write `columns: [version]`, or of Debezium the fields of `source`: `source: "lsn bigint"`.'


def _check_type(name: str, type_: Type | None) -> None:
    """A type whose values have one order, and one way to be written."""
    if type_ is None or type_.kind in _ORDERED:
        return
    if type_.kind == "decimal" and type_.text.endswith(",0)"):
        return
    fix = "Use whole numbers, `decimal(38,0)`, `string`, `date` or `timestamp`."
    raise mistake(f"`{name}` is {type_.text}, which has no order to go by", fix)


def _known(name: str, info: Info) -> str:
    known = scope_of(info).columns
    if known is None:
        return name
    if name not in known:
        raise mistake(f"the column `{name}` does not exist", among(name, known))
    _check_type(name, known[name])
    return name


def _read_fields(written: Any) -> Any:
    """DDL to columns."""
    if not isinstance(written, str):
        raise mistake("the fields are one text", 'Write `source: "lsn bigint"`.')
    columns, faults = parse_columns(written)
    if faults:
        raise as_mistake(faults)
    for column in columns:
        _check_type(column.name, parse_type(column.type))
    return columns


class Sequence(Model):
    """A change has no effect that is not later than the last one of its key, wherever it stands in the log.

    The first of the columns or fields counts, then the next one.
    """

    columns: (
        Annotated[
            tuple[Annotated[str, AfterValidator(_known)], ...],
            BeforeValidator(filled),
            AfterValidator(distinct),
        ]
        | None
    ) = Field(default=None, description="Columns that rise with each change of a key.")
    source: (
        Annotated[tuple[Column, ...], BeforeValidator(_read_fields), WithJsonSchema({"type": "string"})]
        | None
    ) = Field(
        default=None,
        description="Of Debezium: fields of the envelope's `source` that rise with each change, as "
        "`name type, …`.",
    )
    keep_ms: Duration | None = Field(
        alias="keep",
        default=None,
        description="For how long a deletion keeps out older changes, by timestamps. Null: for ever.",
    )


def check_sequence(sequence: Sequence | None, info: Info) -> Sequence | None:
    """What tells an order in this format, and alone tells what is repeated."""
    if sequence is None:
        return None
    data = info.data
    if (sequence.columns is None) == (sequence.source is None):
        raise mistake("a sequence is made of `columns`, or of fields of Debezium's `source`", _EXAMPLE)
    if data.get("format") == "debezium" and sequence.columns is not None:
        fix = 'Use what the database says of its log: `source: "lsn bigint"`.'
        raise mistake("a deletion has no row, whose `columns` could tell when it was", fix)
    if data.get("format") not in ("debezium", None) and sequence.source is not None:
        raise mistake("only `format: debezium` has an envelope with `source`", "Use `columns: [version]`.")
    if data.get("explode") is not None:
        fix = "Explode in a second pipeline, on what this one sends."
        raise mistake("`sequence` does not go with `explode`: the elements of a record have one", fix)
    if data.get("deduplicate", "offset") != "offset":
        fix = "Leave `deduplicate` out: a change that comes again is not later than itself."
        raise mistake("`sequence` tells what is repeated, and `deduplicate` does, too", fix)
    return sequence
