"""`source.csv`: the dialect of the rows of `format: csv`."""

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
    # Fields are validated in their order, so only those before this one are in `info.data`.
    taken = [name for name in ("delimiter", "quote") if character and info.data.get(name) == character]
    if taken:
        raise mistake(f"{character!r} is the {taken[0]} already", "Use another character, or null.")
    return character


class Csv(Model):
    """The dialect of rows: by default RFC 4180, and an empty field is null."""

    delimiter: Annotated[str, BeforeValidator(_read_character)] = Field(
        default=",", description="The character between two fields."
    )
    quote: Annotated[str | None, BeforeValidator(_read_character), AfterValidator(_other_than_before)] = (
        Field(
            default='"',
            description="The character around a quoted field, doubled inside of it. Null: there is none.",
        )
    )
    escape: Annotated[str | None, BeforeValidator(_read_character), AfterValidator(_other_than_before)] = (
        Field(default=None, description="The character after it is taken literally. Null: there is none.")
    )
    null_text: str | None = Field(
        default="", description="A field that is just this, and not in quotes, is null. Null: no field is."
    )


def read_csv(written: Any, info: Info) -> Any:
    """Return the options as written, or the defaults of `format: csv`.

    Raises a mistake for another format.
    """
    format_ = info.data.get("format")
    if format_ == "csv":
        return {} if written is None else written
    if written is not None and format_ is not None:
        raise mistake(
            f"`format: {format_}` has no options of CSV", "Leave `csv` out, or write `format: csv`."
        )
    return None


def check_fields(columns: Iterable[Column]) -> None:
    """Raise a mistake for a column of a nested type: a field of CSV is a single value."""
    for column in columns:
        if parse_type(column.type).kind in NESTED:
            message = f"`{column.name}` is {column.type}, and a field of CSV is a single value"
            raise mistake(message, "Declare it as `string`.")
