"""A home of its own for each module of tests, with the broker's jars that `make setup` fetched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate_dev.jars import BROKER, ensure_jars
from tidegate_dev.warden import living_below

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def jars() -> Path:
    """The folder with the set of jars."""
    home = Path(os.environ.get("TIDEGATE_HOME") or ROOT / ".tidegate")
    ensure_jars(BROKER, home)
    return home / "jars"


@pytest.fixture(scope="module")
def module_home(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    (folder / "jars").symlink_to(jars, target_is_directory=True)
    return folder


@pytest.fixture(scope="module")
def nothing_left() -> Iterator[None]:
    """After the module's tests, no process that they started still runs."""
    before = set(living_below(os.getpid()))
    yield
    assert set(living_below(os.getpid())) <= before
