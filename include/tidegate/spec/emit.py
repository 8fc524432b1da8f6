"""`emit`: when a stage emits a value, by one of the kernel's strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic import ValidationInfo as Info

from tidegate import kernel
from tidegate.kernel.strategies import STRATEGIES
from tidegate.spec.equal import Equal, compared_columns
from tidegate.spec.mistakes import mistake
from tidegate.spec.options import COUNT, READERS, Reader, Readers, read_as
from tidegate.spec.scope import distinct, require_filled, scope_of, suggest_column


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


_READERS: Readers = {
    **READERS,
    "columns": Reader(_Emitted),
    "equivalence": Reader(
        Annotated[Equal, BeforeValidator(_note_compared)], write=lambda equivalence: equivalence.word
    ),
    "event bytes": Reader(Annotated[COUNT, AfterValidator(_of_events)]),
}


def _reader(name: str, strategy: type[kernel.Emit]) -> Any:
    return read_as(strategy, _READERS, on=(Literal[name], Field(description=strategy.when)))


if TYPE_CHECKING:
    Emit = kernel.Emit
else:
    _STRATEGIES = Union[tuple(_reader(name, strategy) for name, strategy in STRATEGIES.items())]  # noqa: UP007
    Emit = Annotated[_STRATEGIES, Field(discriminator="on")]
