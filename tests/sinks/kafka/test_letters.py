"""Quarantined records as messages: unchanged, and small enough, for any record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.quarantines import HEADERS, Quarantined, quarantined
from tidegate.formats import EMISSION
from tidegate.kafka.messages import Message, chunks, messages_of, sizes_of
from tidegate.sinks.kafka import dead_letters as module
from tidegate.sinks.kafka.dead_letters import letters
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import TimestampBounds
from tidegate.storage.quarantine_files import QUARANTINE

ANY: TimestampBounds = (None, None)
CLOCK_MS = 1000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Quarantined:
    return Quarantined(tmp_path_factory.mktemp("letters"))


def outbox_of(world: Quarantined, *files: list[dict[str, Any]]) -> Outbox:
    """Files as an attempt of batch 1 has written them."""
    tables = [pa.Table.from_pylist(rows, QUARANTINE) for rows in files]
    written = [file for table in tables for file in world._files("letters", "quarantine", "", table)]
    store = world.app.lake(world.stream).store
    return Outbox(world.planned(1), None, "letters", store, tuple(written))


def sent(outbox: Outbox, bounds: TimestampBounds = ANY, skip: int = 0) -> list[Message]:
    return [message for batch in letters(outbox, bounds, skip) for message in messages_of(batch)]


def test_letter_has_the_original_record_and_its_reason(world: Quarantined) -> None:
    row = quarantined(1, 17, headers=HEADERS, recorded=5, timestamp=7, reason="malformed: it is: cut")
    (message,) = sent(outbox_of(world, [row]))
    assert message[:3] == (b"k", b"{oops", 5)
    assert message.headers == [
        *HEADERS,
        ("tidegate-quarantine-reason", b"malformed: it is: cut"),
        ("tidegate-quarantine-position", b"events/0/17"),
        ("tidegate-quarantine-batch", b"visitors/1/1"),
        ("tidegate-quarantine-timestamp", b"5"),
    ]


@pytest.mark.parametrize(("part", "says"), [(None, None), (0, b"0"), (12, b"12"), (EMISSION, b"emission")])
def test_letter_names_the_part_of_a_record(world: Quarantined, part: int | None, says: bytes | None) -> None:
    (message,) = sent(outbox_of(world, [quarantined(1, 1, part=part)]))
    assert dict(message.headers).get("tidegate-quarantine-part") == says


@pytest.mark.parametrize(
    ("bounds", "own", "taken"),
    [
        (ANY, 5, 5),
        (ANY, None, CLOCK_MS),
        (ANY, -5, 0),
        ((None, 100), 101, 100),
        ((None, 100), None, 100),
        ((50, None), 49, 50),
        ((50, 100), 75, 75),
    ],
)
def test_refused_letter_timestamp_moves_into_a_header(
    world: Quarantined, bounds: TimestampBounds, own: int | None, taken: int
) -> None:
    (message,) = sent(outbox_of(world, [quarantined(1, 1, timestamp=own)]), bounds)
    assert message.timestamp_ms == taken
    header = dict(message.headers).get("tidegate-quarantine-timestamp")
    assert header == (None if own is None else str(own).encode())


def test_oversized_letter_drops_its_largest_parts_first(
    world: Quarantined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RECORD_BYTES", 300)
    large = b"x" * 400
    rows = [
        quarantined(1, 1, value=b"small", headers=HEADERS),
        quarantined(1, 2, value=large, headers=HEADERS),
        quarantined(1, 3, headers=[("much", large)]),
        quarantined(1, 4, key=large),
    ]
    lengths = [
        (message.key and len(message.key), message.value, len(message.headers) > 4, header)
        for message in sent(outbox_of(world, rows))
        for header in [dict(message.headers).get(module.OMITTED)]
    ]
    assert lengths == [
        (1, b"small", True, None),
        (1, None, True, b"value"),
        (1, None, True, b"value, headers"),
        (None, None, True, b"value, headers, key"),
    ]


texts = st.none() | st.binary(max_size=40)
headers = st.none() | st.lists(st.tuples(st.text(max_size=3), texts), max_size=3)
rows = st.builds(
    lambda offset, key, value, headers: quarantined(1, offset, key=key, value=value, headers=headers),
    *(st.integers(0, 99), texts, texts, headers),
)


@examples(40)
@given(st.lists(st.lists(rows, min_size=1, max_size=6), min_size=1, max_size=3), st.integers(0, 20))
def test_letters_keep_their_order_from_any_position(
    world: Quarantined, files: list[list[dict[str, Any]]], skip: int
) -> None:
    outbox = outbox_of(world, *files)
    all_rows = [row for file in files for row in file]
    messages = sent(outbox)
    came = [(row["key"], row["value"], list(map(tuple, row["headers"] or ()))) for row in all_rows]
    assert [(m.key, m.value, m.headers[: len(came[at][2])]) for at, m in enumerate(messages)] == came
    assert sent(outbox, skip=skip) == messages[skip:]
    assert [size for batch in letters(outbox, ANY) for size in sizes_of(batch)] == [m.size for m in messages]
    pieces = [part for chunk, _ in chunks(letters(outbox, ANY), 2, lambda: 1_000_000) for part in chunk]
    assert [message for piece in pieces for message in messages_of(piece)] == messages
