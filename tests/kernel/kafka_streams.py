"""The cases that Kafka Streams itself produced, as batches of records and what must come of them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.kernel.model import Batch, Emission, Record

FOLDER = Path(__file__).resolve().parents[1] / "conformance" / "kafka-streams"
FILES = sorted(FOLDER.glob("*.json"))
NAMES = [path.stem for path in FILES]


def load(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def records_of(case: dict[str, Any]) -> list[Record]:
    """The input; missing offsets count up per partition."""
    offsets: Counter[tuple[str, int]] = Counter()
    records = []
    for record in case["input"]:
        home = (record.get("topic", case["pipeline"]["source"]["topics"][0]), record.get("partition", 0))
        offset = record.get("offset", offsets[home])
        offsets[home] = offset + 1
        records.append(Record(record["key"], record["value"], *home, offset, record["timestamp"]))
    return records


def cut(records: Sequence[Record], cuts: Iterable[int]) -> list[Batch]:
    """The records in batches that end at the given places."""
    bounds = [0, *sorted(set(cuts)), len(records)]
    return [Batch(tuple(records[a:b])) for a, b in pairwise(bounds)]


def as_expected(emissions: Iterable[Emission]) -> dict[str, list[dict[str, Any]]]:
    """Emissions in the form of a case's `expect.emissions`."""
    emissions_by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for emission in emissions:
        window = {"window": list(emission.window)} if emission.window else {}
        emissions_by_key[emission.key].append(
            {"value": emission.value, "timestamp": emission.timestamp, **window}
        )
    return dict(emissions_by_key)
