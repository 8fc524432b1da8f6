"""Compare the emissions of two jobs, entry by entry: an entry is a key, with its window if both jobs name it.

The emissions of an entry are aligned (`alignment`). Then each emission gets one class:

1. An aligned pair with the same value is `equal`, or `late` if the other job's is later than `within`.
2. An emission with the same value in another place of the order is `late`: one with the same timestamp (or
   source position) first, then one that the other job has later.
3. What one of the jobs had not read yet, or could not read any more, is not compared: see `Horizon`.
4. An aligned pair in the same place with other values is `different`. So are emissions between the same
   neighbours, in order, if both jobs have as many of them.
5. The rest is `missing` or `extra`. A missing emission that a later one of the entry replaces is
   `superseded`, if the other job may leave out intermediate results.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.kafka.topic_facts import Partition
from tidegate.kernel.strategy import Sameness
from tidegate.shadow.alignment import Aligner, Row
from tidegate.shadow.emission import DIFFERENCES, Entry, SentEmission, ShadowClass


@dataclass(frozen=True)
class Horizon:
    """The end of the records that both jobs have read.

    Args:
        reached: partition of the source -> the largest offset that the other job's records name; None: they
            name none, and timestamps count.
        ranges: partition of the source -> the offsets that tidegate read, the end excluded.
        first_ms: an emission with an earlier timestamp is from before what both have, epoch ms; None: both
            have all from the begin.
        other_ms: the largest timestamp of the other job; None: it sent nothing.
        own_ms: the largest timestamp of tidegate, if it stopped before the end of the source; None: it has
            read all records.
    """

    reached: Mapping[Partition, int] | None = None
    ranges: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    first_ms: int | None = None
    other_ms: int | None = None
    own_ms: int | None = None

    def class_of_own(self, emission: SentEmission) -> ShadowClass:
        """Return the class of an emission that only tidegate has."""
        if self.first_ms is not None and emission.timestamp < self.first_ms:
            return ShadowClass.BEFORE_START
        return ShadowClass.MISSING if self._other_was_there(emission) else ShadowClass.NOT_YET

    def _other_was_there(self, emission: SentEmission) -> bool:
        # At the end itself the other job may be in the middle of a record, or of an instant.
        if self.reached is not None and emission.source is not None:
            return emission.source[2] < self.reached.get(emission.source[:2], -1)
        return self.other_ms is not None and max(emission.at, emission.timestamp) < self.other_ms

    def class_of_other(self, emission: SentEmission) -> ShadowClass:
        """Return the class of an emission that only the other job has."""
        if self.reached is not None and emission.source is not None:
            start, end = self.ranges.get(emission.source[:2], (0, 0))
            if emission.source[2] >= end:
                return ShadowClass.NOT_YET
            return ShadowClass.BEFORE_START if emission.source[2] < start else ShadowClass.EXTRA
        if self.first_ms is not None and emission.timestamp < self.first_ms:
            return ShadowClass.BEFORE_START
        was_there = self.own_ms is None or emission.timestamp < self.own_ms
        return ShadowClass.EXTRA if was_there else ShadowClass.NOT_YET


@dataclass(frozen=True)
class Rules:
    """The rules by which two emissions are the same.

    Args:
        text: the compared columns of an emission: emissions with equal texts have the same value.
        same: compares two emissions; None: they are the same if their texts are.
        within_ms: a value that the other job has so much later is late; None: timestamps do not count.
        intermediate: whether the other job may leave out intermediate results.
    """

    text: Callable[[SentEmission], Hashable]
    same: Sameness | None = None
    within_ms: int | None = None
    intermediate: bool = False


@dataclass(frozen=True)
class ComparedEmission:
    """One emission of one job, or the pair of both."""

    verdict: ShadowClass
    ours: SentEmission | None
    theirs: SentEmission | None

    @property
    def emission(self) -> SentEmission:
        """Tidegate's emission, or else the other job's."""
        emission = self.ours or self.theirs
        assert emission is not None, "one of the two has it"
        return emission


@dataclass
class ComparedJobs:
    """The number of emissions of each class, and the first examples of those that differ.

    Args:
        most: the number of examples of each class.
    """

    most: int
    counts: Counter[ShadowClass] = field(default_factory=Counter)
    examples: dict[ShadowClass, list[ComparedEmission]] = field(default_factory=lambda: defaultdict(list))

    def add(self, compared: Iterable[ComparedEmission]) -> None:
        """Count emissions, and keep the first ones of each class but `equal` as examples."""
        for item in compared:
            self.counts[item.verdict] += 1
            examples = self.examples[item.verdict]
            if item.verdict != ShadowClass.EQUAL and len(examples) < self.most:
                examples.append(item)

    @property
    def differs(self) -> bool:
        """Whether an emission that can be compared is not equal."""
        return any(self.counts[verdict] for verdict in DIFFERENCES)


def compared_jobs(
    ours: Iterable[SentEmission], theirs: Iterable[SentEmission], rules: Rules, horizon: Horizon
) -> Iterator[ComparedEmission]:
    """Yield the class of each emission, entry by entry. Both lists have the emissions of an entry in order.

    Example: a list compared with itself yields `equal` for each of its emissions.
    """
    own, other = _by_entry(ours), _by_entry(theirs)
    for entry in dict.fromkeys([*own, *other]):
        yield from _Compared(own.get(entry, []), other.get(entry, []), rules, horizon).classes()


def _by_entry(emissions: Iterable[SentEmission]) -> dict[Entry, list[SentEmission]]:
    entries: dict[Entry, list[SentEmission]] = {}
    for emission in emissions:
        entries.setdefault(emission.entry, []).append(emission)
    return entries


class _Compared:
    """The emissions of one entry."""

    def __init__(
        self,
        ours: Sequence[SentEmission],
        theirs: Sequence[SentEmission],
        rules: Rules,
        horizon: Horizon,
    ) -> None:
        self._ours, self._theirs = ours, theirs
        self._rules, self._horizon = rules, horizon
        numbers: dict[Hashable, int] = {}
        both = [*ours, *theirs]
        self._values = [numbers.setdefault(rules.text(emission), len(numbers)) for emission in both]
        self._of_value = dict(zip(self._values, both, strict=True))
        self._sames: dict[tuple[int, int], bool] = {}

    def classes(self) -> Iterator[ComparedEmission]:
        """Yield each emission's class: pairs first, then what is left, in order."""
        aligner = Aligner(None if self._rules.same is None else self._same)
        own, other = self._rows()
        pairs = dict(aligner.pairs(own, other))
        late = self._out_of_order(pairs, own, other)
        late |= self._moved(pairs, late)
        for a, b in pairs.items():
            yield ComparedEmission(self._class_of_pair(a, b), self._ours[a], self._theirs[b])
        for a, b in late.items():
            yield ComparedEmission(ShadowClass.LATE, self._ours[a], self._theirs[b])
        yield from self._rest(pairs, late)

    def _left(self, *pairs: Mapping[int, int]) -> tuple[list[int], list[int]]:
        """Return the emissions of both jobs that are in no pair."""
        own = {*range(len(self._ours))}.difference(*pairs)
        other = {*range(len(self._theirs))}.difference(*(part.values() for part in pairs))
        return sorted(own), sorted(other)

    def _rows(self) -> tuple[Row, Row]:
        # A source position tells more than a timestamp, if all emissions have one.
        both = [*self._ours, *self._theirs]
        by_source = all(emission.source is not None for emission in both)
        numbers: dict[Hashable, int] = {}
        places = [
            numbers.setdefault(emission.source if by_source else emission.timestamp, len(numbers))
            for emission in both
        ]
        row = Row(np.array(self._values, np.int64), np.array(places, np.int64))
        return row.part(0, len(self._ours)), row.part(len(self._ours), len(both))

    def _same(self, ours: int, theirs: int) -> bool:
        """Return whether two numbers of values mean the same."""
        if ours == theirs:
            return True
        if (ours, theirs) not in self._sames:
            old, new = self._of_value[ours], self._of_value[theirs]
            is_same = False
            if self._rules.same is not None and old.value is not None and new.value is not None:
                is_same = self._rules.same(old.value, new.value, old.timestamp, new.timestamp)
            self._sames[ours, theirs] = is_same
        return self._sames[ours, theirs]

    def _are_same(self, a: int, b: int) -> bool:
        return self._same(self._values[a], self._values[len(self._ours) + b])

    def _class_of_pair(self, a: int, b: int) -> ShadowClass:
        if not self._are_same(a, b):
            return ShadowClass.DIFFERENT
        within = self._rules.within_ms
        is_late = within is not None and self._theirs[b].timestamp - self._ours[a].timestamp > within
        return ShadowClass.LATE if is_late else ShadowClass.EQUAL

    def _out_of_order(self, pairs: dict[int, int], own: Row, other: Row) -> dict[int, int]:
        """Return pairs of emissions with the same value and place that are not in the same order.

        An emission that is the same in both respects belongs to no other one: such pairs are dissolved.
        """
        partners = {b: a for a, b in pairs.items()}
        free: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        for b, thing in enumerate(zip(other.values.tolist(), other.places.tolist(), strict=True)):
            if b not in partners or own.places[partners[b]] != thing[1] or not self._are_same(partners[b], b):
                free[thing].append(b)
        late: dict[int, int] = {}
        for a in self._left(pairs)[0]:
            waiting = free.get((int(own.values[a]), int(own.places[a])))
            if waiting:
                late[a] = waiting.popleft()
                pairs.pop(partners.get(late[a], -1), None)
        return late

    def _moved(self, pairs: Mapping[int, int], late: Mapping[int, int]) -> dict[int, int]:
        """Return pairs of emissions with the same value, of which the other job's is not earlier."""
        left, right = self._left(pairs, late)
        waiting: dict[int, deque[int]] = defaultdict(deque)
        for b in right:
            waiting[self._values[len(self._ours) + b]].append(b)
        moved: dict[int, int] = {}
        for a in left:
            value = self._values[a]
            # Without tolerances the same values have the same number: no search is needed.
            numbers = (value,) if self._rules.same is None else (value, *waiting)
            match = next(
                (other for other in numbers if waiting.get(other) and self._same(value, other)), None
            )
            if match is not None and self._theirs[waiting[match][0]].timestamp >= self._ours[a].timestamp:
                moved[a] = waiting[match].popleft()
        return moved

    def _rest(self, pairs: Mapping[int, int], late: Mapping[int, int]) -> Iterator[ComparedEmission]:
        """Yield the classes of what is in no pair."""
        left, right = self._left(pairs, late)
        own = {a: self._horizon.class_of_own(self._ours[a]) for a in left}
        other = {b: self._horizon.class_of_other(self._theirs[b]) for b in right}
        replaced = self._replaced(sorted(pairs.items()), own, other)
        for a, b in replaced.items():
            yield ComparedEmission(ShadowClass.DIFFERENT, self._ours[a], self._theirs[b])
        last = max([*pairs, *late], default=-1)
        for a, verdict in own.items():
            if a not in replaced:
                superseded = self._rules.intermediate and a < last and verdict == ShadowClass.MISSING
                yield ComparedEmission(ShadowClass.SUPERSEDED if superseded else verdict, self._ours[a], None)
        for b in sorted(other.keys() - {*replaced.values()}):
            yield ComparedEmission(other[b], None, self._theirs[b])

    def _replaced(
        self,
        pairs: Sequence[tuple[int, int]],
        own: Mapping[int, ShadowClass],
        other: Mapping[int, ShadowClass],
    ) -> dict[int, int]:
        """Return the emissions between the same neighbours, if both jobs have as many of them."""
        gaps: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        ends_of_own, ends_of_other = zip(*pairs, strict=True) if pairs else ((), ())
        for a in own:
            if own[a] == ShadowClass.MISSING:
                gaps[bisect_left(ends_of_own, a)][0].append(a)
        for b in other:
            if other[b] == ShadowClass.EXTRA:
                gaps[bisect_left(ends_of_other, b)][1].append(b)
        return {
            a: b
            for left, right in gaps.values()
            if len(left) == len(right)
            for a, b in zip(left, right, strict=True)
        }
