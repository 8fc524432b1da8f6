"""Whether a store can refuse to write a file that is there. Tables for others need that of it."""

from __future__ import annotations

from uuid import uuid4

from tidegate.lake.store import Store


def puts_if_absent(store: Store) -> bool:
    """Put a small file twice, both times only if it is absent; it is removed again.

    On a disk that always works. Raises LakeUnavailable.
    """
    if not store.is_remote:
        return True
    name = f".tidegate-probe-{uuid4().hex}"
    try:
        return store.put_if_absent(name, b"") and not store.put_if_absent(name, b"")
    finally:
        store.delete(name)
