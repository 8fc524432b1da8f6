"""`unchanged`: columns that a record leaves as they were, such as a large column that a database
did not log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pydantic import ValidationInfo as Info

from tidegate import kernel
from tidegate.spec.mistakes import mistake, shown
from tidegate.spec.options import Reader, read_as
from tidegate.spec.scope import scope_of


def _check_form(written: Any) -> Any:
    if written is None or isinstance(written, dict) or written == "nulls":
        return written
    raise mistake(
        f"{shown(written)} is not known", "Write `nulls`, or `{text: __debezium_unavailable_value}`."
    )


if TYPE_CHECKING:
    Unchanged = kernel.Unchanged | None
else:
    _NULLS = Annotated[Literal["nulls"], AfterValidator(lambda _: kernel.Unchanged())]
    _READERS = {"text": Reader(Annotated[str, Field(min_length=1)])}
    Unchanged = Annotated[
        Annotated[_NULLS, Tag("word")]
        | Annotated[read_as(kernel.Unchanged, _READERS), Tag("text")]
        | Annotated[None, Tag("none")],
        Discriminator(
            lambda written: "none" if written is None else "word" if isinstance(written, str) else "text"
        ),
        BeforeValidator(_check_form),
    ]


def check_unchanged(unchanged: Any, info: Info) -> Any:
    """Check that the stage has the last value of each key, with columns as they are in the records.

    Only then it can fill in an unchanged column. Returns the option; raises a mistake otherwise.
    """
    if unchanged is None:
        return unchanged
    data = info.data
    if scope_of(info).before is not None:
        raise mistake("a later stage gets whole values", "Put `unchanged` into the first stage.")
    # A reduce with mistakes is reported already.
    reduce = data.get("reduce")
    if (reduce is not None and not reduce.newest_only) or data.get("window") is not None:
        fix = "Use `reduce: latest` without a window in this stage, and others after it."
        raise mistake("only the `latest` value of a key can give the value of an unchanged column", fix)
    if "emit" in data and not data["emit"].emits_whole_values(tuple(data.get("select") or ())):
        fix = "Use `on: update`, or `on: change` in all columns and `equal: exact`; leave out `where`."
        raise mistake("the next record could not refer to a value that the stage does not emit", fix)
    if scope_of(info).lookups:
        fix = "Look columns up in another pipeline, which reads this one's output."
        raise mistake("a lookup gives present columns, not those of the last record", fix)
    if data.get("where") is not None:
        fix = "Leave `where` out, and test the condition in a stage after it."
        raise mistake("the next record could not refer to a value that `where` drops", fix)
    _check_select(data.get("select") or {}, info)
    return unchanged


def _check_select(select: Mapping[str, str], info: Info) -> None:
    columns = scope_of(info).stage.columns
    for name, expression in select.items():
        if columns is not None and expression.strip().strip("`") not in columns:
            fix = "Select the columns that it is made of, and compute it in a stage after this one."
            raise mistake(f"`{name}` is computed from columns that may be unchanged", fix)
