"""`emit`: when a stage emits a value. Each way to emit is a model in `Emit`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    field_validator,
    model_validator,
)
from pydantic import ValidationInfo as Info

from tidegate.spec.durations import Duration
from tidegate.spec.equal import Equal, compared_columns
from tidegate.spec.mistakes import mistake
from tidegate.spec.scope import Model, distinct, require_filled, scope_of, suggest_column

Clock = Literal["stream", "run"]
Count = Annotated[StrictInt, Field(ge=1, lt=2**63)]


def _clock(default: str) -> Any:
    """Return the field `clock`, which each way to emit has."""
    return Field(
        default=default,
        description="Which time counts: that of the records (`stream`), or also the batches' clocks (`run`).",
    )


def _check_emitted(name: str, info: Info) -> str:
    emitted = scope_of(info).stage.emitted
    if emitted is not None and name not in emitted:
        raise mistake(f"the stage emits no column `{name}`", suggest_column(name, emitted))
    return name


Emitted = Annotated[
    tuple[Annotated[str, AfterValidator(_check_emitted)], ...],
    BeforeValidator(require_filled),
    AfterValidator(distinct),
]


class UpdateEmit(Model):
    """Emit with every accepted record."""

    on: Literal["update"] = Field(description="With every record.")
    clock: Clock = _clock("stream")


def _note_compared(equal: Any, info: Info) -> Any:
    """Note the compared columns in the scope, before `equal` is read: its parts may only name those."""
    scope = scope_of(info)
    has_columns = "columns" in info.data and "ignore" in info.data
    scope.compared = None
    if has_columns:
        scope.compared = compared_columns(scope.stage.emitted, info.data["columns"], info.data["ignore"])
    return equal


class ChangeEmit(Model):
    """Emit a record whose value differs from the last emitted one of its key.

    In a stage, `columns` always lists the compared columns: those that the file lists, or all without
    `ignore`.
    """

    on: Literal["change"] = Field(description="With a record that changes the value.")
    columns: Emitted | None = Field(default=None, description="Compare only these columns. Null: all.")
    ignore: Emitted | None = Field(default=None, description="Compare all columns but these.")
    equal: Annotated[Equal, BeforeValidator(_note_compared)] = Field(
        default="exact",
        description="When two values count as equal: `exact`, the same `bytes` as JSON, or one of the forms.",
    )
    timestamp: StrictBool = Field(
        default=False, description="With `equal: bytes`: whether equal values also need equal timestamps."
    )
    state: Literal["value", "hash"] = Field(
        default="value", description="Whether state has the emitted value, or only a hash of it."
    )
    heartbeat_ms: Duration | None = Field(
        alias="heartbeat",
        default=None,
        description="An unchanged value is emitted again so long after the last emission: "
        "with a record, and under `clock: run` also without one.",
    )
    clock: Clock = _clock("stream")

    @field_validator("ignore")
    @classmethod
    def _not_both(cls, ignore: tuple[str, ...] | None, info: Info) -> tuple[str, ...] | None:
        if ignore is not None and info.data.get("columns") is not None:
            raise mistake("`columns` and `ignore` are both given", "Keep one: the other follows from it.")
        return ignore

    @field_validator("timestamp")
    @classmethod
    def _of_bytes(cls, timestamp: bool, info: Info) -> bool:
        if timestamp and info.data.get("equal", "bytes") != "bytes":
            raise mistake(
                "`timestamp: true` goes with `equal: bytes` only", "Write `equal: bytes`, or leave it out."
            )
        return timestamp

    @field_validator("state")
    @classmethod
    def _not_hashed_away(cls, state: str, info: Info) -> str:
        if state == "hash" and not isinstance(info.data.get("equal", "exact"), str):
            fix = "Use `state: value`, or `equal: exact` or `bytes`."
            raise mistake("hashes can only be compared for equality, not by a distance or a condition", fix)
        return state

    @field_validator("clock")
    @classmethod
    def _has_the_value(cls, clock: Clock, info: Info) -> Clock:
        by_clock = clock == "run" and info.data.get("heartbeat_ms") is not None
        if by_clock and info.data.get("state") == "hash":
            fix = "Use `state: value`, or `clock: stream`, whose heartbeats come with records."
            raise mistake("the clock cannot repeat a value if the state has only its hash", fix)
        return clock

    @property
    def beats_by_clock(self) -> bool:
        """Whether an unchanged value is also emitted without a record."""
        return self.heartbeat_ms is not None and self.clock == "run"

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns that are compared."""
        return self.columns or ()

    def over(self, emitted: tuple[str, ...]) -> ChangeEmit:
        """Return the model with `columns` resolved against the columns that a stage emits.

        Raises a mistake if `ignore` leaves no column.
        """
        if self.columns is not None:
            return self
        left = tuple(name for name in emitted if name not in (self.ignore or ()))
        if not left:
            raise mistake("`ignore` leaves nothing to compare", "Compare at least one column.")
        return self.model_copy(update={"columns": left})


class Buffer(Model):
    """The bound of a buffer per topic-partition, in keys or in bytes of keys and values, and what
    happens beyond it.
    """

    max_records: Count | None = Field(
        default=None, description="The most keys (and windows) in the buffer, per topic-partition."
    )
    max_bytes: Count | None = Field(
        default=None, description="The most bytes of key and value, per topic-partition."
    )
    when_full: Literal["emit_early", "shut_down", "spill"] = Field(
        default="emit_early",
        description="The oldest value is emitted, the batch fails with `BufferFull`, or there is no bound.",
    )

    @model_validator(mode="after")
    def _is_bounded(self) -> Buffer:
        if self.when_full != "spill" and self.max_records is None and self.max_bytes is None:
            fix = "Write `max_records: 1000` or `max_bytes: 10_000_000`; without a buffer there is no bound."
            raise mistake("the buffer has no bound", fix)
        return self


class FinalBuffer(Buffer):
    """The buffer of `on: window_close`, which never emits early."""

    when_full: Literal["emit_early", "shut_down", "spill"] = Field(
        default="shut_down",
        description="The batch fails with `BufferFull`, or there is no bound; `emit_early` is refused.",
    )

    @field_validator("when_full")
    @classmethod
    def _never_early(cls, when_full: str) -> str:
        if when_full == "emit_early":
            fix = "Use `shut_down` or `spill`, or `on: time_limit`, which may emit early."
            raise mistake("`on: window_close` emits the final value, and never early", fix)
        return when_full


class WindowCloseEmit(Model):
    """Emit the final value once per key and window, when the window is closed."""

    on: Literal["window_close"] = Field(description="Once per key and window, when the window is closed.")
    buffer: FinalBuffer | None = Field(default=None, description="A bound for values that wait.")
    clock: Clock = _clock("run")


class TimeLimitEmit(Model):
    """Emit the newest value, so long (`after`) after the first value that waits: at most once in
    that time.
    """

    on: Literal["time_limit"] = Field(description="At most once in a time.")
    after_ms: Duration = Field(
        alias="after", description="The newest value is emitted so long after the first value that waits."
    )
    buffer: Buffer | None = Field(default=None, description="A bound for values that wait.")
    clock: Clock = _clock("run")


Since = Literal["arrival", "first_event", "last_flush"]


def _start_by_clock(emit: dict[str, Any]) -> Since:
    return "arrival" if emit.get("clock") == "run" else "first_event"


class ThresholdEmit(Model):
    """Emit when enough records, bytes or time have gathered, and then empty the buffer."""

    on: Literal["threshold"] = Field(description="When enough has gathered.")
    count: Count | None = Field(default=None, description="So many records.")
    max_bytes: Count | None = Field(
        default=None, description="So many bytes of events, with `reduce: collect`; no emission has more."
    )
    after_ms: Duration | None = Field(
        alias="after", default=None, description="So long, with any number of records."
    )
    clock: Clock = _clock("run")
    since: Since = Field(
        default_factory=_start_by_clock,
        description="When `after` starts; by default `arrival`, under `clock: stream` `first_event`.",
    )

    @field_validator("max_bytes")
    @classmethod
    def _of_events(cls, max_bytes: int | None, info: Info) -> int | None:
        if max_bytes is not None and scope_of(info).stage.collects is False:
            fix = "Use `count` or `after`, or `reduce: collect`."
            raise mistake("`max_bytes` counts the bytes of events, which only `reduce: collect` keeps", fix)
        return max_bytes

    @model_validator(mode="after")
    def _has_a_threshold(self) -> ThresholdEmit:
        if self.count is None and self.max_bytes is None and self.after_ms is None:
            raise mistake(
                "there is no threshold", "Write `count: 100`, `max_bytes: 900_000` or `after: 60s`."
            )
        if "since" in self.model_fields_set and self.after_ms is None:
            raise mistake("`since` says when `after` starts, and `after` is missing", "Write `after: 60s`.")
        return self


class IntervalEmit(Model):
    """Emit at the first multiple of `every` (since 1970) after the first value since the last emission."""

    on: Literal["interval"] = Field(description="At fixed times.")
    every_ms: Duration = Field(alias="every", description="At the next multiple of it since 1970.")
    clock: Clock = _clock("run")


Emit = Annotated[
    UpdateEmit | ChangeEmit | WindowCloseEmit | TimeLimitEmit | ThresholdEmit | IntervalEmit,
    Field(discriminator="on"),
]
TIMED = (WindowCloseEmit, TimeLimitEmit, ThresholdEmit, IntervalEmit)
"""The ways to emit that keep values until a time."""
