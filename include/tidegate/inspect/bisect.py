"""The first batch of which something is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Fails = Callable[[int], bool]


@dataclass(frozen=True)
class Bisection:
    """`first`: the batch that was looked for; None: none is broken. `looked_at`: how many were evaluated."""

    first: int | None
    looked_at: int


def first_failing(seqs: Sequence[int], fails: Fails) -> Bisection:
    """The first of `seqs` that fails, each looked at by itself, until one does: a batch that fails says
    nothing of the next one.
    """
    for number, seq in enumerate(seqs, start=1):
        if fails(seq):
            return Bisection(seq, number)
    return Bisection(None, len(seqs))


def first_broken(seqs: Sequence[int], fails: Fails) -> Bisection:
    """The first of `seqs`, which rise, that fails, if all after it do, too; by halving, from both ends.

    None where the last one does not fail. Where what was broken was mended in between and broken again, it is
    the first of one of these times: the one before it does not fail, unless it is the first of all.
    """
    if not seqs or not fails(seqs[-1]):
        return Bisection(None, min(len(seqs), 1))
    # before `low` all is well, as far as is known; `high` fails
    low, high, looked_at = 0, len(seqs) - 1, 1
    while low < high:
        middle = (low + high) // 2
        looked_at += 1
        if fails(seqs[middle]):
            high = middle
        else:
            low = middle + 1
    return Bisection(seqs[high], looked_at)
