"""docs/guide.md: its pipeline is one, and it leaves out no field of the grammar, no column of a SQL table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.storage.files_for_tests import row
from tests.storage.tables_for_tests import catch_up, change_of, duck, scan, shared_table, written
from tidegate.sinks.sql.layout import Target
from tidegate.spec import parse_case_pipeline, parse_pipeline
from tidegate.spec.grammar import EXAMPLES
from tidegate.spec.tree import read
from tidegate.storage.store import Store
from tidegate.storage.tables import newest_rows_sql

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guide.md").read_text()
SOURCE = {"topics": ["in"], "format": "json", "columns": "price double, weight double, updatedAt bigint"}


def test_the_pipeline_of_the_guide_is_without_mistakes() -> None:
    (text,) = re.findall(r"^```yaml\n(pipeline: .*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert [stage.name for stage in parse_pipeline(text, "guide.yaml").stages] == ["revenue", "regions"]


@pytest.mark.parametrize("path", [path for path in EXAMPLES if not path.endswith("*")])
def test_every_field_is_in_the_guide(path: str) -> None:
    name = path.rpartition(".")[2]
    assert re.search(rf"\b{name}:", PAGE)


def _written(start: str) -> list[str]:
    """Return the texts in backticks that begin a table's row and begin with `start`."""
    cells = re.findall(r"^\| (`.*?) \|", PAGE, flags=re.MULTILINE)
    return [match for cell in cells for match in re.findall(r"`(.*?)`", cell) if match.startswith(start)]


def test_every_emit_strategy_of_the_guide_exists() -> None:
    ways = _written("{on: ")
    assert len(ways) == 6
    for way in ways:
        window = ", window: {tumbling: 1h}" if "window_close" in way else ""
        _parse(f"{{name: out, emit: {way}{window}}}")


def test_every_change_option_of_the_guide_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    starts = ("columns: [price]", "ignore:", "equal:", "state:", "heartbeat:")
    options = [option for start in starts for option in _written(start)]
    assert len(options) == 9
    for option in options:
        _parse(f"{{name: out, emit: {{on: change, {option}}}}}")


def _parse(stage: str) -> None:
    """Raises PipelineInvalid when the stage is not one."""
    written = read(f"stages: [{stage}]", "guide.yaml").data["stages"]
    parse_case_pipeline({"pipeline": "p", "source": SOURCE, "stages": written}, "guide.yaml")


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_every_sql_column_is_in_the_guide(mode: str) -> None:
    columns = Target("t", mode, with_key=True, windowed=True).own_columns
    assert [name for name in columns if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("by_place", [False, True])
def test_guide_view_gives_newest_live_rows(tmp_path: Path, by_place: bool) -> None:
    table = shared_table(Store(str(tmp_path)))
    changes = [
        [row(1, 1), {**row(1, 1), "partition": 1}, row(2, 1), row(3, 1, window=0), row(3, 1, window=10)],
        [row(1, 2), row(2, 2, live=False), row(3, 2, window=10)],
    ]
    catch_up(table, [change_of(n, written(table, f"a{n}", rows)) for n, rows in enumerate(changes, start=1)])
    columns = "hash, window_start, updated_seq"
    (view,) = re.findall(r"^```sql\n(CREATE VIEW availability AS\n.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    view = _replaced(view, "delta_scan('…/availability/g1/availability/state')", scan(table))
    if by_place:
        assert 'add `"topic", "partition"` to what it is partitioned by' in PAGE
        view = _replaced(view, " ORDER BY", ', "topic", "partition" ORDER BY')
    in_two_partitions = [(1, None, 1)] if by_place else []
    expected = [*in_two_partitions, (1, None, 2), (3, 0, 1), (3, 10, 2)]
    by_tidegate = f"SELECT {columns} FROM ({newest_rows_sql(scan(table), by_place)})"
    for query in (f"{view}; SELECT {columns} FROM availability", by_tidegate):
        assert sorted(duck(query), key=str) == expected


def _replaced(text: str, before: str, after: str) -> str:
    assert text.count(before) == 1
    return text.replace(before, after)
