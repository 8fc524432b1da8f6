"""The consumer of docs/messages.md takes batches as wholes, on a real broker."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.kafka.sending import Sending
from tidegate.errors import BrokerUnavailable
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker
PAGE = Path(__file__).resolve().parents[3] / "docs" / "messages.md"
FIRST = [("1", 1), ("2", 1), ("3", 1), ("4", 1), ("5", None)]


def whole_batches() -> Any:
    """The class that the page shows."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["WholeBatches"]


def test_a_consumer_tells_whole_batches_apart(
    tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = Sending(tmp_path, broker.bootstrap_servers, monkeypatch)
    with_headers = f"  - {{kind: kafka, topic: {sending.topic}, headers: true}}"
    text = sending.batches.file.read_text()
    sending.batches.file.write_text(text[: text.index("  - {kind: kafka")] + with_headers)
    sending.batch(1, *FIRST)
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "publish.commit=lose@3")  # after two of three chunks
    with pytest.raises(BrokerUnavailable):
        sending.batches.publish(1)
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    consumer = whole_batches()(broker.bootstrap_servers, "visitors", 1, sending.topic)
    consumer.shard += f"-{sending.topic}".encode()  # the tests' topics share a progress topic
    assert list(consumer.poll()) == []
    assert len(consumer.pending[1]) == 4, "some of it is there"
    sending.batches.publish(1)
    sending.publish(2, ("1", 2))
    taken = {seq: [(record.key.decode(), record.value) for record in batch] for seq, batch in consumer.poll()}
    messages = [(key, None if value is None else json.dumps({"m": value}).encode()) for key, value in FIRST]
    assert sorted(taken[1]) == sorted(messages)
    assert (list(taken), taken[2]) == ([1, 2], [("1", b'{"m": 2}')])
    assert list(consumer.poll()) == []
