"""The workers of the matrix, for all tests that need some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.pool import Pool
from tidegate.local.broker import KafkaBroker


@pytest.fixture(scope="package")
def pool(broker: KafkaBroker, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Two workers on the shared broker."""
    folder = tmp_path_factory.mktemp("faults")
    with Pool(folder, broker.bootstrap_servers, home / "jars" / "spark", jobs=2) as running:
        yield running
