"""`window`: one of the kinds that the kernel has, chosen by the field that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import BeforeValidator, Discriminator, Tag

from tidegate import kernel
from tidegate.kernel.options import options_of
from tidegate.kernel.windows import WINDOWS
from tidegate.spec.mistakes import listed, mistake
from tidegate.spec.options import read_as

KINDS = {options_of(window)[0].written: window for window in WINDOWS}
"""The field that names a kind -> its class."""


def _has_one_kind(written: Any) -> Any:
    if not isinstance(written, dict):
        return written
    # Counted before pydantic chooses a model, whose message would be about another kind's fields.
    kinds = [kind for kind in KINDS if kind in written]
    if not kinds:
        fix = f"Write {listed(KINDS)} with a duration: `window: {{tumbling: 1h, grace: 10m}}`."
        raise mistake("the window's kind is missing", fix)
    if len(kinds) > 1:
        raise mistake(f"a window is one of {listed(kinds)}", "Keep one of them.")
    return written


def _kind(written: Any) -> str:
    return next(kind for kind in KINDS if not isinstance(written, dict) or kind in written)


if TYPE_CHECKING:
    Window = kernel.Window
else:
    _Kinds = Union[tuple(Annotated[read_as(window), Tag(kind)] for kind, window in KINDS.items())]  # noqa: UP007
    Window = Annotated[Annotated[_Kinds, Discriminator(_kind)], BeforeValidator(_has_one_kind)]
