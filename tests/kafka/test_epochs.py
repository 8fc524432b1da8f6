"""Finding the leader epoch of a record by asking where epochs end, as Kafka's leaders answer that."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tidegate.kafka.topic_facts import EpochEnd, Partition, epochs_before

AT = ("t", 0)
NOT_KNOWN = EpochEnd(-1, -1)


class Leader:
    """A partition's leader. `begins` are the epochs of which it has records, and where each begins."""

    def __init__(self, begins: Mapping[int, int], end: int) -> None:
        self.begins, self.end, self.questions = dict(sorted(begins.items())), end, 0

    def ask(self, epochs: Mapping[Partition, int]) -> dict[Partition, EpochEnd]:
        self.questions += 1
        return {at: self._end_of(epoch) for at, epoch in epochs.items()}

    def _end_of(self, epoch: int) -> EpochEnd:
        """Return the end of an epoch as Kafka's LeaderEpochFileCache.endOffsetFor does."""
        if epoch < 0 or epoch > max(self.begins):
            return NOT_KNOWN
        if epoch == max(self.begins):
            return EpochEnd(epoch, self.end)
        end = next(begin for newer, begin in self.begins.items() if newer > epoch)
        return EpochEnd(max((older for older in self.begins if older <= epoch), default=epoch), end)

    def epoch_before(self, offset: int) -> int:
        starts = list(self.begins.values())
        return list(self.begins)[bisect_right(starts, offset - 1) - 1]


@st.composite
def leaders(draw: st.DrawFn) -> Leader:
    epochs = sorted(draw(st.sets(st.integers(0, 30), min_size=1, max_size=6)))
    lengths = draw(st.lists(st.integers(1, 5), min_size=len(epochs), max_size=len(epochs)))
    start = draw(st.integers(0, 5))
    begins, at = {}, start
    for epoch, length in zip(epochs, lengths, strict=True):
        begins[epoch], at = at, at + length
    return Leader(begins, at)


@given(leaders(), st.data())
def test_epoch_is_that_of_the_previous_record(leader: Leader, data: st.DataObject) -> None:
    start, newest = min(leader.begins.values()), max(leader.begins)
    offset = data.draw(st.integers(start + 1, leader.end))
    epoch = leader.epoch_before(offset)
    assert epochs_before(leader.ask, {AT: offset}, {AT: newest}) == {AT: epoch}
    assert leader.questions <= len([newer for newer in leader.begins if newer >= epoch])


def test_forgotten_epochs_are_unknown_and_not_asked_again() -> None:
    leader = Leader({900: 50}, 60)
    assert epochs_before(leader.ask, {AT: 40}, {AT: 900}) == {}
    assert leader.questions == 2
