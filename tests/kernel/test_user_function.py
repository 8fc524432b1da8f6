"""A function of the user's own is the one that the batch was planned with, or the batch halts."""

from __future__ import annotations

import importlib
from pathlib import Path
from uuid import uuid4

import pytest

from tidegate.errors import UserFunctionFailed
from tidegate.kernel.equivalence import load, source_digest

SAME = "def same(old, new):\n    return old == new\n"


@pytest.fixture
def module(modules: Path) -> Path:
    """A module's file, in a package of its own."""
    package = modules / f"shop_{uuid4().hex}"
    package.mkdir()
    (package / "__init__.py").touch()
    file = package / "compare.py"
    file.write_text(SAME)
    return file


def name_of(file: Path, function: str = "same") -> str:
    return f"{file.parent.name}.compare:{function}"


def test_digest_covers_the_source_and_runs_nothing(module: Path) -> None:
    module.write_text(SAME + "raise RuntimeError('it was run')\n")
    first = source_digest(name_of(module))
    assert source_digest(name_of(module, "other")) == first
    module.write_text(SAME + "# an edit\n")
    importlib.invalidate_caches()
    assert source_digest(name_of(module)) != first


def test_the_function_of_the_digest_is_loaded(module: Path) -> None:
    assert load(name_of(module), source_digest(name_of(module)))(1, 1) is True
    assert load(name_of(module), None)(1, 2) is False


def test_function_changed_since_the_plan_halts(module: Path) -> None:
    digest = source_digest(name_of(module))
    module.write_text(SAME.replace("==", "!="))
    with pytest.raises(UserFunctionFailed, match=r"The source of shop_.*:same is not that.*drop the plan"):
        load(name_of(module), digest)


def test_imported_source_is_the_one_that_counts(module: Path) -> None:
    """Use the imported source, not the file as it is now: a worker that goes on does not read it again."""
    digest = source_digest(name_of(module))
    load(name_of(module), digest)
    module.write_text(SAME.replace("==", "!="))
    assert load(name_of(module), digest)(1, 1) is True
    with pytest.raises(UserFunctionFailed, match="is not that of the function"):
        load(name_of(module), source_digest(name_of(module)))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module_at_all:same", "cannot be imported"),
        ("no_such_package.inside:same", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_missing_module_names_the_function(name: str, says: str) -> None:
    for call in (lambda: source_digest(name), lambda: load(name, None)):
        with pytest.raises(UserFunctionFailed, match=f"{name} {says}"):
            call()


def test_object_that_is_no_function_is_named(module: Path) -> None:
    module.write_text("same = 7\n")
    with pytest.raises(UserFunctionFailed, match="same is not a function"):
        load(name_of(module), None)
