"""`stages`: the steps that keep state per key. Each way to emit is a model of its own in `Emit`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator
from pydantic import ValidationInfo as Info

from tidegate.spec import names
from tidegate.spec.constants import Known
from tidegate.spec.mistakes import as_mistake, mistake
from tidegate.spec.scope import Model, among, distinct, filled, scope_of
from tidegate.spec.sql import check_expression


def _known_emitted(name: str, info: Info) -> str:
    emitted = scope_of(info).emitted
    if emitted is not None and name not in emitted:
        raise mistake(f"`select` has no column `{name}`", among(name, emitted))
    return name


Emitted = Annotated[
    tuple[Annotated[str, AfterValidator(_known_emitted)], ...],
    BeforeValidator(filled),
    AfterValidator(distinct),
]


class UpdateEmit(Model):
    """Every accepted record goes out."""

    on: Literal["update"]


class ChangeEmit(Model):
    """A record goes out when its value differs from the last emitted one. In a stage, `columns` is always
    the columns that are compared, whether they were listed, left over by `ignore`, or all."""

    on: Literal["change"]
    equal: Literal["exact"] = "exact"
    columns: Emitted | None = None
    ignore: Emitted | None = None
    state: Literal["value"] = "value"

    @field_validator("ignore")
    @classmethod
    def _not_both(cls, ignore: tuple[str, ...] | None, info: Info) -> tuple[str, ...] | None:
        if ignore is not None and info.data.get("columns") is not None:
            raise mistake("`columns` and `ignore` are both given", "Keep one: the other follows from it.")
        return ignore

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns in which a change counts."""
        return self.columns or ()

    def over(self, select: dict[str, str]) -> ChangeEmit:
        """The same, with `columns` resolved against what a stage selects."""
        if self.columns is not None:
            return self
        ignored = self.ignore or ()
        left = tuple(name for name in select if name not in ignored)
        if not left:
            raise mistake("`ignore` leaves nothing to compare", "Compare at least one column.")
        return self.model_copy(update={"columns": left})


Emit = Annotated[UpdateEmit | ChangeEmit, Field(discriminator="on")]


def _note_stage(name: str, info: Info) -> str:
    scope_of(info).stages.append(name)
    return name


def _read_select(written: Any, info: Info) -> Any:
    """Without `select`, every source column as it is."""
    scope = scope_of(info)
    if written is None:
        written = {column.name: names.quote(column.name) for column in scope.columns or ()}
        if reserved := [name for name in written if name.lower() in names.RESERVED]:
            fix = f"Write `select:` and give it another name: `event_{reserved[0]}: {reserved[0]}`."
            meaning = names.RESERVED[reserved[0].lower()]
            raise mistake(f"without `select`, `{reserved[0]}` is emitted, but that is {meaning}", fix)
    elif written == {}:
        raise mistake("`select` is empty", "Select at least one column, or leave `select` out for all.")
    known = isinstance(written, dict) and written
    scope.emitted = dict.fromkeys(map(str, written)) if known else None
    return written


def _over_source(expression: str, info: Info) -> str:
    return _checked(expression, scope_of(info).types)


def _over_emitted(expression: str, info: Info) -> str:
    return _checked(expression, scope_of(info).emitted)


def _checked(expression: str, known: Known | None) -> str:
    if faults := check_expression(expression, known):
        raise as_mistake(faults)
    return expression


Select = Annotated[
    dict[
        Annotated[str, AfterValidator(names.check_emitted)],
        Annotated[str, AfterValidator(_over_source)],
    ],
    BeforeValidator(_read_select),
]


class Stage(Model):
    """One step that keeps state per key: `reduce` folds records into a value, `emit` lets it out."""

    name: Annotated[str, AfterValidator(names.check_name), AfterValidator(_note_stage)]
    select: Select = Field(default=None)  # type: ignore[arg-type]  # resolved while reading
    reduce: Literal["latest"] = "latest"
    emit: Emit
    where: Annotated[str, AfterValidator(_over_emitted)] | None = None

    @field_validator("select")
    @classmethod
    def _one_meaning_each(cls, select: dict[str, str], info: Info) -> dict[str, str]:
        """Names differ in more than case, and a key column is emitted as itself or not at all."""
        if (name := names.twice(select)) is not None:
            raise mistake(f"`{name}` is there twice", "Names have to differ in more than case.")
        keys = {key.lower(): key for key in scope_of(info).key or ()}
        for name, expression in select.items():
            key = keys.get(name.lower(), name)
            itself = expression.strip().strip("`").lower() == key.lower()
            if name.lower() in keys and not (name == key and itself):
                fix = f"Give it another name; the key column `{key}` is in the outbox anyway."
                raise mistake(f"`{name}` is a key column, but is selected as something else", fix)
        return select

    @field_validator("emit")
    @classmethod
    def _resolve(cls, emit: UpdateEmit | ChangeEmit, info: Info) -> UpdateEmit | ChangeEmit:
        select = info.data.get("select")
        return emit.over(select) if isinstance(emit, ChangeEmit) and select else emit
