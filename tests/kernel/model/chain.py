"""Stages one after the other, as one process would run them: record by record, all timers after each.

Per partition, a later stage reads emissions in the order in which they happened,
and for the same instant in the order in which the earlier stage emitted them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.kernel.model.model import Model, Step
from tests.kernel.model.records import Batch, Emission, Partition, Record


class Serial(Model):
    """A stage over one partition. It emits in the order in which things happen to all keys."""

    def _handle(self, step: Step) -> None:
        if self.settings.on == "quiet":
            # a silence that has ended between two records of a key is one; timers of one instant go by key
            self._fire(lambda _: step.record.timestamp - 1)
        self._apply(step)
        self._fire(lambda _: step.now)
        if self.settings.bounded:
            before = len(self.emissions)
            self._keep_bound(step.record.home, step.now)
            # one record may evict values of several keys, all at one instant: these come key by key
            self.emissions[before:] = sorted(self.emissions[before:], key=lambda emission: emission.key)

    def _in_order(self, steps: list[Step]) -> list[Step]:
        return steps

    def apply_all(self, log: Iterable[Sequence[Record]]) -> list[Emission]:
        """Emissions of one batch without a clock, in the order in which the next stage reads them."""
        return self.apply_batch(log, None)

    def apply_batch(self, log: Iterable[Sequence[Record]], clock: int | None) -> list[Emission]:
        """Emissions in the order in which the next stage reads them: stably by instant, which never falls
        within a key. `log`: lists of records, each of what was exploded from one."""
        start = len(self.emissions)
        for group in log:
            self.apply(Batch(tuple(group)))
        if clock is not None:
            self.apply(Batch((), clock))
        emitted = self.emissions[start:]
        reached: dict[str, int] = {}
        instants = []
        for emission in emitted:
            reached[emission.key] = max(emission.at, reached.get(emission.key, emission.at))
            instants.append(reached[emission.key])
        return [emitted[number] for number in sorted(range(len(instants)), key=instants.__getitem__)]


def as_records(emissions: Sequence[Emission], home: Partition, key: str | None) -> list[Record]:
    """Emissions as what the next stage reads. With a column `key` they are regrouped, without deletions."""
    read = [emission for emission in emissions if key is None or emission.value is not None]
    return [
        Record(_key(emission, key), emission.value, *home, number, emission.timestamp)
        for number, emission in enumerate(read, start=1)
    ]


def _key(emission: Emission, key: str | None) -> str:
    value: Any = emission.value
    return emission.key if key is None else str(value[key])
