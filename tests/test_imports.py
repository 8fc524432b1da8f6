"""Imports go one way (docs/architecture.md); another way fails the build."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.sinks import KINDS

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "include" / "tidegate"

# A part may import those of lower layers, and itself. Parts of one layer do not know each other.
LAYERS = [
    {"imports"},
    {
        "batch_counts",
        "clock",
        "database_url",
        "errors",
        "failpoints",
        "garbage",
        "numerals",
        "postgres",
        "redaction",
        "signals",
        "spark_token",
        "stage_names",
    },
    {"extras"},
    {"expressions"},
    {"kernel"},
    {"formats"},
    {"model"},
    {"yaml"},
    {"ledger", "kafka", "storage"},
    {"settings", "iceberg"},
    {"spark", "sinks", "quality", "scaffold", "ksql"},
    {"app"},
    {"maintenance"},  # below the batches: one compacts what nobody has compacted for long
    {"batch"},
    {"inspect", "generations", "quarantine", "shadow"},
    {"console", "erasure", "recovery"},
    {"cli"},
]
LAYER_OF = {part: number for number, parts in enumerate(LAYERS) for part in parts}


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "migrations" not in path.parts)


def parsed_imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# Parsed when tests are collected: what Spark leaves behind ends whenever Python collects garbage, and where
# that prints a traceback in the middle of a parse, CPython 3.11 fails ("recursion depth mismatch").
IMPORTS = {
    path: tuple(parsed_imports(path)) for path in modules(PACKAGE) + modules(REPOSITORY / "spark_jobs")
}


# The kinds and models of sinks are in the layer of the pipeline's model, which contains them.
SINK_MODELS = re.compile(r"tidegate\.sinks(\.KINDS|(\.\w+)?\.(model|registry)(\.\w+)?)?")


def part_of(module: str) -> str:
    """The part of a module, or of a name in it."""
    return "model" if SINK_MODELS.fullmatch(module) else module.split(".")[1]


@pytest.mark.parametrize("path", modules(PACKAGE), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_lower_layers(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return  # the public face hands on from wherever it is
    own_layer = part_of(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    for name in IMPORTS[path]:
        if name.startswith("tidegate.") and part_of(name) in LAYER_OF:
            theirs = part_of(name)
            assert theirs == own_layer or LAYER_OF[theirs] < LAYER_OF[own_layer], (
                f"{own_layer} imports {name}"
            )


def test_no_other_part_imports_sink_kinds() -> None:
    sinks = PACKAGE / "sinks"
    kinds = {folder.name for folder in sinks.iterdir() if (folder / "__init__.py").exists()}
    assert kinds == set(KINDS)
    for path in modules(PACKAGE):
        own = path.relative_to(sinks).parts[0] if path.is_relative_to(sinks) else ""
        other_kinds = {f"tidegate.sinks.{kind}" for kind in kinds - {own}}
        imported = {".".join(name.split(".")[:3]) for name in IMPORTS[path]}
        assert not imported & other_kinds, path


def test_nobody_asks_for_the_kind_of_a_sink() -> None:
    for path in modules(PACKAGE) + modules(REPOSITORY / "plugins"):
        assert not re.search(r"isinstance\(.*Sink\b", path.read_text()), path


def test_every_part_of_the_package_has_a_layer() -> None:
    parts = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in modules(PACKAGE)}
    assert parts - {"__init__"} == set(LAYER_OF)


def test_the_core_is_pure() -> None:
    """Standard library, pyarrow, numpy, xxhash and sketches; no clock, no files, no network, no Spark."""
    allowed = {"tidegate", "pyarrow", "__future__", "collections", "contextlib", "dataclasses", "datetime"}
    allowed |= {
        "base64",
        "bisect",
        "copy",
        "datasketches",
        "decimal",
        "functools",
        "gc",
        "hashlib",
        "heapq",
        "importlib",
        "itertools",
        "json",
        "math",
        "operator",
    }
    allowed |= {"numpy", "re", "struct", "typing", "uuid", "xxhash"}
    for path in modules(PACKAGE / "kernel") + modules(PACKAGE / "expressions"):
        assert {name.split(".")[0] for name in IMPORTS[path]} <= allowed, path


def test_the_engine_knows_nothing_of_airflow() -> None:
    for path in modules(PACKAGE):
        assert not any(name.split(".")[0] == "airflow" for name in IMPORTS[path]), path


def test_lower_layers_never_import_plugins() -> None:
    for path in modules(PACKAGE) + modules(REPOSITORY / "spark_jobs"):
        names = {name.split(".")[0] for name in IMPORTS[path]}
        assert not names & {"tidegate_airflow", "dags", "plugins"}, path


def test_the_product_imports_nothing_of_tidegate_dev() -> None:
    for folder in (PACKAGE, REPOSITORY / "plugins", REPOSITORY / "spark_jobs", REPOSITORY / "dags"):
        for path in modules(folder):
            assert "tidegate_dev" not in path.read_text(), path


@pytest.mark.parametrize("path", modules(REPOSITORY / "spark_jobs"), ids=lambda path: path.name)
def test_a_spark_job_is_at_most_60_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60
