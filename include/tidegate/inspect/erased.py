"""Report erasures to whoever asks for something from before one."""

from __future__ import annotations

from tidegate.app.root import App
from tidegate.errors import KeyErased
from tidegate.ledger import Erasure, Stream


def erasures_since(app: App, stream: Stream, seq: int) -> list[Erasure]:
    """Return the erasures after batch `seq`: state and emissions up to this batch lack their keys."""
    return [erasure for erasure in app.ledger.erasures(stream) if erasure.seq > seq]


def require_not_erased(app: App, stream: Stream, seq: int, key: str) -> None:
    """Raise KeyErased if a key was erased after batch `seq`: what the batch had of it cannot be told."""
    for erasure in erasures_since(app, stream, seq):
        if erasure.covers(key):
            raise KeyErased(
                f"The key {key} of {stream} was erased in batch {erasure.seq}, so nothing is left of what "
                f"batch {seq} had of it",
                f"See certificate {erasure.number}: tidegate erase {stream.pipeline} --certificates.",
            )


def erasure_notes(app: App, stream: Stream, seq: int) -> list[str]:
    """Return a sentence for each erasure since batch `seq`, for those who list all keys."""
    return [
        f"{len(erasure.keys)} keys were erased in batch {erasure.seq} (certificate {erasure.number}): they "
        f"are missing here, whatever batch {seq} had of them."
        for erasure in erasures_since(app, stream, seq)
    ]
