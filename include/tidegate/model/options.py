"""Read the options of equivalences, windows and others, as the kernel's classes declare them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    InstanceOf,
    StrictBool,
    StrictInt,
    Tag,
    WithJsonSchema,
    create_model,
)
from pydantic import ValidationInfo as Info

from tidegate import kernel
from tidegate.expressions import Condition
from tidegate.expressions.types import ANY, ColumnTypes, Type, group
from tidegate.kernel.options import BadOption, Check, Form, HasOptions, Option, options_of
from tidegate.kernel.strategies.change import EQUIVALENCES
from tidegate.kernel.windows import WINDOWS, write_duration
from tidegate.kernel.within import Amount
from tidegate.model.condition import read_condition
from tidegate.model.mistakes import did_you_mean, listed, mistake, shown
from tidegate.model.names import Duration, Fraction, Grace
from tidegate.model.scope import Model, StoredAs, scope_of, suggest_column
from tidegate.model.trusted import check_function
from tidegate.model.zones import Zone


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


def _read_character(written: Any) -> Any:
    if written is not None and not (isinstance(written, str) and len(written) == 1 and written not in "\r\n"):
        fix = 'Write one character in quotes, such as `";"` or `"\\t"`.'
        raise mistake(f"{shown(written)} is not one character", fix)
    return written


READERS: Readers = {
    "zone": Reader(Zone),
    "character": Reader(Annotated[str, BeforeValidator(_read_character)]),
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

    return Annotated[model, AfterValidator(build), StoredAs((declared,))]


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


WORDS = {kind.word: kind() for kind in EQUIVALENCES if kind.word is not None}
FORMS = {options_of(kind)[0].written: kind for kind in EQUIVALENCES if kind.word is None}
"""The option that names a form -> its class."""


def compared_columns(emitted: ColumnTypes | None, columns: Any, ignore: Any) -> ColumnTypes | None:
    """Return the compared columns: the emitted ones that `columns` lists or `ignore` leaves; None if unknown.

    Args:
        emitted: The columns that the stage emits; None if they have mistakes.
        columns: The field `columns`, or None.
        ignore: The field `ignore`, or None.
    """
    if emitted is None:
        return None
    names = [name for name in emitted if name not in (ignore or ())] if columns is None else columns
    return {name: emitted.get(name) for name in names}


def _compared(info: Info) -> ColumnTypes | None:
    """Return the compared columns of the `emit` that is being read, which it has noted in the scope."""
    return scope_of(info).compared


def _read_amount(written: Any) -> Amount:
    fix = "Write a number, such as `0.5`, or a percentage, such as `1%`."
    percent = isinstance(written, str) and written.strip().endswith("%")
    # In Python, True is an int.
    number = isinstance(written, (int, float)) and not isinstance(written, bool)
    try:
        amount = Decimal(written.strip().removesuffix("%") if percent else _digits(written) if number else "")
    except InvalidOperation:
        amount = Decimal("NaN")
    # A decimal may exceed every double, with which columns of doubles are compared.
    if not amount.is_finite() or amount < 0 or float(amount) == math.inf:
        raise mistake(f"{shown(written)} is not a tolerance", fix)
    return Amount(amount, percent)


def _digits(number: float) -> str:
    """Return the digits of a number as they were written: 0.1 is a tenth, not the nearest double."""
    return number.text if isinstance(number, Fraction) else repr(number)


def _compared_number(name: str, info: Info) -> str:
    compared = _compared(info)
    if compared is None:
        return name
    if name not in compared:
        raise mistake(f"`{name}` is not a column that is compared", suggest_column(name, compared))
    type_ = compared[name]
    if group(type_) not in ("number", None):
        fix = "Leave it out: columns without a tolerance are compared exactly."
        raise mistake(f"`{name}` is {type_ and type_.text}, and has no distance", fix)
    return name


def _over_old_and_new(written: Any, info: Info) -> Condition:
    """Read a condition over `old` and `new`, which are structs of the compared columns."""
    compared = _compared(info)
    columns: ColumnTypes | None = None
    if compared is not None:
        fields = tuple((name, type_ or ANY) for name, type_ in compared.items())
        # The condition sees two rows with the same columns: the last emitted one and the new one.
        row = Type(f"struct<{','.join(compared)}>", "struct", fields)
        columns = {"old": row, "new": row}
    return read_condition(written, columns)


def _filled_mapping(within: dict[str, Amount]) -> dict[str, Amount]:
    if not within:
        raise mistake("no column has a tolerance", "Write for example `within: {price: 0.5}`.")
    return within


Tolerance = Annotated[
    Amount, BeforeValidator(_read_amount), WithJsonSchema({"type": ["number", "string"], "minimum": 0})
]

_EQUAL_READERS = {
    "tolerances": Reader(
        Annotated[
            dict[Annotated[str, AfterValidator(_compared_number)], Tolerance], AfterValidator(_filled_mapping)
        ]
    ),
    "comparison": Reader(
        Annotated[
            InstanceOf[Condition], BeforeValidator(_over_old_and_new), WithJsonSchema({"type": "string"})
        ]
    ),
    "function": Reader(Annotated[str, AfterValidator(check_function)]),
}


def _check_form(written: Any) -> Any:
    """Check that `equal` is a word, or a mapping with exactly one of the forms."""
    ways = f"Write {listed(WORDS)}, or one of {listed(FORMS)} in braces: `equal: {{within: {{price: 0.5}}}}`."
    if not isinstance(written, dict):
        if written in WORDS:
            return written
        raise mistake(f"{shown(written)} is not known", did_you_mean(str(written), WORDS, ways))
    forms = [form for form in FORMS if form in written]
    if not forms:
        raise mistake("it does not say how to compare", ways)
    if len(forms) > 1:
        raise mistake(f"{listed(forms)} are given at once", "Keep one of them.")
    return written


def _equal_form(written: Any) -> str:
    return next(form for form in FORMS if form in written) if isinstance(written, dict) else "word"


if TYPE_CHECKING:
    Equal = kernel.Equivalence
else:
    _Word = Annotated[Literal[tuple(WORDS)], AfterValidator(WORDS.get), StoredAs(tuple(EQUIVALENCES))]
    _FORMS = (Annotated[read_as(kind, _EQUAL_READERS), Tag(form)] for form, kind in FORMS.items())
    _EQUALS = (Annotated[_Word, Tag("word")], *_FORMS)
    Equal = Annotated[
        Annotated[Union[_EQUALS], Discriminator(_equal_form)],  # noqa: UP007
        BeforeValidator(_check_form),
    ]


if TYPE_CHECKING:
    TimeToLive = kernel.TimeToLive | None
else:
    TimeToLive = Annotated[
        Annotated[Duration, AfterValidator(kernel.TimeToLive), Tag("duration")]
        | Annotated[read_as(kernel.TimeToLive), Tag("options")]
        | Annotated[None, Tag("none")],
        Discriminator(
            lambda written: (
                "none"
                if written is None
                else "options"
                if isinstance(written, (dict, kernel.TimeToLive))
                else "duration"
            )
        ),
    ]


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
