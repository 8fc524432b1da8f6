"""`deduplicate: {columns, keep}` once more. It remembers every value for ever: none is forgotten too soon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.kernel.model.records import Partition, Record


@dataclass
class Once:
    """The key of a record is the value of the columns. `out`: the records that were let through."""

    keep_ms: int
    out: list[Record] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    stream_times: dict[Partition, int] = field(default_factory=dict)

    def apply(self, records: Iterable[Record]) -> None:
        """Apply records in the order of their positions."""
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        now = max(record.timestamp, self.stream_times.get(record.home, -1))
        self.stream_times[record.home] = now
        if now - record.timestamp >= self.keep_ms:
            # Quote: a record that is `keep` or more behind its partition's stream time is late and dropped
            self.counts["expired-window-record-drop"] += 1
        elif any(
            # Quote: at most once per value of those columns within `keep` of the first one's timestamp
            first.key == record.key and record.timestamp < first.timestamp + self.keep_ms
            for first in self.out
        ):
            self.counts["deduplicated"] += 1
        else:
            self.counts["used"] += 1
            self.out.append(record)
