"""`emit.equal`: when `on: change` treats two values as equal."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import AfterValidator, BeforeValidator, Discriminator, InstanceOf, Tag, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate import kernel
from tidegate.expressions import Condition
from tidegate.expressions.types import ANY, ColumnTypes, Type, group
from tidegate.kernel.options import options_of
from tidegate.kernel.strategies.change import EQUIVALENCES
from tidegate.kernel.within import Amount
from tidegate.spec.condition import read_condition
from tidegate.spec.mistakes import did_you_mean, listed, mistake, shown
from tidegate.spec.options import Reader, read_as
from tidegate.spec.scope import scope_of, suggest_column
from tidegate.spec.tree import Fraction
from tidegate.spec.trusted import check_function

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


_READERS = {
    "tolerances": Reader(
        Annotated[
            dict[Annotated[str, AfterValidator(_compared_number)], Tolerance],
            AfterValidator(_filled_mapping),
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


def _form(written: Any) -> str:
    return next(form for form in FORMS if form in written) if isinstance(written, dict) else "word"


if TYPE_CHECKING:
    Equal = kernel.Equivalence
else:
    _Word = Annotated[Literal[tuple(WORDS)], AfterValidator(WORDS.get)]
    _FORMS = (Annotated[read_as(kind, _READERS), Tag(form)] for form, kind in FORMS.items())
    _EQUALS = (Annotated[_Word, Tag("word")], *_FORMS)
    Equal = Annotated[
        Annotated[Union[_EQUALS], Discriminator(_form)],  # noqa: UP007
        BeforeValidator(_check_form),
    ]
