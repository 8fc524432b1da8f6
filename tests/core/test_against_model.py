"""The kernel against the naive model, on random histories, cut in random places."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.naive import Model, Record, same
from tests.core.rows_for_tests import Kernel
from tidegate import core

BOTH = ("a", "b")
values = st.none() | st.fixed_dictionaries(
    {"a": st.sampled_from([None, 0.0, 1.0, math.nan]), "b": st.sampled_from([None, "x", "y"])}
)
keys = st.sampled_from(["hot", "hot", "hot", "k1", "k2", "k3"])


@st.composite
def histories(draw: Any, partitions: int) -> list[list[Record]]:
    """Batches of records; offsets count up per partition, timestamps are in any order."""
    drawn = draw(
        st.lists(
            st.tuples(keys, values, st.integers(0, partitions - 1), st.integers(0, 20), st.booleans()),
            max_size=40,
        )
    )
    offsets = [0] * partitions
    records = []
    for key, value, partition, timestamp, passes in drawn:
        records.append(Record(key, value, partition, offsets[partition], timestamp, passes))
        offsets[partition] += 1
    cuts = sorted(draw(st.lists(st.integers(0, len(records)), max_size=5)))
    return [records[a:b] for a, b in zip([0, *cuts], [*cuts, len(records)], strict=True)]


def run(emit: core.Emit, batches: list[list[Record]], arrow_rows: int = 3) -> Kernel:
    kernel = Kernel(emit, arrow_rows)
    for batch in batches:
        kernel.apply(batch)
    return kernel


def agrees(kernel: Kernel, model: Model) -> bool:
    if kernel.emissions.keys() != model.emissions.keys():
        return False
    return all(
        len(kernel.emissions[key]) == len(out)
        and all(map(lambda left, right: same(left, right, BOTH), kernel.emissions[key], out))
        for key, out in model.emissions.items()
    )


@settings(max_examples=300, deadline=None)
@given(histories(partitions=2), st.sampled_from(["change", "update"]), st.integers(1, 7))
def test_the_kernel_emits_what_the_model_emits(batches: list[list[Record]], on: str, arrow_rows: int) -> None:
    model = Model(on)
    for batch in batches:
        model.apply(batch)
    kernel = run(core.Change(BOTH) if on == "change" else core.Update(), batches, arrow_rows)
    assert agrees(kernel, model)
    assert kernel.counts["idempotent-update-skip"] == model.suppressed
    assert kernel.counts["deduplicated"] == model.deduplicated
    assert kernel.counts.accounted == sum(map(len, batches))


@settings(max_examples=150, deadline=None)
@given(histories(partitions=1), st.sampled_from([core.Change(("a",)), core.Change(BOTH), core.Update()]))
def test_emissions_do_not_depend_on_where_the_log_was_cut(
    batches: list[list[Record]], emit: core.Emit
) -> None:
    whole = [[record for batch in batches for record in batch]]
    after_each = [[record] for record in whole[0]]
    emissions = [repr(sorted(run(emit, cut).emissions.items())) for cut in (whole, batches, after_each)]
    assert emissions[0] == emissions[1] == emissions[2]


@settings(max_examples=150, deadline=None)
@given(histories(partitions=2))
def test_change_never_emits_two_equal_values_in_a_row(batches: list[list[Record]]) -> None:
    for out in run(core.Change(BOTH), batches).emissions.values():
        assert not any(same(left, right, BOTH) for left, right in pairwise(out))


@settings(max_examples=150, deadline=None)
@given(histories(partitions=1))
def test_the_last_emission_of_change_is_the_last_value_that_passed(batches: list[list[Record]]) -> None:
    emissions = run(core.Change(BOTH), batches).emissions
    last: dict[str, Any] = {}
    for record in (record for batch in batches for record in batch):
        if record.passes or record.value is None:
            last[record.key] = record.value
    for key, final in last.items():
        out = emissions.get(key, [None])
        assert same(out[-1], final, BOTH)
