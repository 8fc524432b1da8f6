"""What the parts of a pipeline file have in common while it is read.

A field's check runs whatever became of the others, so that every mistake is found at once. What it needs to
know of earlier fields it finds in the `Scope`, which the fields fill in on the way, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic import ValidationInfo as Info
from pydantic_core import PydanticKnownError

from tidegate.spec import names
from tidegate.spec.columns import Column, parse_type
from tidegate.spec.constants import Known
from tidegate.spec.mistakes import did_you_mean, listed, mistake


@dataclass
class Scope:
    """What is known so far of the file being read. None: not known, because it has mistakes itself."""

    in_case: bool = False
    topics: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    key: tuple[str, ...] | None = None
    emitted: dict[str, Any] | None = None
    stages: list[str] = field(default_factory=list)
    sinks: list[str] = field(default_factory=list)

    @property
    def types(self) -> Known | None:
        """The source's columns and their types."""
        if self.columns is None:
            return None
        return {column.name: parse_type(column.type) for column in self.columns}


def scope_of(info: Info) -> Scope:
    """The file's scope; an empty one where a model is made directly."""
    return info.context if isinstance(info.context, Scope) else Scope()


class Model(BaseModel):
    """A part of the file: immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def filled(written: Any) -> Any:
    """Not an empty list. Looked at before the items, because pydantic does not count those that are wrong."""
    if written == []:
        raise PydanticKnownError("too_short", {"field_type": "List", "min_length": 1, "actual_length": 0})
    return written


def distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    """Each once."""
    if (again := next((v for at, v in enumerate(values) if v in values[:at]), None)) is not None:
        raise mistake(f"`{again}` is named twice", "Name it once.")
    return values


def among(name: str, known: Iterable[str]) -> str:
    """The fix for a column that does not exist."""
    return did_you_mean(name, known, f"The columns are {listed(known)}.")


Topic = Annotated[str, AfterValidator(names.check_topic)]
