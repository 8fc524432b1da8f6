"""The observation of an expectation, in the form of Great Expectations' results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.storage.schema import KEY

SAMPLE = 20
"""The number of failing rows whose keys are listed. Great Expectations lists as many."""


@dataclass(frozen=True)
class Observation:
    """Whether the expectation is met, and the value that was observed.

    Args:
        elements: The number of rows that were checked; None if the expectation does not count rows.
        unexpected: The number of rows among them that break the expectation.
        sample: Keys of some of these rows.
    """

    passed: bool
    value: str | float
    elements: int | None = None
    unexpected: int | None = None
    sample: Sequence[Any] = ()

    @classmethod
    def of_rows(cls, what: str, elements: int, unexpected: int, sample: Sequence[Any]) -> Observation:
        """Return an observation of rows that is met if `unexpected` is 0. `what` describes unexpected
        rows.

        Example::

            Observation.of_rows("emissions have a null in their key", 10, 0, []).value
            # "0 of 10 emissions have a null in their key"
        """
        return cls(
            not unexpected, f"{unexpected} of {elements} {what}", elements, unexpected, sample[:SAMPLE]
        )

    def result(self) -> dict[str, Any]:
        """Return the observation as the result that Great Expectations expects from a custom expectation."""
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
