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
    """A Kafka record."""

    key: bytes | None
    value: bytes | None
    partition: int
    timestamp_ms: int


def stock_events(wave: int, seed: int = SEED) -> Iterator[Event]:
    """The events of a wave (0 or 1). About 1 % are malformed, 1 % tombstones, 3 % have no key."""
    draw = random.Random(seed + wave)
    first_ms = BEGIN_MS + sum(WAVES[:wave]) * 100
    for number in range(WAVES[wave]):
        yield _event(draw, first_ms + number * 100)


def _event(draw: random.Random, timestamp_ms: int) -> Event:
    store, product = f"store-{draw.randint(1, STORES)}", draw.randint(1, PRODUCTS)
    key = json.dumps({"storeId": store, "id": product}, separators=(",", ":")).encode()
    # A product's events keep their order: all of them, without a key too, go to one partition.
    partition = zlib.crc32(key) % PARTITIONS
    kind = draw.random()
    if kind < 0.01:
        return Event(key, draw.choice(_MALFORMED), partition, timestamp_ms)
    if kind < 0.02:
        return Event(key, None, partition, timestamp_ms)
    # Sold out more often than chance would have it, so that availability changes now and then.
    quantity = 0 if draw.random() < 0.3 else draw.randint(1, 50)
    value = json.dumps({"storeId": store, "id": product, "quantity": quantity}).encode()
    return Event(None if kind < 0.05 else key, value, partition, timestamp_ms)
