"""What the lock promises, and what happens when a jar is not what was promised."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tidegate.errors import SetupFailed
from tidegate.spark.java import find_java, probe
from tidegate_dev import jars as module
from tidegate_dev.jars import BROKER, ensure_jars, find_jars, locked_jars, verify
from tidegate_dev.truststore import write_truststore


def test_lock_has_exactly_the_broker_jars() -> None:
    lines = [line for line in module.LOCK.read_text().splitlines() if not line.startswith("#")]
    assert len(locked_jars(BROKER)) == len(lines) == 46


def test_every_lock_line_has_checksum_and_file() -> None:
    jars = locked_jars(BROKER)
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) and jar.size_bytes > 0 for jar in jars)
    assert len({jar.file_name for jar in jars}) == len(jars)


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(SetupFailed, match="'nothing'"):
        locked_jars("nothing")


def test_every_jar_is_the_one_that_is_locked(module_home: Path) -> None:
    for jar, path in zip(locked_jars(BROKER), find_jars(BROKER, module_home), strict=True):
        verify(jar, path)


def test_a_corrupted_jar_is_refused(module_home: Path, tmp_path: Path) -> None:
    jar, path = locked_jars(BROKER)[0], find_jars(BROKER, module_home)[0]
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    with copy.open("r+b") as file:
        file.seek(100)
        file.write(b"tampered")
    with pytest.raises(SetupFailed, match=r"has checksum .* is locked"):
        verify(jar, copy)


def test_missing_jars_name_the_command_that_fetches_them(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match=r"46 of 46 broker jars are missing.*make setup"):
        find_jars(BROKER, tmp_path)


def test_a_jar_cut_short_counts_as_missing(module_home: Path, tmp_path: Path) -> None:
    shutil.copytree(module_home / "jars" / BROKER, tmp_path / "jars" / BROKER)
    find_jars(BROKER, tmp_path)[0].write_bytes(b"")
    with pytest.raises(SetupFailed, match="1 of 46"):
        find_jars(BROKER, tmp_path)


def test_when_all_are_there_no_java_is_started(module_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_java", lambda: pytest.fail("started Java"))
    assert len(ensure_jars(BROKER, module_home)) == 46


def test_a_download_with_a_wrong_checksum_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def retrieve(jars: list[module.LockedJar], scratch: Path) -> None:
        for jar in jars:
            (scratch / jar.file_name).write_bytes(b"something else")

    monkeypatch.setattr(module, "_retrieve", retrieve)
    with pytest.raises(SetupFailed, match="has checksum"):
        ensure_jars(BROKER, tmp_path)
    assert not list(tmp_path.rglob("*.jar"))


def test_a_failed_download_says_why_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = ":::: ERRORS\n\tHttpClientHandler: UnknownHostException: nowhere url=x\n\n:: USE VERBOSE"
    monkeypatch.setattr(module, "_run_ivy", lambda *_: report)
    with pytest.raises(SetupFailed) as caught:
        ensure_jars(BROKER, tmp_path)
    assert str(caught.value) == (
        "Downloading 46 jars failed: UnknownHostException: nowhere. "
        "Check the network, then run the command again."
    )


@pytest.mark.process
def test_java_can_read_the_trust_store(tmp_path: Path) -> None:
    runtime = probe(find_java())
    assert runtime is not None
    keytool = runtime.home / "bin" / "keytool"
    store = tmp_path / "authorities.jks"
    if not write_truststore(store) or not os.access(keytool, os.X_OK):
        pytest.skip("this machine has no authorities, or no keytool to read them with")
    done = subprocess.run(
        [keytool, "-list", "-keystore", store, "-storetype", "JKS", "-storepass", "changeit"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("trustedCertEntry") > 1, done.stdout
