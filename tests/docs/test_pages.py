"""The pages about the pipeline file: examples work; no field and no column of a SQL table is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.storage.files_for_tests import row
from tests.storage.tables_for_tests import (
    catch_up,
    change_of,
    duck,
    newest_rows_sql,
    scan,
    shared_table,
    written,
)
from tidegate.cli import cli
from tidegate.sinks.sql.layout import Target
from tidegate.storage.store import Store
from tidegate.yaml.grammar import EXAMPLES
from tidegate.yaml.load import parse_case_pipeline, parse_pipeline
from tidegate.yaml.tree import read

DOCS = Path(__file__).resolve().parents[2] / "docs"
EMIT, SINKS, STORAGE = ((DOCS / f"{name}.md").read_text() for name in ("emit", "sinks", "storage"))
PIPELINE_FILE = (DOCS / "pipeline-file.md").read_text()
PAGES = (
    *(
        "pipeline-file",
        "source",
        "json-and-csv",
        "debezium",
        "formats",
        "keys-and-columns",
        "emit",
        "windows",
        "retraction",
        "joins",
        "aggregates",
    ),
    *(
        "lookups",
        "sinks",
        "messages",
        "http",
        "iceberg",
        "clickhouse",
        "cloudevents",
        "quality",
        "quarantine",
        "airflow",
        "assets",
        "generations",
    ),
)
"""The pages that say what a field of the pipeline file means."""
EXAMPLES_OF_PAGES = {
    f"{page.stem}-{number}": cases
    for page in sorted(DOCS.glob("*.md"))
    for number, cases in enumerate(
        re.findall(r"^```yaml\n(cases:.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    )
}
"""Page, with a number -> a case file in it."""
SOURCE = {"topics": ["in"], "format": "json", "columns": "price double, weight double, updatedAt bigint"}


def test_the_full_pipeline_has_no_mistakes() -> None:
    (text,) = re.findall(r"^```yaml\n(pipeline: .*?)^```$", PIPELINE_FILE, flags=re.DOTALL | re.MULTILINE)
    assert [stage.name for stage in parse_pipeline(text, "page.yaml").stages] == ["revenue", "regions"]


def test_the_pipeline_of_the_readme_has_no_mistakes() -> None:
    readme = (DOCS.parent / "README.md").read_text()
    (text,) = re.findall(r"^```yaml\n(pipeline: .*?)^```$", readme, flags=re.DOTALL | re.MULTILINE)
    assert parse_pipeline(text, "page.yaml").stages[0].name == "availability"


@pytest.mark.parametrize("path", [path for path in EXAMPLES if not path.endswith("*")])
def test_a_page_has_every_field(path: str) -> None:
    name = path.rpartition(".")[2]
    assert any(re.search(rf"\b{name}:", (DOCS / f"{page}.md").read_text()) for page in PAGES)


def _written(start: str) -> list[str]:
    """Return the texts in backticks that begin a table's row and begin with `start`."""
    cells = re.findall(r"^\| (`.*?) \|", EMIT, flags=re.MULTILINE)
    return [match for cell in cells for match in re.findall(r"`(.*?)`", cell) if match.startswith(start)]


def test_every_emit_strategy_of_the_page_exists() -> None:
    ways = _written("{on: ")
    assert len(ways) == 7
    for way in ways:
        window = ", window: {tumbling: 1h}" if "window_close" in way else ""
        _parse(f"{{name: out, emit: {way}{window}}}")


def test_every_change_option_of_the_page_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    starts = ("columns: [price]", "ignore:", "equal:", "state:", "heartbeat:", "at_most_every:")
    options = [option for start in starts for option in _written(start)]
    assert len(options) == 10
    for option in options:
        _parse(f"{{name: out, emit: {{on: change, {option}}}}}")


def _parse(stage: str) -> None:
    """Raises PipelineInvalid when the stage is not one."""
    written = read(f"stages: [{stage}]", "page.yaml").data["stages"]
    parse_case_pipeline({"pipeline": "p", "source": SOURCE, "stages": written}, "page.yaml")


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_the_page_has_every_sql_column(mode: str) -> None:
    columns = Target("t", mode, with_key=True, windowed=True).own_columns
    assert [name for name in columns if f"`{name}`" not in SINKS] == []


@pytest.mark.parametrize("by_place", [False, True])
def test_page_view_gives_newest_live_rows(tmp_path: Path, by_place: bool) -> None:
    table = shared_table(Store(str(tmp_path)))
    changes = [
        [row(1, 1), {**row(1, 1), "partition": 1}, row(2, 1), row(3, 1, window=0), row(3, 1, window=10)],
        [row(1, 2), row(2, 2, live=False), row(3, 2, window=10)],
    ]
    catch_up(table, [change_of(n, written(table, f"a{n}", rows)) for n, rows in enumerate(changes, start=1)])
    columns = "hash, window_start, updated_seq"
    (view,) = re.findall(
        r"^```sql\n(CREATE VIEW availability AS\n.*?)^```$", STORAGE, re.DOTALL | re.MULTILINE
    )
    view = _replaced(view, "delta_scan('…/availability/g1/availability/state')", scan(table))
    if by_place:
        assert 'add `"topic", "partition"` to what it is partitioned by' in STORAGE
        view = _replaced(view, " ORDER BY", ', "topic", "partition" ORDER BY')
    in_two_partitions = [(1, None, 1)] if by_place else []
    expected = [*in_two_partitions, (1, None, 2), (3, 0, 1), (3, 10, 2)]
    by_tidegate = f"SELECT {columns} FROM ({newest_rows_sql(scan(table), by_place)})"
    for query in (f"{view}; SELECT {columns} FROM availability", by_tidegate):
        assert sorted(duck(query), key=str) == expected


def _replaced(text: str, before: str, after: str) -> str:
    assert text.count(before) == 1
    return text.replace(before, after)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_examples_of_the_pages_pass(tmp_path: Path) -> None:
    for page, cases in EXAMPLES_OF_PAGES.items():
        (tmp_path / f"{page}.yaml").write_text(cases)
    assert len(EXAMPLES_OF_PAGES) > 6
    environment = {"TIDEGATE_HOME": str(tmp_path / "home"), "TIDEGATE_SPARK_MASTER": "local[2]"}
    result = CliRunner().invoke(cli, ["test", str(tmp_path)], env=environment)
    assert result.exit_code == 0, result.output
