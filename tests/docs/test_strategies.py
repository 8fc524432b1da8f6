"""docs/strategies.md, done: to a copy of the package, so that the page cannot rot."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.kernel.rows_for_tests import Kernel, Record

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "strategies.md").read_text()
STRATEGY = "include/tidegate/kernel/strategies/every_nth.py"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's one file of Python as a module."""
    (code,) = blocks("python")
    (tmp_path / "every_nth.py").write_text(code)
    spec = importlib.util.spec_from_file_location("every_nth", tmp_path / "every_nth.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "every_nth", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("size", [1, 2, 7])
def test_strategy_of_the_page_emits_each_third_record(strategy: ModuleType, size: int) -> None:
    kernel = Kernel(strategy.EveryNth(3))
    numbers = [Record("k", {"a": float(at), "b": None}, 0, at, at) for at in range(7)]
    for at in range(0, 7, size):
        kernel.apply(numbers[at : at + size])
    assert [value["a"] for value in kernel.emissions["k"]] == [2.0, 5.0]
    assert {row["reason"] for row in kernel.emitted_rows} == {"nth"}


def edits() -> Iterator[tuple[str, str, str]]:
    """File, old text and new text of each change that the page shows."""
    for block in blocks("diff"):
        for part in re.split(r"^--- ", block, flags=re.MULTILINE)[1:]:
            file, _, changes = part.partition("\n")
            for change in changes.split("@@\n"):
                lines = change.splitlines()
                old = "\n".join(line[1:] for line in lines if line[:1] != "+")
                yield file, old, "\n".join(line[1:] for line in lines if line[:1] != "-")


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A copy of the package, changed as the page says."""
    package = tmp_path / "include" / "tidegate"
    shutil.copytree(
        REPOSITORY / "include" / "tidegate", package, ignore=shutil.ignore_patterns("__pycache__")
    )
    (code,) = blocks("python")
    (tmp_path / STRATEGY).write_text(code)
    for file, old, new in edits():
        text = (tmp_path / file).read_text()
        assert text.count(old) == 1, f"{file} does not have just once:\n{old}"
        (tmp_path / file).write_text(text.replace(old, new))
    return tmp_path


@pytest.mark.spark
def test_page_changes_make_its_case_pass(changed: Path, home: Path) -> None:
    (case,) = blocks("yaml")
    (changed / "every_nth.yaml").write_text(case)
    environment = {**os.environ, "TIDEGATE_HOME": str(home), "PYTHONPATH": str(changed / "include")}
    run = "import tidegate; print(tidegate.__file__); from tidegate.cli import cli; cli()"
    done = subprocess.run(
        [sys.executable, "-c", run, "test", "every_nth.yaml", "--cuts", "5"],
        cwd=changed,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert str(changed) in done.stdout, done.stderr
    assert "1 of 1 cases passed" in done.stdout, done.stdout + done.stderr
