"""`stages`: the steps that keep state per key.

A stage reads the emissions of the stage before it, of the stage that `from` names, or the source's records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    StrictBool,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic import ValidationInfo as Info
from pydantic_core import PydanticKnownError

from tidegate import kernel
from tidegate.errors import SettingsInvalid
from tidegate.expressions import Condition, Expression
from tidegate.expressions.types import BIGINT
from tidegate.kernel.reduce.latest import Latest
from tidegate.kernel.strategies.join import Joined
from tidegate.kernel.strategies.update import Update
from tidegate.kernel.unusable import LATENESS
from tidegate.model import names
from tidegate.model.aggregates import argument_type
from tidegate.model.columns import ColumnAliases
from tidegate.model.condition import compiled_expression, expression_type, read_condition
from tidegate.model.emit import Emit
from tidegate.model.inputs import (
    EXCLUDED,
    INPUTS,
    Join,
    check_fields,
    note_input,
    note_key,
    open_stage,
    read_input,
    unkeyed,
)
from tidegate.model.mistakes import mistake
from tidegate.model.nested import NamedByPath
from tidegate.model.options import TimeToLive, Window, fitting
from tidegate.model.reduce import Reduce, Unchanged, check_on_error, check_retract, check_unchanged
from tidegate.model.scope import Model, StageScope, scope_of
from tidegate.model.select import (
    Select,
    check_emitted_aliases,
    check_filter,
    check_where,
    is_of_record,
    note_emitted,
)
from tidegate.model.tables import Expected, check_expected
from tidegate.model.windows import (
    check_key_column,
    check_late,
    check_reduce,
    check_strategy,
    note_late,
    note_window,
)
from tidegate.stage_names import late_name


def _note_name(name: str, info: Info) -> str:
    scope = scope_of(info)
    if name in [stage.name for stage in scope.stages]:
        raise mistake(f"there are two stages `{name}`", "Name each stage differently.")
    if name in names.STREAM_FOLDERS:
        what = (
            f"`{name}` is a folder that each pipeline has in the lake, and a stage needs a folder of its name"
        )
        raise mistake(what, f"Use another name, such as `{name}_stage`.")
    if name == names.SOURCE or name in scope.sources:
        what = f"`{name}` is no name for a stage: in `from` it means the source"
        raise mistake(what, f"Use another name, such as `{name}_stage`.")
    scope.stage.name = name
    return name


class Stage(NamedByPath, Model):
    """A step that keeps state per key: `reduce` folds records into a value, `emit` says when it is
    emitted.
    """

    name: Annotated[str, AfterValidator(names.check_name), AfterValidator(_note_name)] = Field(
        description="The stage's name, unique in the file."
    )
    join: Join = Field(
        default=None,
        description="The two stages whose records it pairs, and how far apart the records of a pair may be. "
        "Null: it reads one input.",
    )
    inputs: Annotated[
        tuple[str, ...], BeforeValidator(read_input), AfterValidator(note_input), WithJsonSchema(INPUTS)
    ] = Field(
        alias="from",
        default=None,  # type: ignore[arg-type]  # resolved while reading
        description="The stage above it whose emissions it reads, `source`, the name of a source, or a list "
        "of sources, whose union it reads. Null: the stage before it; the first one reads all sources.",
    )
    key: Annotated[
        tuple[Annotated[str, AfterValidator(check_key_column)], ...] | None,
        BeforeValidator(unkeyed),
        AfterValidator(note_key),
    ] = Field(
        default=None,
        description="For any stage but the first: other key columns, from the emissions or the key of the "
        "stage that it reads, or from the source's columns.",
    )
    filter: Annotated[str, AfterValidator(check_filter)] | None = Field(
        default=None, description="A condition: only records that fulfil it, and deletions, reach the state."
    )
    window: Annotated[Window | None, AfterValidator(note_window)] = Field(
        default=None, description="State is kept per key and window. Null: per key."
    )
    reduce: Reduce = Field(  # type: ignore[assignment]  # the default is read like a written one
        default="latest",
        description="How a key's records are folded: the `latest`, a list (`collect`), or aggregates by "
        "name.",
    )
    select: Select = Field(
        default=None,  # type: ignore[arg-type]  # resolved while reading
        description="Emitted columns by deterministic Spark SQL expressions. Null: all columns.",
    )
    aliases: Annotated[dict[str, ColumnAliases], AfterValidator(check_emitted_aliases)] = Field(
        default={}, description="Former names of emitted columns, which the state may still have."
    )
    emit: Emit = Field(
        default=None,  # type: ignore[assignment]  # resolved while reading
        description="When the value is emitted. Required, but for a `join`.",
    )
    expected: Expected | None = Field(
        default=None,
        description="For `on: quiet`: the keys of a table, which are also silent before their first record. "
        "Null: only keys with records are.",
    )
    ttl: TimeToLive = Field(
        default=None,
        description="A key's state is removed so long after the last record that changed it. Null: never.",
    )
    where: Annotated[str, AfterValidator(check_where)] | None = Field(
        default=None, description="A condition: only emissions that fulfil it are emitted."
    )
    retract: Annotated[StrictBool, AfterValidator(check_retract)] = Field(
        default=False,
        description="For aggregates of a later stage: take back what each emission of the stage before "
        "replaces, so that they are of its table as it is now.",
    )
    unchanged: Annotated[Unchanged, AfterValidator(check_unchanged)] = Field(
        default=None,
        description="The value of a column that a record leaves unchanged: `nulls`, or a text. Null: there "
        "is none.",
    )
    on_error: Annotated[Literal["stop", "quarantine"], AfterValidator(check_on_error)] = Field(
        default="stop",
        description="What a record does that the stage cannot use: fail the batch, or go into quarantine.",
    )
    on_late: Annotated[Literal["drop", "quarantine", "emit"], AfterValidator(check_late)] = Field(
        default="drop",
        description="What a record does all of whose windows are over: be dropped, go into quarantine, or go "
        "to sinks with `stage: NAME.late`.",
    )
    _reads_source: bool = PrivateAttr(default=True)
    _nested: dict[str, str] = PrivateAttr(default={})
    _condition: Condition | None = PrivateAttr(default=None)
    _types: dict[str, str | None] | None = PrivateAttr(default=None)
    _late_types: dict[str, str | None] = PrivateAttr(default={})
    _expressions: dict[str, Expression] = PrivateAttr(default={})
    _filter_condition: Expression | None = PrivateAttr(default=None)
    _record_condition: Expression | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _begin(cls, written: Any, info: Info) -> Any:
        open_stage(scope_of(info))
        # Before the fields: what the aggregates store depends on it, and the fields that a stage can have.
        if not isinstance(written, dict):
            return written
        stage = scope_of(info).stage
        stage.retracts = written.get("retract") is True
        stage.given = frozenset(name for name, value in written.items() if value is not None)
        stage.joins = written.get("join") is not None
        # pydantic would name a default's mistake after the attribute, and not after the field of the file
        return {"from": None, **written}

    @field_validator(*(EXCLUDED.keys() - {"reduce", "emit"}), mode="before")
    @classmethod
    def _goes_with_join(cls, written: Any, info: Info) -> Any:
        return check_fields(written, info)

    @field_validator("reduce", mode="wrap")
    @classmethod
    def _reads_pairs(cls, written: Any, read: ValidatorFunctionWrapHandler, info: Info) -> Any:
        stage = scope_of(info).stage
        if not stage.joins:
            return read(written)
        check_fields(written, info)
        stage.collects = False
        return Joined()

    @field_validator("emit", mode="wrap")
    @classmethod
    def _has_strategy(cls, written: Any, read: ValidatorFunctionWrapHandler, info: Info) -> Any:
        if scope_of(info).stage.joins:
            check_fields(written, info)
            return info.data.get("join")
        if written is None and info.context is not None:
            raise PydanticKnownError("missing")
        return read(written)

    @field_validator("reduce")
    @classmethod
    def _folds_in_window(cls, reduce: Any, info: Info) -> Any:
        return check_reduce(reduce, info)

    @field_validator("select")
    @classmethod
    def _one_meaning_each(cls, select: dict[str, str], info: Info) -> dict[str, str]:
        """Refuse names that differ only in case, and key columns that are selected as something else."""
        stage = scope_of(info).stage
        if (name := names.repeated_name(select)) is not None:
            raise mistake(f"`{name}` appears twice", "Names have to differ in more than case.")
        # With `collect` the selected columns are fields of events, apart from the key's columns.
        keys = {} if stage.collects else {key.lower(): key for key in stage.keys or ()}
        for name, expression in select.items():
            key = keys.get(name.lower(), name)
            itself = expression.strip().strip("`").lower() == key.lower()
            if name.lower() in keys and not (name == key and itself):
                fix = f"Give it another name; the key column `{key}` is in the outbox anyway."
                raise mistake(f"`{name}` is a key column, but is selected as something else", fix)
        if not stage.aggregates:
            note_emitted(stage, {name: expression_type(sql, stage.columns) for name, sql in select.items()})
        return select

    @field_validator("emit")
    @classmethod
    def _fits(cls, emit: Emit, info: Info) -> Emit:
        stage = scope_of(info).stage
        if emit is None:
            return emit  # the join has mistakes
        check_strategy(emit, info)
        fitting(lambda: emit.require_fit(info.data.get("window"), stage.windowed, stage.collects))
        resolved: Emit = fitting(lambda: emit.over(tuple(stage.emitted or ())))
        return resolved

    @field_validator("ttl")
    @classmethod
    def _lives(cls, ttl: TimeToLive, info: Info) -> TimeToLive:
        # a part with mistakes is reported already
        if ttl is not None and {"emit", "reduce", "window"} <= info.data.keys():
            parts = (info.data[name] for name in ("emit", "reduce", "window"))
            fitting(lambda: ttl.require_fit(*parts))
        return ttl

    @model_validator(mode="after")
    def _keep(self, info: Info) -> Stage:
        stage = scope_of(info).stage
        stage.forgets = self._forgets()
        self._nested = stage.nested
        stage.replaces = not self.emits_facts
        self._reads_source = stage.input is None
        self._condition = stage.where
        types = {name: expression_type(sql, stage.columns) for name, sql in self.values.items()}
        types |= {part.name: argument_type(part, stage.columns) for part in self.reduce.by_name.values()}
        typed = {name: type_.text for name, type_ in types.items() if type_ is not None and type_.is_known}
        self._types = {name: typed.get(name) for name in types}
        if self.on_late == "emit":
            self._late_types = note_late(stage)
        if self.reads_source:  # other stages read no records
            self._compile(stage)
        if self.expected is not None:
            check_expected(self.expected, self, None if stage.keys is None else tuple(stage.keys))
        return self

    def _compile(self, stage: StageScope) -> None:
        """Note the expressions that tidegate computes itself. A plan stores them, and reads no text again."""
        computed = {name: compiled_expression(sql, stage.columns) for name, sql in self.values.items()}
        self._expressions = {
            name: expression for name, expression in computed.items() if expression is not None
        }
        if self.filter is not None:
            self._filter_condition = compiled_expression(self.filter, stage.columns)
        if self.where_of_record is not None and stage.keys is not None and stage.emitted is not None:
            self._record_condition = compiled_expression(
                self.where_of_record, {**stage.keys, **stage.emitted}
            )

    @property
    def late(self) -> Stage | None:
        """Its late records as a stage, which sinks read; None if it does not emit them."""
        if self.on_late != "emit":
            return None
        types = {**self._late_types, LATENESS: BIGINT.text}
        emitted = {"select": {name: f"`{name}`" for name in types}, "reduce": Latest(), "emit": Update()}
        without = dict.fromkeys(("filter", "where", "ttl"))
        plain: dict[str, Any] = {**without, "retract": False, "aliases": {}, "on_late": "drop"}
        late = self.model_copy(update={"name": late_name(self.name), **emitted, **plain})
        late._types, late._late_types, late._condition = types, {}, None
        late._expressions = {}
        return late

    @property
    def late_columns(self) -> tuple[str, ...]:
        """The columns of its late records; empty if it does not emit them."""
        return tuple(self._late_types)

    @property
    def emits_facts(self) -> bool:
        """Whether nothing replaces its emissions: events, what a threshold has flushed, pairs of a join, or
        late records.
        """
        is_flushed = self.emit.empties and not self.reduce.newest_only
        return self.reduce.lists_events or is_flushed or self.join is not None or "." in self.name

    @property
    def reads_source(self) -> bool:
        """Whether it reads records of sources, and not the emissions of a stage."""
        return self._reads_source

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources whose records it reads; empty if it reads the emissions of a stage."""
        return self.inputs if self._reads_source else ()

    def _forgets(self) -> str | None:
        if self.emit.marks:
            return "`state: hash` keeps no values"
        if self.ttl is not None and self.ttl.emit == "nothing":
            return "`ttl` without `emit: deletion` removes values that consumers have"
        if self.expected is not None:
            return "`expected` forgets a key that leaves its table, and consumers still have its value"
        return "a bounded buffer keeps a key's values by partition" if self.emit.bound else None

    @property
    def condition(self) -> Condition | None:
        """The condition `where` if the kernel tests it; None if Spark does."""
        if self._condition is None and self.where is not None and self.where_of_record is None:
            return read_condition(self.where, None)  # the stage was created without a file
        return self._condition

    @property
    def where_of_record(self) -> str | None:
        """The text of `where` if Spark tests it on each record's own value; None if the kernel does."""
        return self.where if is_of_record(self.reduce, self.window, self.emit) else None

    @property
    def values(self) -> Mapping[str, str]:
        """Name -> SQL that Spark computes per record: the selected columns, or the aggregates' arguments."""
        return self.reduce.computed(self.select)

    @property
    def types(self) -> Mapping[str, str | None]:
        """The types of `values`; None if only Spark can tell a type."""
        return self._types or {}

    @property
    def expressions(self) -> Mapping[str, Expression]:
        """The expressions of `values` that tidegate computes where it reads records of sources."""
        return self._expressions

    @property
    def filter_condition(self) -> Expression | None:
        """The expression of `filter`; None if there is none, or only Spark can compute it."""
        return self._filter_condition

    @property
    def record_condition(self) -> Expression | None:
        """The expression of `where_of_record`; None if there is none, or only Spark can compute it."""
        return self._record_condition

    @property
    def named(self) -> tuple[str, ...]:
        """The names that users give to columns: of emissions, or of the events in them."""
        return tuple(self.values) if self.reduce.lists_events else self.emitted

    @property
    def emitted(self) -> tuple[str, ...]:
        """The names of the emitted columns."""
        return self.reduce.emitted(self.values)

    @property
    def timed(self) -> bool:
        """Whether the stage needs the stream time of its partitions."""
        return self.entry_window is not None or self.emit.sets_timers or self.ttl is not None

    @property
    def entry_window(self) -> kernel.Window | None:
        """The window by which state is kept: the stage's own, or that of its strategy."""
        return self.emit.window if self.window is None else self.window

    @property
    def longest_hold_ms(self) -> int:
        """The longest time from an event to its emission in ms, if it is not late; 0: at once."""
        return self.emit.longest_hold_ms(self.window)


def stage_named(stages: Iterable[Stage], name: str, subject: object) -> Stage:
    """Return the stage with a name. Raises SettingsInvalid if none has it; `subject` begins its sentence.

    Example: `stage_named(pipeline.stages, "levels", stream)`
    """
    existing = {stage.name: stage for stage in stages}
    if name not in existing:
        raise SettingsInvalid(f"{subject} has no stage {name}", f"It has: {', '.join(existing)}.")
    return existing[name]
