"""Names, durations and numbers in a pipeline file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from tidegate.kernel.windows import parse_duration
from tidegate.model.mistakes import mistake, shown

RESERVED = {
    "key": "the key of the emission",
    "timestamp": "the time of the emission",
    "window_start": "the start of the emission's window",
    "window_end": "the end of the emission's window",
}
"""Column that every outbox has beside the emitted ones -> its content."""

SOURCE = "source"
"""The name of the source as the input of a stage (`from`); no stage can have it."""

STREAM_FOLDERS = ("published", "quarantine", "manifests", "marks")
"""Folders that a stream has in the lake beside those of its stages."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CONNECTION = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Without characters that Delta refuses in column names (" ,;{}()\n\t="), and those that SQL would need quotes
# for.
_COLUMN = re.compile(r"[^\s,;{}()=.`'\"\\]{1,128}")


class Fraction(float):
    """A number with a point or an exponent: a double, with the digits that were written in `text`."""

    text: str

    def __new__(cls, text: str) -> Fraction:
        """Return the nearest double. Raises ValueError if the text is not a number."""
        number = super().__new__(cls, text)
        # `0.10` and `0.1` are one double, and two decimals.
        number.text = text
        return number


def quote(name: str) -> str:
    """Return any name as a Spark SQL identifier in backticks.

    >>> quote("a b")
    '`a b`'
    """
    return "`" + name.replace("`", "``") + "`"


def matching(pattern: re.Pattern[str], what: str, fix: str, most: int | None = None) -> Callable[[str], str]:
    """Return the check that a text matches a pattern. The mistake shows at most so many characters of it.

    Example: `matching(re.compile("[a-z]+"), "is no name", "Use letters.")("X1")` raises a mistake.
    """

    def check(text: str) -> str:
        if pattern.fullmatch(text):
            return text
        raise mistake(f"{text[:most]!r} {what}", fix)

    return check


check_name = matching(
    re.compile(r"[a-z][a-z0-9_]{0,99}"),
    "is not a name that can be used",
    "Use lower-case letters, digits and _, a letter first, at most 100: `stock_levels`.",
)
"""Returns the name of a pipeline or stage if it is valid: it becomes part of topics, tables and tasks."""
check_suite = matching(
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"),
    "is not a suite's name",
    "Write the file's name in `include/expectations/` without `.json`.",
)
"""Returns the name of a suite if it can be a file in the folder of expectations, and no path out of it."""


def check_topic(name: str) -> str:
    """Return the name of a topic if it is valid by Kafka's rule. Raises a mistake otherwise."""
    # Kafka refuses both, since brokers store a partition in a folder of the topic's name.
    if _TOPIC.fullmatch(name) and name not in (".", ".."):
        return name
    fix = "Use 1 to 249 letters, digits, `.`, `_` and `-`."
    raise mistake(f"{name!r} is not a legal Kafka topic name", fix)


def _connection_check(example: str, kind: str, taken: Iterable[str] = ()) -> Callable[[str], str]:
    """Return the check that the name of a connection can be part of an environment variable."""

    def check(name: str) -> str:
        if _CONNECTION.fullmatch(name) and name not in taken:
            return name
        rule = "".join(["lower-case letters, digits and _", *(f", and not `{word}`" for word in taken)])
        places = _PLACES[kind].format(
            f"TIDEGATE_{kind}_{example.upper()}", f"tidegate_{kind.lower()}_{example}"
        )
        fix = f"Write a name such as `{example}`: {rule}. Set {places}."
        raise mistake("that is not a connection's name", fix)

    return check


_PLACES = {
    "SQL": "the URL of its database in the environment, as {}",
    "KAFKA": "the addresses of its brokers in the environment, as {}, or in Airflow's connection `{}`",
    "REGISTRY": "the URL of the registry in the environment, as {}, or in Airflow's connection `{}`",
    "ICEBERG": "the catalog in the environment, as {}, or in Airflow's connection `{}`",
    "HTTP": "the URL of the endpoint in the environment, as {}, or in Airflow's connection `{}`",
    "CLICKHOUSE": "the URL of the server in the environment, as {}, or in Airflow's connection `{}`",
}
"""Kind of a connection -> where its address is set."""
check_connection = _connection_check("reports", "SQL")
# TIDEGATE_KAFKA_PORT is the port of the local broker
check_kafka_connection = _connection_check("reports", "KAFKA", taken=("port",))
check_registry_connection = _connection_check("shop", "REGISTRY")
check_http_connection = _connection_check("shop", "HTTP")
check_iceberg_connection = _connection_check("lake", "ICEBERG")
check_clickhouse_connection = _connection_check("reports", "CLICKHOUSE")


def check_subject(name: str) -> str:
    """Return the name of a subject if it is readable and can be in a URL. Raises a mistake otherwise.

    Registries themselves accept nearly every name.
    """
    if name.isprintable() and name.strip() == name and 0 < len(name) <= 255:
        return name
    raise mistake(f"{name[:40]!r} is not a subject's name", "Write for example `availability-value`.")


def check_column(name: str) -> str:
    """Return the name of a column if JSON, Spark and Delta accept it. Raises a mistake otherwise.

    Two underscores at the beginning are reserved for tidegate's own columns.
    """
    if name.startswith("__"):
        raise mistake(f"{name!r} begins like tidegate's own columns", "Use at most one underscore there.")
    if _COLUMN.fullmatch(name) and name.isprintable():
        return name
    fix = "Leave out blanks, quotes, backslashes and . , ; = ( ) { }."
    raise mistake(f"{name!r} is not a legal column name", fix)


def check_emitted(name: str) -> str:
    """Return the name of an emitted column if it is valid and the outbox does not have it already.

    Raises a mistake otherwise.
    """
    if meaning := RESERVED.get(name.lower()):
        fix = f"Give the column another name, for example `event_{name.lower()}`."
        raise mistake(f"{name!r} is reserved: in the outbox it is {meaning}", fix)
    return check_column(name)


def repeated_name(names: Iterable[str]) -> str | None:
    """Return the first name that repeats an earlier one; None if there is none.

    As in Spark, case does not count.

    Example: `repeated_name(["id", "ID"])` is `ID`.
    """
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            return name
        seen.add(name.lower())
    return None


_LONGEST_MS = 2**45
_FIX = "Write a whole number and a unit: `15ms`, `30s`, `10m`, `1h` or `2d`."


def _read(written: Any) -> int:
    milliseconds = parse_duration(written) if isinstance(written, str) else None
    if milliseconds is None:
        raise mistake(f"{shown(written)} is not a duration", _FIX)
    if milliseconds > _LONGEST_MS:
        raise mistake(f"{written} is too long", "Write less than a thousand years.")
    return milliseconds


def _positive(milliseconds: int) -> int:
    if milliseconds == 0:
        raise mistake("it has no length", _FIX)
    return milliseconds


_WRITTEN = WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,15}(ms|s|m|h|d)$"})

Grace = Annotated[int, BeforeValidator(_read), _WRITTEN]
"""Milliseconds, 0 or more."""
Duration = Annotated[int, BeforeValidator(_read), AfterValidator(_positive), _WRITTEN]
"""Milliseconds, more than 0."""
