"""What an expectation has seen, in the form that Great Expectations has for results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.lake.schema import KEY

SAMPLE = 20
"""How many keys of failing rows are named; as many as Great Expectations names."""


@dataclass(frozen=True)
class Observation:
    """Whether it is as promised, and a value that says what was seen.

    `unexpected` of `elements` are not as promised, and `sample` are some of their keys; None: it counts none.
    """

    passed: bool
    value: str | float
    elements: int | None = None
    unexpected: int | None = None
    sample: Sequence[Any] = ()

    @classmethod
    def of_rows(cls, what: str, elements: int, unexpected: int, sample: Sequence[Any]) -> Observation:
        """Rows that are as promised where none is `unexpected`."""
        return cls(
            not unexpected, f"{unexpected} of {elements} {what}", elements, unexpected, sample[:SAMPLE]
        )

    def result(self) -> dict[str, Any]:
        """As Great Expectations has it."""
        details: dict[str, Any] = {"observed_value": self.value}
        if self.elements is not None and self.unexpected is not None:
            percent = 100 * self.unexpected / self.elements if self.elements else 0.0
            details |= {
                "element_count": self.elements,
                "unexpected_count": self.unexpected,
                "unexpected_percent": percent,
                "partial_unexpected_list": list(self.sample),
                "partial_unexpected_index_list": [{KEY: key} for key in self.sample],
            }
        return {"success": self.passed, "result": details}
