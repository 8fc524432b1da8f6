"""Kafka's logs are asked over one connection for as long as somebody has them open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from tidegate.errors import BrokerUnavailable
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog


class Admin:
    """A client that answers, unless it is told that it has lost its broker."""

    made: list[Admin]

    def __init__(self, **_: Any) -> None:
        self.is_closed = self.is_lost = False
        Admin.made.append(self)

    def describe_topics(self, names: Sequence[str]) -> list[dict[str, Any]]:
        assert not self.is_closed
        if self.is_lost:
            raise KafkaConnectionError
        return [{"error_code": 0, "topic_id": f"id of {name}", "partitions": [{}]} for name in names]

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> KafkaLog:
    Admin.made = []
    monkeypatch.setattr("tidegate.kafka.log.KafkaAdminClient", Admin)
    return KafkaLog(KafkaConfig.parse("nowhere:1"))


def test_nested_use_shares_the_outer_connection(
    log: KafkaLog,
) -> None:
    with log:
        assert not Admin.made, "nobody has asked"
        with log:
            log.topic_id("a")
        assert log.topic_id("b") == "id of b"
        (admin,) = Admin.made
        assert not admin.is_closed
    assert admin.is_closed


def test_the_same_log_can_be_opened_again(log: KafkaLog) -> None:
    for _ in range(2):
        with log:
            log.topic_id("a")
    assert [admin.is_closed for admin in Admin.made] == [True, True]


def test_error_makes_the_next_question_reconnect(log: KafkaLog) -> None:
    with log:
        log.topic_id("a")
        Admin.made[0].is_lost = True
        with pytest.raises(BrokerUnavailable):
            log.topic_id("a")
        assert Admin.made[0].is_closed
        assert log.topic_id("a") == "id of a"
    assert [admin.is_closed for admin in Admin.made] == [True, True]
