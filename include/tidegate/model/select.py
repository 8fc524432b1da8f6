"""The expressions of a stage: `select`, `filter` and `where`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator
from pydantic import ValidationInfo as Info

from tidegate.expressions.types import ANY, ColumnTypes, Type
from tidegate.kernel.reduce.collect import EVENTS
from tidegate.model import lexis, names
from tidegate.model.columns import check_aliases
from tidegate.model.condition import read_condition, type_of_no_condition
from tidegate.model.inputs import all_sides, side_path
from tidegate.model.mistakes import as_mistake, mistake
from tidegate.model.scope import Scope, StageScope, scope_of
from tidegate.model.sql import check_expression
from tidegate.model.windows import WINDOW_COLUMNS


def _read_select(written: Any, info: Info) -> Any:
    """Return `select`; by default all columns of sources and lookups, or of the stage before."""
    scope = scope_of(info)
    stage = scope.stage
    if stage.aggregates:
        if written is not None:
            fix = 'Put each expression into an aggregate: `total: "sum(quantity * price)"`.'
            raise mistake("`select` does not go with aggregates", fix)
        return {}
    if written is None and stage.joins:
        written = all_sides()
    elif written is None:
        columns = stage.columns if scope.before is None else scope.before.emitted
        # a field that is a column by the key is in its struct already
        fields = {*stage.fields, *(stage.nested if scope.before is None else ())}
        written = {name: names.quote(name) for name in columns or () if name not in fields}
        if reserved := [name for name in written if name.lower() in names.RESERVED]:
            fix = f"Write `select:` and give it another name: `event_{reserved[0]}: {reserved[0]}`."
            meaning = names.RESERVED[reserved[0].lower()]
            raise mistake(f"without `select`, `{reserved[0]}` is emitted, but that is {meaning}", fix)
    elif written == {}:
        raise mistake("`select` is empty", "Select at least one column, or leave `select` out for all.")
    note_emitted(stage, dict.fromkeys(map(str, written)) if isinstance(written, dict) and written else None)
    return written


def note_emitted(stage: StageScope, selected: ColumnTypes | None) -> None:
    """Note the emitted columns; with `collect`, an array of events that have them as fields."""
    if not stage.collects or selected is None:
        stage.emitted = selected
        return
    fields = tuple((name, type_ or ANY) for name, type_ in selected.items())
    event = Type(f"struct<{','.join(f'{name}:{type_.text}' for name, type_ in fields)}>", "struct", fields)
    stage.emitted = {EVENTS: Type(f"array<{event.text}>", "array", parts=(event,))}


def check_emitted_aliases(aliases: dict[str, tuple[str, ...]], info: Info) -> dict[str, tuple[str, ...]]:
    """Check the aliases of emitted columns; with `collect`, of the fields of its events."""
    select, reduce = info.data.get("select"), info.data.get("reduce")
    if select is None or reduce is None:
        return aliases  # their mistakes are reported already
    computed = reduce.computed(select)
    return check_aliases(aliases, computed if reduce.lists_events else reduce.emitted(computed))


def _over_columns(expression: str, info: Info) -> str:
    if scope_of(info).stage.joins:
        return side_path(expression, info)
    if faults := check_expression(expression, scope_of(info).stage.columns):
        raise as_mistake(faults)
    return expression


def check_where(text: str, info: Info) -> str:
    """Check `where`. Spark tests it if the emission is the record's own value, otherwise the kernel does."""
    stage = scope_of(info).stage
    missing = WINDOW_COLUMNS.keys() - (stage.keys or {}).keys() if stage.windowed is False else ()
    if used := [name for name in WINDOW_COLUMNS if name in missing and _mentions(text, name)]:
        fix = "Give the stage a `window:`, whose start and end they are in epoch milliseconds."
        raise mistake(f"`{used[0]}` exists only if the stage has a window", fix)
    if is_of_record(info.data.get("reduce"), info.data.get("window"), info.data.get("emit")):
        return _over_record(text, scope_of(info))
    types, keys = None, _possible_keys(scope_of(info))
    if stage.emitted is not None and stage.windowed is not None and keys is not None:
        types = {**stage.emitted, **(WINDOW_COLUMNS if stage.windowed else {})}
    stage.where = read_condition(text, types, keys)
    return text


def is_of_record(reduce: Any, window: Any, emit: Any) -> bool:
    """Return whether each emission is a record's own value, without delay: then Spark can test `where`."""
    is_newest = reduce is not None and reduce.newest_only
    return is_newest and window is None and emit is not None and not emit.holds


def _possible_keys(scope: Scope) -> ColumnTypes | None:
    """Return the key's columns; if they have mistakes, all columns that they could be."""
    if scope.stage.keys is not None:
        return scope.stage.keys
    key = next((scope.sources[name].key for name in scope.stage.sources if name in scope.sources), None)
    if scope.stage.columns is None and scope.before is None and key is not None:
        return dict.fromkeys(key)
    return scope.stage.columns


def _over_record(text: str, scope: Scope) -> str:
    stage, keys = scope.stage, _possible_keys(scope)
    types = None if stage.emitted is None or keys is None else {**keys, **stage.emitted}
    return _checked_condition(text, types)


def check_filter(text: str, info: Info) -> str:
    return _checked_condition(text, scope_of(info).stage.columns)


def _checked_condition(text: str, types: ColumnTypes | None) -> str:
    """Return the text of a condition that Spark can test. Raises a mistake otherwise."""
    if faults := check_expression(text, types):
        raise as_mistake(faults)
    if type_ := type_of_no_condition(text, types):
        raise mistake(
            f"the condition is {type_.text}, neither true nor false", "Write a comparison, such as `n > 0`."
        )
    return text


def _mentions(text: str, name: str) -> bool:
    return any(word.text.strip("`").lower() == name for word in lexis.split(text)[0] if word.kind != "string")


Select = Annotated[
    dict[Annotated[str, AfterValidator(names.check_emitted)], Annotated[str, AfterValidator(_over_columns)]],
    BeforeValidator(_read_select),
]
