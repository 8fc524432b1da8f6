"""What is wrong with a schema, or with what is wanted of it."""

from __future__ import annotations


class SchemaFault(Exception):
    """A text that is not a schema, or two that do not fit together: a half sentence that says why."""
