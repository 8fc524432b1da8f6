"""The demo's second input: actions of visitors on the customers' sites, the same for the same seed.

One customer's site is so busy that its visits reach a hundred again and again. Quiet customers have a few
visits at the end of the first wave and none in the second: only the clock can make the stage emit those.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from tidegate_dev.demo.events import BEGIN_MS, PARTITIONS, SEED, Event

VISIT_WAVES = (12_000, 4_000)
SPANS_MS = (120_000, 20_000)
"""The time from a wave's first visit to its last."""
CLOCKS_MS = (120_000, 210_000)
"""The clock of each wave's batch, after `BEGIN_MS`.

The second is 90 s later, so a limit of 60 s has passed.
"""
BUSY_CUSTOMER = 1
CUSTOMERS = range(2, 400)
QUIET_CUSTOMERS = range(1000, 1500)
_QUIET_MS = 30_000
_ACTIONS = ("view", "search", "add to basket", "buy")
_MALFORMED = (b"{not json", b"", b'{"customerId": "seven", "visitorId": "v", "action": "view"}')


def visit_events(wave: int, begin_ms: int = BEGIN_MS, seed: int = SEED) -> Iterator[Event]:
    """Yield the visits of a wave, the same for the same seed. About 1 % cannot be used.

    Args:
        wave: 0 or 1.
        begin_ms: The timestamp of the first wave's first visit.
        seed: The seed of the random numbers.
    """
    draw = random.Random(seed + 100 + wave)
    first_ms = begin_ms + sum(SPANS_MS[:wave])
    for number in range(VISIT_WAVES[wave]):
        after_ms = number * SPANS_MS[wave] // VISIT_WAVES[wave]
        quiet = wave == 0 and after_ms >= SPANS_MS[0] - _QUIET_MS and draw.random() < 0.3
        customer = _customer(draw, QUIET_CUSTOMERS if quiet else CUSTOMERS)
        yield _visit(draw, customer, f"visitor-{wave}-{number}", first_ms + after_ms)


def visit_interval(wave: int) -> tuple[datetime, datetime]:
    """Return the data interval of a wave's DAG run. Its end is the batch's clock."""
    begin = datetime.fromtimestamp(BEGIN_MS / 1000, timezone.utc)
    start, end = (0, *CLOCKS_MS)[wave : wave + 2]
    return begin + timedelta(milliseconds=start), begin + timedelta(milliseconds=end)


def _customer(draw: random.Random, usual: range) -> int:
    busy = usual is CUSTOMERS and draw.random() < 0.05
    return BUSY_CUSTOMER if busy else draw.choice(usual)


def _visit(draw: random.Random, customer: int, visitor: str, timestamp_ms: int) -> Event:
    partition = customer % PARTITIONS  # a customer's visits keep their order
    kind = draw.random()
    if kind < 0.007:
        return Event(b"%d" % customer, draw.choice(_MALFORMED), partition, timestamp_ms)
    visit = {"customerId": customer, "visitorId": visitor, "action": draw.choice(_ACTIONS)}
    if kind < 0.01:
        del visit["customerId"]
    return Event(None, json.dumps(visit).encode(), partition, timestamp_ms)
