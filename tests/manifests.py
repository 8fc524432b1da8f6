"""Manifests of files that no test looks at."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.ledger import ManifestRef


def manifest_ref(name: str) -> ManifestRef:
    """A manifest of that name, of nothing that is there."""
    return ManifestRef(name, 200, "0f" * 32, 12, 3_000_000_000)


def names(manifests: Iterable[ManifestRef]) -> list[str]:
    """Return the names of manifests."""
    return [manifest.name for manifest in manifests]
