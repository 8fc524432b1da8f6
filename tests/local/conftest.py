"""A home of its own for each test, with the broker's jars that `make setup` fetched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegate.local.jars import BROKER, ensure_jars
from tidegate.local.warden import living_below

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def jars() -> Path:
    """The folder with the set of jars."""
    home = Path(os.environ.get("TIDEGATE_HOME") or ROOT / ".tidegate")
    ensure_jars(BROKER, home)
    return home / "jars"


@pytest.fixture(scope="module")
def home(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    (folder / "jars").symlink_to(jars, target_is_directory=True)
    return folder


@pytest.fixture(scope="module")
def nothing_left() -> Iterator[None]:
    """After the module's tests, no process that they started still runs."""
    before = set(living_below(os.getpid()))
    yield
    assert set(living_below(os.getpid())) <= before


@pytest.fixture
def fake_java(tmp_path: Path) -> Callable[[str, str], Path]:
    """Make a `java` in a folder of that name which says that it has this version."""

    def make(name: str, version: str) -> Path:
        path = tmp_path / name / "bin" / "java"
        path.parent.mkdir(parents=True)
        settings = f"java.home = {path.parent.parent}\\n    java.specification.version = {version}"
        path.write_text(f"#!{sys.executable} -S\nprint('    {settings}')\n")
        path.chmod(0o755)
        return path

    return make
