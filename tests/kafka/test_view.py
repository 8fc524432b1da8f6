"""A topic as it stands, while producers write to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.kafka import log
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog


def test_record_between_questions_keeps_ends_consistent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = iter([100, 101])  # what the broker says, asked one after the other

    def listed(_: Any, partitions: list[Any], spec: Any, *_more: Any) -> dict[Any, Any]:
        offset = 0 if spec == log.OffsetSpec.EARLIEST else next(ends)
        return {partitions[0]: SimpleNamespace(offset=offset, leader_epoch=0)}

    @contextmanager
    def admin(_: KafkaLog) -> Iterator[None]:
        yield None

    monkeypatch.setattr(KafkaLog, "_admin", admin)
    described = {"topic_id": "id", "partitions": [{"partition_index": 0}]}
    monkeypatch.setattr(KafkaLog, "_describe", lambda *_: described)
    monkeypatch.setattr(log, "_listed", listed)
    view = KafkaLog(KafkaConfig.parse("nowhere:1")).view("t")
    assert (view.ends, view.stable_ends) == ({0: 100}, {0: 100})
