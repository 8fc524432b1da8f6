"""`emit.equal`: when `on: change` takes two values for the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    InstanceOf,
    PrivateAttr,
    Tag,
    WithJsonSchema,
)
from pydantic import ValidationInfo as Info

from tidegate.core.condition import Condition
from tidegate.core.user_function import source_digest
from tidegate.spec.columns import ANY, Type
from tidegate.spec.condition import read_condition
from tidegate.spec.constants import Known
from tidegate.spec.kinds import group
from tidegate.spec.mistakes import did_you_mean, listed, mistake, shown
from tidegate.spec.scope import Model, among, scope_of
from tidegate.spec.tree import Fraction
from tidegate.spec.trusted import check_function

WORDS = ("exact", "bytes")
FORMS = ("within", "sql", "python")


@dataclass(frozen=True)
class Amount:
    """How far a number may be from the last emitted one: so much, or so many percent of it; as written."""

    amount: Decimal
    percent: bool = False


def compared_columns(emitted: Known | None, columns: Any, ignore: Any) -> Known | None:
    """Those of the emitted columns that `columns` and `ignore` leave; None when that is not known."""
    if emitted is None:
        return None
    wanted = [name for name in emitted if name not in (ignore or ())] if columns is None else columns
    return {name: emitted.get(name) for name in wanted}


def _compared(info: Info) -> Known | None:
    """Those of the strategy that is being read: it notes them for what stands inside of `equal`."""
    return scope_of(info).compared


def _read_amount(written: Any) -> Amount:
    fix = "Write a number, such as `0.5`, or a percentage, such as `1%`."
    percent = isinstance(written, str) and written.strip().endswith("%")
    number = isinstance(written, (int, float)) and not isinstance(written, bool)
    try:
        amount = Decimal(written.strip().removesuffix("%") if percent else _digits(written) if number else "")
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount < 0 or float(amount) == math.inf:
        raise mistake(f"{shown(written)} is not a tolerance", fix)
    return Amount(amount, percent)


def _digits(number: float) -> str:
    """A number as it was written, as far as it was: 0.1 is a tenth, and not the nearest double to it."""
    return number.text if isinstance(number, Fraction) else repr(number)


def _compared_number(name: str, info: Info) -> str:
    compared = _compared(info)
    if compared is None:
        return name
    if name not in compared:
        raise mistake(f"`{name}` is not a column that is compared", among(name, compared))
    type_ = compared[name]
    if group(type_) not in ("number", None):
        fix = "Leave it out: columns without a tolerance are compared exactly."
        raise mistake(f"`{name}` is {type_ and type_.text}, and has no distance", fix)
    return name


def _over_old_and_new(written: Any, info: Info) -> Condition:
    """A condition over the last emitted value and the new one, of which it sees what is compared."""
    compared = _compared(info)
    known: Known | None = None
    if compared is not None:
        fields = tuple((name, type_ or ANY) for name, type_ in compared.items())
        row = Type(f"struct<{','.join(compared)}>", "struct", fields)
        known = {"old": row, "new": row}
    return read_condition(written, known)


def _filled_mapping(within: dict[str, Amount]) -> dict[str, Amount]:
    if not within:
        raise mistake("no column has a tolerance", "Write for example `within: {price: 0.5}`.")
    return within


Tolerance = Annotated[
    Amount, BeforeValidator(_read_amount), WithJsonSchema({"type": ["number", "string"], "minimum": 0})
]


class Within(Model):
    """Near enough in these columns, and exactly the same in the others."""

    within: Annotated[
        dict[Annotated[str, AfterValidator(_compared_number)], Tolerance],
        AfterValidator(_filled_mapping),
    ] = Field(description="Column: how far from the last emitted number still counts as the same.")


class SqlEqual(Model):
    """The same when a condition over `old.x` and `new.x` is true."""

    sql: Annotated[
        InstanceOf[Condition], BeforeValidator(_over_old_and_new), WithJsonSchema({"type": "string"})
    ] = Field(description="A condition over `old.x` and `new.x`; true: the same.")


class PythonEqual(Model):
    """The same when a function, called with both values as dicts, answers True."""

    python: Annotated[str, AfterValidator(check_function)] = Field(
        description="`module:function` of two dicts, in a module that TIDEGATE_PYTHON_MODULES lists."
    )
    _digest: str | None = PrivateAttr(default=None)

    @property
    def digest(self) -> str | None:
        """Of the source of the function's module when the pipeline was planned; None: it is not planned."""
        return self._digest

    def planned(self) -> PythonEqual:
        """The same, with the digest as it is now. Raises UserFunctionFailed."""
        copy = self.model_copy()
        copy._digest = source_digest(self.python)
        return copy


def _known_form(written: Any) -> Any:
    """One of the words, or a mapping with one of the forms."""
    ways = f"Write {listed(WORDS)}, or one of {listed(FORMS)} in braces: `equal: {{within: {{price: 0.5}}}}`."
    if not isinstance(written, dict):
        if written in WORDS:
            return written
        raise mistake(f"{shown(written)} is not known", did_you_mean(str(written), WORDS, ways))
    found = [form for form in FORMS if form in written]
    if not found:
        raise mistake("it does not say how to compare", ways)
    if len(found) > 1:
        raise mistake(f"{listed(found)} are given at once", "Keep one of them.")
    return written


def _form(written: Any) -> str:
    return next(form for form in FORMS if form in written) if isinstance(written, dict) else "word"


Equal = Annotated[
    Annotated[
        Annotated[Literal["exact", "bytes"], Tag("word")]
        | Annotated[Within, Tag("within")]
        | Annotated[SqlEqual, Tag("sql")]
        | Annotated[PythonEqual, Tag("python")],
        Discriminator(_form),
    ],
    BeforeValidator(_known_form),
]
