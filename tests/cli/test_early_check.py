"""`tidegate run` with a kept Spark starts the quality check before it reads the pipeline, by its text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.cli.commands.run import _seems_to_have_suite

WITH_SUITE = "pipeline: shops\nquality:\n  suite: shops\n"
WITHOUT = "pipeline: shops\nstages: []  # quality: is none\n"


@pytest.mark.parametrize(
    ("files", "name", "has_suite"),
    [
        ({"shops.yaml": WITH_SUITE}, "shops", True),
        ({"shops.yaml": WITHOUT}, "shops", False),
        ({"shops.yaml": WITHOUT, "defaults.yaml": "quality: {suite: all}\n"}, "shops", True),
        ({"shops.yaml": WITHOUT, "others.yaml": WITH_SUITE}, "shops", False),
        ({}, "shops", False),
    ],
)
def test_suite_is_found_in_file_or_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], name: str, has_suite: bool
) -> None:
    monkeypatch.setenv("TIDEGATE_PIPELINES", str(tmp_path))
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    assert _seems_to_have_suite(name) is has_suite


def test_a_pipeline_can_be_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PIPELINES", str(tmp_path / "others"))
    (tmp_path / "shops.yaml").write_text(WITH_SUITE)
    assert _seems_to_have_suite(str(tmp_path / "shops.yaml"))


@pytest.mark.process
def test_slow_modules_are_imported_after_start() -> None:
    asked = "import sys, tidegate.cli.commands.run; print(*({'pyarrow', 'sqlalchemy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
