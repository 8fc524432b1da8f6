"""Streams with a ClickHouse sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sinks.clickhouse.house import APPEND, UPSERT, House


@pytest.fixture
def appending(tmp_path: Path, clickhouse_url: str) -> House:
    return House(tmp_path, clickhouse_url, APPEND)


@pytest.fixture
def upserting(tmp_path: Path, clickhouse_url: str) -> House:
    return House(tmp_path, clickhouse_url, UPSERT)
