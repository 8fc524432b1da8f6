"""Align two lists of emissions of one key: which emission of the one job is which of the other.

The alignment keeps the order of both lists and has the largest score: a pair with the same value and the same
place (its source position, or its timestamp) counts 5, with the same value only or the same place only 2, and
other pairs are not made. So an emission that only one job has moves no other one, a value that both have at
other times is found, and a wrong value stays in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Pair = tuple[int, int]
SAME, PARTLY = 5, 2
"""An emission that is the same in both respects outweighs two that are the same in one."""
MOST_CELLS = 1_000_000
"""The largest table that is computed, of lists of 1,000 emissions: longer ones are cut."""
MOST_CALLS = 250_000
"""The same, if each comparison of two values calls a function."""


@dataclass(frozen=True)
class Row:
    """One list: a number of each emission's value, and one of its place.

    The same numbers mean the same places. Numbers of values are those that `same` compares.
    """

    values: Numbers
    places: Numbers

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, end: int) -> Row:
        """Return some of the emissions.

        Args:
            start: The number of the first one.
            end: The number after that of the last one.
        """
        return Row(self.values[start:end], self.places[start:end])


@dataclass(frozen=True)
class Aligner:
    """Aligns lists.

    Args:
        same: whether two numbers of values mean the same value; None: if they are the same number.
    """

    same: Callable[[int, int], bool] | None = None

    def pairs(self, ours: Row, theirs: Row) -> list[Pair]:
        """Return the pairs (number in `ours`, number in `theirs`), in order."""
        return list(self._aligned(ours, theirs, 0, 0))

    def _aligned(self, ours: Row, theirs: Row, left: int, right: int) -> Iterator[Pair]:
        """Yield pairs, `left` and `right` added to their numbers."""
        # Most lists are the same, or differ in few places: no table is needed for a common begin and end.
        begin = self._common(ours, theirs, 1)
        yield from ((left + number, right + number) for number in range(begin))
        ours, theirs = ours.part(begin, len(ours)), theirs.part(begin, len(theirs))
        end = self._common(ours, theirs, -1)
        ends = len(ours) - end, len(theirs) - end
        left, right = left + begin, right + begin
        yield from self._inner(ours.part(0, ends[0]), theirs.part(0, ends[1]), left, right)
        yield from ((left + ends[0] + number, right + ends[1] + number) for number in range(end))

    def _common(self, ours: Row, theirs: Row, step: int) -> int:
        """Return how many emissions at the begin (step 1) or the end (-1) are the same in both respects."""
        length = min(len(ours), len(theirs))
        order = slice(None, length) if step > 0 else slice(None, -length - 1, -1)
        same = ours.places[order] == theirs.places[order]
        if self.same is None:
            same &= ours.values[order] == theirs.values[order]
            return int(same.argmin()) if not same.all() else length
        values = zip(same.tolist(), ours.values[order].tolist(), theirs.values[order].tolist(), strict=True)
        return next((n for n, (place, a, b) in enumerate(values) if not (place and self.same(a, b))), length)

    def _inner(self, ours: Row, theirs: Row, left: int, right: int) -> Iterator[Pair]:
        if not len(ours) or not len(theirs):
            return
        most = MOST_CELLS if self.same is None else MOST_CALLS
        if len(ours) * len(theirs) <= most:
            yield from ((left + a, right + b) for a, b in self._best(ours, theirs))
            return
        # A table of long lists would not fit: each part is aligned by itself.
        cut = _cut(ours, theirs)
        yield from self._aligned(ours.part(0, cut[0]), theirs.part(0, cut[1]), left, right)
        rest = ours.part(cut[0], len(ours)), theirs.part(cut[1], len(theirs))
        yield from self._aligned(*rest, left + cut[0], right + cut[1])

    def _best(self, ours: Row, theirs: Row) -> list[Pair]:
        """Return the pairs of the alignment with the largest score."""
        scores = [self._scores(ours, theirs, number) for number in range(len(ours))]
        best = np.zeros((len(ours) + 1, len(theirs) + 1), np.int32)
        for number, score in enumerate(scores):
            paired = best[number].copy()
            np.maximum(paired[1:], best[number][:-1] + score, out=paired[1:])
            # Leaving out an emission costs nothing, so each cell is at least the one before it.
            np.maximum.accumulate(paired, out=best[number + 1])
        return _traced(best, scores)

    def _scores(self, ours: Row, theirs: Row, number: int) -> npt.NDArray[np.int8]:
        """Return the score of one of our emissions with each of theirs."""
        place = theirs.places == ours.places[number]
        if self.same is None:
            value = theirs.values == ours.values[number]
        else:
            own = int(ours.values[number])
            value = np.array([self.same(own, other) for other in theirs.values.tolist()], np.bool_)
        return np.where(value & place, SAME, np.where(value | place, PARTLY, 0)).astype(np.int8)


def _traced(best: npt.NDArray[np.int32], scores: Sequence[npt.NDArray[np.int8]]) -> list[Pair]:
    """Return the pairs along the way from the end of the table to its begin."""
    pairs: list[Pair] = []
    a, b = best.shape[0] - 1, best.shape[1] - 1
    while a and b:
        score = scores[a - 1][b - 1]
        if score and best[a, b] == best[a - 1, b - 1] + score:
            a, b = a - 1, b - 1
            pairs.append((a, b))
        elif best[a, b] == best[a - 1, b]:
            a -= 1
        else:
            b -= 1
    return pairs[::-1]


def _cut(ours: Row, theirs: Row) -> Pair:
    """Return where long lists are cut: before the place nearest to the middle that occurs once in both, or in
    the middle of both.
    """
    middle = len(ours) // 2
    once, counts = np.unique(theirs.places, return_counts=True)
    shared = np.isin(ours.places, once[counts == 1])
    _, first, counts = np.unique(ours.places, return_index=True, return_counts=True)
    candidates = first[(counts == 1) & shared[first]]
    candidates = candidates[candidates > 0]
    if len(candidates):
        a = int(candidates[np.abs(candidates - middle).argmin()])
        b = int(np.flatnonzero(theirs.places == ours.places[a])[0])
        if b > 0:
            return a, b
    # Lists of one emission end the recursion: one of the two halves is empty then.
    return middle, len(theirs) // 2
