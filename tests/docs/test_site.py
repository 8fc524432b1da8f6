"""The documentation as a site: no link is broken, nothing is fetched, no command and no key is left out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import markdown
import pytest
from scripts.reference import commands_page, pages, pipeline_page, settings_page
from scripts.site_hooks import mended

from tidegate.cli import cli
from tidegate.settings import VARIABLES
from tidegate.yaml.grammar import EXAMPLES

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]


def build(project: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "include")}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    result = build(ROOT, folder)
    assert result.returncode == 0, result.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "README.md"]
    assert len(pages) > 40
    built = [site / path.relative_to(ROOT / "docs").with_suffix(".html") for path in pages]
    assert [path for path in built if not path.is_file()] == []
    assert (site / "decisions" / "index.html").is_file()


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="([^"]*)"', page.read_text())
        assert [address for address in fetched if re.match(r"(\w+:)?//", address)] == []


BROKEN = {
    "[x](nowhere.md)": "nowhere.md",
    "[x](emit.md#no-such-part)": "no-such-part",
    "[x](../include/nothing.py)": "../include/nothing.py leads to no file",
}


def test_broken_links_fail_the_build(tmp_path: Path) -> None:
    for folder in ("docs", "scripts", "benchmarks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for file in ("mkdocs.yml", "CHANGELOG.md"):
        shutil.copy(ROOT / file, tmp_path)
    for folder in ("include", "plugins", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    with (tmp_path / "docs" / "scale.md").open("a") as page:
        page.write("\n" + "\n\n".join(BROKEN) + "\n")
    result = build(tmp_path, tmp_path / "site")
    assert result.returncode != 0
    assert [complaint for complaint in BROKEN.values() if complaint not in result.stderr] == []
    assert f"Aborted with {len(BROKEN)} warnings" in result.stdout + result.stderr


def test_outside_links_become_pages_or_paths() -> None:
    text = (
        "[changes](../../CHANGELOG.md#unreleased), [why](../hazards.md), [code](../../include/tidegate/cli)"
    )
    assert mended(text, "decisions/x.md", "docs/decisions/x.md") == (
        "[changes](../changes.md#unreleased), [why](../hazards.md), code (`include/tidegate/cli`)"
    )


def test_escaped_pipe_in_code_is_shown_plain() -> None:
    assert mended("| `a \\| b` | ``c `d \\| e` `` |", "x.md", "docs/x.md") == "| `a | b` | ``c `d | e` `` |"


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield f"{path} {name}", subcommand
            yield from commands(subcommand, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), list(commands(cli, "tidegate")))
def test_reference_has_each_command_and_option(path: str, command: click.Command) -> None:
    (part,) = re.findall(rf"^#+ {path}\n(.*?)(?=^#|\Z)", commands_page(), re.DOTALL | re.MULTILINE)
    assert command.help
    assert command.help.split()[0] in part
    for option in command.params:
        if isinstance(option, click.Option):
            assert re.search(rf"^\| `[^`]*{option.opts[0]}\b[^`]*` \| \S", part, re.MULTILINE), option.opts


def test_reference_has_each_key_of_the_grammar() -> None:
    page = pipeline_page()
    for path in EXAMPLES:
        names = [name for name in path.split(".") if name != "*"]
        if not path.endswith("*"):
            heading = f"## {'.'.join(names[:-1])} " if names[:-1] else "## At the top"
            part = page.partition(heading)[2].partition("\n## ")[0]
            assert f"| `{names[-1]}` |" in part, path


@pytest.mark.parametrize("path", pages())
def test_committed_reference_is_current(path: str) -> None:
    assert (ROOT / "docs" / path).read_text() == pages()[path], "run `make reference`, and commit the result"


PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_line_renders_as_row(page: Path) -> None:
    html = markdown.markdown(
        mended(page.read_text(), "x.md", "docs/x.md"), extensions=["tables", "pymdownx.superfences"]
    )
    text = re.sub(r"<(code|pre)\b.*?</\1>", "", html, flags=re.DOTALL)
    paragraphs = re.findall(r"<p>(.*?)</p>", text, re.DOTALL)
    lines = [line.strip() for paragraph in paragraphs for line in paragraph.split("\n")]
    assert [line for line in lines if line.startswith("|") or line.endswith("|")] == []


def test_each_variable_is_in_the_reference() -> None:
    assert [variable.name for variable in VARIABLES if f"| `{variable.name}` |" not in settings_page()] == []


def test_batch_picture_has_the_words_of_its_source() -> None:
    pictures = ROOT / "docs" / "pictures"
    labels = re.findall(r": (.+)$", (pictures / "batch.mmd").read_text(), re.MULTILINE)
    assert len(labels) > 15
    shown = " ".join(re.sub(r"<[^>]+>", " ", (pictures / "batch.svg").read_text()).split())
    assert [label for label in labels if label not in shown] == []
