"""What may be called what: pipelines, topics, columns, tables, suites."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidegate.spec.mistakes import mistake

RESERVED = {
    "key": "the key of the emission",
    "timestamp": "the time of the emission",
    "window_start": "the start of the emission's window",
    "window_end": "the end of the emission's window",
}
"""Columns that every outbox has beside the emitted ones, and what they hold."""

STREAM_FOLDERS = ("published", "quarantine", "manifests", "marks")
"""Folders that a stream has in the lake beside those of its stages."""

SQL_COLUMNS = {
    "key": "the key",
    "window_start": "the start of the window",
    "window_end": "the end of the window",
    "emitted_timestamp": "the time of the emission",
    "source": "the position of the record",
    "stream": "the pipeline and its generation",
    "batch": "the batch",
    "ordinal": "the place in the batch",
}
"""Columns that each table of a SQL sink has beside the emitted ones, and what they hold."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SUITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_TABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*(/[A-Za-z0-9_][A-Za-z0-9_.=-]*)*")
_LONGEST_TABLE_PATH = 300  # the ledger has to hold it, as part of the sink's name
_CONNECTION = re.compile(r"[a-z][a-z0-9_]{0,62}")
# what PostgreSQL keeps whole, with or without a schema
_SQL_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")
# without what Delta cannot store (" ,;{}()\n\t=") and what would have to be quoted again and again
_COLUMN = re.compile(r"[^\s,;{}()=.`'\"\\]{1,128}")


def quote(name: str) -> str:
    """The name as a Spark SQL identifier, whatever it is made of."""
    return "`" + name.replace("`", "``") + "`"


def check_name(name: str) -> str:
    """Pipelines and stages: the name becomes part of topics, tables and tasks."""
    if _NAME.fullmatch(name):
        return name
    fix = "Use lower-case letters, digits and _, a letter first, at most 100: `stock_levels`."
    raise mistake(f"{name!r} is not a name that can be used", fix)


def check_topic(name: str) -> str:
    """Kafka's own rule."""
    if _TOPIC.fullmatch(name) and name not in (".", ".."):
        return name
    fix = "Use 1 to 249 letters, digits, `.`, `_` and `-`."
    raise mistake(f"{name!r} is not a legal Kafka topic name", fix)


def check_suite(name: str) -> str:
    """A file's stem in the expectations' folder; never a way out of it."""
    if _SUITE.fullmatch(name):
        return name
    fix = "Write the file's name in `include/expectations/` without `.json`."
    raise mistake(f"{name!r} is not a suite's name", fix)


def check_table_path(path: str) -> str:
    """A relative name under the lake, or an absolute path; without steps up."""
    if len(path) > _LONGEST_TABLE_PATH:
        fix = f"Use at most {_LONGEST_TABLE_PATH}."
        raise mistake(f"the path of a table has {len(path)} characters: {path[:40]}…", fix)
    if _TABLE.fullmatch(path.removeprefix("/")):
        return path
    fix = "Write a name under the lake such as `out/availability`, or an absolute path, without `..`."
    raise mistake(f"{path!r} is not a path that can be used", fix)


def check_sql_table(name: str) -> str:
    """`name` or `schema.name`."""
    if _SQL_TABLE.fullmatch(name):
        return name
    fix = "Write `name` or `schema.name`: letters, digits and _, at most 63 each, no digit first."
    raise mistake(f"{name!r} is not a table's name", fix)


def check_connection(name: str) -> str:
    """The name becomes part of an environment variable."""
    if _CONNECTION.fullmatch(name):
        return name
    fix = (
        "Write a name such as `reports`: lower-case letters, digits and _. Its database's URL does not stand "
        "here, but in the environment as TIDEGATE_SQL_REPORTS."
    )
    raise mistake("that is not a connection's name", fix)


def check_kafka_connection(name: str) -> str:
    """The same, of Kafka."""
    if _CONNECTION.fullmatch(name) and name != "port":  # TIDEGATE_KAFKA_PORT is that of a local broker
        return name
    fix = (
        "Write a name such as `reports`: lower-case letters, digits and _, and not `port`. Where its brokers "
        "are does not stand here, but in the environment as TIDEGATE_KAFKA_REPORTS, or in Airflow's "
        "connection `tidegate_kafka_reports`."
    )
    raise mistake("that is not a connection's name", fix)


def check_registry_connection(name: str) -> str:
    """The same, of schema registries."""
    if _CONNECTION.fullmatch(name):
        return name
    fix = (
        "Write a name such as `shop`: lower-case letters, digits and _. Where the registry is does not stand "
        "here, but in the environment as TIDEGATE_REGISTRY_SHOP, or in Airflow's connection "
        "`tidegate_registry_shop`."
    )
    raise mistake("that is not a connection's name", fix)


def check_subject(name: str) -> str:
    """Registries take nearly anything: what can be read, and stand in a URL."""
    if name.isprintable() and name.strip() == name and 0 < len(name) <= 255:
        return name
    raise mistake(f"{name[:40]!r} is not a subject's name", "Write for example `availability-value`.")


def check_column(name: str) -> str:
    """A name that JSON, Spark and Delta all can hold. Two underscores begin tidegate's own columns."""
    if name.startswith("__"):
        raise mistake(f"{name!r} begins like tidegate's own columns", "Use at most one underscore there.")
    if _COLUMN.fullmatch(name) and name.isprintable():
        return name
    fix = "Leave out blanks, quotes, backslashes and . , ; = ( ) { }."
    raise mistake(f"{name!r} is not a legal column name", fix)


def check_emitted(name: str) -> str:
    """A column of the outbox: legal, and not one that the outbox has already."""
    if meaning := RESERVED.get(name.lower()):
        fix = f"Give the column another name, for example `event_{name.lower()}`."
        raise mistake(f"{name!r} is reserved: in the outbox it is {meaning}", fix)
    return check_column(name)


def twice(names: Iterable[str]) -> str | None:
    """The first name that repeats an earlier one; Spark does not tell upper from lower case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            return name
        seen.add(name.lower())
    return None
