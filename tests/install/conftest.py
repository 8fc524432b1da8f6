"""The wheel of this checkout, built once."""

from __future__ import annotations

import pytest

from tests.install.built import Built, build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("dist"))
