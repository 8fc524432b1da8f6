"""Name in an error what a damaged file is needed for. The code that finds the damage only has the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.errors import LakeDamaged
from tidegate.ledger import Stream


def batch_named(stream: Stream, seq: int) -> str:
    """Return the name of a batch as the reader of its own files: of a step, or of a person who views its
    emissions.
    """
    return f"Batch {seq} of {stream}"


def state_named(stream: Stream, seq: int) -> str:
    """Return the name of the state after a batch as the reader of files, which belong to many batches."""
    return f"The state after batch {seq} of {stream}"


@contextmanager
def needed_by(reader: str) -> Iterator[None]:
    """Let a LakeDamaged from inside of the block say that `reader` needs the file.

    If blocks are nested, the innermost one is named. Raises LakeDamaged.

    Example:
        with needed_by(batch_named(stream, seq)):
            manifest = app.manifest(stream, reference)
    """
    try:
        yield
    except LakeDamaged as error:
        named = error.needed_by(reader)
        if named is error:
            raise
        raise named from error
