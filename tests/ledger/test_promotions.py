"""Which batches go out, by the promotions of their pipeline; and the ledger's tables for that."""

from __future__ import annotations

import pytest

from tidegate.ledger import Charge, Promotion


def charge(*rows: tuple[int, int, int] | tuple[int, int, int, bool]) -> Charge:
    """Return promotions of (generation, its first batch, the last batch of the previous generation, whether
    by net differences).
    """
    return Charge(
        tuple(
            Promotion("p", number, row[0], row[1], row[2], len(row) > 3, f"r{number}")
            for number, row in enumerate(rows, 1)
        )
    )


def spans(given: Charge) -> list[str]:
    return [f"{span.generation}: {span}" for span in given.spans()]


def test_without_promotions_every_generation_publishes() -> None:
    none = Charge()
    assert (none.generation, none.previous, list(none.spans())) == (None, None, [])
    assert none.goes_out(7, 1)
    assert not none.withholds(7)


def test_first_generation_publishes_from_its_first_batch() -> None:
    first = charge((1, 1, 0))
    assert (first.generation, first.previous, spans(first)) == (1, None, ["1: 1-"])
    assert first.goes_out(1, 1000)
    assert not first.goes_out(2, 1)
    assert (first.withholds(1), first.withholds(2), first.released(2)) == (False, True, 0)


def test_promotion_ends_the_earlier_generations_span() -> None:
    there_and_back = charge((1, 1, 0), (2, 1, 7), (1, 8, 3), (2, 4, 9))
    assert spans(there_and_back) == ["1: 1-7", "2: 1-3", "1: 8-9", "2: 4-"]
    assert (there_and_back.generation, there_and_back.previous) == (2, 1)
    out = [(1, 7), (1, 8), (1, 9), (2, 3), (2, 4), (2, 100)]
    assert all(there_and_back.goes_out(*batch) for batch in out)
    assert not there_and_back.goes_out(1, 10)
    assert there_and_back.released(1) == 9


def test_net_promotion_withholds_replaced_batches_for_ever() -> None:
    net = charge((1, 1, 0), (2, 6, 7, True), (1, 8, 8))
    assert spans(net) == ["1: 1-7", "2: 6-8", "1: 8-"]
    assert [net.goes_out(2, seq) for seq in (5, 6, 8, 9)] == [False, True, True, False]
    assert net.released(2) == 8


def test_repeated_rollback_goes_further_back() -> None:
    def after(*decided: tuple[int, bool]) -> int | None:
        return Charge(
            tuple(
                Promotion("p", number, generation, 1, 0, False, f"r{number}", is_rollback)
                for number, (generation, is_rollback) in enumerate(decided, 1)
            )
        ).previous

    forward = [(1, False), (2, False), (3, False)]
    assert after(*forward) == 2
    assert after(*forward, (2, True)) == 1
    assert after(*forward, (2, True), (1, True)) is None
    assert after(*forward, (2, True), (4, False)) == 2
    assert after((1, False), (2, False), (1, False)) == 2


def test_generation_can_have_nothing_to_publish() -> None:
    idle = charge((1, 1, 0), (2, 1, 7), (1, 8, 0))
    assert not idle.goes_out(2, 1)
    assert idle.released(2) == 0


@pytest.mark.parametrize("generation", [1, 2, 3])
def test_a_batch_is_in_one_span_at_most(generation: int) -> None:
    given = charge((1, 1, 0), (2, 1, 7), (3, 4, 2, True), (1, 8, 9), (3, 10, 9))
    for seq in range(1, 15):
        assert sum(span.generation == generation and seq in span.seqs for span in given.spans()) <= 1
