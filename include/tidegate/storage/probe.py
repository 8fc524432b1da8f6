"""Whether a store can refuse to overwrite a file. Tables for other engines need that of a store."""

from __future__ import annotations

from uuid import uuid4

from tidegate.storage.store import Store


def puts_if_absent(store: Store) -> bool:
    """Put a small file twice, both times only if it is absent, and remove it again.

    Returns whether the store wrote the first one and refused the second. A disk always does. Raises
    LakeUnavailable.
    """
    if not store.is_remote:
        return True
    name = f".tidegate-probe-{uuid4().hex}"
    try:
        return store.put_if_absent(name, b"") and not store.put_if_absent(name, b"")
    finally:
        store.delete(name)
