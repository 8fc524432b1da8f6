"""The models of all kinds of sinks, of which `sinks` in a pipeline file is made."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import AfterValidator, Field
from pydantic import ValidationInfo as Info

from tidegate.model.mistakes import mistake
from tidegate.model.scope import scope_of
from tidegate.sinks import KINDS
from tidegate.sinks.model import SinkModel

MODELS: dict[str, type[SinkModel]] = {
    kind: import_module(f"tidegate.sinks.{kind}.model").MODEL for kind in KINDS
}
"""`kind` in a pipeline file -> the model of its fields."""


def _unique(sink: SinkModel, info: Info) -> SinkModel:
    scope = scope_of(info)
    if sink.name in scope.sinks:
        raise mistake(f"there are two sinks `{sink.name}`", "Keep one, or send one elsewhere.")
    scope.sinks.append(sink.name)
    return sink


if TYPE_CHECKING:
    Sink = SinkModel
else:
    _ANY = Annotated[Union[tuple(MODELS.values())], Field(discriminator="kind")]  # noqa: UP007
    Sink = Annotated[_ANY, AfterValidator(_unique)]
