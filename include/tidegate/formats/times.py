"""`source.timestamp: {column, format, timezone, zoneless}`: how the texts or numbers of a column are times.

A format has Spark's letters: `yyyy` a year, `MM` a month, `dd` a day, `HH` an hour, `mm` a minute, `ss` a
second, `SSS` a fraction, `XXX` an offset from UTC, and so on. It is read strictly: as many digits as letters,
and nothing around them. A time without an offset is in UTC or in the declared zone. As in Spark, a local time
that comes twice, because the clock is set back, is the first of the two; a time that the clock leaves out is
as much later as the clock jumps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats.decoded import Reason, malformed
from tidegate.kernel.unusable import beyond_calendar
from tidegate.kernel.windows.zones import TimeZone

INSTANT = pa.timestamp("us", "UTC")
EPOCHS = {"epoch_seconds": 1_000_000, "epoch_millis": 1_000, "epoch_micros": 1}
"""Format of numbers since 1970 -> the microseconds of one."""
_ISO = re.compile(
    r"^(?P<y>[0-9]{4})-(?P<M>[0-9]{2})-(?P<d>[0-9]{2})[Tt ](?P<H>[0-9]{2}):(?P<m>[0-9]{2}):(?P<s>[0-9]{2})"
    r"(?:\.(?P<S>[0-9]{1,6}))?(?P<X>[Zz]|[+-][0-9]{2}:?[0-9]{2})?$"
)
"""What a column of type `timestamp` takes."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FULL_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_PATTERNS: Mapping[str, str] = {
    "yyyy": "[0-9]{4}",
    "yy": "[0-9]{2}",
    "MM": "[0-9]{2}",
    "M": "[0-9]{1,2}",
    "MMM": "|".join(_MONTHS),
    "MMMM": "|".join(_FULL_MONTHS),
    **{letter * 2: "[0-9]{2}" for letter in "dHhms"},
    **dict.fromkeys("dHhms", "[0-9]{1,2}"),
    **{"S" * digits: f"[0-9]{{{digits}}}" for digits in range(1, 7)},
    "a": "AM|PM",
    "X": "Z|[+-][0-9]{2}(?:[0-9]{2})?",
    "XX": "Z|[+-][0-9]{4}",
    "XXX": "Z|[+-][0-9]{2}:[0-9]{2}",
    "x": "[+-][0-9]{2}(?:[0-9]{2})?",
    "xx": "[+-][0-9]{4}",
    "xxx": "[+-][0-9]{2}:[0-9]{2}",
    "Z": "[+-][0-9]{4}",
}
_NAMES = {"x": "X", "Z": "X"}
_TOKEN = re.compile(
    r"'(?P<text>(?:[^']|'')*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<mark>.)", re.DOTALL
)
_LIMITS = {"M": (1, 12), "d": (1, 31), "H": (0, 23), "h": (1, 12), "m": (0, 59), "s": (0, 59)}
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class BadFormat(ValueError):
    """A format that cannot be read; the second argument is the fix."""


@dataclass(frozen=True)
class TimeRule:
    """The rule by which a column is the time of records. It can be pickled.

    Args:
        format: Spark's letters, or one of EPOCHS; None: ISO 8601 for texts, and epoch ms for numbers.
        timezone: The zone of local times; None: UTC.
        zoneless: What is made of a local time: the instant at which it is in the zone, or no time.
    """

    format: str | None = None
    timezone: TimeZone | None = None
    zoneless: Literal["accept", "refuse"] = "accept"

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return _ISO if self.format is None else compiled_format(self.format)

    def instants(self, column: pa.Array, name: str) -> tuple[pa.TimestampArray, pa.StringArray]:
        """Return the instants of a column, and why a value is none; both are null for null.

        Args:
            column: Texts, whole numbers, or timestamps without a zone.
            name: What a reason calls the column.
        """
        if pa.types.is_integer(column.type):
            return self._of_numbers(column, name)
        if pa.types.is_timestamp(column.type):
            return self._located(column, pa.nulls(len(column), pa.string()))
        return self._of_texts(column, name)

    def _of_numbers(self, column: pa.Array, name: str) -> tuple[pa.TimestampArray, pa.StringArray]:
        unit = EPOCHS[self.format or "epoch_millis"]
        numbers, valid = _longs(column)
        # a product beyond 64 bits would wrap
        fits = np.abs(numbers) <= np.iinfo(np.int64).max // unit - 1
        times = pa.array(np.where(fits, numbers, 0) * unit, mask=~(valid & fits)).cast(INSTANT)
        return _within_calendar(times, pa.array(valid & ~fits), name)

    def _of_texts(self, column: pa.StringArray, name: str) -> tuple[pa.TimestampArray, pa.StringArray]:
        fields = pc.extract_regex(column, self._compiled.pattern)
        matches = fields.is_valid()
        parts = {field.name: pc.struct_field(fields, field.name) for field in fields.type}
        micros, exists = _micros(parts, len(column))
        exists &= matches.to_numpy(zero_copy_only=False)
        reasons = pc.if_else(pc.or_(pa.array(exists), column.is_null()), None, self._reason(name))
        local = pa.array(micros, mask=~exists).cast(pa.timestamp("us"))
        if "X" not in parts:
            return self._located(local, reasons)
        zoned = pc.and_(pc.not_equal(parts["X"], ""), matches)
        instants, reasons = self._located(pc.if_else(zoned, None, local), reasons)
        with_offset = pc.subtract(local, _offsets(parts["X"])).cast(INSTANT)
        times, outside = _within_calendar(with_offset, pa.repeat(False, len(column)), name)
        return pc.if_else(zoned, times, instants), pc.coalesce(reasons, outside)

    def _located(
        self, local: pa.TimestampArray, reasons: pa.StringArray
    ) -> tuple[pa.TimestampArray, pa.StringArray]:
        """Return the instants of local times."""
        if self.zoneless == "refuse":
            refused = pc.if_else(local.is_valid(), str(Reason.ZONELESS_TIMESTAMP), None)
            return pa.nulls(len(local), INSTANT), pc.coalesce(reasons, refused)
        if self.timezone is None:
            return local.cast(INSTANT), reasons
        micros, valid = _longs(local.cast(pa.int64()))
        milliseconds, rest = np.divmod(micros, 1000)
        clock = self.timezone.clock
        instants = clock.shifted_instants(milliseconds) * 1000 + rest
        return pa.array(instants, mask=~valid).cast(INSTANT), reasons

    def _reason(self, name: str) -> str:
        expected = "2026-01-31T10:30:00" if self.format is None else self.format
        return malformed(f"Expected a time as `{expected}` - at `{name}`")


def _within_calendar(
    times: pa.TimestampArray, lost: pa.BooleanArray, name: str
) -> tuple[pa.TimestampArray, pa.StringArray]:
    """Return times in the years 1 to 9999, and the reason of the others, and of those lost already."""
    outside = beyond_calendar(times)
    outside = lost if outside is None else pc.or_(lost, pc.fill_null(outside, False))
    reason = malformed(f"A time is not in the years 1 to 9999 of UTC - at `{name}`")
    return pc.if_else(outside, None, times), pc.if_else(outside, reason, None)


def _longs(column: pa.Array) -> tuple[Longs, Bools]:
    """Return whole numbers, 0 for null, and which are not null."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return np.asarray(pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), np.int64), valid


def _micros(parts: Mapping[str, pa.StringArray], count: int) -> tuple[Longs, Bools]:
    """Return local times as microseconds since 1970, and which of them exist."""
    values, exists = {}, np.ones(count, bool)
    for letter in "dHhms":
        values[letter] = _number(parts.get(letter), count, 1 if letter == "d" else 0)
    values["M"] = _month(parts["M"], count)
    for letter, (least, most) in _LIMITS.items():
        if letter in parts:
            exists &= (values[letter] >= least) & (values[letter] <= most)
    if "h" in parts:
        evening = pc.fill_null(pc.equal(parts["a"], "PM"), False).to_numpy(zero_copy_only=False)
        values["H"] = values["h"] % 12 + 12 * evening
    year = _number(parts["y"], count, 1970)
    if "yy" in parts:
        year += 2000
    exists &= year >= 1
    months = (year - 1970) * 12 + np.clip(values["M"], 1, 12) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]")
    following = (months + 1).astype("datetime64[M]").astype("datetime64[D]")
    exists &= values["d"] <= (following - first).astype(np.int64)
    days = first.astype(np.int64) + values["d"] - 1
    seconds = ((days * 24 + values["H"]) * 60 + values["m"]) * 60 + values["s"]
    return seconds * 1_000_000 + _fraction(parts.get("S"), count), exists


def _number(texts: pa.StringArray | None, count: int, default: int) -> Longs:
    if texts is None:
        return np.full(count, default, np.int64)
    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    return np.array(pc.fill_null(texts.cast(pa.int64()), default).to_numpy(), np.int64)


def _month(texts: pa.StringArray, count: int) -> Longs:
    named = pc.coalesce(
        pc.index_in(texts, value_set=pa.array(_MONTHS)), pc.index_in(texts, value_set=pa.array(_FULL_MONTHS))
    )
    numbers = pa.array(_number(pc.if_else(named.is_valid(), None, texts), count, 1))
    return np.asarray(pc.coalesce(pc.add(named, 1).cast(pa.int64()), numbers), np.int64)


def _fraction(texts: pa.StringArray | None, count: int) -> Longs:
    return np.zeros(count, np.int64) if texts is None else _number(pc.utf8_rpad(texts, 6, "0"), count, 0)


def _offsets(texts: pa.StringArray) -> pa.DurationArray:
    """Return offsets such as `Z`, `+02`, `-0330` and `+01:00`."""
    digits = pc.replace_substring(pc.utf8_slice_codeunits(texts, 1), ":", "")
    numbers = _number(pc.utf8_rpad(digits, 4, "0"), len(texts), 0)
    sign = np.where(pc.fill_null(pc.starts_with(texts, "-"), False).to_numpy(zero_copy_only=False), -1, 1)
    minutes = sign * (numbers // 100 * 60 + numbers % 100)
    return pa.array(minutes * 60_000_000, pa.duration("us"))


def compiled_format(text: str) -> re.Pattern[str]:
    """Return the pattern of a format: a group for each field, whose name is its first letter.

    Raises BadFormat.
    """
    pattern = "".join(_patterns(text))
    names = set(re.findall(r"\(\?P<(\w+)>", pattern))
    if missing := [letter for letter in ("y", "M", "d") if letter not in names]:
        what = {"y": "year (`yyyy`)", "M": "month (`MM`)", "d": "day (`dd`)"}[missing[0]]
        raise BadFormat(f"{text!r} has no {what}", "Write for example `dd.MM.yyyy HH:mm:ss`.")
    if ("h" in names) != ("a" in names) or {"h", "H"} <= names:
        raise BadFormat(f"{text!r} has half of a 12-hour time", "Write `hh:mm a`, or `HH:mm`.")
    return re.compile(f"^{pattern}$")


def _patterns(text: str) -> Iterator[str]:
    seen: set[str] = set()
    depth = 0
    for match in _TOKEN.finditer(text):
        mark, letters = match["mark"], match["letters"]
        if letters is not None:
            yield _group(letters, seen)
        elif match["text"] is not None:
            yield re.escape(match["text"].replace("''", "'") or "'")
        elif mark == "[":
            depth += 1
            yield "(?:"
        elif mark == "]" and depth:
            depth -= 1
            yield ")?"
        elif mark in "'{}#]":
            raise BadFormat(
                f"{text!r} has a {mark} that does not belong there", "Put other texts into single quotes."
            )
        else:
            yield re.escape(mark)
    if depth:
        raise BadFormat(f"{text!r} has a `[` that is not closed", "Close the optional part with `]`.")


def _group(letters: str, seen: set[str]) -> str:
    if letters not in _PATTERNS:
        fix = "Use `yyyy MM dd HH mm ss SSS`, `hh` with `a`, `MMM`, and `XXX`; other texts in single quotes."
        raise BadFormat(f"`{letters}` is not a part of a time that tidegate reads", fix)
    name = _NAMES.get(letters[0], letters[0])
    if name in seen:
        raise BadFormat(f"`{letters}` is there twice", "Write each part once.")
    seen.add(name)
    names = f"(?P<{name}>{_PATTERNS[letters]})"
    # the century of a year of two digits
    return f"{names}(?P<yy>)" if letters == "yy" else names
