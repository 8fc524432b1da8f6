"""The page about ksqlDB lists the functions that have an equivalent, and its example is real."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import cli
from tidegate.ksql.functions import FUNCTIONS
from tidegate.ksql.grouping import AGGREGATES

PAGE = Path(__file__).parents[2] / "docs" / "import-ksql.md"


def listed(names: object) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))  # type: ignore[call-overload]


def between(mark: str) -> str:
    _, _, rest = PAGE.read_text().partition(f"<!-- {mark}: begin -->\n")
    return rest.partition(f"\n<!-- {mark}: end -->")[0]


def test_page_lists_all_functions_and_aggregates() -> None:
    assert between("functions") == listed(FUNCTIONS)
    assert between("aggregates") == listed(AGGREGATES)


def test_example_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text()
    statements = text.partition("```sql\n")[2].partition("```")[0]
    printed = text.partition("```text\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.sql").write_text(statements)
    result = CliRunner().invoke(cli, ["import", "ksql", "shop.sql", "--to", "pipelines"])
    assert result.exit_code == 2
    assert result.output == printed
