"""Rows that tables make: a key's last record when the row that it looks up has changed, and expected keys.

Such a row is a record of a place of its own: a topic that no Kafka topic can have, with the number of the
batch as its offset. The table of a batch is that of its plan from the first record on, so these rows come
before all records of their key.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_MARK = "#"
"""Begins the topic of such a row. No Kafka topic has this character; it sorts before all that they have."""
REJOINED = "lookup"
"""The reason of an emission that such a row causes; the name of the table follows after a colon."""

ABSENT = "absent"
"""The reason of an emission of an expected key that has had no record."""


def topic_of(table: str) -> str:
    """Return the topic of the rows that a change of a table makes. A source chain separates its parts by
    slashes.

    Example: `topic_of("stores/current")` is `#stores.current`.
    """
    return _MARK + table.strip("/").replace("/", ".")


def is_table(topic: str) -> bool:
    """Return whether a topic is that of a table.

    Example: it is True for `#stores.current`.
    """
    return topic.startswith(_MARK)


def made_by_tables(rows: pa.RecordBatch) -> pa.BooleanArray:
    """Return True at rows that a change of a table has made."""
    return pc.starts_with(rows.column("topic"), _MARK)


def reason_of(table: str) -> str:
    """Return the reason of an emission that a change of a table causes.

    Example: `reason_of("stores/current")` is `lookup:stores/current`.
    """
    return f"{REJOINED}:{table}"


def kind_of(reason: str) -> str:
    """Return a reason without the name of the table.

    Example: `lookup` for `lookup:stores/current`, and `changed` for `changed`.
    """
    return reason.partition(":")[0]
