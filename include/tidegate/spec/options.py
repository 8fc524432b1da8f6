"""Read options: make the grammar's models of the classes that the kernel declares (`core.options`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, Field, StrictBool, StrictInt, create_model
from pydantic import ValidationInfo as Info

from tidegate.kernel.options import BadOption, Check, Form, HasOptions, Option, options_of
from tidegate.kernel.windows import write_duration
from tidegate.spec.durations import Duration, Grace
from tidegate.spec.mistakes import mistake
from tidegate.spec.scope import Model


@dataclass(frozen=True)
class Reader:
    """Read the options of one form.

    Args:
        type: The type that reads it, as pydantic takes it.
        write: Returns a default as a file has it: it is read like a written value.
    """

    type: Any
    write: Callable[[Any], Any] = lambda value: value


Readers = Mapping[str, Reader]
"""The name of a form -> its reader."""

COUNT = Annotated[StrictInt, Field(ge=1, lt=2**63)]

READERS: Readers = {
    "duration": Reader(Duration, write_duration),
    "delay": Reader(Grace, write_duration),
    "count": Reader(COUNT),
}
"""The forms that have one meaning in every file."""


def read_as(declared: type[HasOptions], readers: Readers = READERS, **first: Any) -> Any:
    """Return the type that reads a mapping of the file as an object of `declared`.

    Args:
        declared: A frozen dataclass with options.
        readers: Readers for the forms of its options.
        first: Fields that only choose the class, with pydantic's definition; the object does not have them.
    """
    hints = get_type_hints(declared, include_extras=True)
    options = options_of(declared)
    definitions: dict[str, Any] = {
        option.field: _definition(option, hints[option.field], readers) for option in options
    }
    fields: dict[str, Any] = {**first, **definitions}
    # The first paragraph is for users; the rest of a class's text is for developers.
    summary = (declared.__doc__ or "").partition("\n\n")[0]
    model = create_model(declared.__name__, __base__=Model, __doc__=summary, **fields)

    def build(read: Model) -> Any:
        values = {option.field: getattr(read, option.field) for option in options}
        return declared(**fitting(lambda: declared.complete(values, read.model_fields_set)))

    return Annotated[model, AfterValidator(build)]


def fitting(check: Callable[[], Any]) -> Any:
    """Return the result of a check by the kernel; what does not fit is a mistake in the file.

    Example: `fitting(lambda: emit.over(columns))`
    """
    try:
        return check()
    except BadOption as misfit:
        raise mistake(misfit.message, misfit.fix) from None


def _definition(option: Option, hint: Any, readers: Readers) -> tuple[Any, Any]:
    type_ = _type(hint, readers)
    if option.check is not None:
        type_ = Annotated[type_, AfterValidator(_validator(option.check))]
    settings: dict[str, Any] = {"description": option.description}
    if option.written != option.field:
        settings["alias"] = option.written
    if option.computed:
        settings["default_factory"] = lambda: option.default
    elif not option.required:
        settings["default"] = _written(option.default, hint, readers)
    return type_, Field(**settings)


def _validator(check: Check) -> Callable[[Any, Info], Any]:
    def validate(value: Any, info: Info) -> Any:
        fitting(lambda: check(value, info.data))
        return value

    return validate


def _type(hint: Any, readers: Readers) -> Any:
    """Return a type hint with a reader in place of each form, and of each class with options."""
    if (form := _form(hint)) is not None:
        return readers[form.name].type
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(_type(part, readers) for part in get_args(hint))]  # noqa: UP007  # of a tuple
    if isinstance(hint, type) and issubclass(hint, HasOptions):
        return read_as(hint, readers)
    # Otherwise pydantic would read "yes" and 1 as true.
    return StrictBool if hint is bool else hint


def _form(hint: Any) -> Form | None:
    return next((part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Form)), None)


def _written(default: Any, hint: Any, readers: Readers) -> Any:
    form = _form(hint)
    return default if form is None else readers[form.name].write(default)
