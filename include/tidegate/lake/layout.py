"""Where a stream's tables are, and what they are called.

    <lake>/<pipeline>/g<generation>/<stage>/state       one row per key and batch that changed it
    <lake>/<pipeline>/g<generation>/<stage>/outbox      what the batch sends out
    <lake>/<pipeline>/g<generation>/quarantine          input that could not be used, whole

Each is a Delta table partitioned by `attempt`. Rows of an attempt count only when the ledger says that
the attempt is committed; readers never see the others. A snapshot of the state is one more attempt in the
state's tables, which counts when the ledger knows its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import uuid4

_NAME = re.compile(r"(?P<snapshot>snapshot-)?(?P<seq>\d{10,})(-(?P<epoch>\d{6,}))?-[0-9a-f]{8}")


def attempt_name(seq: int, epoch: int) -> str:
    """A name that no other computation of any batch has: sorts by batch, then by epoch."""
    return f"{seq:010d}-{epoch:06d}-{uuid4().hex[:8]}"


def snapshot_name(seq: int) -> str:
    """A name that no other snapshot has, and no attempt."""
    return f"snapshot-{seq:010d}-{uuid4().hex[:8]}"


@dataclass(frozen=True)
class Name:
    """What a name of files tells: the batch, and the epoch of an attempt; None: it is a snapshot's."""

    seq: int
    epoch: int | None

    @classmethod
    def parse(cls, text: str) -> Name | None:
        """The inverse of `attempt_name` and `snapshot_name`; None for what is neither."""
        found = _NAME.fullmatch(text)
        if found is None or bool(found["snapshot"]) == bool(found["epoch"]):
            return None
        return cls(int(found["seq"]), int(found["epoch"]) if found["epoch"] else None)


@dataclass(frozen=True)
class Lake:
    """The tables of one stream below the folder or URI `root`."""

    root: str
    pipeline: str
    generation: int

    @property
    def base(self) -> str:
        """The stream's own folder."""
        return f"{self.root.rstrip('/')}/{self.pipeline}/g{self.generation}"

    def state(self, stage: str) -> str:
        """The table of a stage's changelogs."""
        return f"{self.base}/{stage}/state"

    def outbox(self, stage: str) -> str:
        """The table of a stage's emissions."""
        return f"{self.base}/{stage}/outbox"

    def table_sink(self, path: str | None) -> str:
        """Where a `table` sink goes: an absolute path or URI, a name under the lake, or our own folder."""
        if path is None:
            return f"{self.base}/published"
        return path if path.startswith("/") or "://" in path else f"{self.root.rstrip('/')}/{path}"

    @property
    def quarantine(self) -> str:
        """The table of unusable input."""
        return f"{self.base}/quarantine"
