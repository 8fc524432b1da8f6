"""Streams with an Iceberg sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sinks.iceberg.lakehouse import APPEND, UPSERT, Lakehouse


@pytest.fixture
def appending(tmp_path: Path) -> Lakehouse:
    return Lakehouse(tmp_path, APPEND)


@pytest.fixture
def upserting(tmp_path: Path) -> Lakehouse:
    return Lakehouse(tmp_path, UPSERT)
