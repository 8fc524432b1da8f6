"""`approx_count_distinct(x)`: about how many different arguments there are.

State has a hash of each argument up to `EXACT` of them, and the result is their number. More go into a
HyperLogLog sketch of Apache DataSketches, of 4 KB. Each time so many new hashes have gathered, all of them go
into it at once, so that neither batches nor emissions change a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import xxhash

from tidegate.kernel.aggregates.function import Function, int64
from tidegate.kernel.aggregates.sum import EXACT as WIDE

EXACT = 512
"""The number of different arguments up to which results are exact."""
_LG_K = 12
"""The sketch has 2^12 bytes; the standard error is 1.6 %."""

Accumulator = tuple[dict[int, None], "bytes | None"]
"""The hashes that have gathered, and the sketch of those before them."""


def _add(accumulator: Accumulator, value: Any) -> Accumulator:
    hashes, sketch = accumulator
    hash_ = _hash(value)
    if hash_ in hashes:
        return accumulator
    # a copy: a record that cannot be used must leave no trace
    return _settled({**hashes, hash_: None}, sketch)


def _hash(value: Any) -> int:
    content = value if isinstance(value, bytes) else _text(value).encode("utf-8", "surrogatepass")
    return xxhash.xxh64_intdigest(content) - 2**63


def _text(value: Any) -> str:
    """Return the text of a value, the same for equal numbers of all types: a column may get a wider one."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # -0.0 is 0
    if isinstance(value, Decimal):
        return f"{value.normalize(WIDE):f}"
    return str(value)


def _settled(hashes: dict[int, None], sketch: bytes | None) -> Accumulator:
    return (hashes, sketch) if len(hashes) <= EXACT else ({}, _sketch(hashes, sketch).serialize_compact())


def _sketch(hashes: Iterable[int], sketch: bytes | None) -> Any:
    # few pipelines have a sketch
    from datasketches import HLL_8, hll_sketch

    result = hll_sketch(_LG_K, HLL_8) if sketch is None else hll_sketch.deserialize(sketch)
    for hash_ in hashes:
        result.update(hash_)
    return result


def _merge(older: Accumulator, newer: Accumulator) -> Accumulator:
    hashes = {**older[0], **newer[0]}
    sketches = [sketch for _, sketch in (older, newer) if sketch is not None]
    if len(sketches) < 2:
        return _settled(hashes, sketches[0] if sketches else None)
    from datasketches import HLL_8, hll_union

    union = hll_union(_LG_K)
    for sketch in sketches:
        union.update(_sketch((), sketch))
    return _settled(hashes, union.get_result(HLL_8).serialize_compact())


def _count(accumulator: Accumulator) -> int:
    hashes, sketch = accumulator
    return len(hashes) if sketch is None else round(_sketch(hashes, sketch).get_estimate())


FUNCTION = Function(
    fold=_add,
    merge=_merge,
    accumulator_type=lambda _: pa.struct([("hashes", pa.list_(pa.int64())), ("sketch", pa.binary())]),
    result_type=int64,
    start=lambda: ({}, None),
    finish=_count,
    dump=lambda accumulator: {"hashes": [*accumulator[0]], "sketch": accumulator[1]},
    load=lambda stored: (dict.fromkeys(stored["hashes"]), stored["sketch"]),
    takes="single values",
    repeats=False,
)
