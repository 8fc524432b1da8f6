"""The JVM of a Spark driver starts from an archive of classes, if one was made for that Java; its compilers
depend on the batch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.spark import java as java_module
from tidegate.spark.java import (
    FEW_RECORDS,
    FIRST_COMPILER,
    archive_options,
    archive_path,
    driver_options,
    find_java,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program, and a prefix without archives."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    program = tmp_path / "java"
    program.write_text("")
    return program


def test_without_an_archive_the_jvm_gets_no_options(java: Path) -> None:
    assert archive_options(java) == []
    assert archive_options(None) == []


def test_an_archive_is_for_one_java_only(java: Path) -> None:
    archive = archive_path(java)
    archive.parent.mkdir(parents=True)
    archive.write_text("")
    assert archive_options(java)[0] == f"-XX:SharedArchiveFile={archive}"
    other = java.with_name("other")
    other.write_text("")
    assert archive_options(other) == []


def test_a_java_that_was_replaced_needs_another_archive(java: Path) -> None:
    before = archive_path(java)
    java.unlink()
    java.write_text("newer")
    assert archive_path(java) != before


def test_jars_that_were_replaced_need_another_archive(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = java.with_name("spark-core.jar")
    jar.write_text("")
    monkeypatch.setattr(java_module, "_spark_jar", lambda: jar)
    before = archive_path(java)
    os.utime(jar, (0, 0))
    assert archive_path(java) != before


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what the JVM has mapped")
def test_session_jvm_maps_the_class_archive(spark: SparkSession) -> None:
    archive = archive_path(find_java())
    assert archive.is_file(), "setup makes it: python -m tidegate.spark.training"
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    process = gateway.jvm.java.lang.ProcessHandle.current().pid()
    assert str(archive) in Path(f"/proc/{process}/maps").read_text()


def test_small_batch_uses_only_the_first_compiler() -> None:
    assert driver_options(None, FEW_RECORDS) == [*FIRST_COMPILER]
    assert driver_options(None, FEW_RECORDS + 1) == []


def test_large_batch_driver_has_both_compilers() -> None:
    assert driver_options(None) == []
