"""An endpoint, and a stream that publishes to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batch.committed import Committed
from tests.sinks.http.receiver import Endpoint
from tidegate.sinks.http import endpoint as client

SINK = "  - {kind: http, path: orders, stage: first, batch_records: 2}"


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    with Endpoint(tmp_path).running() as running:
        yield running


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the sink makes, which take no time here."""
    made: list[float] = []
    monkeypatch.setattr(client, "sleep", made.append)
    return made


@pytest.fixture
def committed(tmp_path: Path, endpoint: Endpoint, pauses: list[float]) -> Committed:
    del pauses
    return Committed(tmp_path, SINK, http=endpoint.url)
