"""Whoever is promoted, and whatever happens meanwhile: consumers get one generation after the other, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from tests.sampling import sampled
from tests.simulator.app import here
from tests.simulator.generations import simulate
from tests.simulator.ledger import Checks
from tests.simulator.seeds import assert_bug_is_caught, assert_few_seeds_hold, assert_seeds_hold
from tidegate.generations import net, promotion
from tidegate.ledger import Charge

FEW_SEEDS, MANY_SEEDS, SEEDS_TO_CATCH_A_BUG = range(15), range(15, 115), range(3000)
PER_THOUSAND = {
    "deleted by net differences": 30,
    "net promotions": 100,
    "promotion: Crashed": 30,
    "promotion: Fenced": 5,
    "publication fenced": 10,
    "spans: 3": 50,
    "trees of stages over two sources": 100,
    "tried again beside a zombie": 100,
    "went back": 100,
}
"""How many seeds of a thousand must have had it."""
_publish_decided, _consumed_feeds = promotion.publish_decided, net.consumed_feeds


def _only_after_the_switch(app: Any, lease: Any) -> None:
    """Leave unpublished what the previous generation has decided."""
    calls = here().__dict__.setdefault("calls", Counter())
    name = here().world.current.name  # type: ignore[union-attr]
    calls[name] += 1
    if calls[name] > 1 or not name.startswith("promote"):
        _publish_decided(app, lease)


def _of_the_last_span(app: Any, charge: Charge, pipeline: str, sink: str) -> Any:
    """Return the feeds of the last span only, as if consumers had nothing of earlier generations."""
    return _consumed_feeds(app, charge, pipeline, sink)[-1:]


BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "two_promotions_may_have_one_number": partial(patch.object, Checks, "number_at_promotion", False),
    "the_old_one_is_not_finished_first": partial(
        patch.object, promotion, "publish_decided", _only_after_the_switch
    ),
    "nothing_is_withheld": partial(
        patch.multiple, Charge, goes_out=lambda *_: True, withholds=lambda *_: False
    ),
    "a_generation_begins_anew_each_time": partial(patch.object, Charge, "released", lambda *_: 0),
    "what_was_sent_before_is_no_difference": partial(patch.object, net, "consumed_feeds", _of_the_last_span),
}


@pytest.mark.heavy
def test_fifteen_generation_seeds_hold() -> None:
    assert_few_seeds_hold(simulate, FEW_SEEDS, "net promotions", more_than=1)


@pytest.mark.long
def test_many_seeds_hold_and_had_it_all() -> None:
    assert_seeds_hold(simulate, MANY_SEEDS, PER_THOUSAND)


SELDOM_SEEN = "two_promotions_may_have_one_number"
"""The planted bug that takes minutes to be caught."""


@pytest.mark.sample(6, of="bugs in simulated worlds")
@pytest.mark.heavy
@pytest.mark.parametrize("bug", sampled(BUGS, {*BUGS} - {SELDOM_SEEN}))
def test_a_planted_bug_is_caught(bug: str) -> None:
    assert_bug_is_caught(simulate, SEEDS_TO_CATCH_A_BUG, bug, BUGS[bug])
