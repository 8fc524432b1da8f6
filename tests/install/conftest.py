"""The wheel of this checkout, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.install.built import build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source distribution."""
    return build(tmp_path_factory.mktemp("dist"))
