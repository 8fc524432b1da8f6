"""Which batch is the first that is broken: against plain loops."""

from __future__ import annotations

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from tidegate.inspect import Bisection, first_broken, first_failing

seqs = st.integers(1, 100).flatmap(
    lambda first: st.integers(0, 200).map(lambda n: list(range(first, first + n)))
)


@given(seqs, st.sets(st.integers(1, 300)))
def test_bisect_stops_at_the_first_failing_batch(batches: list[int], failing: set[int]) -> None:
    looked_at: list[int] = []

    def fails(seq: int) -> bool:
        looked_at.append(seq)
        return seq in failing

    bisection = first_failing(batches, fails)
    assert bisection.first == next((seq for seq in batches if seq in failing), None)
    assert looked_at == [seq for seq in batches if bisection.first is None or seq <= bisection.first]
    assert bisection.looked_at == len(looked_at)


@given(seqs, st.integers(1, 320))
def test_bisect_reads_few_states(batches: list[int], broken: int) -> None:
    looked_at: list[int] = []

    def fails(seq: int) -> bool:
        looked_at.append(seq)
        return seq >= broken

    bisection = first_broken(batches, fails)
    assert bisection.first == next((seq for seq in batches if seq >= broken), None)
    assert bisection.looked_at == len(looked_at) == len(set(looked_at))
    assert bisection.looked_at <= (1 + ceil(log2(len(batches))) if batches else 0)


@given(st.lists(st.booleans(), min_size=1, max_size=50))
def test_bisect_over_repaired_states_finds_one_break(
    broken: list[bool],
) -> None:
    bisection = first_broken(range(1, len(broken) + 1), lambda seq: broken[seq - 1])
    if not broken[-1]:
        assert bisection == Bisection(None, 1)
        return
    assert bisection.first is not None
    assert broken[bisection.first - 1]
    assert bisection.first == 1 or not broken[bisection.first - 2]
