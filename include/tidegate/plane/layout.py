"""Where a stream's files are, and what they are called.

    <pipeline>/g<generation>/attempts/<attempt>/<kind>-<stage>-<slot>-<try>.parquet
    <pipeline>/g<generation>/attempts/<attempt>/manifest.json

below the lake's root; `kind` is state, outbox or quarantine. Files of an attempt count when its manifest
names them, and that when the ledger has its digest and says that the attempt is committed. A snapshot of
the state has a folder and a manifest like an attempt, and counts when the ledger knows its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tidegate.lake.store import Store


@dataclass(frozen=True)
class Lake:
    """The files of one stream below the folder or URI `root`. Paths are relative to it."""

    root: str
    pipeline: str
    generation: int

    @cached_property
    def store(self) -> Store:
        """The store of the whole lake."""
        return Store(self.root)

    @property
    def base(self) -> str:
        """The stream's own folder."""
        return f"{self.pipeline}/g{self.generation}"

    def attempt_folder(self, name: str) -> str:
        """The folder of an attempt or a snapshot."""
        return f"{self.base}/attempts/{name}"

    def manifest(self, name: str) -> str:
        """The manifest of an attempt or a snapshot."""
        return f"{self.attempt_folder(name)}/manifest.json"

    def table_sink(self, path: str | None) -> str:
        """Where a `table` sink goes: an absolute path or URI, a name under the lake, or our own folder."""
        if path is None:
            path = f"{self.base}/published"
        return path if path.startswith("/") or "://" in path else f"{self.root.rstrip('/')}/{path}"
