"""What the parts of a pipeline file have in common while it is read.

A field's check runs whatever became of the others, so that every mistake is found at once. What it needs to
know of earlier fields it finds in the `Scope`, which the fields fill in on the way, in the order in which
the models declare them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic import ValidationInfo as Info
from pydantic_core import PydanticKnownError

from tidegate.core.condition import Condition
from tidegate.formats.payload import SinkSchema
from tidegate.schemas.pinned import PinnedSchema
from tidegate.spec import names
from tidegate.spec.constants import Known
from tidegate.spec.mistakes import did_you_mean, listed, mistake

Value = TypeVar("Value")


@dataclass
class StageScope:
    """What is known of a stage. None: not known, because it has mistakes itself.

    `columns` are those that its expressions may name, `keys` those that make up its key (none: the key of
    the record), `emitted` those of its value. `forgets`: why its state does not have what it emitted last.
    `drops_window`: it has the keys of an earlier stage, without that stage's window, and does not name them.
    """

    name: str | None = None
    columns: Known | None = None
    keys: Known | None = None
    windowed: bool | None = None
    drops_window: bool = False
    collects: bool | None = None
    aggregates: bool = False
    emitted: Known | None = None
    where: Condition | None = None
    forgets: str | None = None


@dataclass
class Scope:
    """What is known so far of the file being read. None: not known, because it has mistakes itself.

    `folder` is where the file lies. `connection` and `topics` are where the source is, `reader` its schema
    file, `columns` those of the source; `timestamp` and `key` of the source and all expressions see them with
    the type of one element where `explode` takes an array apart. `lookups` are those that lookups add.
    `compared` are those that the `emit` which is being read compares. `sink_schema` is that of the file which
    the sink that is being read names.
    """

    in_case: bool = False
    folder: Path | None = None
    pipeline: str | None = None
    connection: str | None = None
    topics: tuple[str, ...] = ()
    reader: PinnedSchema | None = None
    columns: Known | None = None
    key: tuple[str, ...] | None = None
    lookups: dict[str, None] = field(default_factory=dict)
    compared: Known | None = None
    stages: list[StageScope] = field(default_factory=list)
    sinks: list[str] = field(default_factory=list)
    sink_schema: SinkSchema | None = None

    @property
    def stage(self) -> StageScope:
        """The stage that is being read."""
        return self.stages[-1] if self.stages else StageScope()

    @property
    def before(self) -> StageScope | None:
        """The stage in front of the one that is being read."""
        return self.stages[-2] if len(self.stages) > 1 else None


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
