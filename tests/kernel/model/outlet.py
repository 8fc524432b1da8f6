"""How a value goes out, or does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.kernel.model.entry import Entry
from tests.kernel.model.grammar import Settings
from tests.kernel.model.records import Emission, Refused, Value, Window
from tests.kernel.model.values import fold


class Outlet:
    """The emissions so far, and the counts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.emissions: list[Emission] = []
        self.before: list[Value] = []
        """For each emission, what its entry had emitted last."""
        self.refused: list[Refused] = []
        self.counts: Counter[str] = Counter()

    def send(self, entry: Entry, reason: str, at: int) -> bool:
        """The entry's value, unless it is a null that nobody waits for, or `where` keeps it in."""
        value, timestamp = fold(self.settings, entry.folded), self.timestamp(entry)
        if self.settings.reduce == "collect":
            # Quote: an emission empties it; what was buffered is cleared as if it had gone out
            entry.folded = []
        deletions = self.settings.emit.get("deletions", "seen")
        if value is None and (deletions == "none" or (deletions == "seen" and entry.emitted is None)):
            # Quote: a null goes out only if the last thing emitted for the entry was a non-null value; with
            # `deletions: all` always, and with `none` never
            return False
        if value is not None and not self.passes(value, entry.window):
            # Quote: `where:` on a stage filters its emissions
            self.counts["filtered"] += 1
            return False
        if value is not None and not self.is_expected(value):
            # A value that breaks an expectation is no candidate, as one that `where` keeps in
            assert entry.taken
            self.refuse(Refused(entry.key, value, timestamp, entry.window, entry.taken[1]))
            return False
        self.emit(entry, value, timestamp, reason, at)
        return True

    def emit(self, entry: Entry, value: Any, timestamp: int, reason: str, at: int) -> None:
        self.emissions.append(Emission(entry.key, value, timestamp, entry.window, reason, at))
        self.before.append(entry.emitted)
        self.counts.update(["emitted", f"emitted.{reason}"])
        if self.settings.reduce != "collect":
            # Quote: what it sent are events, not a value to take back (nor one that the next could change)
            entry.emitted, entry.emitted_timestamp, entry.last_out = value, timestamp, at

    def passes(self, value: Mapping[str, Any], window: Window | None) -> bool:
        """Quote: SQL over the emitted columns, `window_start`, `window_end`"""
        if self.settings.where is None:
            return True
        start, end = window or (None, None)
        return self.settings.where({**value, "window_start": start, "window_end": end}) is True

    def is_expected(self, value: Mapping[str, Any]) -> bool:
        return self.settings.expected is None or self.settings.expected(value) is True

    def refuse(self, refused: Refused) -> None:
        self.refused.append(refused)
        self.counts["refused"] += 1

    def timestamp(self, entry: Entry) -> int:
        """Quote: the largest event timestamp folded into its value

        (A flush empties the content, so under `threshold` and for `collect` of the records since then.)
        For latest without window: the newest record's own.
        """
        if self.settings.reduce == "latest" and entry.window is None:
            return entry.folded[-1].timestamp
        return max(folded.timestamp for folded in entry.folded)
