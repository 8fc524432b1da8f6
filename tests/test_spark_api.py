"""The engine uses only what sessions of Spark Connect have, too, and keeps no frame between jobs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.test_imports import PACKAGE, REPOSITORY, modules

OF_THE_JVM = {
    *("sparkContext", "_sc", "_jvm", "_jsc", "_jdf", "_jsparkSession", "_gateway", "newSession"),
    *("rdd", "cache", "persist", "checkpoint", "localCheckpoint", "toJavaRDD"),
}
PARTS = ("spark", "app", "batch", "maintenance", "inspect", "cli")
ALLOWED = {
    PACKAGE
    / "spark"
    / "training.py": "a program at setup: it ends a JVM of its own, so that this writes its classes",
    PACKAGE / "spark" / "driver.py": "it starts a driver's JVM, and opens its first session",
}
PATHS = [path for part in PARTS for path in modules(PACKAGE / part)] + modules(REPOSITORY / "spark_jobs")


def uses(source: str) -> list[str]:
    """Attributes that a session or a frame has only in the JVM's own process, or that keep a frame."""
    nodes = ast.walk(ast.parse(source))
    return [node.attr for node in nodes if isinstance(node, ast.Attribute) and node.attr in OF_THE_JVM]


# parsed when tests are collected: see `test_imports.IMPORTS`
USES = {path: uses(path.read_text()) for path in PATHS}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_spark_api_exists_in_server_sessions(path: Path) -> None:
    assert (USES[path] == []) == (path not in ALLOWED)


@pytest.mark.parametrize(
    "source",
    ["spark.sparkContext.x", "frame.rdd.map(f)", "spark._jvm", "frame.cache()", "f(frame.persist())"],
)
def test_such_a_use_is_seen(source: str) -> None:
    assert len(uses(source)) == 1
