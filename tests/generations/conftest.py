"""Generations that are built once and copied for each test: to build them takes a third of a second."""

from __future__ import annotations

import pytest

from tests.generations.two_generations import Beside, filled


@pytest.fixture(scope="session")
def two_generations(tmp_path_factory: pytest.TempPathFactory) -> Beside:
    """Two generations as they begin, which no test changes."""
    return Beside(tmp_path_factory.mktemp("generations") / "home")


@pytest.fixture(scope="session")
def generation_ahead(two_generations: Beside, tmp_path_factory: pytest.TempPathFactory) -> Beside:
    """Two generations, the old one with a third batch, which no test changes."""
    ahead = two_generations.copied(tmp_path_factory.mktemp("ahead") / "home")
    ahead.decide(ahead.old, 3, [("a", 3)])
    return ahead


@pytest.fixture(scope="session")
def filled_generations(tmp_path_factory: pytest.TempPathFactory) -> Beside:
    """Two generations that have read as much, which no test changes."""
    return filled(tmp_path_factory.mktemp("filled") / "home")
