"""Counts of what became of records, under the names of the metrics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping


class Counts(Counter[str]):
    """Metric -> number. `include` keeps the larger of metrics that end in `-max`, the smaller of those in
    `-min`.

    `used + quarantined + deduplicated + expired-window-record-drop` is the number of input records.
    """

    @property
    def accounted(self) -> int:
        """The number of records with a fate."""
        fates = ("used", "quarantined", "deduplicated", "expired-window-record-drop")
        return sum(self[name] for name in fates)

    def include(self, other: Mapping[str, int]) -> None:
        """Add the counts of another part of the same batch.

        Example: including `{"emitted": 1, "record-lateness-max": 5}` into `{"emitted": 2,
        "record-lateness-max": 3}` gives `{"emitted": 3, "record-lateness-max": 5}`.
        """
        for name, number in other.items():
            if name.endswith("-min"):
                self[name] = min(self.get(name, number), number)
            else:
                self[name] = max(self[name], number) if name.endswith("-max") else self[name] + number

    def to_json(self) -> str:
        """Return a JSON object with sorted names."""
        return json.dumps(self, sort_keys=True)


def outgoing(counts: Mapping[str, float]) -> int:
    """Return the number of a stage's emissions that its sinks get, without those that a sink would refuse.

    Example: 5 emissions, one of which is `emitted-too-large`, give 4.
    """
    refused = counts.get("emitted-too-large", 0) + counts.get("emitted-refused-timestamp", 0)
    return int(counts.get("emitted", 0) - refused)
