"""What a function's expression has beside its arguments: places, lengths and patterns, or a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from zoneinfo import available_timezones

from tidegate.ksql.translated import Translated, quoted_text
from tidegate.ksql.types import Untranslatable


def _listed(arguments: Sequence[Translated]) -> str:
    return ", ".join(argument.sql for argument in arguments)


def _start(arguments: Sequence[Translated]) -> str:
    """Return where a part of a text begins: from the end of a shorter text, it begins with the text."""
    text, place = arguments[:2]
    from_end = f"greatest(length({text.sql}) + {place.sql}, 0) + 1"
    if place.literal is not None:
        return from_end if int(place.literal) < 0 else place.literal
    return f"(case when {place.sql} < 0 then {from_end} else {place.sql} end)"


def _length(arguments: Sequence[Translated]) -> str:
    length = arguments[2]
    if length.literal is not None and int(length.literal) > _LONGEST:
        raise Untranslatable(f"a length of {length.literal} overflows", "Leave the length out.")
    return f"greatest({length.sql}, 0)" if length.literal is None else str(max(int(length.literal), 0))


def _quoted_regex(arguments: Sequence[Translated]) -> str:
    text = arguments[1].literal or ""
    if not text or "\\E" in text:
        raise Untranslatable("SPLIT without a delimiter differs", "Split at a text of some characters.")
    return quoted_text(f"\\Q{text}\\E")


_LONGEST = 2**30
_MOST_LETTERS = {"y": 4, "M": 4, "d": 2, "H": 2, "m": 2, "s": 2, "S": 3}


def _pattern(letters: str) -> Callable[[Sequence[Translated]], str]:
    """Return what checks a pattern of times, whose letters have to mean the same in Java and in Spark."""
    fields = "|".join(f"{letter}{{1,{_MOST_LETTERS[letter]}}}(?!{letter})" for letter in letters)
    usable = re.compile(rf"(?:{fields}|[ .:/,_-]|'[^']+')+")

    def checked(arguments: Sequence[Translated]) -> str:
        if not usable.fullmatch(arguments[1].literal or ""):
            raise Untranslatable(
                f"the pattern {arguments[1].sql} of times differs", f"Use the letters {', '.join(letters)}."
            )
        return arguments[1].sql

    return checked


def _zone(arguments: Sequence[Translated]) -> str:
    if arguments[2].literal not in available_timezones():
        raise Untranslatable(f"the time zone {arguments[2].sql} is unknown", "Write it like 'Europe/London'.")
    return arguments[2].sql


def _pattern_of(arguments: Sequence[Translated]) -> str:
    """Return a regular expression. Where Java refuses one, ksqlDB has null, and Spark ends the batch."""
    pattern = arguments[1]
    _groups(pattern.literal or "")
    return pattern.sql


def _replacement(arguments: Sequence[Translated]) -> str:
    """Return a replacement whose groups the regular expression has."""
    text = arguments[2].literal or ""
    rest = re.sub(r"\\.", "", text, flags=re.DOTALL)
    numbers = re.findall(r"\$([0-9])", rest)
    if rest.count("$") != len(numbers) or "\\" in rest:
        raise Untranslatable(
            f"the replacement '{text}' differs", "Use $1 to $9, and a backslash before others."
        )
    if any(int(number) > _groups(arguments[1].literal or "") for number in numbers):
        raise Untranslatable(f"the pattern has not the groups of '{text}'", "Write another replacement.")
    return arguments[2].sql


def _groups(pattern: str) -> int:
    """Return the number of groups of a regular expression of Java. Raises Untranslatable if it is none."""
    plain = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", re.sub(r"\\[pP](\{\w+\}|\w)", "x", pattern))
    try:
        if re.search(r"(?<!\\)\{(?!\d)", plain):
            raise re.error("a brace without a number")
        return re.compile(plain).groups
    except re.error as error:
        raise Untranslatable(
            f"'{pattern}' may be no regular expression ({error})", "Write another one."
        ) from None


def _group(arguments: Sequence[Translated]) -> str:
    """Return the number of a group that each match has: Spark has an empty text for one that is missing."""
    pattern, *number = arguments[0].literal or "", *(argument.literal for argument in arguments[2:])
    group = int(number[0] or 0) if number else 0
    if not 0 <= group <= _groups(pattern) or (group and re.search(r"\||\)[?*{]", pattern)):
        raise Untranslatable(f"not each match of {pattern} has a group {group}", "Write another pattern.")
    return str(group)


def _digits(arguments: Sequence[Translated]) -> str:
    digits = int(arguments[1].literal or 0)
    if not 0 <= digits <= 15:
        raise Untranslatable(f"ROUND to {digits} digits has no equivalent", "Round to 0 to 15 digits.")
    return str(digits)


PARTS: Mapping[str, Callable[[Sequence[Translated]], str]] = {
    "all": _listed,
    "start": _start,
    "length": _length,
    "regex": _quoted_regex,
    "time": _pattern("yMdHmsS"),
    "date": _pattern("yMd"),
    "clock": _pattern("HmsS"),
    "zone": _zone,
    "group": _group,
    "pattern": _pattern_of,
    "replacement": _replacement,
    "digits": _digits,
    "more": lambda arguments: str(int(_digits(arguments)) + 1),
    "power": lambda arguments: f"1e{int(_digits(arguments)) + 1}",
    "unit": lambda arguments: f"1e-{_digits(arguments)}",
}
"""Name in an expression -> its text, or Untranslatable."""
