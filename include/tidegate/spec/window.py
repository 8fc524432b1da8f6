"""`window`: each kind of window is a model in `Window`, chosen by the field that names it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator
from pydantic import ValidationInfo as Info

from tidegate.spec.durations import Duration, Grace, write_duration
from tidegate.spec.mistakes import listed, mistake
from tidegate.spec.scope import Model

MAX_WINDOWS = 10_000
"""The largest number of windows of a record: for each one the record becomes a row, and so does the state."""
KINDS = ("tumbling", "hopping", "session")


_GRACE: Any = Field(
    alias="grace",
    default="0ms",  # validated like a written value
    description="How long after its end a window still accepts records.",
)


class TumblingWindow(Model):
    """Windows of the same size, side by side, aligned to the epoch."""

    size_ms: Duration = Field(alias="tumbling", description="The windows' size.")
    grace_ms: Grace = _GRACE

    @property
    def open_ms(self) -> int:
        """The time from its start to the close of a window, in milliseconds."""
        return self.size_ms + self.grace_ms


class HoppingWindow(Model):
    """Windows of the same size, one of which starts every `every`, aligned to the epoch. They can overlap."""

    size_ms: Duration = Field(alias="hopping", description="The windows' size.")
    every_ms: Duration = Field(alias="every", description="The time between the starts of two windows.")
    grace_ms: Grace = _GRACE

    @field_validator("every_ms")
    @classmethod
    def _no_gaps(cls, every_ms: int, info: Info) -> int:
        size_ms = info.data.get("size_ms")
        if size_ms is not None and every_ms > size_ms:
            size = write_duration(size_ms)
            what = f"windows of {size} every {write_duration(every_ms)} leave gaps between them"
            raise mistake(what, f"Write at most `every: {size}`.")
        if size_ms is not None and size_ms > every_ms * MAX_WINDOWS:
            what = f"each record would be in {-(-size_ms // every_ms):,} windows"
            least = write_duration(-(-size_ms // MAX_WINDOWS))
            raise mistake(what, f"Write at least `every: {least}`: {MAX_WINDOWS:,} windows are the most.")
        return every_ms

    @property
    def open_ms(self) -> int:
        """The time from its start to the close of a window, in milliseconds."""
        return self.size_ms + self.grace_ms


class SessionWindow(Model):
    """A window that lasts as long as records follow each other within the gap."""

    gap_ms: Duration = Field(
        alias="session", description="The gap: a record after a longer pause begins another window."
    )
    grace_ms: Grace = _GRACE

    @property
    def open_ms(self) -> int:
        """The time from its last record to the close of a window, in milliseconds."""
        return self.gap_ms + self.grace_ms


def _has_one_kind(written: Any) -> Any:
    if not isinstance(written, dict):
        return written
    kinds = [kind for kind in KINDS if kind in written]
    if not kinds:
        fix = f"Write {listed(KINDS)} with a duration: `window: {{tumbling: 1h, grace: 10m}}`."
        raise mistake("the window's kind is missing", fix)
    if len(kinds) > 1:
        raise mistake(f"a window is one of {listed(kinds)}", "Keep one of them.")
    return written


def _kind(written: Any) -> str:
    return next((kind for kind in KINDS if isinstance(written, dict) and kind in written), KINDS[0])


Window = Annotated[
    Annotated[
        Annotated[TumblingWindow, Tag("tumbling")]
        | Annotated[HoppingWindow, Tag("hopping")]
        | Annotated[SessionWindow, Tag("session")],
        Discriminator(_kind),
    ],
    BeforeValidator(_has_one_kind),
]
