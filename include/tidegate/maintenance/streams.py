"""Do work for many streams; a stream that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tidegate.errors import Permanent, TidegateError, Transient
from tidegate.ledger import Stream

Result = TypeVar("Result")


def work_on_streams(
    streams: Sequence[Stream], work: Callable[[Stream], Result]
) -> tuple[list[Result], TidegateError | None]:
    """Call `work` for each stream. Returns the results of the streams that succeeded, in order, and the error
    to raise, or None.

    Several errors become one with the messages of all; it is worth a retry if any of them is.
    """
    results: list[Result] = []
    errors: dict[Stream, TidegateError] = {}
    for stream in streams:
        try:
            results.append(work(stream))
        except TidegateError as error:
            errors[stream] = error
    return results, _combined(errors)


def _combined(errors: dict[Stream, TidegateError]) -> TidegateError | None:
    if len(errors) < 2:
        return next(iter(errors.values()), None)
    is_transient = any(isinstance(error, Transient) for error in errors.values())
    words = "\n".join(f"{stream}: {type(error).__name__}: {error}" for stream, error in errors.items())
    return (Transient if is_transient else Permanent)(f"{len(errors)} streams failed:\n{words}")
