"""A worker of the matrix, for all tests that need one."""

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
    """A worker on the shared broker, which uses SQLite and, where it is installed, PostgreSQL in turn."""
    folder = tmp_path_factory.mktemp("faults")
    servers = [request.getfixturevalue("postgres").url()] if postgres_programs() else []
    with Pool(folder, broker.bootstrap_servers, [[None, *servers]]) as running:
        yield running
