"""`quarantine`: bounds of a share and of a number."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.spec.files import GOOD, good
from tidegate.errors import PipelineInvalid
from tidegate.spec import parse_pipeline
from tidegate.spec.quarantine import QuarantineBound

LAST = "  on_failure: stop\n"


def test_a_pipeline_says_when_it_alerts_and_when_it_stops() -> None:
    rule = good(
        (LAST, f"{LAST}quarantine: {{alert: {{share: 0.5%, count: 10}}, stop: {{share: 100%}}}}\n")
    ).quarantine
    assert rule is not None
    assert rule.alert is not None
    assert (rule.alert.passed_by(11, 10_000), rule.alert.passed_by(10, 2_000)) == (True, False)
    assert rule.alert.passed_by(10, 1_999)
    assert rule.stop is not None
    assert not rule.stop.passed_by(5, 5)
    assert good().quarantine is None


@pytest.mark.parametrize(
    ("bound", "says"),
    [
        ("{share: 1}", "is not a share"),
        ("{share: 101%}", "is not a share"),
        ("{share: x%}", "is not a share"),
        ("{count: -1}", "count"),
        ("{}", "neither a share nor a number"),
    ],
)
def test_what_is_no_bound_is_refused(bound: str, says: str) -> None:
    with pytest.raises(PipelineInvalid, match=says):
        parse_pipeline(f"{GOOD}quarantine: {{stop: {bound}}}\n", "p.yaml")


@examples(100)
@given(
    st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 20), st.none() | st.integers(0, 100)
)
def test_a_bound_is_passed_by_what_is_more_than_either_of_both(
    quarantined: int, came_in: int, count: int | None, percent: int | None
) -> None:
    bound = QuarantineBound(count=count, share=None if percent is None else f"{percent}%")
    expected = (count is not None and quarantined > count) or (
        percent is not None and quarantined > Fraction(percent, 100) * came_in
    )
    assert bound.passed_by(quarantined, came_in) == expected
