"""Why a record, or an emission, is in quarantine: what stands there beside it."""

from __future__ import annotations

from tidegate.core import quarantine as core
from tidegate.formats.explained import Explained


class Reason(Explained):
    """A reason, as it is written, with what it means. Of several, the first one in this list counts.

    In quarantine some have a detail behind a colon: `malformed: Expected …`.
    """

    MALFORMED = "malformed", "The value is not what its format and columns say; behind a colon stands why."
    UNKNOWN_SCHEMA = (
        "unknown_schema",
        "No version of the source's subjects in the registry has this id, which stands behind a colon.",
    )
    MALFORMED_SOURCE_CHAIN = (
        "malformed_source_chain",
        "The header `tidegate-source` is not a list of positions.",
    )
    KEY_NOT_TEXT = "key_not_text", "The record's key is not UTF-8."
    MALFORMED_KEY = (
        "malformed_key",
        "The record's key is not what `key_format` and `key_columns` say; behind a colon stands why.",
    )
    TOMBSTONE_WITHOUT_KEY = (
        "tombstone_without_key",
        "The key of a null value, or the `before` of Debezium's deletion, does not have the key's columns.",
    )
    NULL_KEY_COLUMN = "null_key_column", "One of the key's columns is null."
    NULL_KEY = "null_key", "The record has no key."
    NO_TIMESTAMP = "no_timestamp", "The column that is declared as the timestamp is null."
    NEGATIVE_TIMESTAMP = "negative_timestamp", "The timestamp is before 1970."
    FUTURE_TIMESTAMP = "future_timestamp", "The timestamp is more than a day past the batch's clock."
    NO_SEQUENCE = (
        "no_sequence",
        "A part of the declared `sequence` is null, or the value is, so that its place is not known.",
    )
    CONDITION_FAILED = core.CONDITION_FAILED, "A stage's `where` or `equal: sql` has no answer for it."
    RECORD_FAILED = core.RECORD_FAILED, "A stage cannot fold it in, or keep its value."
    FUNCTION_FAILED = core.FUNCTION_FAILED, "A stage's `python` function raised on it, or gave no answer."
    EXPECTATION = (
        "expectation",
        "Not a record but a value that breaks an expectation; behind a colon stands which.",
    )
    TOO_LARGE = "too_large", "Not a record but an emission, larger than a Kafka sink takes."
    REFUSED_TIMESTAMP = (
        "refused_timestamp",
        "Not a record but an emission, whose timestamp the output topic does not take.",
    )
