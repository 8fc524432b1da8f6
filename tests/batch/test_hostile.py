"""Records that nobody would send on purpose, from a real topic through a whole batch."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from click.testing import CliRunner
from kafka.admin import ConfigResource, ConfigResourceType

from kafka import KafkaAdminClient, KafkaProducer
from tests.quarantines import stored_quarantine
from tests.world import NOW_MS, World, key_of
from tidegate.cli import cli

pytestmark = [pytest.mark.spark, pytest.mark.broker]
TEN_MB = 10_000_000
ROOM = 12_000_000


def send_large(world: World, *values: bytes) -> None:
    """Records that are larger than a topic takes by default."""
    admin = KafkaAdminClient(bootstrap_servers=world.servers)
    larger = {"max.message.bytes": str(ROOM)}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, world.source, larger)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=world.servers, max_request_size=ROOM)
    for value in values:
        producer.send(world.source, value, key_of().encode(), partition=0, timestamp_ms=NOW_MS - 1000).get(30)
    producer.close()


def event(quantity: Any, more: str = "") -> bytes:
    return f'{{"storeId": "s1", "id": 1, "quantity": {quantity}{more}}}'.encode()


def test_ten_megabyte_values_are_used_or_quarantined_whole(world: World) -> None:
    garbage = b"{" * TEN_MB
    send_large(world, event(1, ', "more": "' + "x" * TEN_MB + '"'), garbage, event(0))
    world.run()
    assert world.published() == {key_of(): [True, False]}
    (row,) = stored_quarantine(world.app, world.stream)
    assert (row["offset"], row["reason"].partition(":")[0]) == (1, "malformed")
    assert row["value"] == garbage
    counts = world.counts(1)
    assert (counts["read"], counts["used"], counts["quarantined"]) == (3, 2, 1)


def test_hostile_numbers_and_nesting_are_quarantined(world: World) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    values = {
        event(1): None,
        event("NaN"): "malformed",
        event("1e400"): "malformed",
        event("9" * 5000): "malformed",
        event(deep): "malformed",
        event(0, f', "more": {deep}'): "malformed",
        event(2, ', "quantity": 0'): None,
    }
    world.send(*({"value": value, "key": b"x"} for value in values))
    world.run()
    assert world.published() == {key_of(): [True, False]}
    rows = stored_quarantine(world.app, world.stream)
    reasons = {row["value"]: row["reason"].partition(":")[0] for row in rows}
    assert {value: reasons.get(value) for value in values} == values
    counts = world.counts(1)
    assert counts["read"] == len(values) == counts["used"] + counts["quarantined"]


def test_keys_that_are_not_text_are_quarantined(world: World) -> None:
    world.write_pipeline(**{"  key: [storeId, id]\n": "", ", with_key: true": ""})
    avro, chain = b"\x00\x00\x00\x00\x07\xc8[/x]", [("tidegate-source", b"a/0/1;\xff")]
    world.send(
        {"key": b"k", "value": event(1)},
        {"key": avro, "value": event(1)},
        {"key": avro, "value": None},
        {"key": b"k", "value": event(0), "headers": chain},
        {"key": b"k", "value": b'{"storeId": "\xff", "quantity": 0}'},
    )
    world.run()
    assert world.published() == {"k": [True]}
    rows = stored_quarantine(world.app, world.stream)
    assert [(row["reason"].partition(":")[0], row["key"]) for row in rows] == [
        ("key_not_text", avro),
        ("key_not_text", avro),
        ("malformed_source_chain", b"k"),
        ("malformed", b"k"),
    ]
    for form, key in (
        ((), "[/x]"),
        (("--json",), f'"{base64.b64encode(avro).decode()}", "key_encoding": "base64"'),
    ):
        shown = CliRunner().invoke(cli, ["quarantine", "list", "availability", *form], env=world.environment)
        assert (shown.exit_code, "key_not_text" in shown.output, key in shown.output) == (0, True, True)
