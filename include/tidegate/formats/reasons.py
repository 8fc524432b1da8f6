"""The reasons why a record, or an emission, is in quarantine, and words with an explanation."""

from __future__ import annotations

from enum import Enum

from tidegate.kernel import unusable as core


class Explained(str, Enum):
    """An enum of words: each member is its text, and has an `explanation`.

    >>> class Light(Explained):
    ...     RED = "red", "Stop."
    >>> Light.RED == "red", Light.RED.explanation
    (True, 'Stop.')
    """

    explanation: str

    def __new__(cls, text: str, explanation: str) -> Explained:
        """Make a member that is its text."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.explanation = explanation
        return member

    def __str__(self) -> str:
        """Return the text, in every version of Python."""
        return str.__str__(self)


class Reason(Explained):
    """A reason with its explanation. If several apply, the first one in this list counts.

    Some have a detail after a colon: `malformed: Expected …`.
    """

    MALFORMED = "malformed", "The value does not match its format or columns; the detail follows the colon."
    UNKNOWN_SCHEMA = (
        "unknown_schema",
        "No version of the source's subjects in the registry has this id; the id follows the colon.",
    )
    MALFORMED_SOURCE_CHAIN = (
        "malformed_source_chain",
        "The header `tidegate-source` is not a list of positions.",
    )
    KEY_NOT_TEXT = "key_not_text", "The record's key is not UTF-8."
    MALFORMED_KEY = (
        "malformed_key",
        "The record's key does not match `key_format` or `key_columns`; the detail follows the colon.",
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
        "A part of the declared `sequence` is null, or the value is, so its place in the order is unknown.",
    )
    CONDITION_FAILED = core.CONDITION_FAILED, "A stage's `where` or `equal: sql` cannot be evaluated on it."
    RECORD_FAILED = core.RECORD_FAILED, "A stage cannot fold it into its state, or store the value."
    FUNCTION_FAILED = (
        core.FUNCTION_FAILED,
        "A stage's `python` function raised an error on it, or returned no boolean.",
    )
    EXPECTATION = (
        "expectation",
        "Not a record, but a value that breaks an expectation; the expectation follows the colon.",
    )
    TOO_LARGE = "too_large", "Not a record, but an emission that is larger than a Kafka sink accepts."
    REFUSED_TIMESTAMP = (
        "refused_timestamp",
        "Not a record, but an emission whose timestamp the output topic does not accept.",
    )
