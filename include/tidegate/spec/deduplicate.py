"""`source.deduplicate`: by offset, by the root of the source chain, or by columns."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pydantic import ValidationInfo as Info

from tidegate.spec.durations import Duration
from tidegate.spec.keys import check_identity
from tidegate.spec.mistakes import did_you_mean, mistake, shown
from tidegate.spec.scope import Model, distinct, require_filled, scope_of


def _check_identity_column(name: str, info: Info) -> str:
    return check_identity(name, scope_of(info).columns)


class DeduplicateColumns(Model):
    """Keep the first record per value of the columns, and drop repetitions within `keep` of its timestamp."""

    columns: Annotated[
        tuple[Annotated[str, AfterValidator(_check_identity_column)], ...],
        BeforeValidator(require_filled),
        AfterValidator(distinct),
    ] = Field(description="What a repeated record has in common with the first.")
    keep_ms: Duration = Field(alias="keep", description="For how long after the first one, by timestamps.")


def _check_form(written: Any) -> Any:
    if isinstance(written, dict) or written in ("offset", "root"):
        return written
    ways = "Write `offset`, `root`, or `{columns: [eventId], keep: 1h}`."
    raise mistake(f"{shown(written)} is not known", did_you_mean(str(written), ("offset", "root"), ways))


Deduplicate = Annotated[
    Annotated[
        Annotated[Literal["offset", "root"], Tag("word")] | Annotated[DeduplicateColumns, Tag("columns")],
        Discriminator(lambda written: "word" if isinstance(written, str) else "columns"),
    ],
    BeforeValidator(_check_form),
]
