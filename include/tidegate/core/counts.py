"""What became of the records, under the names of the metrics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping


class Counts(Counter[str]):
    """Metric -> number. Adding up keeps the larger of what ends on `-max`, and the smaller of `-min`.

    `used + quarantined + deduplicated + expired-window-record-drop` is the number of records that came in.
    """

    @property
    def accounted(self) -> int:
        """Records whose fate is known."""
        fates = ("used", "quarantined", "deduplicated", "expired-window-record-drop")
        return sum(self[name] for name in fates)

    def include(self, other: Mapping[str, int]) -> None:
        """Add up with the counts of another part of the same batch."""
        for name, number in other.items():
            if name.endswith("-min"):
                self[name] = min(self.get(name, number), number)
            else:
                self[name] = max(self[name], number) if name.endswith("-max") else self[name] + number

    def to_json(self) -> str:
        """A JSON object with sorted names."""
        return json.dumps(self, sort_keys=True)


def outgoing(counts: Mapping[str, float]) -> int:
    """How many emissions of a stage its sinks get: all but those that a sink would refuse, in quarantine."""
    refused = counts.get("emitted-too-large", 0) + counts.get("emitted-refused-timestamp", 0)
    return int(counts.get("emitted", 0) - refused)
