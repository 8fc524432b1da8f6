"""What a damaged file of the lake is needed for: whoever finds it damaged only knows the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.errors import LakeDamaged
from tidegate.ledger import Stream


def batch_named(stream: Stream, seq: int) -> str:
    """A batch, as a reader of its own files: its steps, and who looks at its emissions or its quarantine."""
    return f"Batch {seq} of {stream}"


def state_named(stream: Stream, seq: int) -> str:
    """The state after a batch, which is in the files of many."""
    return f"The state after batch {seq} of {stream}"


@contextmanager
def needed_by(reader: str) -> Iterator[None]:
    """Let a LakeDamaged from inside say that `reader` needs the file; of several, the inmost."""
    try:
        yield
    except LakeDamaged as error:
        named = error.needed_by(reader)
        if named is error:
            raise
        raise named from error
