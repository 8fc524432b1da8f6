"""The demo's first input: stock events of 5 stores with 1000 products each, the same for the same seed."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

STORES = 5
PRODUCTS = 1000
PARTITIONS = 2
WAVES = (50_000, 20_000)
SEED = 20_260_101
BEGIN_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
_MALFORMED = (b"{not json", b'{"storeId": "store-1", "id": "seven", "quantity": 3}', b"[]", b"")


@dataclass(frozen=True)
class Event:
    """A Kafka record to send.

    `timestamp_ms` is Kafka's record timestamp, in milliseconds since 1970 (UTC).
    """

    key: bytes | None
    value: bytes | None
    partition: int
    timestamp_ms: int


def stock_events(wave: int, seed: int = SEED) -> Iterator[Event]:
    """Yield the events of a wave: 10 per second of event time, the same for the same seed.

    About 1 % are malformed, 1 % are tombstones, 3 % have no key.

    Args:
        wave: 0 or 1: the DAG runs once after each wave.
        seed: The seed of the random numbers.
    """
    draw = random.Random(seed + wave)
    first_ms = BEGIN_MS + sum(WAVES[:wave]) * 100
    for number in range(WAVES[wave]):
        yield _event(draw, first_ms + number * 100)


def _event(draw: random.Random, timestamp_ms: int) -> Event:
    store, product = f"store-{draw.randint(1, STORES)}", draw.randint(1, PRODUCTS)
    key = json.dumps({"storeId": store, "id": product}, separators=(",", ":")).encode()
    # Kafka orders records within a partition only, so all events of a product go to one, also those without a
    # key.
    partition = zlib.crc32(key) % PARTITIONS
    kind = draw.random()
    if kind < 0.01:
        return Event(key, draw.choice(_MALFORMED), partition, timestamp_ms)
    if kind < 0.02:
        return Event(key, None, partition, timestamp_ms)
    # With uniform quantities 0 would be rare, and availability would hardly change.
    quantity = 0 if draw.random() < 0.3 else draw.randint(1, 50)
    value = json.dumps({"storeId": store, "id": product, "quantity": quantity}).encode()
    return Event(None if kind < 0.05 else key, value, partition, timestamp_ms)
