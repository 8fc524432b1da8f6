"""What the kernel's benchmark compares: a stage, records that suit it, and the loop that does the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import naive
from benchmarks.rows import Shape
from tidegate import kernel
from tidegate.expressions import Condition
from tidegate.formats.records import sequence_texts
from tidegate.kernel.strategies.any_of import AnyOf
from tidegate.kernel.strategies.window_close import Early
from tidegate.model.zones import time_zone

_COUNT, _AFTER_MS = 100, 60_000
_WINDOW_MS, _GRACE_MS = 60_000, 10_000
_LIMIT_MS, _SILENCE_MS = 30_000, 10_000
_EARLY_MS = 20_000
_LOCAL = kernel.Tumbling(_WINDOW_MS, _GRACE_MS, time_zone("Europe/Berlin"))
_TTL_MS = 30 * 24 * 60 * 60 * 1000
_SUM = kernel.Aggregates((kernel.Aggregate("quantity", "sum"),))


@dataclass(frozen=True)
class Strategy:
    """`stage` takes the number of keys per partition; `loop` the batches, the time at their end, and that."""

    stage: Callable[[int], kernel.Stage]
    shape: Shape
    loop: Callable[[naive.Batches, int, int], naive.Decided]


def _available(quantities: pa.Int32Array) -> pa.StructArray:
    return pa.StructArray.from_arrays([pc.greater(quantities, 0)], names=["isAvailable"])


def _level(quantities: pa.Int32Array) -> pa.StructArray:
    """A reading that wavers by less than 20, but falls from above 100 to 0 when the quantity does."""
    raised = pc.if_else(pc.greater(quantities, 0), pc.add(quantities, 100), 0)
    return pa.StructArray.from_arrays([raised.cast(pa.float64())], names=["level"])


def _quantity(quantities: pa.Int32Array) -> pa.StructArray:
    return pa.StructArray.from_arrays([quantities.cast(pa.int64())], names=["quantity"])


def _event(quantities: pa.Int32Array) -> pa.StructArray:
    seen = pc.if_else(pc.greater(quantities, 9), "view", "click")
    return pa.StructArray.from_arrays([quantities.cast(pa.int64()), seen], names=["visitorId", "action"])


def change_columns(quantities: pa.Int32Array) -> pa.StructArray:
    """Return the columns that a decoder of changes returns; most changes of a key come after a later one."""
    frame = pa.StructArray.from_arrays([quantities], names=["quantity"])
    columns = [frame, sequence_texts([quantities]), pa.repeat(False, len(quantities))]
    return pa.StructArray.from_arrays(columns, names=["frame", "sequence", "deleted"])


def _allowed(keys: int) -> int:
    """A buffer for 85 keys of 100: once 85 wait, each that comes to them lets the first one out early."""
    return max(keys * 85 // 100, 1)


def _always(stage: kernel.Stage) -> Callable[[int], kernel.Stage]:
    return lambda _: stage


_TOLERANCE = kernel.Within({"level": kernel.Amount(Decimal(20))})
_TIME_LIMIT = kernel.TimeLimit(_LIMIT_MS)
_SPACED = kernel.Change(("isAvailable",), at_most_every_ms=_LIMIT_MS, clock="run")
_CHANGE_OR_INTERVAL = AnyOf((kernel.Change(("isAvailable",)), kernel.Interval(_LIMIT_MS)))
_EARLY = kernel.WindowClose(early=Early(every_ms=_EARLY_MS), emitted=("quantity",))
_UNTIL = Condition("visitorId = 0", ("=", ("column", "visitorId"), ("literal", 0)))

STRATEGIES = {
    "change, exact": Strategy(
        _always(kernel.Stage(kernel.Latest(), kernel.Change(("isAvailable",)))),
        Shape(_available, stored=1),
        lambda batches, *_: naive.change(batches),
    ),
    "change, at_most_every": Strategy(
        _always(kernel.Stage(kernel.Latest(), _SPACED)),
        Shape(_available, keys_per_100=1),
        lambda batches, end_ms, _: naive.spaced_change(batches, _LIMIT_MS, end_ms),
    ),
    "any: change, interval": Strategy(
        _always(kernel.Stage(kernel.Latest(), _CHANGE_OR_INTERVAL)),
        Shape(_available, keys_per_100=1),
        lambda batches, end_ms, _: naive.change_or_interval(batches, _LIMIT_MS, end_ms),
    ),
    "change, ttl": Strategy(
        _always(
            kernel.Stage(
                kernel.Latest(), kernel.Change(("isAvailable",)), ttl=kernel.TimeToLive(_TTL_MS, "deletion")
            )
        ),
        Shape(_available, stored=1),
        lambda batches, *_: naive.change(batches),
    ),
    "change, within": Strategy(
        _always(kernel.Stage(kernel.Latest(), kernel.Change(("level",), equal=_TOLERANCE))),
        Shape(_level, stored=1),
        lambda batches, *_: naive.within(batches, "level", 20.0),
    ),
    "update": Strategy(
        _always(kernel.Stage(kernel.Latest(), kernel.Update())),
        Shape(_available, stored=1),
        lambda batches, *_: naive.latest(batches),
    ),
    "update, sum": Strategy(
        _always(kernel.Stage(_SUM, kernel.Update())),
        Shape(_quantity, stored=1),
        lambda batches, *_: naive.running_sum(batches, "quantity"),
    ),
    "sequence": Strategy(
        _always(kernel.Stage(kernel.Latest(), kernel.InSequence(), deduplicate="none", by_time=True)),
        Shape(change_columns),
        lambda batches, *_: naive.in_sequence(batches),
    ),
    "threshold": Strategy(
        _always(kernel.Stage(kernel.Collect(), kernel.Threshold(_COUNT, None, _AFTER_MS))),
        Shape(_event, keys_per_100=1, uneven=True),
        lambda batches, end_ms, _: naive.threshold(batches, _COUNT, _AFTER_MS, end_ms),
    ),
    "threshold, until": Strategy(
        _always(kernel.Stage(kernel.Collect(), kernel.Threshold(_COUNT, None, _AFTER_MS, _UNTIL))),
        Shape(_event, keys_per_100=1, uneven=True),
        lambda batches, end_ms, _: naive.threshold(
            batches, _COUNT, _AFTER_MS, end_ms, lambda event: event["visitorId"] == 0
        ),
    ),
    "window_close, early": Strategy(
        _always(kernel.Stage(_SUM, _EARLY, kernel.Tumbling(_WINDOW_MS, _GRACE_MS))),
        Shape(_quantity, keys_per_100=1),
        lambda batches, end_ms, _: naive.early_sums(
            batches, "quantity", _WINDOW_MS, _GRACE_MS, _EARLY_MS, end_ms
        ),
    ),
    "window_close, sum": Strategy(
        _always(kernel.Stage(_SUM, kernel.WindowClose(), kernel.Tumbling(_WINDOW_MS, _GRACE_MS))),
        Shape(_quantity, keys_per_100=1),
        lambda batches, end_ms, _: naive.window_sums(batches, "quantity", _WINDOW_MS, _GRACE_MS, end_ms),
    ),
    # its minutes are those of UTC, so the same loop gives the same
    "window_close, local": Strategy(
        _always(kernel.Stage(_SUM, kernel.WindowClose(), _LOCAL)),
        Shape(_quantity, keys_per_100=1),
        lambda batches, end_ms, _: naive.window_sums(batches, "quantity", _WINDOW_MS, _GRACE_MS, end_ms),
    ),
    "time_limit": Strategy(
        _always(kernel.Stage(kernel.Latest(), _TIME_LIMIT)),
        Shape(_available, keys_per_100=1),
        lambda batches, end_ms, _: naive.time_limit(batches, _LIMIT_MS, end_ms),
    ),
    "quiet": Strategy(
        _always(kernel.Stage(kernel.Latest(), kernel.Quiet(_SILENCE_MS))),
        Shape(_available, keys_per_100=1),
        lambda batches, end_ms, _: naive.time_limit(batches, _SILENCE_MS, end_ms, restarts=True),
    ),
    "time_limit, bounded": Strategy(
        lambda keys: kernel.Stage(kernel.Latest(), _TIME_LIMIT, bound=kernel.Bound(_allowed(keys))),
        Shape(_available, keys_per_100=1),
        lambda batches, end_ms, keys: naive.bounded_time_limit(batches, _LIMIT_MS, _allowed(keys), end_ms),
    ),
}
