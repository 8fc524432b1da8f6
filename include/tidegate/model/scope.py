"""The state that the parts of a pipeline file share while the file is read.

A field's check runs even if other fields have mistakes, so that all mistakes are found at once. A check finds
facts about earlier fields in the `Scope`. Fields add these facts in the order in which the models declare
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic import ValidationInfo as Info
from pydantic_core import PydanticKnownError

from tidegate.expressions import Condition
from tidegate.expressions.types import ColumnTypes
from tidegate.formats.schemas import PinnedSchema, SinkSchema
from tidegate.model import names
from tidegate.model.mistakes import did_you_mean, listed, mistake

if TYPE_CHECKING:
    from tidegate.model.sources import TopicPattern


@dataclass
class SourceScope:
    """The facts about a source. A fact is None if it is unknown because its field has mistakes.

    Args:
        connection: Its connection.
        selection: Its topics.
        reads: Whether it reads a topic.
        reader: Its schema file.
        columns: Its columns. After `explode` the array has the type of its elements.
        key: The columns of its key; empty for the record's own key.
        nested: Column of its key -> the path of the field that it is.
        drops: Its field that drops records before the stages, such as `sequence`; empty without.
        repeats: What drops its repetitions by position, `offset` or `root`.
        keeps_null_keys: Whether records without a key reach the stages.
    """

    connection: str | None = None
    selection: tuple[str, ...] | TopicPattern = ()
    reads: Callable[[str], bool] = lambda topic: False
    reader: PinnedSchema | None = None
    columns: ColumnTypes | None = None
    key: tuple[str, ...] | None = None
    nested: dict[str, str] = field(default_factory=dict)
    drops: str = ""
    repeats: str | None = None
    keeps_null_keys: bool = False


@dataclass
class StageScope:
    """The facts about a stage. A fact is None if it is unknown because its field has mistakes.

    Args:
        input: The stage whose emissions it reads; None if it reads records of sources.
        sources: The names of the sources whose records it reads.
        reads: The names of its inputs: stages, or sources.
        joins: Whether the file says that it joins two inputs.
        given: The fields that the file has.
        columns: The columns that its expressions may name.
        keys: The columns of its key; empty for the record's own key.
        emitted: The columns of its value.
        nested: Column of its key -> the path of the field that it is.
        fields: The columns of its input that are fields of other columns, as parts of a source's key.
        drops_window: Whether it inherits the keys of an earlier stage without that stage's window.
        retracts: Whether the file says that it takes back what the emissions before it replace.
        replaces: Whether an emission replaces the one before it of its key; False for events, and for
            aggregates that begin anew with each flush.
        forgets: The reason why its state does not have the last emitted value; None if it does.
        late: Its late records as a stage; None if it does not emit them.
    """

    name: str | None = None
    input: StageScope | None = None
    reads: tuple[str, ...] = ()
    joins: bool = False
    given: frozenset[str] = frozenset()
    sources: tuple[str, ...] = ()
    columns: ColumnTypes | None = None
    keys: ColumnTypes | None = None
    windowed: bool | None = None
    nested: dict[str, str] = field(default_factory=dict)
    fields: set[str] = field(default_factory=set)
    drops_window: bool = False
    collects: bool | None = None
    aggregates: bool = False
    emitted: ColumnTypes | None = None
    where: Condition | None = None
    retracts: bool = False
    replaces: bool = True
    forgets: str | None = None
    late: StageScope | None = None

    @property
    def never_late(self) -> bool:
        """Whether no record can come too late for the stage, since it has no window and joins nothing."""
        return self.windowed is False and not self.joins


@dataclass
class Scope:
    """The facts about the file that is being read. A fact is None if it is unknown because its field has
    mistakes.

    Args:
        in_case: Whether the pipeline is part of a case file.
        folder: The folder of the file.
        sources: The sources up to the present one, by name.
        named: The names of the entries of `sources`; empty if the file has `source`.
        lookups: The columns that lookups add.
        compared: The columns that the present `emit` compares.
        stages: The stages up to the present one.
        sinks: The names of the sinks up to the present one.
        sink_schema: The schema file of the present sink.
    """

    in_case: bool = False
    folder: Path | None = None
    pipeline: str | None = None
    sources: dict[str, SourceScope] = field(default_factory=dict)
    named: tuple[str, ...] = ()
    lookups: dict[str, None] = field(default_factory=dict)
    compared: ColumnTypes | None = None
    stages: list[StageScope] = field(default_factory=list)
    sinks: list[str] = field(default_factory=list)
    sink_schema: SinkSchema | None = None

    @property
    def source(self) -> SourceScope:
        """The source that is being read, or was read last."""
        return next(reversed(self.sources.values()), SourceScope())

    @property
    def stage(self) -> StageScope:
        """The stage that is being read."""
        return self.stages[-1] if self.stages else StageScope()

    @property
    def outlets(self) -> list[StageScope]:
        """The stages, and the late records of those that emit them: sinks can get each of these."""
        return [*self.stages, *(stage.late for stage in self.stages if stage.late is not None)]

    @property
    def before(self) -> StageScope | None:
        """The stage whose emissions the present one reads; None if it reads records of sources."""
        return self.stage.input

    def reads(self, topic: str) -> bool:
        """Return whether a source reads a topic."""
        return any(source.reads(topic) for source in self.sources.values())


def scope_of(info: Info) -> Scope:
    """Return the scope of the file; an empty one if a model is created without a file."""
    # An empty scope knows nothing, so that checks that depend on other fields pass.
    return info.context if isinstance(info.context, Scope) else Scope()


class Model(BaseModel):
    """A part of the file: immutable, without unknown fields."""

    # Defaults are validated, because validators also note facts in the scope, and resolve nulls.
    # Pydantic then builds the validator of the whole file once, and not those of its parts at each import.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)


@dataclass(frozen=True)
class StoredAs:
    """A note in an annotation: a plan contains objects of these classes in place of the annotated type, which
    only reads a form of the file.

    Example: `Annotated[Literal["latest"], AfterValidator(…), StoredAs((Latest,))]`
    """

    classes: tuple[type[Any], ...]


def require_filled(written: Any) -> Any:
    """Return a list unless it is empty. It must run before the items are validated: pydantic does not count
    items with mistakes, and would report a list with one wrong item as empty, too.
    """
    if written == []:
        raise PydanticKnownError("too_short", {"field_type": "List", "min_length": 1, "actual_length": 0})
    return written


def distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values if none is repeated. Raises a mistake otherwise.

    Example: `distinct(("id", "id"))` raises a mistake.
    """
    if (again := next((v for at, v in enumerate(values) if v in values[:at]), None)) is not None:
        raise mistake(f"`{again}` is named twice", "Name it once.")
    return values


def suggest_column(name: str, columns: Iterable[str]) -> str:
    """Return the fix for a column that does not exist: a similar column, or the list of all.

    Example: ``suggest_column("quantty", ["quantity"])`` is ``Did you mean `quantity`?``
    """
    return did_you_mean(name, columns, f"The columns are {listed(columns)}.")


Topic = Annotated[str, AfterValidator(names.check_topic)]
