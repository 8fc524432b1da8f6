"""Find the first batch in which something is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Fails = Callable[[int], bool]


@dataclass(frozen=True)
class Bisection:
    """The result of a search.

    Args:
        first: The first batch that fails; None if none does.
        looked_at: The number of batches that were evaluated.
    """

    first: int | None
    looked_at: int


def first_failing(seqs: Sequence[int], fails: Fails) -> Bisection:
    """Return the first of `seqs` that fails, evaluating one after the other.

    Use it if a batch that fails says nothing about the next one.

    Args:
        seqs: The batches to evaluate, in the order in which they are evaluated.
        fails: Evaluates one batch, which can take long.
    """
    for number, seq in enumerate(seqs, start=1):
        if fails(seq):
            return Bisection(seq, number)
    return Bisection(None, len(seqs))


def first_broken(seqs: Sequence[int], fails: Fails) -> Bisection:
    """Return the first of `seqs` that fails by bisection, if all batches after it fail, too.

    The result has no batch if the last one does not fail. If the defect was repaired in between and came
    back, the result is the first batch of one of these times: the batch before it does not fail, unless it is
    the first of all.

    Args:
        seqs: In rising order.

    Example::

        first_broken(range(1, 100), lambda seq: seq >= 42).first  # 42
    """
    # One evaluation of the last batch saves the search if nothing is broken.
    if not seqs or not fails(seqs[-1]):
        return Bisection(None, min(len(seqs), 1))
    # invariant: `high` fails, and no batch before `low` is known to fail
    low, high, looked_at = 0, len(seqs) - 1, 1
    while low < high:
        middle = (low + high) // 2
        looked_at += 1
        if fails(seqs[middle]):
            high = middle
        else:
            low = middle + 1
    return Bisection(seqs[high], looked_at)
