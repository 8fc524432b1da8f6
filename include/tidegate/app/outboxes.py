"""Find the outboxes of committed batches, while they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tidegate.app.root import App
from tidegate.errors import EmissionsExpired
from tidegate.ledger import Stream
from tidegate.storage.manifest import DataFile, Manifest


@dataclass(frozen=True)
class StoredOutboxes:
    """The outboxes of a stream's committed batches. They exist until they expire (`outboxes: {keep: …}`)."""

    app: App
    stream: Stream

    @cached_property
    def expired(self) -> int:
        """The last batch whose outboxes have expired; 0 if none have."""
        return self.app.ledger.expired(self.stream, "outbox").seq

    def files(self, manifest: Manifest, stage: str) -> tuple[DataFile, ...]:
        """Return the files of a stage in a committed batch. Raises EmissionsExpired, LedgerUnavailable."""
        files = manifest.files_of("outbox", stage)
        # Without files, nothing can have expired: the ledger need not be asked.
        if files and manifest.seq <= self.expired:
            raise EmissionsExpired(
                f"The emissions of batch {manifest.seq} of {self.stream} are no longer kept",
                f"Those of batch {self.expired + 1} and later are. `outboxes: {{keep: …}}` in the pipeline "
                "file sets for how long.",
            )
        return files
