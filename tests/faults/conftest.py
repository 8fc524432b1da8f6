"""The workers of the matrix, for all tests that need some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.pool import Pool
from tests.postgres import postgres_programs
from tidegate_dev.broker import KafkaBroker


@pytest.fixture(scope="package")
def pool(
    broker: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Pool]:
    """Two workers on the shared broker: one with SQLite, one with PostgreSQL where it is installed."""
    folder = tmp_path_factory.mktemp("faults")
    postgres = request.getfixturevalue("postgres").url() if postgres_programs() else None
    with Pool(folder, broker.bootstrap_servers, (None, postgres)) as running:
        yield running
