"""The stack whose processes get killed, for all tests that need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kills import Line, line


@pytest.fixture(scope="package")
def stack(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """One for all; its batches come one after the other."""
    with line(installed, tmp_path_factory.mktemp("kills")) as running:
        yield running
