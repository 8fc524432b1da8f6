"""`source.csv`: how the rows of `format: csv` are written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic import ValidationInfo as Info

from tidegate.spec.columns import NESTED, Column, parse_type
from tidegate.spec.mistakes import mistake, shown
from tidegate.spec.scope import Model


def _read_character(written: Any) -> Any:
    if written is not None and not (isinstance(written, str) and len(written) == 1 and written not in "\r\n"):
        fix = 'Write one character in quotes, such as `";"` or `"\\t"`.'
        raise mistake(f"{shown(written)} is not one character", fix)
    return written


def _other_than_before(character: str | None, info: Info) -> str | None:
    others = [name for name in ("delimiter", "quote") if character and info.data.get(name) == character]
    if others:
        raise mistake(f"{character!r} is the {others[0]} already", "Use another character, or null.")
    return character


class Csv(Model):
    """How rows are written: by default as RFC 4180 says, and what is empty is null."""

    delimiter: Annotated[str, BeforeValidator(_read_character)] = Field(
        default=",", description="What stands between two fields: one character."
    )
    quote: Annotated[str | None, BeforeValidator(_read_character), AfterValidator(_other_than_before)] = (
        Field(default='"', description="What a field may stand in, doubled inside of it. Null: none does.")
    )
    escape: Annotated[str | None, BeforeValidator(_read_character), AfterValidator(_other_than_before)] = (
        Field(default=None, description="The character after it stands for itself. Null: there is none.")
    )
    null_text: str | None = Field(
        default="", description="A field that is just this, and not in quotes, is null. Null: no field is."
    )


def read_csv(written: Any, info: Info) -> Any:
    """Options, which only `format: csv` has; its own where none are given."""
    format_ = info.data.get("format")
    if format_ == "csv":
        return {} if written is None else written
    if written is not None and format_ is not None:
        raise mistake(
            f"`format: {format_}` has no options of CSV", "Leave `csv` out, or write `format: csv`."
        )
    return None


def check_fields(columns: Iterable[Column]) -> None:
    """A field is one value."""
    for column in columns:
        if parse_type(column.type).kind in NESTED:
            message = f"`{column.name}` is {column.type}, and a field of CSV is a single value"
            raise mistake(message, "Declare it as `string`.")
