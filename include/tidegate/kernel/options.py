"""Declare the options of a stage: the fields of a window, a strategy, an equivalence in a pipeline file.

The class of an option is a frozen dataclass beside the rule that uses it. `option` says how a file writes a
field, and the type says how its text is read: `Duration` reads `10m` as 600,000. From these declarations the
grammar makes its checks, its messages and the JSON Schema, so that an idea is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any

Check = Callable[[Any, Mapping[str, Any]], None]
"""Raises BadOption if an option does not go with those before it, which it gets by field name."""


class BadOption(ValueError):
    """Options that do not go together. The grammar reports it at the option, with its line."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


@dataclass(frozen=True)
class Form:
    """The form in which a file writes an option. The grammar has a reader for each name."""

    name: str


Duration = Annotated[int, Form("duration")]
"""Milliseconds, more than 0."""
Delay = Annotated[int, Form("delay")]
"""Milliseconds, 0 or more."""
Count = Annotated[int, Form("count")]
"""A whole number, at least 1."""
Columns = Annotated[tuple[str, ...], Form("columns")]
"""Names of columns that the stage emits."""


class HasOptions:
    """A class with options."""

    @classmethod
    def complete(cls, options: Mapping[str, Any], given: Collection[str]) -> Mapping[str, Any]:
        """Return the options of a file, with the defaults that depend on other options (`computed`).

        Args:
            options: The value of each option, by field name.
            given: The fields that the file has.

        Raises BadOption if the options do not go together.
        """
        return options


def option(
    description: str,
    example: str,
    *,
    default: Any = MISSING,
    written: str | None = None,
    check: Check | None = None,
    computed: bool = False,
    required: bool = False,
) -> Any:
    """Return the field of an option.

    Args:
        description: What it means, for editors and the reference.
        example: How a file writes it, such as `after: 30s`.
        default: Its value if a file leaves it out; without a default, a file must have it.
        written: Its name in the file, if the field has another one: fields have their unit in the name.
        check: Compares it with the options before it.
        required: Whether a file must have it, although the class has a default.
        computed: Whether `HasOptions.complete` gives a file's default.
    """
    words = {"description": description, "example": example, "written": written}
    rules = {"check": check, "computed": computed, "required": required}
    return field(default=default, metadata={**words, **rules})


@dataclass(frozen=True)
class Option:
    """An option as a class declares it; see `option`."""

    field: str
    written: str
    description: str
    example: str
    default: Any
    check: Check | None
    computed: bool
    required: bool


def options_of(declared: type) -> list[Option]:
    """Return the options of a class, in their order. Fields without `option` are not in a file."""
    return [
        Option(
            part.name,
            part.metadata["written"] or part.name,
            part.metadata["description"],
            part.metadata["example"],
            part.default,
            part.metadata["check"],
            part.metadata["computed"],
            part.metadata["required"] or part.default is MISSING,
        )
        for part in fields(declared)
        if "description" in part.metadata
    ]


def examples(place: str, declared: Iterable[type]) -> dict[str, str]:
    """Return generic path -> example, for the options of classes that stand at a place of the file."""
    place = f"{place}." if place else ""
    return {f"{place}{option.written}": option.example for part in declared for option in options_of(part)}


@dataclass(frozen=True)
class Sample:
    """A stage with the strategy, with which a new pipeline can begin, and a case that it passes.

    The case has records of one key: all have the first of two values, only the last one has the second.

    Args:
        stage: The stage's fields as a file has them, with `{select}` for its columns.
        case: The name of the case.
        emissions: Returns the expected emissions by the columns that the first and the last record emit.
        times_ms: The timestamp of each record.
        tick_ms: The clock at the end; None: only the records' timestamps count.
        suppresses: Whether the case also expects that each other record is suppressed.
    """

    stage: str
    case: str
    emissions: Callable[[Mapping[str, Any], Mapping[str, Any]], list[dict[str, Any]]]
    times_ms: tuple[int, ...] = (1000, 2000)
    tick_ms: int | None = None
    suppresses: bool = False
