"""What setup says when it cannot go on, and when it has nothing to do."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/bootstrap.py, at work in an empty folder."""
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "scripts" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    for name, path in {"VENV": venv, "PYTHON": venv / "bin" / "python", "LOG": tmp_path / "log"}.items():
        monkeypatch.setattr(module, name, path)
    monkeypatch.setattr(module, "INSTALLED", venv / "installed")
    monkeypatch.setattr(module, "ARCHIVED", venv / "archived")
    monkeypatch.setattr(module, "LOCKS", {name: tmp_path / name for name in ("runtime", "dev")})
    for lock in module.LOCKS.values():
        lock.write_text("one==1\n")
    return module


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("NewConnectionError: Failed to establish", "the network or the package index"),
        ("dns error: failed to lookup address", "the network or the package index"),
        ("UnknownHostException: x", "the network or the package index"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", "not the file that is locked"),
        ("Hash mismatch for `x==1`", "not the file that is locked"),
        ("x.jar has checksum 12ab…, but 34cd… is locked", "not the file that is locked"),
        ("first\nlast words\n", "last words (all of it: "),
    ],
)
def test_a_failed_step_says_what_happened(bootstrap: ModuleType, output: str, advice: str) -> None:
    assert advice in bootstrap.reason(output)


def test_a_step_that_fails_names_itself(bootstrap: ModuleType) -> None:
    with pytest.raises(bootstrap.Failed, match="Trying failed: no luck"):
        bootstrap.run("Trying", [sys.executable, "-c", "raise SystemExit('no luck')"])


def test_changed_lock_invalidates_the_installation(bootstrap: ModuleType) -> None:
    assert not bootstrap.is_installed("runtime")
    bootstrap.PYTHON.symlink_to(sys.executable)
    bootstrap.INSTALLED.write_text(bootstrap.fingerprint("runtime"))
    assert bootstrap.is_installed("runtime")
    assert not bootstrap.is_installed("dev")
    bootstrap.LOCKS["runtime"].write_text("one==2\n")
    assert not bootstrap.is_installed("runtime")


def test_venv_without_its_python_counts_for_nothing(bootstrap: ModuleType) -> None:
    bootstrap.PYTHON.symlink_to(ROOT / "gone")
    bootstrap.INSTALLED.write_text(bootstrap.fingerprint("runtime"))
    assert not bootstrap.is_installed("runtime")


def test_unfit_python_is_an_error(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "OLDEST", (4, 0))
    monkeypatch.setattr(bootstrap, "NEWEST", (4, 0))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(bootstrap.Failed, match=r"this is Python 3\.\d+, and tidegate needs 4\.0"):
        bootstrap.use_fitting_python()


def test_python_without_venv_names_the_package(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(bootstrap.Failed, match=r"apt install python3\.\d+-venv"):
        bootstrap.make_venv()


def test_every_makefile_target_has_help() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):(?!=)(.*)$", text, re.MULTILINE)
    assert targets
    assert not [name for name, rest in targets if "## " not in rest]


@pytest.mark.parametrize("path", sorted(ROOT.glob("requirements*.lock")), ids=lambda path: path.name)
def test_every_locked_package_has_a_hash(path: Path) -> None:
    entries = re.split(r"\n(?=\S)", path.read_text().strip())
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries if "==" in entry.split("\n")[0])


def test_setup_continues_without_a_class_archive(
    bootstrap: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    tries = bootstrap.VENV / "tries"
    bootstrap.PYTHON.write_text(
        f"#!/bin/sh\n[ $2 = tidegate.spark.java ] && echo path && exit\necho x >> {tries}\n"
        "echo no sharing here\nexit 1\n"
    )
    bootstrap.PYTHON.chmod(0o755)
    bootstrap.archive_classes()
    bootstrap.archive_classes()
    assert "Archiving Spark's classes, for quick starts failed: no sharing here" in capsys.readouterr().out
    assert tries.read_text() == "x\n"
