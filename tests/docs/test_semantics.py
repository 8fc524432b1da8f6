"""docs/semantics.md says of each combination what the grammar says, and what really covers it."""

from __future__ import annotations

import pytest

from tests.docs.coverage import EMITS, PAGE, REDUCES, WINDOWS, Combination, refusal, with_table
from tidegate.kernel import STRATEGIES


def test_the_table_is_what_the_grammar_gives() -> None:
    page = PAGE.read_text()
    assert page == with_table(page), "run `python -m tests.docs.coverage`"


@pytest.mark.parametrize("clock", ["stream", "run"])
@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("on", EMITS)
def test_only_four_kinds_of_combination_are_refused(on: str, window: str, reduce: str, clock: str) -> None:
    without_end = on == "window_close" and window == "none"
    never_the_same = on == "change" and (reduce == "collect" or window == "session")
    of_a_window = on == "quiet" and window != "none"
    refused = refusal(Combination(on, window, reduce, clock)) is not None
    assert refused == (without_end or never_the_same or of_a_window)


def test_every_way_to_emit_is_in_the_table() -> None:
    assert set(STRATEGIES) == set(EMITS)
