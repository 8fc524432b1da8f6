"""What all tests of the kernel share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _trusted_functions() -> Iterator[None]:
    """The functions that random cases name may be called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_PYTHON_MODULES", "tests.kernel.model.equivalences")
        yield
