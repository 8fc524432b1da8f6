"""Read `emit` of a stage: one of the strategies, or several of them with `any`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, InstanceOf, Tag, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate import kernel
from tidegate.expressions import Condition
from tidegate.expressions.types import BIGINT
from tidegate.kernel.reduce.collect import EVENTS
from tidegate.kernel.strategies import STRATEGIES
from tidegate.kernel.strategies.any_of import NO_TRIGGERS, TRIGGERS, AnyOf
from tidegate.model.condition import read_condition
from tidegate.model.mistakes import mistake
from tidegate.model.options import COUNT, READERS, Equal, Reader, Readers, compared_columns, read_as
from tidegate.model.scope import distinct, require_filled, scope_of, suggest_column


def _check_emitted(name: str, info: Info) -> str:
    emitted = scope_of(info).stage.emitted
    if emitted is not None and name not in emitted:
        raise mistake(f"the stage emits no column `{name}`", suggest_column(name, emitted))
    return name


_Emitted = Annotated[
    tuple[Annotated[str, AfterValidator(_check_emitted)], ...],
    BeforeValidator(require_filled),
    AfterValidator(distinct),
]


def _note_compared(equal: Any, info: Info) -> Any:
    """Note the compared columns in the scope, before `equal` is read: its parts may only name those."""
    scope = scope_of(info)
    has_columns = "columns" in info.data and "ignore" in info.data
    # Never the previous stage's: a stage with mistakes in `columns` would be checked against those.
    scope.compared = None
    if has_columns:
        scope.compared = compared_columns(scope.stage.emitted, info.data["columns"], info.data["ignore"])
    return equal


def _of_events(max_bytes: int, info: Info) -> int:
    if scope_of(info).stage.collects is False:
        fix = "Use `count` or `after`, or `reduce: collect`."
        raise mistake("`max_bytes` counts the bytes of events, which only `reduce: collect` keeps", fix)
    return max_bytes


def _over_record(written: Any, info: Info) -> Condition:
    """Read a condition over the columns of one record; aggregates are as they are with it."""
    stage = scope_of(info).stage
    columns = stage.emitted
    if stage.collects and columns is not None:
        events = columns[EVENTS]
        columns = dict(events.parts[0].fields) if events else None
    if columns is None or stage.keys is None:
        return read_condition(written, None, stage.keys)
    return read_condition(written, {"n": BIGINT, **columns}, stage.keys)


_READERS: Readers = {
    **READERS,
    "columns": Reader(_Emitted),
    "equivalence": Reader(
        Annotated[Equal, BeforeValidator(_note_compared)], write=lambda equivalence: equivalence.word
    ),
    "event condition": Reader(
        Annotated[InstanceOf[Condition], BeforeValidator(_over_record), WithJsonSchema({"type": "string"})]
    ),
    "event bytes": Reader(Annotated[COUNT, AfterValidator(_of_events)]),
}


def _reader(name: str, strategy: type[kernel.Emit]) -> Any:
    return read_as(strategy, _READERS, on=(Literal[name], Field(description=strategy.when)))


def _can_be_trigger(written: Any) -> Any:
    on = written.get("on") if isinstance(written, dict) else None
    if isinstance(on, str) and on in NO_TRIGGERS:
        why, fix = NO_TRIGGERS[on]
        raise mistake(f"`on: {on}` cannot be one of several triggers: it {why}", fix)
    return written


def _with_one_clock(written: Any) -> Any:
    """Give all triggers of `any` the clock that one of them, or the `emit` itself, has; by default `run`."""
    triggers = written.get("any") if isinstance(written, dict) else None
    if not isinstance(triggers, list):
        return written
    parts = [written, *(trigger for trigger in triggers if isinstance(trigger, dict))]
    clocks = list(dict.fromkeys(str(part["clock"]) for part in parts if "clock" in part))
    if len(clocks) > 1:
        raise mistake(f"the triggers have {len(clocks)} clocks", "Write `clock` once, beside `any`.")
    clock = {"clock": next((part["clock"] for part in parts if "clock" in part), "run")}
    with_clock = [{**trigger, **clock} if isinstance(trigger, dict) else trigger for trigger in triggers]
    return {**written, **clock, "any": with_clock}


def _strategy_tag(written: Any) -> str | None:
    if isinstance(written, dict):
        return "any" if "any" in written and "on" not in written else written.get("on")
    return getattr(written, "on", None)


if TYPE_CHECKING:
    Emit = kernel.Emit
else:
    _BY_NAME = {name: _reader(name, strategy) for name, strategy in STRATEGIES.items()}
    _TRIGGERS = Union[tuple(_BY_NAME[name] for name in TRIGGERS)]  # noqa: UP007
    _TRIGGER = Annotated[Annotated[_TRIGGERS, Field(discriminator="on")], BeforeValidator(_can_be_trigger)]
    _ANY = read_as(AnyOf, {**_READERS, "triggers": Reader(tuple[_TRIGGER, ...])})
    _EMITS = (Annotated[reader, Tag(name)] for name, reader in {**_BY_NAME, "any": _ANY}.items())
    Emit = Annotated[
        Annotated[Union[tuple(_EMITS)], Discriminator(_strategy_tag)],  # noqa: UP007
        BeforeValidator(_with_one_clock),
    ]
