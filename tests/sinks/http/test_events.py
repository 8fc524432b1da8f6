"""Emissions as CloudEvents at Kafka and HTTP sinks: attributes, stable ids, deletions, both modes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

from tests.batch.committed import Committed
from tests.sinks.http.receiver import Endpoint
from tidegate.formats.cloudevents import CloudEventsDecoder, EventRecord
from tidegate.kafka.messages import Message, messages_of
from tidegate.sinks.kafka.messages import topic_messages
from tidegate.sinks.outbox import Outbox

ROWS = [("1", 10), ("ü 2%", 20), ("1", None), ("3", 30)]
ATTRIBUTES = {
    "specversion": "1.0",
    "id": "visitors/1/1/0",
    "source": "/tidegate/visitors/first",
    "type": "tidegate.visitors.first",
    "subject": "1",
    "time": "1970-01-01T00:00:00.000000Z",
    "datacontenttype": "application/json",
}


def outbox_of(committed: Committed) -> tuple[Any, Outbox]:
    committed.commit(1, {"first": ROWS})
    (sink,) = committed.app.sinks(committed.stream, committed.pipeline)
    plan, attempt = committed.lease.plan(committed.stream, 1), committed.lease.attempt(committed.stream, 1)
    assert plan is not None
    assert attempt is not None
    return sink.declared, sink.outbox(plan, attempt)


def kafka(folder: Path, options: str = "") -> tuple[Any, Outbox]:
    sink = f"  - {{kind: kafka, topic: out, stage: first, format: cloudevents{options}}}"
    return outbox_of(Committed(folder, sink, kafka="127.0.0.1:1"))


def sent(declared: Any, outbox: Outbox, skip: int = 0) -> list[Message]:
    return [message for batch in topic_messages(declared, outbox, skip) for message in messages_of(batch)]


def test_structured_message_is_an_event(tmp_path: Path) -> None:
    messages = sent(*kafka(tmp_path))
    assert json.loads(messages[0].value or b"") == ATTRIBUTES | {"data": {"n": 10}}
    headers = dict(messages[0].headers)
    assert headers["content-type"] == b"application/cloudevents+json"
    assert not [name for name in headers if name.startswith("ce_")]
    assert [message.key for message in messages] == [key.encode() for key, _ in ROWS]


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_deletion_is_a_tombstone_and_an_event(tmp_path: Path, mode: str) -> None:
    deletion = sent(*kafka(tmp_path, f", cloudevents: {{mode: {mode}}}"))[2]
    assert deletion.value is None
    headers = dict(deletion.headers)
    assert (headers["ce_id"], headers["ce_subject"]) == (b"visitors/1/1/2", b"1")
    assert "content-type" not in headers


def test_binary_message_has_attributes_as_headers(tmp_path: Path) -> None:
    options = ", cloudevents: {mode: binary, type: shop.changed, source: 'urn:shop'}, headers: {n: n}"
    message = sent(*kafka(tmp_path, options))[1]
    assert json.loads(message.value or b"") == {"n": 20}
    headers = {name: (content or b"").decode() for name, content in message.headers}
    assert headers == {
        "ce_specversion": "1.0",
        "ce_id": "visitors/1/1/1",
        "ce_source": "urn:shop",
        "ce_type": "shop.changed",
        "ce_subject": "ü 2%",
        "ce_time": "1970-01-01T00:00:00.001000Z",
        "content-type": "application/json",
        "tidegate-source": "events/0/11",
        "n": "20",
    }


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_messages_are_read_as_they_were_sent(tmp_path: Path, mode: str) -> None:
    messages = sent(*kafka(tmp_path, f", cloudevents: {{mode: {mode}}}"))
    records = [message.value and EventRecord(message.value, dict(message.headers)) for message in messages]
    schema = pa.schema([("n", pa.int32()), ("ce_subject", pa.string())])
    result = CloudEventsDecoder(schema).decode([record or None for record in records])
    assert result.reasons == {}
    assert [row and (row["ce_subject"], row["n"]) for row in result.columns.to_pylist()] == [
        ("1", 10),
        ("ü 2%", 20),
        None,
        ("3", 30),
    ]


def test_ids_do_not_depend_on_the_cut(tmp_path: Path) -> None:
    committed = Committed(
        tmp_path, "  - {kind: kafka, topic: out, stage: first, format: cloudevents}", kafka="127.0.0.1:1"
    )
    committed.outbox_files = 3
    declared, outbox = outbox_of(committed)
    whole = {message.value for message in sent(declared, outbox)}
    assert {message.value for part in outbox.cut(2) for message in sent(declared, part)} == whole
    assert sent(declared, outbox, 2) == sent(declared, outbox)[2:]
    for skip in range(5):
        assert sent(declared, outbox, skip) == sent(declared, outbox)[skip:]


def test_endpoint_gets_an_array_of_events(tmp_path: Path, endpoint: Endpoint) -> None:
    committed = Committed(tmp_path, "  - {kind: http, stage: first, format: cloudevents}", http=endpoint.url)
    committed.commit(1, {"first": ROWS})
    endpoint.script = [204]  # the receiver of the page reads no events
    committed.publish(1)
    ((_, body, headers),) = endpoint.arrivals
    assert headers["content-type"] == "application/cloudevents-batch+json; charset=UTF-8"
    events = json.loads(body)
    assert events[0] == ATTRIBUTES | {"data": {"n": 10}}
    assert [event["id"] for event in events] == [f"visitors/1/1/{number}" for number in range(4)]
    assert ("data" in events[2], "datacontenttype" in events[2]) == (False, False)


def test_endpoint_gets_events_in_binary_mode(tmp_path: Path, endpoint: Endpoint) -> None:
    sink = "  - {kind: http, stage: first, format: cloudevents, cloudevents: {mode: binary}}"
    committed = Committed(tmp_path, sink, http=endpoint.url)
    committed.commit(1, {"first": ROWS})
    endpoint.script = [204] * 4
    committed.publish(1)
    assert [body for _, body, _ in endpoint.arrivals] == [b'{"n": 10}', b'{"n": 20}', b"", b'{"n": 30}']
    assert len(set(endpoint.idempotency_keys())) == 4
    headers = endpoint.arrivals[1][2]
    assert headers["ce-subject"] == "%C3%BC%202%25"
    assert unquote(headers["ce-subject"]) == "ü 2%"
    assert headers["content-type"] == "application/json"
    assert endpoint.arrivals[0][2]["ce-id"] == "visitors/1/1/0"
    assert "content-type" not in endpoint.arrivals[2][2]
