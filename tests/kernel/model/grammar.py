"""A stage as it is written in a pipeline file, as plain settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Condition = Callable[..., "bool | None"]

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RUN_BY_DEFAULT = ("threshold", "time_limit", "window_close", "interval", "quiet", "any")


@dataclass(frozen=True)
class Aggregate:
    """`function(argument)`; the argument `*` stands for the record itself."""

    name: str
    function: str
    argument: str


@dataclass(frozen=True)
class Formula:
    """`left operator right`, of the results of two aggregates."""

    left: str
    operator: str
    right: str


@dataclass(frozen=True)
class WindowSettings:
    """`kind` is tumbling, hopping, cumulating or session; `size_ms` is the gap of a session."""

    kind: str
    size_ms: int
    every_ms: int
    grace_ms: int
    offset_ms: int = 0
    timezone: str | None = None


@dataclass(frozen=True)
class Settings:
    """`reduce` is latest, collect or aggregates; `emit` holds the options as they are written; `emitted` has
    each column's aggregate, or formula.
    """

    reduce: str
    aggregates: tuple[Aggregate, ...]
    emitted: Mapping[str, str | Formula]
    select: Mapping[str, str] | None
    window: WindowSettings | None
    on: str
    emit: Mapping[str, Any]
    clock: str
    where: Condition | None
    expected: Condition | None
    equivalent: Condition | None
    until: Condition | None
    triggers: tuple[Settings, ...] = ()
    ttl_ms: int | None = None
    deletes: bool = False

    def duration(self, name: str) -> int | None:
        """An option of `emit`, in ms."""
        return milliseconds(str(self.emit[name])) if name in self.emit else None

    @property
    def since(self) -> str:
        """Quote: `arrival` (default under `clock: run`); `first_event` (default under `clock: stream`)"""
        return str(self.emit.get("since", "arrival" if self.clock == "run" else "first_event"))

    @property
    def bounded(self) -> bool:
        """Quote: `spill` goes on on disk (so it emits what an unbounded buffer does)."""
        buffer: Mapping[str, Any] = self.emit.get("buffer", {"when_full": "spill"})
        return bool(buffer.get("when_full", "emit_early") != "spill")


def milliseconds(text: str) -> int:
    """Quote: durations are strings with a unit (`15ms`, `30s`, `10m`, `1h`, `2d`)."""
    matched = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    assert matched, f"not a duration: {text!r}"
    return int(matched[1]) * _UNITS[matched[2]]


def settings_of(
    stage: Mapping[str, Any], conditions: Mapping[str, Condition], expected: Condition | None = None
) -> Settings:
    """The settings of a stage; `conditions` gives each SQL text and python name that it uses a meaning."""
    emit: Mapping[str, Any] = stage["emit"]
    reduce: str | Mapping[str, str] = stage["reduce"]
    equal: Any = emit.get("equal", "exact")
    ttl: Any = stage.get("ttl", {})
    ttl = {"after": ttl} if isinstance(ttl, str) else ttl
    named = (equal.get("sql") or equal.get("python")) if isinstance(equal, dict) else None
    return Settings(
        reduce=reduce if isinstance(reduce, str) else "aggregates",
        aggregates=() if isinstance(reduce, str) else _aggregates(reduce),
        emitted={} if isinstance(reduce, str) else {name: _meaning(name, reduce[name]) for name in reduce},
        select=stage.get("select"),
        window=_window(stage.get("window")),
        on=emit.get("on", "any"),
        emit=emit,
        # Quote: `clock:` is `run` by default for `threshold`, `time_limit`, `window_close`, `interval`.
        # (and for `quiet`, which waits as they do)
        clock=emit.get("clock", "run" if emit.get("on", "any") in _RUN_BY_DEFAULT else "stream"),
        where=conditions[stage["where"]] if "where" in stage else None,
        expected=expected,
        equivalent=conditions[named] if named else None,
        until=conditions[emit["until"]] if "until" in emit else None,
        triggers=tuple(
            settings_of({**stage, "emit": {**trigger, "clock": emit["clock"]}}, conditions)
            for trigger in emit.get("any", ())
        ),
        ttl_ms=milliseconds(ttl["after"]) if ttl else None,
        deletes=ttl.get("emit") == "deletion",
    )


def _aggregates(reduce: Mapping[str, str]) -> tuple[Aggregate, ...]:
    texts: dict[str, str] = {}
    for name, text in reduce.items():
        left, operator, right = re.fullmatch(_OF_TWO, text).groups()  # type: ignore[union-attr]
        texts |= {f"{name} left": left, f"{name} right": right} if operator else {name: text}
    parsed = {name: re.fullmatch(r"(\w+)\((distinct )?(\*|\w+)\)", text) for name, text in texts.items()}
    assert all(parsed.values()), f"not all aggregates of a column or *: {reduce}"
    return tuple(
        Aggregate(name, f"{call[1]} distinct" if call[2] else call[1], call[3])
        for name, call in parsed.items()
        if call
    )


_OF_TWO = r"(\w+\(.*?\))(?: ([-+/]) (\w+\(.*\)))?"


def _meaning(name: str, text: str) -> str | Formula:
    operator = re.fullmatch(_OF_TWO, text)[2]  # type: ignore[index]
    return Formula(f"{name} left", operator, f"{name} right") if operator else name


def _window(window: Mapping[str, str] | None) -> WindowSettings | None:
    if window is None:
        return None
    kind = next(
        kind for kind in ("tumbling", "hopping", "cumulating", "sliding", "session") if kind in window
    )
    size = milliseconds(window[kind])
    every = milliseconds(window["every"]) if kind in ("hopping", "cumulating") else size
    grace, offset = (milliseconds(window.get(name, "0ms")) for name in ("grace", "offset"))
    return WindowSettings(kind, size, every, grace, offset, window.get("timezone"))
