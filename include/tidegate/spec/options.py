"""Read options: make the grammar's models of the classes that the kernel declares (`core.options`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, Field, StrictBool, create_model
from pydantic import ValidationInfo as Info

from tidegate.core.durations import write_duration
from tidegate.core.options import Check, Form, Misfit, Option, options_of
from tidegate.spec.durations import Duration, Grace
from tidegate.spec.mistakes import mistake
from tidegate.spec.scope import Model

Readers = Mapping[str, Any]
"""The name of a form -> the type that reads it, as pydantic takes it."""

READERS: Readers = {"duration": Duration, "delay": Grace}
"""The forms that have one meaning in every file."""


def read_as(declared: type, readers: Readers = READERS, **first: Any) -> Any:
    """Return the type that reads a mapping of the file as an object of `declared`.

    Args:
        declared: A frozen dataclass with options.
        readers: Readers for the forms of its options.
        first: Fields that only choose the class, with pydantic's definition; the object does not have them.
    """
    hints = get_type_hints(declared, include_extras=True)
    options = options_of(declared)
    definitions: dict[str, Any] = {
        option.field: _definition(option, _type(hints[option.field], readers)) for option in options
    }
    fields: dict[str, Any] = {**first, **definitions}
    model = create_model(declared.__name__, __base__=Model, __doc__=declared.__doc__, **fields)

    def build(read: Model) -> Any:
        return declared(**{option.field: getattr(read, option.field) for option in options})

    return Annotated[model, AfterValidator(build)]


def _definition(option: Option, type_: Any) -> tuple[Any, Any]:
    if option.check is not None:
        type_ = Annotated[type_, AfterValidator(_checked(option.check))]
    alias = None if option.written == option.field else option.written
    default = ... if option.is_required else _written(option.default, type_)
    return type_, Field(default=default, alias=alias, description=option.description)


def _checked(check: Check) -> Any:
    def validate(value: Any, info: Info) -> Any:
        try:
            check(value, info.data)
        except Misfit as misfit:
            raise mistake(misfit.message, misfit.fix) from None
        return value

    return validate


def _type(hint: Any, readers: Readers) -> Any:
    """Return a type hint with a reader in place of each form."""
    form = next((part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Form)), None)
    if form is not None:
        return readers[form.name]
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(_type(part, readers) for part in get_args(hint))]  # noqa: UP007  # of a tuple
    return StrictBool if hint is bool else hint


def _written(default: Any, type_: Any) -> Any:
    """Return a default as a file writes it: it is read like a written value."""
    return write_duration(default) if type_ in (Duration, Grace) else default
