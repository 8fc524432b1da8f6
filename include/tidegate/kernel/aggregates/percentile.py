"""`percentile(x, 0.95)`: the value below which a part of the arguments lies, a double.

Up to `EXACT` arguments, state has all of them, and the result is Spark's: between two arguments it lies in
proportion. More go into a t-digest, which is deterministic, as no other sketch of quantiles is (decision
103). Each time `EXACT` arguments have gathered, all of them go into it at once, so that neither batches nor
emissions change a result.
"""

from __future__ import annotations

import math
from bisect import insort
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.aggregates.function import Function, Parameter

EXACT = 1000
"""The number of arguments up to which results are exact."""
_CENTROIDS = 500
"""The compression of the t-digest: ranks are less than half a percent off, and at the ends much less."""

Accumulator = tuple[list[float], "bytes | None"]
"""The arguments that have gathered, sorted, and the t-digest of those before them."""


def _add(accumulator: Accumulator, value: Any) -> Accumulator:
    number = float(value)
    # a t-digest has no place for NaN and infinite values
    if not math.isfinite(number):
        return accumulator
    values, digest = accumulator
    # a copy: a record that cannot be used must leave no trace
    values = values.copy()
    insort(values, number + 0.0)
    return (values, digest) if len(values) <= EXACT else ([], _digest(values, digest).serialize())


def _merge(older: Accumulator, newer: Accumulator) -> Accumulator:
    values = sorted(older[0] + newer[0])
    digests = [digest for _, digest in (older, newer) if digest is not None]
    if len(values) <= EXACT and len(digests) < 2:
        return values, digests[0] if digests else None
    merged = _digest(values, digests[0] if digests else None)
    for digest in digests[1:]:
        merged.merge(_digest([], digest))
    return [], merged.serialize()


def _digest(values: list[float], digest: bytes | None) -> Any:
    # few pipelines have a sketch
    from datasketches import tdigest_double

    result = tdigest_double(_CENTROIDS) if digest is None else tdigest_double.deserialize(digest)
    if values:
        result.update(np.array(values))
    return result


def _percentile(rank: float, accumulator: Accumulator) -> float | None:
    values, digest = accumulator
    if digest is not None:
        return float(_digest(values, digest).get_quantile(rank))
    if not values:
        return None
    place = rank * (len(values) - 1)
    lower, upper = values[math.floor(place)], values[math.ceil(place)]
    if lower == upper:
        return lower
    return (math.ceil(place) - place) * lower + (place - math.floor(place)) * upper


def percentile(rank: float) -> Function:
    """Return the function for a rank from 0 to 1.

    Example: `percentile(0.5)` is the median.
    """
    return Function(
        fold=_add,
        merge=_merge,
        accumulator_type=lambda _: pa.struct([("values", pa.list_(pa.float64())), ("digest", pa.binary())]),
        result_type=lambda _: pa.float64(),
        start=lambda: ([], None),
        finish=partial(_percentile, rank),
        dump=lambda accumulator: {"values": accumulator[0], "digest": accumulator[1]},
        load=lambda stored: (stored["values"], stored["digest"]),
        takes="numbers",
        parameter=Parameter(
            lambda number: 0 <= number <= 1,
            percentile,
            "Write a rank from 0 to 1: `percentile(price, 0.95)`.",
        ),
    )


FUNCTION = percentile(0.5)
