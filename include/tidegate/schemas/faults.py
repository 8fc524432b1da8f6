"""The error of this package."""

from __future__ import annotations


class SchemaFault(Exception):
    """A text is not a schema, a schema has no columns, or two schemas do not fit together.

    The message is a half sentence that says why ("the type `Stock` is not defined"); callers add to it which
    file, field or subject is concerned.
    """
